"""The expected messages, the rules for what readers may see, and the check at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tests.chaos.worker import offsets_of
from tests.sinks.world import SinkWorld
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.windows import PARTITIONS, TOPIC, identity, window

EXACTLY = Capabilities()
Split = tuple[str, int]
"""A window's key and a partition."""


def produced_messages(numbers: Iterable[int], rows: int) -> dict[TopicPartition, dict[int, object]]:
    """Returns the identities of the windows' messages by topic-partition and offset."""
    numbers, messages_by_tp = [*numbers], dict[TopicPartition, dict[int, object]]()
    for tp in (TopicPartition(TOPIC.topic, p) for p in range(PARTITIONS)):
        messages_by_tp[tp] = {
            offset: identity(tp, offset) for n in numbers for offset in range(*offsets_of(n, rows))
        }
    return messages_by_tp


def count_seen(
    pieces: Sequence[pa.Table], metadata: Mapping[str, str]
) -> dict[Split, tuple[int, int]]:
    """Returns the number of rows and of different messages for each split with visible rows."""
    window, partition, offset = (metadata[name] for name in ("window", "partition", "offset"))
    if not pieces:
        return {}
    columns = [piece.select([window, partition, offset]) for piece in pieces]
    # tables of different kinds differ in the nullability of columns
    table = pa.concat_tables(columns, promote_options="default")
    counted = (
        table.group_by([window, partition])
        .aggregate([(offset, "count"), (offset, "count_distinct")])
        .to_pylist()
    )
    return {
        (row[window], row[partition]): (row[f"{offset}_count"], row[f"{offset}_count_distinct"])
        for row in counted
    }


def find_violations(
    row_counts: Mapping[Split, tuple[int, int]],
    seen_before: Iterable[Split],
    rows: int,
    received: Collection[str] | None,
    capabilities: Capabilities = EXACTLY,
) -> list[str]:
    """Returns the violations that a reader sees.

    These are a message twice, a part of a window that must be visible at once, and a split that
    disappeared. A split has one dead letter, which has no row until it is replayed.

    Args:
        row_counts: the number of rows and of different messages that it sees in each split.
        seen_before: the splits that it saw earlier.
        rows: the number of messages of a window, dead letters included.
        received: the windows whose receipts it saw before it read the rows, if only receipts
            say that a window is complete; None if a window's rows become visible at once.
        capabilities: the sink's capabilities. Rows may be doubled or missing only if its
            guarantee allows that.
    """
    doubles, loses = capabilities.allows(loss=False), capabilities.allows(loss=True)
    split_rows, unit = (
        rows // PARTITIONS,
        {key for key, _ in row_counts} if received is None else {*received},
    )
    violations = [
        f"{n} rows of {m} messages of partition {p} in window {key}"
        for (key, p), (n, m) in row_counts.items()
        if n != m and not doubles
    ]
    violations += [
        f"window {key} has lost partition {p}"
        for key, p in seen_before
        if (key, p) not in row_counts
    ]
    for key in sorted(unit):
        sizes = [row_counts.get((key, p), (0, 0))[int(doubles)] for p in range(PARTITIONS)]
        if sizes not in ([split_rows - 1] * PARTITIONS, [split_rows] * PARTITIONS) and not (
            loses and max(sizes) <= split_rows
        ):
            violations.append(
                f"{' + '.join(map(str, sizes))} rows of window {key}, of {PARTITIONS} splits of"
                f" {split_rows}"
            )
    return violations


def verdict(world: SinkWorld, sink: Any, numbers: Sequence[int], rows: int) -> Report:
    """Returns the checker's report about the whole table, at its end."""
    receipts = [c.receipt for c in sink.receipts()]
    dead, pieces, known_messages = (
        [sink.read_dead(r.window) for r in receipts],
        world.pieces(sink),
        produced_messages(numbers, rows),
    )
    report = check(known_messages, pieces, dead, receipts, content="id", metadata=sink.metadata)
    if not sink.capabilities.allows(loss=False):
        return report
    once = check(
        known_messages,
        without_doubles(pieces, sink.metadata),
        dead,
        receipts,
        content="id",
        metadata=sink.metadata,
    )
    return excuse(
        msgspec.structs.replace(once, duplicated=report.duplicated, invented=report.invented),
        sink.capabilities,
    )


def without_doubles(pieces: Sequence[pa.Table], metadata: Mapping[str, str]) -> list[pa.Table]:
    """Returns the first row of each message."""
    names = [metadata[name] for name in ("topic", "partition", "offset", "window")]
    seen_messages, first_rows = set[tuple[Any, ...]](), []
    for piece in pieces:
        first = []
        for message_key in zip(*(piece[name].to_pylist() for name in names), strict=True):
            first.append(message_key not in seen_messages)
            seen_messages.add(message_key)
        first_rows.append(piece.filter(pa.array(first, pa.bool_())))
    return first_rows


def excuse(report: Report, capabilities: Capabilities) -> Report:
    """Removes findings that follow from lost or doubled rows which the guarantee allows.

    These are the order of rows, and receipts whose counts differ because of lost rows. The lost
    and doubled rows themselves stay in the report.

    Args:
        report: the report about the rows without duplicates.
        capabilities: the sink's capabilities.
    """
    may_lose = bool(report.missing) and capabilities.allows(loss=True)
    receipts = tuple(
        line for line in report.receipts if not (may_lose and ": the receipt says " in line)
    )
    return msgspec.structs.replace(report, out_of_order=(), receipts=receipts)


def verdict_alone(world: SinkWorld, sink: Any, number: int, rows: int) -> Report:
    """Returns the checker's report about a single window."""
    committed, column = sink.look(window(number)), sink.metadata["window"]
    receipts = [] if committed is None else [committed.receipt]
    pieces = [
        piece.filter(pc.equal(piece[column], window(number).key)) for piece in world.pieces(sink)
    ]
    dead = [sink.read_dead(r.window) for r in receipts]
    return check(
        produced_messages([number], rows),
        pieces,
        dead,
        receipts,
        content="id",
        metadata=sink.metadata,
    )


def unmerged(sink: Any) -> list[str]:
    """Returns differences between receipts and a table in which rows replace each other."""
    audit = sink.audit() if sink.capabilities.mode == "upsert" else None
    if audit is None or audit.keyed is None:
        return []
    return [
        str(finding)
        for finding in compare_merged(
            [c.receipt for c in sink.receipts()], audit, audit.keyed, deep=True, complete=True
        )
    ]
