"""What was produced, what readers may see of it at any moment, and what must be there
when all is quiet.
"""

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


def produced(numbers: Iterable[int], rows: int) -> dict[TopicPartition, dict[int, object]]:
    """What the windows' messages are."""
    numbers, every = [*numbers], dict[TopicPartition, dict[int, object]]()
    for tp in (TopicPartition(TOPIC.topic, p) for p in range(PARTITIONS)):
        every[tp] = {
            offset: identity(tp, offset) for n in numbers for offset in range(*offsets_of(n, rows))
        }
    return every


def seen(pieces: Sequence[pa.Table], metadata: Mapping[str, str]) -> dict[Split, tuple[int, int]]:
    """Of each split that readers see any row of: how many rows, and how many different messages."""
    window, partition, offset = (metadata[name] for name in ("window", "partition", "offset"))
    if not pieces:
        return {}
    columns = [piece.select([window, partition, offset]) for piece in pieces]
    # tables of several kinds differ in what may be null
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


def unwhole(
    found: Mapping[Split, tuple[int, int]],
    before: Iterable[Split],
    rows: int,
    received: Collection[str] | None,
    capabilities: Capabilities = EXACTLY,
) -> list[str]:
    """What a reader may not see: a message twice; a window in part, where it is one
    unit; one that was there and is gone.

    A split has one dead letter, which is no row until it is replayed.

    Args:
        found: what it sees.
        before: the splits that it saw earlier.
        rows: of a window, dead letters included.
        received: the windows whose receipts it saw before it read, where those say what
            is whole; None where rows come all at once.
        capabilities: the sink's: a row may be there twice, or be missing, only where it
            doesn't promise that none is.
    """
    doubles, loses = capabilities.allows(lost=False), capabilities.allows(lost=True)
    whole, unit = rows // PARTITIONS, {key for key, _ in found} if received is None else {*received}
    wrong = [
        f"{n} rows of {m} messages of partition {p} in window {key}"
        for (key, p), (n, m) in found.items()
        if n != m and not doubles
    ]
    wrong += [f"window {key} has lost partition {p}" for key, p in before if (key, p) not in found]
    for key in sorted(unit):
        sizes = [found.get((key, p), (0, 0))[int(doubles)] for p in range(PARTITIONS)]
        if sizes not in ([whole - 1] * PARTITIONS, [whole] * PARTITIONS) and not (
            loses and max(sizes) <= whole
        ):
            wrong.append(
                f"{' + '.join(map(str, sizes))} rows of window {key}, of {PARTITIONS} splits of"
                f" {whole}"
            )
    return wrong


def verdict(world: SinkWorld, sink: Any, numbers: Sequence[int], rows: int) -> Report:
    """The checker's verdict over all that readers see, to the very end of it."""
    receipts = [c.receipt for c in sink.receipts()]
    dead, pieces, known = (
        [sink.read_dead(r.window) for r in receipts],
        world.pieces(sink),
        produced(numbers, rows),
    )
    report = check(known, pieces, dead, receipts, content="id", metadata=sink.metadata)
    if not sink.capabilities.allows(lost=False):
        return report
    once = check(
        known,
        without_doubles(pieces, sink.metadata),
        dead,
        receipts,
        content="id",
        metadata=sink.metadata,
    )
    return excused(
        msgspec.structs.replace(once, duplicated=report.duplicated, invented=report.invented),
        sink.capabilities,
    )


def without_doubles(pieces: Sequence[pa.Table], metadata: Mapping[str, str]) -> list[pa.Table]:
    """Of each message the row that stands first."""
    names = [metadata[name] for name in ("topic", "partition", "offset", "window")]
    seen, kept = set[tuple[Any, ...]](), []
    for piece in pieces:
        first = []
        for place in zip(*(piece[name].to_pylist() for name in names), strict=True):
            first.append(place not in seen)
            seen.add(place)
        kept.append(piece.filter(pa.array(first, pa.bool_())))
    return kept


def excused(report: Report, capabilities: Capabilities) -> Report:
    """A report, of rows without their doubles, without what follows from rows that come
    again: their order, and of lost ones their number.

    How many rows are there twice, or lost, it still says.
    """
    lost = bool(report.lost) and capabilities.allows(lost=True)
    receipts = tuple(
        line for line in report.receipts if not (lost and ": the receipt says " in line)
    )
    return msgspec.structs.replace(report, out_of_order=(), receipts=receipts)


def verdict_alone(world: SinkWorld, sink: Any, number: int, rows: int) -> Report:
    """The same over one window, and over nothing else of the table."""
    committed, column = sink.look(window(number)), sink.metadata["window"]
    receipts = [] if committed is None else [committed.receipt]
    pieces = [
        piece.filter(pc.equal(piece[column], window(number).key)) for piece in world.pieces(sink)
    ]
    dead = [sink.read_dead(r.window) for r in receipts]
    return check(
        produced([number], rows), pieces, dead, receipts, content="id", metadata=sink.metadata
    )


def unmerged(sink: Any) -> list[str]:
    """Where rows replace each other: what the receipts and the table don't agree on."""
    audit = sink.audit() if sink.capabilities.mode == "upsert" else None
    if audit is None or audit.keyed is None:
        return []
    return [
        str(finding)
        for finding in compare_merged(
            [c.receipt for c in sink.receipts()], audit, audit.keyed, deep=True, whole=True
        )
    ]
