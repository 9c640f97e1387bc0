"""Progress of a run: its reports, and that nothing depends on them."""

from __future__ import annotations

import logging
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from windrow.ingest.model.plan import Split
from windrow.ingest.runner import progress
from windrow.ingest.runner.progress import Progress, ReadProgress, lines
from windrow.ingest.sinks.kit.files.filesystem import Place

SPLITS = [Split("shop.orders", 0, 100, 200), Split("shop.orders", 1, 0, 300)]


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    clock = Now()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_log_gets_few_lines(now: Now) -> None:
    """A progress line comes after 15 seconds, or 10 % more.

    Notes come at once, and an end gives no line.
    """
    lines_said: list[str] = []
    progress = lines(lines_said.append)
    for second in range(100):
        now.seconds = float(second)
        progress(Progress(f"at {second}", second, 1000))
    assert lines_said == ["at 15", "at 30", "at 45", "at 60", "at 75", "at 90"]
    progress(Progress("90 %", 900, 1000, ("a note",)))
    progress(Progress("91 %", 910, 1000))
    progress(Progress(""))
    assert lines_said[6:] == ["a note", "90 %"]


def test_a_file_that_says_nothing_costs_nothing(tmp_path: Path) -> None:
    """A broken progress file, or one of another job, split or offset range, is ignored, and the
    rest is reported.

    A reason to wait is reported once for all workers.
    """
    wait, updates = "Waiting for machine code", Queue[Progress]()
    files = {
        "j-a": f'[{{"shop.orders[0]/100":150,"other[0]/0":7}},"{wait}"]',
        "j-b": f'[{{"shop.orders[1]/0":999}},"{wait}"]',
        "j-c": '[{"shop.orders[0]/100":140}',
        "k-d": '[{"shop.orders[0]/100":199},""]',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with ReadProgress("j", Place(str(tmp_path)), 0.001).report_reads(
        SPLITS, "Reading", updates.put
    ):
        first, second = updates.get(timeout=60), updates.get(timeout=60)
    assert (first.done, first.total, first.notes, second.notes) == (350, 400, (wait,), ())
    assert first.text.startswith("Reading: 350 of 400 messages (87 %), ")
    assert [path.name for path in tmp_path.iterdir()] == ["k-d"]


def test_a_place_that_fails_costs_nothing(now: Now) -> None:
    """A progress folder that fails doesn't fail the task. The worker logs what it waits for."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise OSError(name)

    updates = Queue[Progress]()

    def tell(update: Progress) -> None:
        updates.put(update)
        raise OSError

    heard: list[str] = []
    log = logging.getLogger("windrow.waiting")
    read_progress = ReadProgress("broken", Broken(), 0.001)  # type: ignore[arg-type]
    with (
        read_progress.report_reads(SPLITS, "Reading", tell),
        read_progress.reporter_of(SPLITS[0]) as reached,
    ):
        log_record = log.makeRecord(log.name, logging.WARNING, __file__, 1, "a lock", (), None)
        heard += [log_record.getMessage()] if log.filter(log_record) else []
        now.seconds = 1.0
        reached(150)
    with ReadProgress("j", None, 0.001).report_reads(SPLITS, "Reading", tell):
        assert [updates.get(timeout=60).text for _ in range(2)] == [
            "Reading, for 0:00:00 by now"
        ] * 2
    assert heard == ["a lock"]


def test_a_slow_place_is_written_to_seldom(now: Now) -> None:
    """A worker spends at most a twentieth of its time on its progress file."""

    class Slow:
        written = 0

        def open_output(self, _: str) -> Any:
            now.seconds += 10.0
            self.written += 1
            raise OSError

    folder = Slow()
    with ReadProgress("slow", folder).reporter_of(SPLITS[0]) as reached:  # type: ignore[arg-type]
        for second in range(1000):
            now.seconds += 1.0
            reached(100 + second // 20)
    assert folder.written == 5
