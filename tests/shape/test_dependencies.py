"""Tests that the distribution requires the packages that its code imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.shape.sources import ROOT, nodes
from windrow.ingest.errors import how_to_install

DEMO = ROOT / "assets" / "demo"
"""The demo, which is in no wheel. It may import the packages of developers."""
OURS = {"windrow"}
FOLDERS = ("assets", "ingest", "resources")


def imports_of(path: Path) -> set[str]:
    """Returns the top-level names that a module imports, also in functions."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_everything_imported_is_asked_for() -> None:
    """Each package that a module imports is a requirement of the distribution.

    A package that only another package or a developer requires may be missing elsewhere.
    """
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    requirements = [
        *project["dependencies"],
        *(
            requirement
            for extra in project["optional-dependencies"].values()
            for requirement in extra
        ),
    ]
    distributions = {
        re.split(r"[\[<>=!~ ]", requirement)[0].lower().replace("_", "-")
        for requirement in requirements
    }
    for_developers = {
        re.split(r"[\[<>=!~ ]", requirement)[0].lower().replace("_", "-")
        for requirement in pyproject["dependency-groups"]["dev"]
    }
    providers = packages_distributions()
    missing = {
        (str(path.relative_to(ROOT)), name)
        for ours in FOLDERS
        for path in (ROOT / ours).rglob("*.py")
        for name in imports_of(path) - OURS - set(sys.stdlib_module_names)
        if not (distributions | (for_developers if path.is_relative_to(DEMO) else set()))
        # the distribution of an extra that isn't installed has the module's name
        & {dist.lower().replace("_", "-") for dist in providers.get(name, [name])}
    }
    assert missing == set()


EXTRA = re.compile(r"\b(windrow[a-z-]*)\[(\w+)\]")
"""A distribution with an extra, as messages and pages write it."""


def test_extras_are_named_by_the_distribution() -> None:
    """Each extra that a message or a page names is an extra of this distribution.

    The package index has another project's package with the name windrow.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known_extras = {(project["name"], extra) for extra in project["optional-dependencies"]}
    extra_pattern = re.compile(r"\b(?:how_to_install|needing)\(\"(\w+)\"")
    named = {
        (str(path.relative_to(ROOT)), *extra)
        for path in [
            *(
                path
                for folder in (*FOLDERS, "docs", "deploy")
                for path in (ROOT / folder).rglob("*")
            ),
            *ROOT.glob("*.md"),
        ]
        if path.suffix in {".py", ".md", ".yaml", ".yml"}
        for text in [path.read_text(encoding="utf-8")]
        for extra in [
            *EXTRA.findall(text),
            *((project["name"], extra) for extra in extra_pattern.findall(text)),
        ]
    }
    assert {mention for mention in named if mention[1:] not in known_extras} == set()
    assert {extra for _, _, extra in named} == set(project["optional-dependencies"])


def test_the_page_has_every_extra() -> None:
    """The table of docs/install.md has each extra once."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == sorted(
        project["optional-dependencies"]
    )


def test_the_page_has_the_versions() -> None:
    """The versions in docs/install.md are the distribution's requirements."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = ["python" + project["requires-python"], *project["dependencies"]]
    rows = re.findall(r"^\| ([a-z]+) \| `([^`]+)` \|$", page, re.MULTILINE)
    assert {"python", "dagster", "pyspark", "polars", "pyarrow", "duckdb"} <= set(dict(rows))
    assert {"".join(row) for row in rows} <= set(requirements)


def test_the_advice_to_install_an_extra_works() -> None:
    """A message's command that installs an extra works where windrow is installed.

    pip takes the installed windrow and asks no package index, so windrow may be in none.
    """
    advice = how_to_install("postgres").rpartition("pip ")[2].replace("'", "").split()
    done = subprocess.run(
        [sys.executable, "-m", "pip", *advice, "--no-index", "--dry-run", "--no-deps"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "already satisfied: windrow-ingest[postgres]" in done.stdout
    assert "does not provide the extra" not in done.stdout + done.stderr
