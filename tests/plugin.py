"""How the suite runs: one seed for all that is random, what `make test` leaves to `make
test-all`, workers, and no skips in CI.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import profiles

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

LONG = ("spark", "broker", "slow")
"""Markers, what takes longest first."""

DEAR = {"desk", "instance", "postgres", "scene", "stage"}
"""Fixtures that stand on a database, Dagster's or a ledger's, or on a table on disk:
who asks for one is slow.
"""
TABLES = Path(__file__).parent / "sinks" / "delta"
"""Where each test makes tables."""

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed`, `--short` and `--soak`."""
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
    """One seed for the run, for all its workers and for Hypothesis, too, which reads
    its own option after this; Java for short lives.

    A shell that starts something in the background has it ignore Ctrl-C, and Dagster
    then has its process, and all that this one starts, ignore SIGTERM as well: tests
    that end what they started would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # no broker of a test lives so long that optimizing it pays
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if config.option.seed is None:
        drawn = getattr(config, "workerinput", {}).get("seed")  # a worker has the run's
        config.option.seed = random.SystemRandom().randrange(2**32) if drawn is None else drawn
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if config.option.short and config.option.hypothesis_profile is None:
        config.option.hypothesis_profile = "short"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have xdist's workers draw the same."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    """The seed, so that a run can be had again."""
    return f"seed: {config.option.seed} (the same again: --seed {config.option.seed})"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.sampled(3, of=20)`: three parts, twenty in a soak; the test takes
    its number as `part`.
    """
    marker = metafunc.definition.get_closest_marker("sampled")
    if marker is not None:
        metafunc.parametrize(
            "part", range(marker.kwargs["of"] if metafunc.config.option.soak else marker.args[0])
        )


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of the test's own: `--seed` brings them again, whether the test
    runs alone or among others.
    """
    return random.Random(f"{request.config.option.seed} {request.path.stem} {request.node.name}")


LEFT = pytest.StashKey[int]()
"""Number of tests that `--short` left out."""


def left_out(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Tests that `--short` leaves out: those marked `long`, and of a test marked
    `some(n)` all cases but n, which the seed draws.

    The cases of a test are its parameters and, of a contract suite, the classes of a
    module that inherit one mark; `some(n, of="tests")` leaves n of all that share the
    mark.
    """
    out, cases = list[pytest.Item](), dict[tuple[str, str, int], list[pytest.Item]]()
    for item in items:
        marker = item.get_closest_marker("some")
        if item.get_closest_marker("long") is not None:
            out.append(item)
        elif marker is not None:
            case = getattr(item, "originalname", item.name)
            name = {"cases": case, "tests": ""}[marker.kwargs.get("of", "cases")]
            test_key = item.nodeid.partition("::")[0], name, id(marker)
            cases.setdefault(test_key, []).append(item)
    for (module, name, _), group in cases.items():
        sample_marker = group[0].get_closest_marker("some")
        assert sample_marker is not None
        kept_cases = random.Random(f"{seed} {module} {name}").sample(
            group, min(sample_marker.args[0], len(group))
        )
        out += [item for item in group if item not in kept_cases]
    return out


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--short` leaves its tests out; workers begin with what takes long, so that what
    is short fills the gaps at the end.
    """
    if config.option.short:
        out = left_out(items, config.option.seed)
        config.stash[LEFT] = len(out)
        config.hook.pytest_deselected(items=out)
        left_out_tests = set(out)
        items[:] = [item for item in items if item not in left_out_tests]
    for item in items:
        if not DEAR.isdisjoint(getattr(item, "fixturenames", ())) or item.path.is_relative_to(
            TABLES
        ):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: next(
                (rank for rank, name in enumerate(LONG) if item.get_closest_marker(name)), len(LONG)
            )
        )


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist says nothing of types
    """One test after the other to whichever worker is free, but for those that share
    what is dear: they go to one worker together.

    (xdist's own `--dist=loadgroup` has workers write the group into a test's name,
    which pytest 9.2 no longer lets them.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(self.config.rootpath, nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Units are handed out in the order in which they were collected."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def unit(root: Path, nodeid: str) -> str:
    """What goes to one worker together: modules on the one Spark session or server, and
    a module that makes something for all its tests.
    """
    module = nodeid.partition("::")[0]
    text = _text(root / module)
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
    """A worker tells how many tests it left out: each of them collects the whole suite."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Workers leave out the same tests."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints how many tests were left out, and of each test that failed the command that runs
    it again, with what was random.
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
    """The command line that runs this test as it ran here."""
    profile = config.option.hypothesis_profile
    more = (["--soak"] if config.option.soak else []) + (
        [f"--hypothesis-profile={profile}"] if profile else []
    )
    return shlex.join(["python", "-m", "pytest", nodeid, "--seed", str(config.option.seed), *more])


def _not_in_ci(report: Report) -> Report:
    """A skip in CI is a test that nobody ran: it fails, with its reason."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """No test skips in CI."""
    return _not_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """No module skips in CI."""
    return _not_in_ci((yield))
