"""Tests of the test suite: seeds, long tests, time limits and rules for test modules."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings

from tests import soak
from tests.plugin import COSTLY
from tests.shape.sources import modules, nodes

ROOT = Path(__file__).parents[2]

FAILING = """
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", ["a b@c"])
def test_fails(name, dice):
    assert False, f"drew {dice.random()}"


@given(st.integers())
def test_property(number):
    assert number < 1000


@pytest.mark.sampled(1, of=3)
def test_parts(part, dice):
    print("part", part)
    assert part is None


@pytest.fixture
def SPARK():
    return None


def test_hangs():
    threading.Event().wait()


def test_skips():
    pytest.skip("no time")


@pytest.mark.usefixtures("SPARK")
@pytest.mark.parametrize("number", range(3))
def test_on_spark(number, worker_id):
    assert False, f"on {worker_id}"


@pytest.mark.long
def test_of_the_long_run():
    assert False


@pytest.mark.some(1)
@pytest.mark.parametrize("case", ["this", "that", "other"])
class TestCases:
    def test_cases(self, case):
        assert False

    def test_more_cases(self, case):
        assert False


@pytest.mark.some(1, of="tests")
class TestShared:
    def test_this(self):
        assert False

    def test_that(self):
        assert False
"""
"""A module with each kind of failure.

SPARK is in capitals because this module itself needs no Spark; `suite` makes it `spark`.
"""


def suite(folder: Path, *options: str) -> str:
    """Returns pytest's output for FAILING, with the suite's plugin and settings."""
    (folder / "test_failing.py").write_text(FAILING.replace("SPARK", "spark"))
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.plugin"]\n')
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--config-file={ROOT}/pyproject.toml",
        f"--rootdir={folder}",
        f"--override-ini=pythonpath={ROOT}",
        "-p",
        "no:cacheprovider",
        *options,
        str(folder),
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"CI": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def replay_commands(output: str) -> list[str]:
    """Returns the command lines at the end of pytest's output."""
    return [line for line in output.splitlines() if line.startswith("python -m pytest ")]


@pytest.mark.long
@pytest.mark.slow
def test_each_failure_comes_with_the_command_that_has_it_again(tmp_path: Path) -> None:
    """Each failure is printed with a command that repeats it, with the same random numbers.

    A hang and a skip are failures. Spark's tests run on the same worker. A short run leaves out
    long tests, and of marked cases and tests runs only those that the seed draws. It prints how
    many tests were left out.
    """
    output = suite(tmp_path, "--numprocesses=2", "--timeout=3", "--seed=7", "--short")
    assert "left to make test-all: 6 tests" in output
    assert "seed: 7 (the same again: --seed 7)" in output
    assert len([line for line in replay_commands(output) if "TestShared" in line]) == 1
    lines = [
        line for line in replay_commands(output) if not re.search("TestCases|TestShared", line)
    ]
    assert sorted(
        test.partition("[")[0]
        for test in (shlex.split(line)[3] for line in replay_commands(output))
        if "TestCases" in test
    ) == [
        "test_failing.py::TestCases::test_cases",
        "test_failing.py::TestCases::test_more_cases",
    ]
    assert sorted(shlex.split(line)[3].partition("::")[2] for line in lines) == [
        "test_fails[a b@c]",
        "test_hangs",
        "test_on_spark[0]",
        "test_on_spark[1]",
        "test_on_spark[2]",
        "test_parts[0]",
        "test_property",
        "test_skips",
    ]
    assert {
        shlex.split(line)[4:] == ["--seed", "7", "--hypothesis-profile=short"] for line in lines
    } == {True}
    assert "Timeout (>3.0s)" in output
    assert "nothing may be skipped in CI" in output
    assert (
        len(
            {
                line
                for line in output.splitlines()
                if "AssertionError: on gw" in line and line.startswith("E")
            }
        )
        == 1
    )
    drew = next(line for line in output.splitlines() if line.startswith("E") and "drew" in line)
    single_output = suite(tmp_path, "--seed=7", "-k", "test_fails")
    assert drew in single_output


def test_each_costly_test_is_in_a_contract_suite() -> None:
    """The suite's table of costly tests names tests that exist, so each mark has its effect."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules("ingest/testing"))
    assert [name for name in COSTLY if f"def {name}(" not in code] == []


def test_what_a_test_starts_can_be_ended_from_the_background(tmp_path: Path) -> None:
    """The suite resets the handler of SIGINT, which a shell's background job ignores.

    Dagster gives SIGTERM the same handler, so its processes would ignore that too.
    """
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.plugin"]\n')
    (tmp_path / "test_signal.py").write_text(
        "import signal\n\ndef test_it(): assert signal.getsignal(signal.SIGINT) is"
        " signal.default_int_handler\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--rootdir={tmp_path}",
        f"--override-ini=pythonpath={ROOT}",
        "-p",
        "no:cacheprovider",
    ]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words, str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_soak_has_all_parts(tmp_path: Path) -> None:
    """`--soak` runs all parts of a test, each with other numbers, and the printed
    command has `--soak`.
    """
    output = suite(tmp_path, "--soak", "--seed=7", "-k", "test_parts")
    assert [shlex.split(line)[3:] for line in replay_commands(output)] == [
        [f"test_failing.py::test_parts[{n}]", "--seed", "7", "--soak"] for n in range(3)
    ]


def test_a_soaks_seeds_are_drawn_from_the_first() -> None:
    """The first seed determines the seeds of all rounds, and each round can be repeated
    by its own seed.
    """
    first = list(islice(soak.seeds(1), 5))
    assert first == list(islice(soak.seeds(1), 5))
    assert first[0] == 1
    assert len(set(first)) == 5
    assert next(soak.seeds(first[3])) == first[3]


def test_a_soak_ends_at_the_first_round_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A soak ends at the first failed round, with pytest's exit code and that round's command.

    Without a failure, rounds are run until the minutes are over.
    """
    ran: list[int] = []

    def round_of(seed: int, workers: int, more: list[str]) -> int:
        ran.append(seed)
        return len(ran) // 3

    monkeypatch.setattr(soak, "round_of", round_of)
    monkeypatch.setattr(sys, "argv", ["soak", "--seed", "1", "--minutes", "10"])
    assert soak.main() == 1
    assert len(ran) == 3
    assert f"make soak SEED={ran[2]} MINUTES=0" in capsys.readouterr().out
    ran.clear()
    monkeypatch.setattr(sys, "argv", ["soak", "--seed", "1", "--minutes", "0"])
    assert soak.main() == 0
    assert ran == [1]
    assert "round 1, seed 1\n" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------


def test_no_profile_repeats_itself_or_watches_the_clock() -> None:
    """No profile of Hypothesis is derandomized or has a deadline, so a slow machine fails no test.

    The profiles `short` and `fast` try fewer examples, `soak` more.
    """
    profiles = {
        name: settings.get_profile(name) for name in ("default", "ci", "short", "fast", "soak")
    }
    assert {
        name
        for name, profile in profiles.items()
        if profile.derandomize or profile.deadline is not None
    } == set()
    assert (
        profiles["fast"].max_examples
        < profiles["short"].max_examples
        < profiles["ci"].max_examples
        < profiles["soak"].max_examples
    )


def strays(path: Path) -> list[str]:
    """Returns the lines at which a module sets up Hypothesis, or sets a number of examples.

    A number that comes from `examples()` follows the profile, and is allowed.
    """
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    words = [
        (call.lineno, word)
        for call in calls
        if ast.unparse(call.func) == "settings"
        for word in call.keywords
    ]
    stray = [
        line
        for line, word in words
        if word.arg in {"deadline", "derandomize", "database"}
        or (word.arg == "max_examples" and not ast.unparse(word.value).startswith("examples("))
    ]
    return [f"{path.relative_to(ROOT)}:{line}" for line in stray]


def test_hypothesis_is_set_up_in_one_place() -> None:
    """Only profiles.py sets up Hypothesis, and tests take their number of examples from
    the profile.
    """
    assert [
        stray for path in modules("tests") if path.name != "profiles.py" for stray in strays(path)
    ] == []


# --------------------------------------------------------------------------------------------------

ENDLESS = {"wait", "join", "get", "communicate", "result", "acquire"}
"""Methods that wait without a limit if they have no argument."""
STARTS = {"run", "check_call", "check_output"}
"""Functions of `subprocess` that start a program and wait for its end."""


def endless(call: ast.Call) -> bool:
    """Returns whether a call waits without a limit, as far as its syntax shows."""
    if not isinstance(call.func, ast.Attribute):
        return False
    named = {keyword.arg for keyword in call.keywords}
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "subprocess":
        return call.func.attr in STARTS and not named & {"timeout", None}
    return call.func.attr in ENDLESS and not call.args and not named


def waits(path: Path) -> list[str]:
    """Returns a module's calls that wait without a limit."""
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    return [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)[:80]}"
        for call in calls
        if endless(call)
    ]


def test_every_wait_has_a_limit() -> None:
    """Each wait in the tests has a limit, so a hang is reported with its place."""
    assert [wait for path in modules("tests") for wait in waits(path)] == []


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("thread.join()", True),
        ("thread.join(60)", False),
        ("', '.join(names)", False),
        ("barrier.wait()", True),
        ("process.wait(timeout=5)", False),
        ("subprocess.run(['ls'], check=True)", True),
        ("subprocess.run(['ls'], timeout=5)", False),
        ("subprocess.run(['ls'], **how)", False),
        ("queue.get()", True),
        ("found.get(name)", False),
        ("future.result()", True),
    ],
)
def test_what_waits_for_ever_is_known_by_its_form(code: str, refused: bool) -> None:
    """Calls that wait without a limit are found, and no others."""
    [call] = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert endless(call) == refused


# --------------------------------------------------------------------------------------------------


def test_what_the_index_names_is_there() -> None:
    """Each module, world and contract suite in tests/README.md exists."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in modules("tests", "ingest/testing")
    )
    paths = set(re.findall(r"`([a-z_/]+\.py)`", text))
    assert len(paths) > 20
    assert {
        path
        for path in paths
        if not any((ROOT / base / path).is_file() for base in ("", "tests", "tests/contracts"))
    } == set()
    worlds = [
        line.split("|")[1]
        for line in text.partition("## Worlds")[2].splitlines()
        if line.startswith("| `")
    ]
    names = {name for world in worlds for name in re.findall(r"`(\w+)`", world)}
    assert len(names) > 20
    assert {name for name in names if not re.search(rf"\b(class|def) {name}\b", code)} == set()


# --------------------------------------------------------------------------------------------------


def patched(path: Path) -> list[str]:
    """Returns the private names that a test module replaces."""
    calls = [node for node in nodes(path) if isinstance(node, ast.Call) and len(node.args) > 1]
    return [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name.value}"
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in {"setattr", "object"}
        and isinstance(name := call.args[1], ast.Constant)
        and re.match("_[A-Za-z]", str(name.value))
    ]


def test_no_private_name_is_replaced() -> None:
    """No test replaces a private name, because a change inside a module would break the test.

    The linter refuses calls of private names.
    """
    assert [name for path in modules("tests") for name in patched(path)] == []
