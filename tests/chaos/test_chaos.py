"""Tests of each sink under chaos, and of the harness itself with broken twins of sinks."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import partial, partialmethod
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.chaos import harness, worker
from tests.chaos.harness import THREADS, Ordeal, RoundOptions, RoundSummary, chaos
from tests.chaos.record import record
from tests.chaos.recovery import TITLE, Recovery
from tests.chaos.recovery import record as record_recovery
from tests.chaos.verdict import find_violations
from tests.chaos.worker import Job
from tests.sinks.worlds import KINDS, SINKS, WEAKER, world_of
from windrow.ingest.ports.sink import Capabilities

TWINS = [(kind, twin) for kind in KINDS for twin in world_of(kind).by_name]
WINDOWS = 25


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.sampled(1, of=20)
@pytest.mark.parametrize("kind", SINKS)
def test_chaos(part: int, dice: random.Random, kind: str, tmp_path: Path) -> None:
    """No message is lost or doubled, and no reader sees half a window, under many faults.

    The faults are kills, stops, doubled runs, replays, dead-letter replays, sweeps, and full
    disks.
    """
    summary = chaos(RoundOptions(kind, dice.randrange(2**32), WINDOWS), tmp_path)
    assert summary.ok, msgspec.json.encode(summary).decode()
    assert summary.hit >= WINDOWS // 2, f"too few faults struck: {summary.faults}"
    assert summary.looks > 1, f"the reader hardly looked: {summary}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.sampled(1, of=10)
@pytest.mark.parametrize("kind", WEAKER)
def test_what_promises_less_does_nothing_worse(
    part: int, dice: random.Random, kind: str, tmp_path: Path
) -> None:
    """A sink with a weaker guarantee has only lost or doubled rows that the guarantee allows."""
    summary = chaos(RoundOptions(kind, dice.randrange(2**32), 6), tmp_path)
    assert summary.ok, msgspec.json.encode(summary).decode()
    assert summary.delivery in kind
    assert summary.looks > 0, f"the reader didn't look: {summary}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "twin"), TWINS)
def test_a_twin_is_caught(dice: random.Random, kind: str, twin: str, tmp_path: Path) -> None:
    """The harness finds a violation in a broken twin within twenty-five windows.

    The twin leaves out one step of the protocol.
    """
    rounds = (
        chaos(
            RoundOptions(kind, dice.randrange(2**32), windows, twin=twin),
            make_folder(tmp_path / str(n)),
        )
        for n, windows in enumerate((7, 9, 9))
    )
    assert not all(summary.ok for summary in rounds), "nothing was found wrong with a broken sink"


def make_folder(folder: Path) -> Path:
    """Makes a folder, and returns its path."""
    folder.mkdir()
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "twin"), TWINS)
def test_a_twin_is_right_in_the_calm(kind: str, twin: str, tmp_path: Path) -> None:
    """Without faults, the final table of a broken twin is right.

    So only the faults make the difference between the twin and the real sink.
    """
    summary = chaos(RoundOptions(kind, 1, 1, twin=twin, calm=True), tmp_path)
    assert summary.ok, summary.violations


def test_a_window_that_hangs_ends_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that hangs is ended after the limit, and writes where it hangs.

    No other window is begun, because it might wait as long. The round has the violation.
    """
    monkeypatch.setattr(harness, "LIMIT", 1)
    monkeypatch.setattr(harness, "ENOUGH", 1)
    monkeypatch.setattr(worker, "start", partial(listening, worker.start))
    monkeypatch.setattr(Ordeal, "job", partialmethod(hanging, Ordeal.job))
    summary = chaos(RoundOptions("sqlite", 1, 8, calm=True), tmp_path)
    assert not summary.ok
    assert 1 <= summary.outcomes["died"] <= THREADS, "other windows were begun"
    assert any("did not commit" in line for line in summary.violations)
    assert any("an attempt hung" in line for line in summary.violations)
    assert "in attempt" in (tmp_path / "stderr").read_text()


def listening(start: Callable[[Job], BaseProcess], job: Job) -> BaseProcess:
    """Starts an attempt, and returns when it handles the signal WHERE.

    Before that, the signal would end the attempt.
    """
    process, deadline = start(job), time.monotonic() + 60
    caught = re.compile(r"SigCgt:\s*(\w+)")
    while True:
        signal_mask = caught.search(Path(f"/proc/{process.pid}/status").read_text())
        if signal_mask and int(signal_mask[1], 16) >> (worker.WHERE - 1) & 1:
            return process
        assert time.monotonic() < deadline, "it isn't ready to be asked"
        process.join(0.005)


def hanging(ordeal: Ordeal, job: Callable[..., Job], generation: int, **more: Any) -> Job:
    """Returns a job that waits a minute between staging and its commits."""
    return job(ordeal, generation, **more, gate=time.monotonic() + 60)


WHOLE = {("w1", 0): (9, 9), ("w1", 1): (9, 9)}


@pytest.mark.parametrize(
    ("row_counts", "seen_before", "received", "violation_count"),
    [
        (WHOLE, [], None, 0),
        ({("w1", 0): (10, 10), ("w1", 1): (10, 10)}, [("w1", 0)], None, 0),
        ({("w1", 0): (9, 9)}, [], None, 1),
        ({("w1", 0): (9, 9), ("w1", 1): (10, 10)}, [], None, 1),
        ({("w1", 0): (18, 9), ("w1", 1): (9, 9)}, [], None, 2),
        ({("w1", 0): (4, 4), ("w1", 1): (9, 9)}, [], None, 1),
        (WHOLE, [("w0", 1)], None, 1),
        ({("w1", 0): (4, 4)}, [], [], 0),
        ({("w1", 0): (4, 4)}, [], ["w1"], 1),
        (WHOLE, [], ["w0", "w1"], 1),
        ({("w1", 0): (18, 9)}, [], [], 1),
    ],
)
def test_what_a_reader_may_not_see(
    row_counts: dict[tuple[str, int], tuple[int, int]],
    seen_before: list[tuple[str, int]],
    received: list[str] | None,
    violation_count: int,
) -> None:
    """A reader may see whole windows, also replayed ones.

    Half a window, a row twice, a split that disappears, and a receipt before its rows are
    violations.
    """
    assert len(find_violations(row_counts, seen_before, 20, received)) == violation_count


ONCE, NONE = Capabilities(delivery="at-least-once"), Capabilities(delivery="none")


@pytest.mark.parametrize(
    ("row_counts", "seen_before", "received", "capabilities", "violation_count"),
    [
        ({("w1", 0): (18, 9), ("w1", 1): (9, 9)}, [], ["w1"], ONCE, 0),
        ({("w1", 0): (18, 4), ("w1", 1): (9, 9)}, [], ["w1"], ONCE, 1),
        ({("w1", 0): (18, 4), ("w1", 1): (9, 9)}, [], ["w1"], NONE, 0),
        ({("w1", 0): (18, 18), ("w1", 1): (9, 9)}, [], ["w1"], NONE, 1),
        ({}, [], ["w1"], ONCE, 1),
        ({}, [("w1", 0)], ["w1"], NONE, 1),
    ],
)
def test_what_a_reader_may_see_of_what_promises_less(
    row_counts: dict[tuple[str, int], tuple[int, int]],
    seen_before: list[tuple[str, int]],
    received: list[str],
    capabilities: Capabilities,
    violation_count: int,
) -> None:
    """A reader sees a message twice, or a part of a window, only if the sink's
    guarantee allows it.
    """
    assert (
        len(find_violations(row_counts, seen_before, 20, received, capabilities)) == violation_count
    )


def test_what_is_counted_and_what_is_wrong() -> None:
    """Lost and doubled rows are counted for each sink, but are wrong only against its guarantee."""
    counts = [{"lost_messages": 1}, {"doubled": 1}, {"foreign": 1}, {"violations": ["x"]}]
    for delivery, ok in (
        ("exactly-once", [0, 0, 0, 0]),
        ("at-least-once", [0, 1, 0, 0]),
        ("none", [1, 1, 0, 0]),
    ):
        assert [
            RoundSummary(RoundOptions("kafka", 1), delivery=delivery, **count).ok
            for count in counts
        ] == [bool(n) for n in ok]  # type: ignore[arg-type]


def test_results_are_added_and_summed_up(tmp_path: Path) -> None:
    """Each part is added as a line, the sums count all lines, and the text above stays."""
    page = tmp_path / "chaos.md"
    page.write_text("# Chaos\n\nWords.\n\n## Sums\n\n## Parts\n")
    done = [
        RoundSummary(RoundOptions("delta", 1), {"killed": 600}, rows=1000),
        RoundSummary(RoundOptions("delta", 2), {"killed": 500}, rows=1500, lost_messages=1),
    ]
    record(done, 1, page)
    record(done[:1], 7, page)
    text = page.read_text()
    assert text.startswith("# Chaos\n\nWords.\n\n## Sums\n\n| sink |")
    assert "| delta | 2 parts | 3 | 75 | 3,500 | 1,700 | 1 | 0 | 0 | 0 | 0 |" in text
    assert text.count("| delta | 1 | 2 | 50 | 2,500 | 1,100 | 1 |") == 1
    assert text.count("| delta | 7 | 1 | 25 | 1,000 | 600 | 0 |") == 1


def test_recoveries_are_put_in_the_place_of_the_last_ones(tmp_path: Path) -> None:
    """A sink that is measured again has a new line; other lines, the text around the table and
    the table of the next section stay.
    """
    page = tmp_path / "chaos.md"
    next_section = "## Next\n\n| seed | calls |\n| --- | --- |\n| 1 | 34 |\n"
    page.write_text(f"# Chaos\n\n{TITLE}\n\nWhat it is.\n\n{next_section}")
    record_recovery(
        [Recovery("files", [1.0, 3.0, 2.0], [0.5]), Recovery("delta", [1.0], [0.25])], page
    )
    once = page.read_text()
    assert (
        "| delta | 1 | 1.00 | 1.00 | 0.25 | 0.25 |\n| files | 3 | 2.00 | 3.00 | 0.50 | 0.50 |\n"
        in once
    )
    record_recovery([Recovery("delta", [9.0], [0.25])], page)
    assert page.read_text() == once.replace(
        "| delta | 1 | 1.00 | 1.00 |", "| delta | 1 | 9.00 | 9.00 |"
    )
    assert once.startswith(f"# Chaos\n\n{TITLE}\n\nWhat it is.\n\n| sink |")
    assert once.endswith(f"|\n\n{next_section}")
