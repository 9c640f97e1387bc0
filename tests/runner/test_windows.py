"""Many windows in one run: each is committed exactly once, in order, whatever fails."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runner.test_run import PLAIN, START, Desk, hour
from tests.sinks.delta.pieces import delta_pieces
from windrow.ingest.crashpoints import CRASH_POINTS, CrashPoint
from windrow.ingest.errors import (
    DataLossError,
    DeadLetterLimitError,
    IdentityError,
    NotClosedError,
    RefusedError,
    UnreachableError,
)
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.reader import ReadSummary, Take
from windrow.ingest.runner import attempts
from windrow.ingest.runner.broker_snapshot import BrokerSnapshot
from windrow.ingest.runner.context import PassedOver, Pipeline, Result
from windrow.ingest.runner.run_windows import (
    all_refused,
    pass_over_refused,
    preview,
    run_windows,
)
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

TOPIC = TopicPartition("shop.things", 0)
WINDOWS = [hour(n) for n in range(12)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with twelve hours of ten messages each."""
    filled_desk = Desk(tmp_path)
    for i in range(30, 130):
        filled_desk.broker.produce(
            TOPIC, b'{"id": %d, "name": null}' % i, timestamp=START + timedelta(minutes=6 * i)
        )
    return filled_desk


def committed_windows(desk: Desk) -> list[Window]:
    """Returns the windows in the table."""
    return [c.receipt.window for c in desk.pipeline().sink.receipts()]


def verdict(desk: Desk, windows: int = 12) -> None:
    """Asserts that the checker finds nothing wrong with these windows."""
    pipeline = desk.pipeline()
    receipts = [c.receipt for c in pipeline.sink.receipts()]
    dead = [pipeline.dead_letters.read(r.window, r.attempt) for r in receipts]
    report = check(
        {TOPIC: dict.fromkeys(range(10 * windows))},
        delta_pieces(str(desk.folder / "table")),
        dead,
        receipts,
    )
    assert report.ok, report


def until(results: Iterator[Result]) -> list[Window]:
    """Returns the windows of the results; if an error ends them, it gets a note with the
    windows before it.
    """
    done: list[Window] = []
    try:
        done.extend(result.committed.receipt.window for result in results)
    except BaseException as ended:
        done_by(ended, done)
        raise
    return done


def done_by(ended: BaseException, done: Sequence[Window]) -> None:
    """Adds a note with the done windows to an error."""
    ended.add_note(",".join(w.key for w in done))


def keys_before(ended: BaseException) -> list[str]:
    """Returns the windows of the note of `done_by`."""
    return [key for key in ended.__notes__[-1].split(",") if key]


class Asked:
    """A wrapper that counts the calls of an object's methods."""

    def __init__(self, inner: Any, counts: Counter[str]) -> None:
        self._inner, self._counts = inner, counts

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        def ask(*arguments: Any, **options: Any) -> Any:
            self._counts[name] += 1
            return attribute(*arguments, **options)

        return ask


def test_each_window_is_committed_in_order(desk: Desk) -> None:
    """Windows that share a job each have their own rows and receipt, in order.

    A second run only reports them.
    """
    assert until(run_windows(desk.pipeline(), WINDOWS, PLAIN)) == WINDOWS
    verdict(desk)
    version = desk.version()
    assert [r.recovered for r in run_windows(desk.pipeline(), WINDOWS, PLAIN)] == [True] * 12
    assert desk.version() == version


def test_committed_windows_between_others_are_reported_in_their_turn(desk: Desk) -> None:
    """Committed windows between others are reported in their turn, and the others are read."""
    for n in (2, 3, 7):
        desk.run(n)
    results = list(run_windows(desk.pipeline(), WINDOWS, PLAIN))
    assert [n for n, r in enumerate(results) if r.recovered] == [2, 3, 7]
    assert [r.committed.receipt.window for r in results] == WINDOWS
    verdict(desk)


def test_what_windows_share_is_asked_once(desk: Desk) -> None:
    """Cluster, table and engine are asked once for all windows. A window adds only its commit."""

    def count_calls(windows: Sequence[Window]) -> tuple[Counter[str], Counter[str], Counter[str]]:
        broker, sink, engine = Counter[str](), Counter[str](), Counter[str]()
        pipeline = desk.pipeline()
        pipeline = replace(
            pipeline,
            broker=Asked(pipeline.broker, broker),
            sink=Asked(pipeline.sink, sink),
            engine=Asked(pipeline.engine, engine),
        )
        list(run_windows(pipeline, windows, PLAIN))
        return broker, sink, engine

    count_calls(WINDOWS[:1])
    few_calls, many_calls = count_calls(WINDOWS[1:3]), count_calls(WINDOWS[3:])
    assert many_calls[0] - few_calls[0] == Counter(), "of the cluster"
    assert many_calls[1] - few_calls[1] == Counter(commit=7, receipt_text=7, stager=7), (
        "of the table"
    )
    assert many_calls[2] == Counter(start=1, run=1)
    calls_again = count_calls(WINDOWS)
    assert (calls_again[0], calls_again[2]) == (Counter(), Counter())
    assert calls_again[1] == Counter(owner=1, is_at=1, looks=1, receipt_text=12)


def test_a_log_is_asked_once_how_far_it_reaches_under_an_epoch() -> None:
    """Windows without messages that end at one mark ask for it once.

    Answers about a log that was cut off aren't kept.
    """
    asked_offsets = list[list[int]]()

    class Logs(MemoryBroker):
        def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
            asked_offsets.append([mark.offset for mark in marks])
            return [mark for mark in marks if mark.offset > 7]

    moment = BrokerSnapshot(Logs())
    marks = [Mark("t", 0, offset, "settled", 3) for offset in (5, 7, 7, 4, 9, 9)]
    assert [moment.diverged_marks([mark]) for mark in marks] == [
        [],
        [],
        [],
        [],
        [marks[4]],
        [marks[5]],
    ]
    assert asked_offsets == [[5], [7], [9], [9]]


@pytest.mark.some(3)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_in_the_middle_leaves_finished_windows_finished(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, point: CrashPoint
) -> None:
    """After a crash at the fifth window, the windows before it stay, and the rerun commits the
    rest exactly once.
    """
    from windrow.ingest import crashpoints

    passed_count, dying_count = (
        0,
        1 if point.startswith(("boundary", "plan")) else 5,
    )  # all windows are frozen at once

    def at_the_point(name: CrashPoint) -> None:
        nonlocal passed_count
        passed_count += name == point
        if name == point and passed_count == dying_count:
            raise crashpoints.CrashError(name)

    for module in (
        "windrow.ingest.runner.run_windows",
        "windrow.ingest.runner.freezing",
        "windrow.ingest.runner.task",
        "windrow.ingest.sinks.kit.commit.commit_loop",
    ):
        monkeypatch.setattr(f"{module}.crash_point", at_the_point)
    with pytest.raises(crashpoints.CrashError) as ended:
        until(run_windows(desk.pipeline(), WINDOWS, PLAIN))
    committed_before = committed_windows(desk)
    assert [w.key for w in committed_before][: len(keys_before(ended.value))] == keys_before(
        ended.value
    )
    assert len(committed_before) == {
        "dead.before": 4,
        "commit.before": 4,
        "commit.after": 5,
        "report.before": 5,
    }.get(point, 0)
    monkeypatch.undo()
    assert [r.recovered for r in run_windows(desk.pipeline(), WINDOWS, PLAIN)] == [
        w in committed_before for w in WINDOWS
    ]
    verdict(desk)


def test_a_refused_window_stops_it_and_all_behind_it(desk: Desk) -> None:
    """A refused window stops the run: windows before it are committed, later ones are not.

    Once it may pass, the rest is committed.
    """
    desk.broker.produce(TOPIC, b"poison", timestamp=START + timedelta(hours=12, minutes=1))
    for i in range(10):
        desk.broker.produce(
            TOPIC, b'{"id": %d, "name": null}' % i, timestamp=START + timedelta(hours=13, minutes=i)
        )
    windows = [hour(n) for n in range(14)]
    with pytest.raises(DeadLetterLimitError) as ended:
        until(run_windows(desk.pipeline(limits={"max_dead_count": 0}), windows, PLAIN))
    assert committed_windows(desk) == windows[:12]
    assert keys_before(ended.value) == [w.key for w in windows[:12]]
    assert (
        len(list(run_windows(desk.pipeline(limits={"max_dead_ratio": None}), windows, PLAIN))) == 14
    )


def test_a_window_that_is_not_closed_stops_those_behind_it_alone(desk: Desk) -> None:
    """A window that isn't closed is found before anything is read, and the windows before it
    are committed.
    """
    early = replace(desk.pipeline(), now=lambda: START + timedelta(hours=7, minutes=30))
    with pytest.raises(NotClosedError) as ended:
        until(run_windows(early, WINDOWS, PLAIN))
    assert committed_windows(desk) == WINDOWS[:7]
    assert keys_before(ended.value) == [w.key for w in WINDOWS[:7]]


def test_an_outage_is_told_soon(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that doesn't answer is waited for twice, for all windows and for the first
    alone, however many there are.
    """
    calls = 0

    def away(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise UnreachableError("The cluster does not answer", "plan", "Start it.")

    monkeypatch.setattr(desk.broker, "cluster_id", away)
    with pytest.raises(UnreachableError):
        until(run_windows(desk.pipeline(), WINDOWS, PLAIN))
    assert calls == 2


class Stumbles(LocalEngine):
    """An engine that can't finish a job of several windows; with `always`, a worker also dies
    at the fourth window.
    """

    def __init__(self, *, always: bool) -> None:
        self.always, self.sizes = always, list[int]()

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs a job of one split; see `Engine.run`."""
        self.sizes.append(len(splits))
        if len(splits) > 1 or (self.always and splits[0].start == 30):
            raise UnreachableError(
                "Spark could not finish the tasks", "stage", "Run the window again."
            )
        yield from super().run(task, splits)


def test_a_lost_job_of_many_is_done_window_by_window(desk: Desk) -> None:
    """If a job of many windows can't be finished, each window is read alone, and none is lost."""
    engine = Stumbles(always=False)
    assert until(run_windows(replace(desk.pipeline(), engine=engine), WINDOWS, PLAIN)) == WINDOWS
    assert engine.sizes == [12] + [1] * 12
    verdict(desk)


def test_a_window_whose_worker_always_dies_stops_there(desk: Desk) -> None:
    """A window whose worker always dies raises UnreachableError, and the windows before it are
    committed.
    """
    with pytest.raises(UnreachableError):
        until(run_windows(replace(desk.pipeline(), engine=Stumbles(always=True)), WINDOWS, PLAIN))
    assert committed_windows(desk) == WINDOWS[:3]


def _interrupt(results: Iterator[Result]) -> Iterator[Result]:
    """Yields the results, and interrupts the process after each."""
    for result in results:
        yield result
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_leaves_finished_windows_finished(desk: Desk) -> None:
    """After Ctrl-C between two commits, committed windows stay, and the next run commits the
    rest.
    """
    results = run_windows(desk.pipeline(), WINDOWS, PLAIN)
    next(results), next(results)
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            until(_interrupt(results))
    finally:
        signal.signal(signal.SIGINT, old_handler)
    assert committed_windows(desk) == WINDOWS[:3]
    assert [r.recovered for r in run_windows(desk.pipeline(), WINDOWS, PLAIN)] == [True] * 3 + [
        False
    ] * 9
    verdict(desk)


def test_a_large_window_has_a_job_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows share a job only while they are small together.

    Then the first window needn't wait long, and the driver holds few results.
    """
    sizes: list[int] = []

    class Noting(LocalEngine):
        def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
            sizes.append(len(splits))
            return super().run(task, splits)

    def new_pipeline() -> Pipeline:
        return replace(desk.pipeline(), engine=Noting())

    monkeypatch.setattr(attempts, "OFFSETS_A_JOB", 30)
    assert until(run_windows(new_pipeline(), WINDOWS[:7], PLAIN)) == WINDOWS[:7]
    monkeypatch.setattr(attempts, "OFFSETS_A_JOB", 5)
    assert until(run_windows(new_pipeline(), WINDOWS[7:10], PLAIN)) == WINDOWS[7:10]
    monkeypatch.undo()
    monkeypatch.setattr(attempts, "SPLITS_A_JOB", 1)
    assert until(run_windows(new_pipeline(), WINDOWS[10:], PLAIN)) == WINDOWS[10:]
    assert sizes == [3, 3, 1, 1, 1, 1, 1, 1]
    verdict(desk)


def test_refused_windows_are_passed_over(tmp_path: Path) -> None:
    """A refused window is passed over and reported in its turn, and all others are committed.

    It may be refused before its job, in it, or after it.
    """
    desk = Desk(tmp_path, MemoryBroker())
    for i in range(30, 120):
        value = b"poison" if i // 10 in {6, 7, 11} else b'{"id": %d, "name": null}' % i
        desk.broker.produce(TOPIC, value, timestamp=START + timedelta(minutes=6 * i))
    desk.broker.delete_records(TOPIC, 31)
    pipeline = desk.pipeline(limits={"max_dead_ratio": 0.5})

    class Lossy(MemoryReader):
        def read(self, split: Split, take: Take) -> ReadSummary:
            if split.start == 90:
                raise DataLossError(
                    "gone", "read", "Go on without it.", TOPIC.topic, TOPIC.partition, 90
                )
            return super().read(split, take)

    outcomes = list(
        run_windows(
            replace(pipeline, reader=lambda plan: Lossy(desk.broker, plan)),
            WINDOWS,
            PLAIN,
            pass_over=pass_over_refused(pipeline),
        )
    )
    told_windows = [
        o.window if isinstance(o, PassedOver) else o.committed.receipt.window for o in outcomes
    ]
    refused = [WINDOWS.index(o.window) for o in outcomes if isinstance(o, PassedOver)]
    assert (told_windows, refused) == (WINDOWS, [0, 1, 2, 3, 4, 6, 7, 9, 11])
    assert committed_windows(desk) == [w for n, w in enumerate(WINDOWS) if n not in refused]
    names = ", ".join(WINDOWS[n].key for n in refused)
    assert (
        all_refused([o for o in outcomes if isinstance(o, PassedOver)], 12).message
        == f"9 of 12 windows refused: {names}"
    )


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("changed_part", ["cluster", "topic"])
def test_what_refuses_every_window_stops_at_the_first(
    desk: Desk, *, frozen: bool, changed_part: str
) -> None:
    """A wrong cluster, or a topic that was made again, stops the run at the first window: no
    window counts as refused for its data.
    """
    pipeline, rest = desk.pipeline(), WINDOWS[2:5]
    list(run_windows(pipeline, WINDOWS[:2], PLAIN))
    if frozen:
        for window in rest:
            plan = preview(pipeline, window)
            pipeline.ledger.freeze(pipeline.spec.id, [plan.start, plan.stop])
            pipeline.ledger.freeze_plans([plan])
    other_broker = MemoryBroker("other" if changed_part == "cluster" else "memory")
    other_broker.create_topic(TOPIC.topic, 1)
    # these windows have lost their messages, but later windows have not
    is_own_loss = frozen and changed_part == "topic"
    outcomes, ended = list[Result | PassedOver](), None
    try:
        outcomes += run_windows(
            replace(pipeline, broker=other_broker),
            rest,
            PLAIN,
            pass_over=pass_over_refused(pipeline),
        )
    except IdentityError as error:
        ended = error
    assert [o.window for o in outcomes if isinstance(o, PassedOver) and not o.error.of_setting] == (
        rest if is_own_loss else []
    )
    assert (ended is None) == is_own_loss
    if ended is not None:
        assert ended.of_setting
        assert f"Not tried: {rest[1].key} to {rest[2].key}, 2 windows." in ended.advice
    assert until(run_windows(pipeline, WINDOWS, PLAIN)) == WINDOWS
    verdict(desk)


def test_a_topic_that_another_cluster_lacks_was_not_removed(tmp_path: Path) -> None:
    """With `on_removed: drop`, a wrong cluster in the spec doesn't drop a window's messages."""
    desk = Desk(tmp_path, MemoryBroker())
    for i in range(30, 50):
        desk.broker.produce(
            TOPIC, b'{"id": %d, "name": null}' % i, timestamp=START + timedelta(minutes=6 * i)
        )
    source = {"bootstrap_servers": "127.0.0.1:9", "topic": "shop.things", "on_removed": "drop"}
    pipeline = desk.pipeline(source=source)
    pipeline.ledger.freeze_plans([preview(pipeline, WINDOWS[0])])
    with pytest.raises(IdentityError, match="and this is cluster other"):
        list(run_windows(replace(pipeline, broker=MemoryBroker("other")), WINDOWS[:1], PLAIN))


def test_what_goes_wrong_behind_a_commit_refuses_no_window(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committed window is never reported as refused: an error after its commit ends the run."""

    def refuse(*_: object) -> None:
        raise RefusedError("no", "ledger", "Look.")

    pipeline = desk.pipeline()
    monkeypatch.setattr(type(pipeline.ledger), "record", refuse)
    with pytest.raises(RefusedError, match=r"no \(ledger\)"):
        list(run_windows(pipeline, WINDOWS, PLAIN, pass_over=pass_over_refused(pipeline)))
    assert committed_windows(desk) == [WINDOWS[0]]


def test_seconds_are_a_windows_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt has only its own window's seconds, also if one job reads several windows."""
    now = 0.0
    monkeypatch.setattr("windrow.ingest.runner.task.time", SimpleNamespace(time=lambda: now))

    class Slow(MemoryReader):
        def read(self, split: Split, take: Take) -> ReadSummary:
            nonlocal now
            now += 5 if split.start == 70 else 1
            return super().read(split, take)

    pipeline = replace(desk.pipeline(), reader=lambda plan: Slow(desk.broker, plan))
    took = [result.committed.receipt.seconds for result in run_windows(pipeline, WINDOWS, PLAIN)]
    assert took == [1] * 7 + [5] + [1] * 4
