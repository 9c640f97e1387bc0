"""A split's rows for each table, and each table's receipt of a window. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from windrow.ingest.model.receipt import (
    Checksum,
    Checksums,
    Counts,
    Receipt,
    Routed,
    SplitCounts,
    Staged,
)
from windrow.ingest.sinks.kit import checksum_text

Range: TypeAlias = tuple[str, int, int, int]


class TableRows(msgspec.Struct, frozen=True):
    """A split's rows in one table; stored as JSON.

    Attributes:
        table: the table's identity.
        rows: number of rows.
        messages: number of messages that the rows came from.
        checksum: the checksum of the rows.
        committables: the table's own committables.
        deletes: number of deletes, in a table with a primary key.
    """

    table: str
    rows: int
    messages: int
    checksum: Checksum
    committables: tuple[str, ...]
    deletes: int = 0


def parts_for(table: str, staged: Sequence[Staged]) -> dict[Range, TableRows]:
    """Returns the rows of one table, by the splits' ranges."""
    table_parts = (
        (s, msgspec.json.decode(committable, type=TableRows))
        for s in staged
        for committable in s.rows
    )
    return {
        (s.split.topic, s.split.partition, s.split.start, s.split.stop): part
        for s, part in table_parts
        if part.table == table
    }


def staged_for(parts: Mapping[Range, TableRows], staged: Sequence[Staged]) -> list[Staged]:
    """Returns the results of tasks for one table, with the table's own committables and counts."""
    own_parts = (
        (s, parts.get((s.split.topic, s.split.partition, s.split.start, s.split.stop)))
        for s in staged
    )
    return [
        msgspec.structs.replace(
            s,
            counts=_counts(s.counts, part, None),
            rows=() if part is None else part.committables,
            dead=(),
        )
        for s, part in own_parts
    ]


def receipt_for(
    parts: Mapping[Range, TableRows], receipt: Receipt, newest: Receipt | None
) -> Receipt:
    """Returns the receipt of one table. Messages of other tables are counted as filtered.

    Args:
        parts: the table's rows by split.
        receipt: the window's receipt.
        newest: the table's newest receipt of the window. A dead-letter replay adds its rows to
            those of this receipt, and names the attempt of this receipt.
    """
    adds = (
        newest is not None
        and receipt.dead_replay is not None
        and newest.generation < receipt.generation
    )
    base = {_range(s): s for s in newest.splits} if newest is not None and adds else {}
    splits = tuple(_counts(s, parts.get(_range(s)), base.get(_range(s))) for s in receipt.splits)
    dead_replay = (
        msgspec.structs.replace(receipt.dead_replay, replayed_attempt=newest.attempt)
        if newest is not None and receipt.dead_replay is not None
        else None
    )
    return msgspec.structs.replace(
        receipt, splits=splits, counts=Counts.total(splits), dead_replay=dead_replay
    )


def expected_routed(
    table: str, parts: Mapping[Range, TableRows], receipt: Receipt, older: Receipt | None
) -> Routed:
    """Returns the rows and the checksum that a table must have of a window.

    These are the rows of `parts` and, for a dead-letter replay, those of the older receipt.
    """
    rows, checksum = (
        sum(part.rows for part in parts.values()),
        sum(int(part.checksum, 16) for part in parts.values()),
    )
    for older_rows in older.routed if older is not None and receipt.dead_replay is not None else ():
        if older_rows.table == table:
            rows, checksum = rows + older_rows.rows, checksum + int(older_rows.checksum, 16)
    return Routed(table, rows, checksum_text(checksum))


def to_empty_receipt(receipt: Receipt, generation: int) -> Receipt:
    """Returns a table's receipt without rows, for a generation from before the table existed."""
    splits = tuple(_counts(s, None, None) for s in receipt.splits)
    changed = {
        "generation": generation,
        "splits": splits,
        "counts": Counts.total(splits),
        "dead_replay": None,
        "routed": (),
    }
    return msgspec.structs.replace(receipt, **changed)


def to_routed(table: str, table_receipt: Receipt) -> Routed:
    """Makes a table's entry for the window's receipt, from the table's own receipt."""
    checksum = sum(int(s.checksums.rows, 16) for s in table_receipt.splits)
    return Routed(table, table_receipt.counts.rows, checksum_text(checksum))


def _counts(counts: SplitCounts, part: TableRows | None, base: SplitCounts | None) -> SplitCounts:
    """Returns a split's counts for one table. Messages of other tables count as filtered.

    Args:
        counts: the split's counts for all tables.
        part: the split's rows in the table; None if it has none.
        base: counts of older rows that stay, in a dead-letter replay.
    """
    rows, deletes, messages, checksum = (
        (0, 0, 0, 0)
        if part is None
        else (part.rows, part.deletes, part.messages, int(part.checksum, 16))
    )
    if base is not None:
        rows, deletes, messages, checksum = (
            rows + base.rows,
            deletes + base.deletes,
            messages + base.valid,
            checksum + int(base.checksums.rows, 16),
        )
    return msgspec.structs.replace(
        counts,
        valid=messages,
        filtered=counts.filtered + counts.valid - messages,
        rows=rows,
        deletes=deletes,
        rows_staged=rows + deletes,
        checksums=Checksums(checksum_text(checksum), counts.checksums.dead),
    )


def _range(split: SplitCounts) -> Range:
    return split.topic, split.partition, split.start, split.stop
