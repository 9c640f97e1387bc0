"""Tests that the project's documents, CI, make targets and locks agree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

from tests.assets.test_demo import COMMAND
from tests.shape.readme import README, blocks, project_paths
from windrow.ingest import errors
from windrow.ingest.cli.main import app
from windrow.ingest.cli.output import BUG, INTERRUPTED
from windrow.ingest.config.load import load_spec

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "requirements.lock", ROOT / "airflow" / "requirements.lock"]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def recipe(target: str) -> str:
    """Returns the commands that make would run for a target, also if make runs the tests."""
    make = shutil.which("make")
    assert make is not None
    command = [make, "--dry-run", "--no-print-directory", target]
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    return subprocess.run(
        command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def project_files() -> list[Path]:
    """Returns the project's files."""
    return [path for path in project_paths() if path.is_file()]


def test_readme_is_short_and_names_commands_that_there_are() -> None:
    """The README has at most 120 lines, and its make targets exist, `make demo` and
    `make test` too.
    """
    assert len(README.splitlines()) <= 120
    named = set(re.findall(r"`make ([a-z-]+)", README))
    assert {"demo", "test"} <= named
    for target in sorted(named):
        assert recipe(target)


def test_the_page_shows_a_spec_that_loads(tmp_path: Path) -> None:
    """The spec in docs/pipeline.md loads."""
    (text,) = blocks("yaml", (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8"))
    shutil.copy(ROOT / "assets" / "defs" / "orders" / "schema.py", tmp_path)
    (tmp_path / "defs.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(tmp_path / "defs.yaml")
    assert (spec.id, spec.source.topic, spec.window.grid) == ("orders", "shop.orders", "hourly")


def test_every_command_is_told() -> None:
    """The table of docs/operations.md has each command of windrow once."""
    named = re.findall(r"^\| `windrow ([a-z]+)", OPERATIONS, re.MULTILINE)
    assert sorted(named) == sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_every_exit_code_is_told() -> None:
    """The table of docs/operations.md has each exit code of errors, of success, a bug
    and Ctrl-C.
    """
    named = {int(code) for code in re.findall(r"^\| ([0-9]+) \|", OPERATIONS, re.MULTILINE)}
    assert named == {0, BUG, INTERRUPTED} | {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.WindrowError)
    }


def test_ci_runs_make_test_and_nothing_else() -> None:
    """CI runs `make test` and nothing else.

    The variable CI only tells the tests that they may not be skipped.
    """
    script = re.sub(
        r"^#.*", "", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert re.findall(r"\b(?:make|pytest|python)\b.*", script) == ["make test </dev/null"]
    assert "export CI=true" in script


@pytest.mark.parametrize(("target", "more"), [("test", {"--short", "--seed"}), ("test-all", set())])
def test_make_test_checks_all(target: str, more: set[str]) -> None:
    """`make test` checks style, format, types and layers, then runs the tests.

    Only `--short` leaves tests out. With it, the commit is the seed.
    """
    commands = recipe(target)
    for tool in (
        ".ci/setup",
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "lint-imports",
        "python -m pytest",
    ):
        assert tool in commands
    _, pytest_command, options = commands.strip().splitlines()[-1].partition("python -m pytest ")
    assert pytest_command
    assert {option.partition("=")[0] for option in shlex.split(options)} == {
        "--numprocesses",
        "--durations",
    } | more


def test_make_clean_takes_the_demos_variables_too() -> None:
    """`make clean` removes the demo's variables, so no command uses a broker that is gone."""
    assert (
        "python -m windrow.assets.demo forget"
        in (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nclean:")[2]
    )


def test_the_demo_is_among_the_tests() -> None:
    """`make demo` ends with the command that the demo's tests run."""
    assert recipe("demo").strip().splitlines()[-1].strip().endswith(f" {COMMAND}")


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_lock_names_no_place(lock: Path) -> None:
    """A lock has no index, no address and no path, because readers configure their own."""
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host| @ ", text)


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_lock_has_a_hash_for_everything(lock: Path) -> None:
    """Each requirement in a lock has a version and hashes."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 50
    assert [
        entry.split("\n")[0]
        for entry in entries
        if "==" not in entry or "--hash=sha256:" not in entry
    ] == []


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_lock_fits_the_project(lock: Path) -> None:
    """A lock has each requirement of its pyproject.toml, with a version in its range.

    `make lock` updates the locks after a change.
    """
    pinned = {
        canonicalize_name(name): version
        for name, version in re.findall(
            r"^([\w.-]+)==([^ ]+)", lock.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    pyproject = tomllib.loads((lock.parent / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    requirements = [
        Requirement(line)
        for group in (
            project["dependencies"],
            *project.get("optional-dependencies", {}).values(),
            *pyproject["dependency-groups"].values(),
        )
        for line in group
    ]
    assert [
        str(r)
        for r in requirements
        if not r.specifier.contains(pinned.get(canonicalize_name(r.name), "0"), prereleases=True)
    ] == []


def test_no_file_names_a_registry() -> None:
    """No file of the project has the host of a package registry."""
    hosts = [
        ".".join(parts)
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("repo", "maven", "apache", "org"),
            ("repo1", "maven", "org"),
        )
    ]
    mentions = {
        f"{path.relative_to(ROOT)}: {host}"
        for path in project_files()
        for host in hosts
        if host in path.read_text(encoding="utf-8", errors="replace")
    }
    assert mentions == set()
