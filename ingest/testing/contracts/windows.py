"""Small windows, plans, messages and receipts for tests of sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import (
    Checksums,
    Counts,
    DeadReplay,
    Receipt,
    SplitCounts,
    Staged,
)
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.ports.sink import Done, Sink, Stager
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.row_changes import only_rows

T = TypeVar("T")

ROWS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("amount", pa.int64())])
FIRST = datetime(2026, 1, 2, tzinfo=UTC)
PER_WINDOW = 10
PARTITIONS = 2
TOPIC = TopicSeen("shop.orders", "topic-id-1", PARTITIONS)
DEAD = 3
"""Index of the dead letter among the messages of a split."""
WHY = ("value", "truncated", "at $.amount", "7")
"""The values of `REASONS` of this dead letter."""


def window(number: int, pipeline: str = "orders") -> Window:
    """Returns the window of the n-th hour, from 0 on."""
    start = FIRST + timedelta(hours=number)
    return Window(pipeline, start, start + timedelta(hours=1))


def plan(
    sink: Sink, number: int, offsets: tuple[int, int] | None = None, pipeline: str = "orders"
) -> Plan:
    """Returns the plan of window n.

    It has offsets [10n, 10n + 10) of each of two topic-partitions, or `offsets` if given.
    """
    return plan_of(
        sink, window(number, pipeline), offsets or (number * PER_WINDOW, (number + 1) * PER_WINDOW)
    )


def plan_of(
    sink: Sink,
    planned_window: Window,
    offsets: tuple[int, int],
    topics: Sequence[TopicSeen] = (TOPIC,),
    cluster: str = "cluster",
) -> Plan:
    """Returns the plan of any window.

    Args:
        sink: the sink.
        planned_window: the window.
        offsets: start and stop of the split of each partition; no splits if they are equal.
        topics: the topics of both boundaries.
        cluster: the cluster's id.
    """
    low, high = offsets
    tps = [(t.topic, p) for t in topics for p in range(t.partitions)]
    ends = [
        Boundary.of(label, cluster, topics, [Mark(*tp, offset, "settled") for tp in tps])
        for label, offset in ((planned_window.start, low), (planned_window.end, high))
    ]
    splits = tuple(Split(*tp, low, high) for tp in tps) if low < high else ()
    return Plan(planned_window, ends[0], ends[1], splits, sink.identity)


def messages(split: Split) -> pa.RecordBatch:
    """Returns all messages of a split. Every third message has no timestamp."""
    n, offsets = split.stop - split.start, range(split.start, split.stop)
    stamps = [None if o % 3 == 0 else FIRST + timedelta(milliseconds=o) for o in offsets]
    columns = [
        [split.topic] * n,
        [split.partition] * n,
        list(offsets),
        stamps,
        ["CreateTime"] * n,
        [None] * n,
        [b"v%d" % o for o in offsets],
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}]] * n,
        [7] * n,
    ]
    return pa.record_batch(
        [
            (
                pa.array(c, f.type)
                if not pa.types.is_dictionary(f.type)
                else pa.array(c, pa.string()).dictionary_encode().cast(f.type)
            )
            for c, f in zip(columns, MESSAGES, strict=True)
        ],
        schema=MESSAGES,
    )


def identity(tp: TopicPartition, offset: int) -> str:
    """Returns the value of `id` in the row of a message."""
    return f"{tp.partition}-{offset}"


def produced_messages(numbers: Sequence[int]) -> dict[TopicPartition, dict[int, object]]:
    """Returns the messages of some windows, as `testing.checker.check` needs them."""
    messages_by_partition: dict[TopicPartition, dict[int, object]] = {}
    for p in range(PARTITIONS):
        tp = TopicPartition(TOPIC.topic, p)
        messages_by_partition[tp] = {
            o: identity(tp, o) for n in numbers for o in range(n * PER_WINDOW, (n + 1) * PER_WINDOW)
        }
    return messages_by_partition


def stage(
    sink: Any, planned: Plan, generation: int, attempt: str, *, dead: bool = True
) -> list[Staged]:
    """Stages a plan as the tasks of a run would.

    Args:
        sink: a sink with `dead_letters`.
        planned: the plan.
        generation: the number of the generation.
        attempt: the attempt's id.
        dead: one message of each split is a dead letter.
    """
    rows, letters = (
        sink.stager(planned, generation, attempt),
        sink.dead_letters.stager(planned, generation, attempt),
    )
    keyed = sink.capabilities.mode == "upsert"
    return [stage_split(rows(s), letters(s), s, dead=dead, keyed=keyed) for s in planned.splits]


def stage_split(
    rows: Stager, letters: Stager, split: Split, *, dead: bool, keyed: bool = False
) -> Staged:
    """Stages one split: rows in two batches, with the crash points of a task.

    Args:
        rows: the stager of rows.
        letters: the stager of dead letters.
        split: the split.
        dead: the fourth message is a dead letter.
        keyed: rows are staged as changes.
    """
    split_messages = messages(split)
    refused = [DEAD] if dead and split_messages.num_rows > DEAD else []
    good = [i for i in range(split_messages.num_rows) if i not in refused]
    for part in (good[: len(good) // 2], good[len(good) // 2 :]):
        batch = split_messages.take(pa.array(part, pa.int64()))
        ids = [identity(split.tp, o) for o in batch["offset"].to_pylist()]
        row_batch = pa.record_batch(
            [pa.array(ids, pa.string()), pa.array(range(len(ids)), pa.int64())], schema=ROWS
        )
        rows.add(only_rows(row_batch) if keyed else row_batch, batch)
        crash_point("write.middle")
    if refused:
        text = [pa.array([t], pa.string()) for t in WHY]
        letters.add(pa.record_batch(text, schema=REASONS), split_messages.take(pa.array(refused)))
    letters_staged, rows_staged = letters.finish(), rows.finish()
    crash_point("write.after")
    n = split_messages.num_rows
    counts = split_counts(
        split,
        read=n,
        bytes=n * 2,
        valid=n - len(refused),
        dead=len(refused),
        rows_staged=rows_staged.rows,
        dead_staged=letters_staged.rows,
        checksums=Checksums(rows_staged.checksum, letters_staged.checksum),
        rows=n - len(refused),
    )
    return Staged(split, counts, rows_staged.committables, letters_staged.committables)


def split_counts(split: Split, **counts: Any) -> SplitCounts:
    """Returns the counts of a split that was read to its end: these fields, and zeros."""
    return msgspec.structs.replace(SplitCounts.of_nothing(split), **counts)


def receipt(
    planned: Plan,
    staged: Sequence[Staged],
    generation: int,
    attempt: str,
    *,
    ledger: str = "ledger-1",
    grid: str = "hourly",
) -> Receipt:
    """Returns the receipt for a staged plan."""
    splits = tuple(s.counts for s in staged)
    return Receipt(
        planned,
        planned.digest,
        generation,
        attempt,
        "request",
        ledger,
        grid,
        Counts.total(splits),
        splits,
        tuple((f.name, str(f.type)) for f in ROWS),
        "test",
        FIRST,
        0.1,
    )


def staged_rows(
    sink: Any,
    planned: Plan,
    rows_of: Callable[[Split], Sequence[pa.RecordBatch]],
    generation: int = 0,
    attempt: str = "a1",
) -> tuple[Receipt, list[Staged]]:
    """Stages a plan with given rows; returns its receipt and the staged results.

    Args:
        sink: the sink.
        planned: the plan.
        rows_of: returns the batches of a split, with one row for each of its messages.
        generation: the number of the generation.
        attempt: the attempt's id.
    """
    factory, staged = sink.stager(planned, generation, attempt), []
    for split in planned.splits:
        stager, split_messages, n = factory(split), messages(split), 0
        for batch in rows_of(split):
            row_batch = only_rows(batch) if sink.capabilities.mode == "upsert" else batch
            stager.add(row_batch, split_messages.slice(n, batch.num_rows))
            n += batch.num_rows
        done = stager.finish()
        counts = split_counts(
            split,
            read=n,
            bytes=n * 2,
            valid=n,
            rows_staged=done.rows,
            checksums=Checksums(done.checksum),
            rows=n,
        )
        staged.append(Staged(split, counts, done.committables, ()))
    return receipt(planned, staged, generation, attempt), staged


def commit_rows(sink: Any, rows: pa.RecordBatch) -> Receipt:
    """Makes a table, and commits a window with these rows in each split, in two batches."""
    sink.prepare()
    planned = plan(sink, 0, (0, rows.num_rows))
    cuts = [batch for batch in (rows.slice(0, 1), rows.slice(1)) if batch.num_rows]
    new_receipt, staged = staged_rows(sink, planned, lambda _: cuts)
    assert isinstance(sink.commit(new_receipt, staged), Done)
    return new_receipt


def staged_receipt(
    sink: Any, number: int, generation: int = 0, attempt: str = "a1", *, dead: bool = True
) -> tuple[Receipt, list[Staged]]:
    """Stages window n; returns its receipt and the staged results."""
    planned = plan(sink, number)
    staged = stage(sink, planned, generation, attempt, dead=dead)
    return receipt(planned, staged, generation, attempt), staged


def staged_dead_replay(sink: Any, base: Receipt, attempt: str) -> tuple[Receipt, list[Staged]]:
    """Stages a dead-letter replay: the next generation, in which each dead letter is a row.

    Args:
        sink: the sink.
        base: the receipt of the committed generation.
        attempt: the attempt's id.
    """
    stager, staged = sink.stager(base.plan, base.generation + 1, attempt), []
    for split, base_counts in zip(base.plan.splits, base.splits, strict=True):
        rows, letter = stager(split), messages(split).slice(DEAD, 1)
        ids = [identity(split.tp, o) for o in letter["offset"].to_pylist()]
        row_batch = pa.record_batch(
            [pa.array(ids, pa.string()), pa.array([0], pa.int64())], schema=ROWS
        )
        rows.add(only_rows(row_batch) if sink.capabilities.mode == "upsert" else row_batch, letter)
        more = rows.finish()
        checksums = Checksums(
            f"{(int(base_counts.checksums.rows, 16) + int(more.checksum, 16)) % 2**64:016x}"
        )
        counts = msgspec.structs.replace(
            base_counts,
            valid=base_counts.valid + 1,
            rows=base_counts.rows + 1,
            dead=0,
            rows_staged=base_counts.rows_staged + 1,
            dead_staged=0,
            checksums=checksums,
        )
        staged.append(Staged(split, counts, more.committables, ()))
    splits = tuple(s.counts for s in staged)
    dead_replay = DeadReplay(base.attempt, base.attempt, len(splits))
    changed = {"splits": splits, "counts": Counts.total(splits), "dead_replay": dead_replay}
    return (
        msgspec.structs.replace(
            as_proposed(base), generation=base.generation + 1, attempt=attempt, **changed
        ),
        staged,
    )


def as_proposed(committed: Receipt) -> Receipt:
    """Returns a receipt without the fields that the sink fills in."""
    return msgspec.structs.replace(committed, merged=None, routed=())


def with_digest(original: Receipt, planned: Plan) -> Receipt:
    """Returns the same receipt with another plan."""
    return msgspec.structs.replace(original, plan=planned, digest=planned.digest)


def run_together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Runs all calls at once, in threads; returns their results in order.

    Raises:
        BaseException: the first error of a call.
    """
    gate, results, errors = threading.Barrier(len(calls)), {}, []

    def run(i: int) -> None:
        try:
            gate.wait(60)
            results[i] = calls[i]()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a call neither returned nor failed"
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(calls))]
