"""Messages that kill their workers, in windows on a broker in memory.

Trials are real processes: forks of the test's process, which has the broker.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from tests.contracts.source_desk import PlainDecoder, SourceDesk, hour, minutes
from tests.integration.poisonous import Poisonous, Way
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import DeadLetterLimitError, DeadWorkerError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.ledger_records import PoisonPill
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.runner import poison_search
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.poison_pills import POISON_PILL
from windrow.ingest.runner.poison_search import Death
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.task import SplitTask
from windrow.ingest.runner.trial_process import run_trial
from windrow.ingest.testing.engine import LocalEngine, WorkerDiedError
from windrow.ingest.transform.chain import Chain

KILLER = 2


@contextmanager
def forked_trials(task: SplitTask, memory: int) -> Iterator[Callable[[Split], Death | None]]:
    """Runs trials in forks of this process; see `poison_search.open_trials`.

    A fork never garbage-collects objects of this process, as in `tests.forked`.
    """

    def try_range(split: Split) -> Death | None:
        gc.freeze()
        try:
            # this process may have more than a worker's memory, without a message
            trial = run_trial(task, split, max(memory, 1 << 40), 60)
            return poison_search.death_of(memory, *trial)
        finally:
            gc.unfreeze()

    yield try_range


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_search, "open_trials", forked_trials)


@pytest.fixture
def tp(desk: SourceDesk) -> TopicPartition:
    """A topic-partition with five messages in the first hour, and one in the next."""
    desk.plain = True  # a fork of this process may not use polars, whose threads it doesn't have
    tp = desk.logs.partition()
    desk.send(tp, *minutes(1, 2, 3, 4, 5, 70))
    return tp


def pipeline_of(
    desk: SourceDesk,
    tp: TopicPartition,
    deaths: dict[int, Way],
    together: tuple[int, ...] = (),
    **over: object,
) -> Pipeline:
    """Returns a pipeline whose workers die of some messages."""
    pipeline = desk.pipeline({"topic": tp.topic}, **over)
    poisonous, rules = Poisonous(deaths, together, os.getpid()), pipeline.transform()
    return replace(pipeline, transform=lambda: Chain((poisonous, rules)))


def run_first(pipeline: Pipeline, **request: bool) -> Result:
    """Runs the first hour."""
    return run(pipeline, hour(0), Request(f"r{request}", **request))


def assert_exactly_once(desk: SourceDesk, pipeline: Pipeline) -> None:
    """Runs the second hour, too, and asserts that each message is one row or dead letter."""
    desk.run(pipeline, 1)
    assert desk.verdict().ok


def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each search for a poison pill fail the test."""
    monkeypatch.setattr(poison_search, "find_killers", pytest.fail)


def test_a_poison_pill_is_left_out(desk: SourceDesk, tp: TopicPartition) -> None:
    """A message that kills its worker becomes a dead letter with its bytes and the reason.

    The other messages become rows, the plan stays, and the receipt warns. Windows of other
    messages don't know it.
    """
    pipeline = pipeline_of(desk, tp, {KILLER: "abort"})
    receipt = run_first(pipeline).committed.receipt
    assert desk.sink is not None
    assert pipeline.ledger.plan(hour(0)) == receipt.plan
    assert (receipt.counts.read, receipt.counts.valid, receipt.counts.dead) == (5, 4, 1)
    assert dict(receipt.reasons) == {POISON_PILL: 1}
    (warning,) = receipt.warnings
    assert f"{tp}@{KILLER} (signal 6, Aborted) is left out" in warning
    (dead,) = desk.sink.read_dead(hour(0)).to_pylist()
    assert (dead["_offset"], dead["stage"], dead["reason"]) == (KILLER, "rules", POISON_PILL)
    assert dead["value"] == b'{"id": 2, "name": null}'
    assert "signal 6, Aborted" in dead["detail"]
    assert desk.run(pipeline, 1)[0].committed.receipt.warnings == ()
    assert desk.verdict().ok


@dataclass(frozen=True)
class DeadlyDecoder(PlainDecoder):
    """A decoder that kills its process at one message, except the test's.

    Attributes:
        test_process: the process of the test; see `Poisonous`.
    """

    test_process: int = 0

    def open(self) -> Decode:
        """Returns a function that decodes, or dies."""
        decode = super().open()

        def decode_or_die(messages: pa.RecordBatch) -> Decoded:
            if KILLER in messages["offset"].to_pylist():
                if os.getpid() == self.test_process:
                    raise WorkerDiedError
                os.abort()
            return decode(messages)

        return decode_or_die


def test_a_decoder_that_dies(desk: SourceDesk, tp: TopicPartition) -> None:
    """A message at which the decoder dies becomes a dead letter of the stage value."""
    pipeline = pipeline_of(desk, tp, {})
    decoder = DeadlyDecoder(pipeline.columns(), os.getpid())
    run_first(replace(pipeline, decoder=lambda: decoder))
    assert desk.sink is not None
    (dead,) = desk.sink.read_dead(hour(0)).to_pylist()
    assert (dead["_offset"], dead["stage"]) == (KILLER, "value")


@pytest.mark.long
def test_many_poison_pills(desk: SourceDesk, tp: TopicPartition) -> None:
    """All messages of a window may be poison pills; each is left out, by one search."""
    no_limits = {"max_dead_ratio": None}
    pipeline = pipeline_of(desk, tp, dict.fromkeys(range(5), "abort"), limits=no_limits)
    counts = run_first(pipeline).committed.receipt.counts
    assert (counts.read, counts.valid, counts.dead) == (5, 0, 5)
    assert_exactly_once(desk, pipeline)


def test_more_memory_than_a_worker_has(desk: SourceDesk, tp: TopicPartition) -> None:
    """A message that takes more memory than a worker has is a poison pill; the reason says so."""

    class Limited(LocalEngine):
        def worker_memory(self) -> int:
            return 3 << 30

    desk.engine = Limited()
    run_first(pipeline_of(desk, tp, {KILLER: "memory"}))
    (pill,) = pipeline_of(desk, tp, {}).ledger.poison_pills("things")
    assert pill.reason == "more than 3 GiB of memory"


def test_dead_letter_limits_count_poison_pills(desk: SourceDesk, tp: TopicPartition) -> None:
    """A window with more poison pills than its limits allow is refused, in each run."""
    pipeline = pipeline_of(desk, tp, {KILLER: "abort"}, limits={"max_dead_count": 0})
    for _ in range(2):
        with pytest.raises(DeadLetterLimitError, match="signal 6"):
            run_first(pipeline)
    assert pipeline.sink.look(hour(0)) is None


def test_messages_that_kill_only_together(desk: SourceDesk, tp: TopicPartition) -> None:
    """Messages that kill only in one batch aren't left out: the window fails and says why."""
    pipeline = pipeline_of(desk, tp, {}, together=(1, 3))
    with pytest.raises(DeadWorkerError, match=r"offsets 0 to 4 .* did so twice alone"):
        run_first(pipeline)
    assert pipeline.ledger.poison_pills("things") == []


def test_a_lost_worker_proves_nothing(desk: SourceDesk, tp: TopicPartition) -> None:
    """If a worker is lost and no message kills a process, nothing is left out.

    The window fails, and the error says what was tried.
    """

    class Lost(LocalEngine):
        def run(self, *_: object) -> object:
            raise DeadWorkerError("An executor is lost", "stage", "Run the window again.")

    pipeline = pipeline_of(desk, tp, {})
    with pytest.raises(DeadWorkerError, match=r"executor is lost\. All messages were decoded"):
        run_first(replace(pipeline, engine=Lost()))
    assert pipeline.ledger.poison_pills("things") == []
    assert run_first(pipeline).committed.receipt.counts.dead == 0


def test_replays_leave_poison_pills_out(
    desk: SourceDesk, tp: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay leaves the message out without a search, even if it wouldn't kill any more.

    With `try_again` it becomes a row; or it is found again, if it still kills.
    """
    run_first(pipeline_of(desk, tp, {KILLER: "abort"}))
    still_deadly, harmless = (pipeline_of(desk, tp, deaths) for deaths in ({KILLER: "abort"}, {}))
    assert run_first(still_deadly, replace=True, try_again=True).committed.receipt.counts.dead == 1
    no_search(monkeypatch)
    assert run(harmless, hour(0), Request("a", replace=True)).committed.receipt.counts.dead == 1
    desk.run(harmless, 1)
    assert desk.verdict().ok
    again = run(harmless, hour(0), Request("b", replace=True, try_again=True))
    assert (again.committed.receipt.counts.dead, again.committed.receipt.warnings) == (0, ())
    assert run(harmless, hour(0), Request("c", replace=True)).committed.receipt.counts.dead == 0
    assert desk.verdict().ok
    (record,) = harmless.ledger.poison_pills("things")
    assert (record.number, record.left_out) == (3, False)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["poison.before", "poison.after", "write.middle"])
def test_the_driver_dies_around_the_record(
    desk: SourceDesk, tp: TopicPartition, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A driver dies before or after it records a poison pill, or in the attempt after it.

    1. The message has killed two processes.
    2. The record is put into the ledger.
    3. The driver dies; or it dies later, while the attempt stages the other messages.
    4. The next run finds the record and doesn't search; before step 2, it searches.
    """
    pipeline = pipeline_of(desk, tp, {KILLER: "abort"})
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
    with pytest.raises(CrashError):
        run_first(pipeline)
    assert_recorded(pipeline, expected=point != "poison.before")
    monkeypatch.delenv("WINDROW_CRASH")
    if point != "poison.before":
        no_search(monkeypatch)
    assert run_first(pipeline).committed.receipt.counts.dead == 1
    assert_exactly_once(desk, pipeline)


def assert_recorded(pipeline: Pipeline, *, expected: bool = True) -> None:
    """Asserts that the ledger has the poison pill."""
    offsets = [pill.offset for pill in pipeline.ledger.poison_pills("things")]
    assert offsets == ([KILLER] if expected else []), "an attempt began before the record"


def test_a_twin_that_records_after_the_attempt_is_seen(
    desk: SourceDesk, tp: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin that leaves the message out first, and records it after the attempt, is noticed.

    If it dies in the attempt, its ledger doesn't have the message that was left out.
    """
    pipeline = pipeline_of(desk, tp, {KILLER: "abort"})
    late = list[PoisonPill]()
    put = type(pipeline.ledger).put_poison_pill
    monkeypatch.setattr(
        type(pipeline.ledger), "put_poison_pill", lambda _, __, pill: late.append(pill) or pill
    )
    monkeypatch.setenv("WINDROW_CRASH", "write.middle:raise")
    with pytest.raises(CrashError):
        run_first(pipeline)
    with pytest.raises(AssertionError, match="began before the record"):
        assert_recorded(pipeline)
    assert [pill.offset for pill in late] == [KILLER]
    put(pipeline.ledger, "things", late[0])
    assert_recorded(pipeline)


def test_two_runs_search_at_once(
    desk: SourceDesk, tp: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another run records the message first, both runs have one record, and one commits.

    1. Two runs search, and find the message.
    2. The other run records it, and commits the window.
    3. This run records it: it gets the other's record, and sees the other's commit.
    """
    pipeline = pipeline_of(desk, tp, {KILLER: "abort"})
    record: Callable[..., PoisonPill] = poison_search.record_poison_pill
    records, others = list[PoisonPill](), list[Result]()

    def record_second(*arguments: object) -> PoisonPill:
        monkeypatch.setattr(poison_search, "record_poison_pill", record)
        others.append(run_first(pipeline))
        records.append(record(*arguments))
        return records[0]

    monkeypatch.setattr(poison_search, "record_poison_pill", record_second)
    result = run_first(pipeline)
    assert result.recovered
    assert result.committed.receipt.attempt == others[0].committed.receipt.attempt
    assert pipeline.ledger.poison_pills("things") == records
    assert records[0].number == 0
    assert_exactly_once(desk, pipeline)
