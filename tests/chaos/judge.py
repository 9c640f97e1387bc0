"""What was produced, what readers may see of it at any moment, and what must be there when all is quiet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.model.boundary import TopicPartition
from ingest.operate.merged import compare_merged
from ingest.testing.checker import Report, check
from tests.chaos.worker import offsets_of
from tests.sinks.things import PARTITIONS, TOPIC, identity, window

Split = tuple[str, int]
"""A window's key and a partition."""


def produced(numbers: Iterable[int], rows: int) -> dict[TopicPartition, dict[int, object]]:
    """What the windows' messages are."""
    numbers, every = [*numbers], dict[TopicPartition, dict[int, object]]()
    for tp in (TopicPartition(TOPIC.topic, p) for p in range(PARTITIONS)):
        every[tp] = {offset: identity(tp, offset) for n in numbers for offset in range(*offsets_of(n, rows))}
    return every


def seen(pieces: Sequence[pa.Table], metadata: Mapping[str, str]) -> dict[Split, tuple[int, int]]:
    """Of each split that readers see any row of: how many rows, and how many different messages."""
    window, partition, offset = (metadata[name] for name in ("window", "partition", "offset"))
    if not pieces:
        return {}
    table = pa.concat_tables([piece.select([window, partition, offset]) for piece in pieces])
    counted = table.group_by([window, partition]).aggregate([(offset, "count"), (offset, "count_distinct")]).to_pylist()
    return {(row[window], row[partition]): (row[f"{offset}_count"], row[f"{offset}_count_distinct"]) for row in counted}


def unwhole(found: Mapping[Split, tuple[int, int]], before: Iterable[Split], rows: int, received: Collection[str] | None) -> list[str]:
    """What a reader may not see: a message twice; a window in part, where it is one unit; one that was there and is gone.

    A split has one dead letter, which is no row until it is mended.

    Args:
        found: what it sees.
        before: the splits that it saw earlier.
        rows: of a window, dead letters included.
        received: the windows whose receipts it saw before it read, where those say what is whole; None where rows come all at once.
    """
    whole, unit = rows // PARTITIONS, {key for key, _ in found} if received is None else {*received}
    wrong = [f"{n} rows of {m} messages of partition {p} in window {key}" for (key, p), (n, m) in found.items() if n != m]
    wrong += [f"window {key} has lost partition {p}" for key, p in before if (key, p) not in found]
    for key in sorted(unit):
        sizes = [found.get((key, p), (0, 0))[0] for p in range(PARTITIONS)]
        if sizes not in ([whole - 1] * PARTITIONS, [whole] * PARTITIONS):
            wrong.append(f"{' + '.join(map(str, sizes))} rows of window {key}, of {PARTITIONS} splits of {whole}")
    return wrong


def judged(world: Any, sink: Any, numbers: Sequence[int], rows: int) -> Report:
    """The checker's verdict over all that readers see, to the very end of it."""
    receipts = [c.receipt for c in sink.receipts()]
    dead = [sink.read_dead(r.window) for r in receipts]
    return check(produced(numbers, rows), world.pieces(sink), dead, receipts, content="id", metadata=sink.metadata)


def judged_alone(world: Any, sink: Any, number: int, rows: int) -> Report:
    """The same over one window, and over nothing else of the table."""
    committed, column = sink.look(window(number)), sink.metadata["window"]
    receipts = [] if committed is None else [committed.receipt]
    pieces = [piece.filter(pc.equal(piece[column], window(number).key)) for piece in world.pieces(sink)]
    dead = [sink.read_dead(r.window) for r in receipts]
    return check(produced([number], rows), pieces, dead, receipts, content="id", metadata=sink.metadata)


def unmerged(sink: Any) -> list[str]:
    """Where rows replace each other: what the receipts and the table don't agree on."""
    audit = sink.audit() if sink.promises.mode == "upsert" else None
    if audit is None or audit.keyed is None:
        return []
    return [str(finding) for finding in compare_merged([c.receipt for c in sink.receipts()], audit, audit.keyed, deep=True, whole=True)]
