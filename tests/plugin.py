"""The suite's own pytest plugin.

It seeds all random numbers, leaves long tests out of `make test`, hands tests out to workers,
and turns skips into failures in CI.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import profiles

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

LONG = ("spark", "broker", "slow")
"""Markers of long tests, the longest first."""

DEAR = {"desk", "instance", "postgres", "scene", "stage"}
"""Fixtures that make a test slow: a database, a Dagster instance, a ledger or a table on disk."""
TABLES = Path(__file__).parent / "sinks" / "delta"
"""The folder in which each test makes tables, so all its tests are slow."""

MEMORY_FOLDER, MEMORY_BYTES = "/dev/shm", 4 << 30  # a file system, not a shared file
"""A file system in memory, and the free space that the tests' folders need in it."""

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options `--seed`, `--short` and `--soak`."""
    group = parser.getgroup("windrow")
    group.addoption(
        "--seed",
        type=int,
        help=(
            "What is random begins with this; without it another number each time, which is"
            " printed."
        ),
    )
    short = "What `make test` runs: no test marked `long`, and a sample of what is marked `some`."
    group.addoption("--short", action="store_true", help=short)
    group.addoption(
        "--soak",
        action="store_true",
        help="All parts of the tests that are long by nature, not just a sample of them.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Sets the seed for this run, its workers and Hypothesis, and prepares the environment.

    Hypothesis reads its own option after this hook. Java is set up for short-lived processes.

    A shell makes background processes ignore SIGINT. Dagster then makes its process and its
    children ignore SIGTERM, too. Tests that end their children would wait for ever, so the
    handler of SIGINT is set back to Python's default.

    Temporary folders are in memory if there is room. Databases wait for the disk at each commit,
    and no test needs its files after a power failure.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (
        "TMPDIR" not in os.environ
        and Path(MEMORY_FOLDER).is_dir()
        and shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_BYTES
    ):
        os.environ["TMPDIR"], tempfile.tempdir = MEMORY_FOLDER, MEMORY_FOLDER
    # a test's broker ends before the second level of compilation pays off
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if config.option.seed is None:
        drawn = getattr(config, "workerinput", {}).get("seed")  # a worker uses the run's seed
        config.option.seed = random.SystemRandom().randrange(2**32) if drawn is None else drawn
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if config.option.short and config.option.hypothesis_profile is None:
        config.option.hypothesis_profile = "short"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives the run's seed to a worker of xdist."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    """Returns a line with the seed, so that the run can be repeated."""
    return f"seed: {config.option.seed} (the same again: --seed {config.option.seed})"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Multiplies tests that are marked with `sampled`.

    With `@pytest.mark.sampled(3, of=20)`, a test runs three times, and twenty times with
    `--soak`. The test gets the number of the run as `part`.
    """
    marker = metafunc.definition.get_closest_marker("sampled")
    if marker is not None:
        metafunc.parametrize(
            "part", range(marker.kwargs["of"] if metafunc.config.option.soak else marker.args[0])
        )


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers for one test.

    The same `--seed` gives the same numbers, whether the test runs alone or with others.
    """
    return random.Random(f"{request.config.option.seed} {request.path.stem} {request.node.name}")


LEFT = pytest.StashKey[int]()
"""Number of tests that `--short` left out."""


COSTLY = {
    "test_a_put_that_dies_at_any_of_its_lines": pytest.mark.some(1),
    "test_monsters_cost_themselves_only": pytest.mark.some(1),
    "test_runs_that_make_one_table_at_the_same_time_share_it": pytest.mark.some(1),
}
"""The marks of costly tests of the contract suites. The suites themselves have only marks that
every pytest knows, because authors of plugins run them, too.
"""


SLOW_CASES = 2
"""Cases that `--short` runs of a slow test without a mark of its own."""

END_TO_END_TESTS = 30
"""Tests that `--short` runs of all that need both a real broker and Spark."""


def choose_left_out(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Returns the tests that `--short` leaves out.

    These are all tests marked `long`. Of a test marked `some(n)`, only n cases stay, which the
    seed chooses. The cases of a test are its parameters. In a contract suite, the cases are the
    classes of a module that inherit the mark. With `some(n, of="tests")`, only n stay of all
    tests that share the mark.

    Of a slow test without such a mark, `SLOW_CASES` stay. Its cases are also the classes of all
    modules that inherit it. Of all that is left and needs both a broker and Spark,
    `END_TO_END_TESTS` stay.
    """
    out = list[pytest.Item]()
    cases = dict[tuple[str, str, int], tuple[int, list[pytest.Item]]]()
    for item in items:
        case = getattr(item, "originalname", item.name)
        marker = COSTLY.get(case, item.get_closest_marker("some"))
        if item.get_closest_marker("long") is not None:
            out.append(item)
        elif marker is not None:
            name = {"cases": case, "tests": ""}[marker.kwargs.get("of", "cases")]
            test_key = item.nodeid.partition("::")[0], name, id(marker)
            cases.setdefault(test_key, (marker.args[0], []))[1].append(item)
        elif isinstance(item, pytest.Function) and any(map(item.get_closest_marker, LONG)):
            test_key = item.function.__module__, item.function.__qualname__, 0
            cases.setdefault(test_key, (SLOW_CASES, []))[1].append(item)
    for (module, name, _), (count, group) in cases.items():
        out += _sample_rest(group, count, f"{seed} {module} {name}")
    left_out_tests = set(out)
    end_to_end_tests = [
        item
        for item in items
        if item not in left_out_tests
        and item.get_closest_marker("broker")
        and item.get_closest_marker("spark")
    ]
    return out + _sample_rest(end_to_end_tests, END_TO_END_TESTS, f"{seed} end to end")


def _sample_rest(group: list[pytest.Item], count: int, seed: str) -> list[pytest.Item]:
    """Returns the tests of a group without a random sample of at most `count`."""
    kept_tests = random.Random(seed).sample(group, min(count, len(group)))
    return [item for item in group if item not in kept_tests]


@pytest.hookimpl(tryfirst=True)  # before pytest evaluates `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that `--short` leaves out, and sorts the others for the workers.

    Workers begin with long tests, so that short tests fill the gaps at the end.
    """
    for item in items:
        if not DEAR.isdisjoint(getattr(item, "fixturenames", ())) or item.path.is_relative_to(
            TABLES
        ):
            item.add_marker(pytest.mark.slow)
    if config.option.short:
        out = choose_left_out(items, config.option.seed)
        config.stash[LEFT] = len(out)
        config.hook.pytest_deselected(items=out)
        left_out_tests = set(out)
        items[:] = [item for item in items if item not in left_out_tests]
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: next(
                (rank for rank, name in enumerate(LONG) if item.get_closest_marker(name)), len(LONG)
            )
        )


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each free worker one test, or all tests that share an expensive resource.

    xdist's `--dist=loadgroup` isn't used, because its workers write the group into the test's
    name. pytest 9.2 doesn't allow that.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(self.config.rootpath, nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Returns a scheduler that hands units out in the order in which they were collected."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def unit(root: Path, nodeid: str) -> str:
    """Returns the name of the unit that a test belongs to; one worker runs the whole unit.

    All tests that use the Spark session or the Spark server are one unit, and all that parse the
    project's sources. So are the tests of a module that has a fixture with the module's scope.
    Any other test is a unit of its own.
    """
    module = nodeid.partition("::")[0]
    text = _text(root / module)
    if "from tests.shape.sources import" in text:
        return "sources"
    if (
        'usefixtures("spark")' in text
        or "spark: SparkSession" in text
        or "spark_server: str" in text
    ):
        return "spark"
    return module if 'scope="module"' in text else nodeid


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Reports from a worker how many tests it left out.

    Each worker collects the whole suite, so all workers report the same number.
    """
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the number of tests that were left out from any worker; it is the same for all."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints how many tests were left out, and a command that repeats each failed test.

    The command contains the seed and the other options that change random numbers.
    """
    if config.option.short:
        left_count = config.stash.get(LEFT, 0)
        terminalreporter.line(
            f"left to make test-all: {left_count} tests, and most of Hypothesis's examples"
        )
    failed = [
        report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.getreports(kind)
    ]
    if not failed:
        return
    terminalreporter.section("the same again")
    for nodeid in dict.fromkeys(failed):
        terminalreporter.line(replay(config, nodeid))


def replay(config: pytest.Config, nodeid: str) -> str:
    """Returns the command line that repeats a test with the same random numbers."""
    profile = config.option.hypothesis_profile
    more = (["--soak"] if config.option.soak else []) + (
        [f"--hypothesis-profile={profile}"] if profile else []
    )
    return shlex.join(["python", "-m", "pytest", nodeid, "--seed", str(config.option.seed), *more])


def _not_in_ci(report: Report) -> Report:
    """Turns a skipped test into a failed one if this is CI, and keeps the reason."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns skipped tests into failures in CI."""
    return _not_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns skipped modules into failures in CI."""
    return _not_in_ci((yield))
