"""A checker that compares a table with the messages that were produced.

It is pure, and doesn't know how the table was written. Like Jepsen's queue checkers, it finds
rows that are lost, duplicated, invented, or out of order. It also checks windrow's promises:
each receipt matches the data, the counters add up, and windows have neither gaps nor overlaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.admin.verify import check_tiling, compare_receipts
from windrow.ingest.errors import format_count
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Receipt

MessagePosition = tuple[TopicPartition, int]
"""The position of a message: its topic-partition and offset."""


class Report(msgspec.Struct, frozen=True):
    """All problems that were found.

    Attributes:
        missing: messages without a row and without a dead letter, or without all their rows.
        duplicated: messages whose row or dead letter is there twice, or that have both.
        invented: rows and dead letters without a produced message, or with other content.
        out_of_order: rows that come after a row with a higher offset.
        receipts: sentences about receipts that don't match the data.
        accounting: sentences about counters and windows.
    """

    missing: tuple[MessagePosition, ...] = ()
    duplicated: tuple[MessagePosition, ...] = ()
    invented: tuple[MessagePosition, ...] = ()
    out_of_order: tuple[MessagePosition, ...] = ()
    receipts: tuple[str, ...] = ()
    accounting: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return self == Report()

    def __str__(self) -> str:
        """Returns the number of problems of each kind, with the first few of them."""
        if self.ok:
            return (
                "nothing lost, nothing twice, nothing invented; in order; receipts and counters"
                " agree"
            )
        parts = []
        for damage, positions in (
            ("lost", self.missing),
            ("duplicated", self.duplicated),
            ("invented", self.invented),
            ("out of order", self.out_of_order),
        ):
            if positions:
                shown = ", ".join(f"{tp}@{offset}" for tp, offset in positions[:5])
                parts.append(
                    f"{len(positions)} {damage}: {shown}" + (" ..." if len(positions) > 5 else "")
                )
        return "; ".join([*parts, *self.receipts[:5], *self.accounting[:5]])


class _Row(msgspec.Struct, frozen=True):
    position: MessagePosition
    ordinal: int
    window: str
    content: object


def check(
    produced: Mapping[TopicPartition, Mapping[int, object]],
    pieces: Iterable[pa.Table],
    dead: Iterable[pa.Table],
    receipts: Iterable[Receipt],
    content: str | None = None,
    metadata: Mapping[str, str] = DEFAULT,
) -> Report:
    """Compares a table with the messages that were produced.

    Args:
        produced: the messages that must be in the table, by topic-partition: offset ->
            identity of the row that is made of the message. For several rows, it is a tuple
            of identities. These are the visible messages of the committed windows, without
            messages that the pipeline drops or filters, and without messages that were gone
            before they could be read. Messages of a window whose rows have expired may be
            among them. Without `content`, identities are ignored.
        pieces: the table's rows, with at least the metadata columns topic, partition, offset
            and window. Each piece has its rows in the order in which they are stored.
        dead: the dead letters that readers see, with the same metadata columns.
        receipts: the receipts that the sink returns.
        content: the column that must equal the identity of each row.
        metadata: the metadata columns of `pieces`, metadata name -> column. Dead letters have
            the default names. If a message may become several rows, `ordinal` must be among
            them, to distinguish these rows from duplicates.
    """
    split_rows = [list(_rows(piece, metadata, content)) for piece in pieces]
    rows = [row for piece in split_rows for row in piece]
    refused = [row for piece in dead for row in _rows(piece, DEFAULT, None)]
    identity_by_position = {
        (tp, offset): identity
        for tp, offsets in produced.items()
        for offset, identity in offsets.items()
    }
    times = Counter(row.position for row in [*rows, *refused])
    twice = [
        position
        for (position, _), n in Counter((row.position, row.ordinal) for row in rows).items()
        if n > 1
    ]
    both = {row.position for row in rows} & {row.position for row in refused}
    altered = {
        row.position
        for row in rows
        if content is not None
        and row.position in identity_by_position
        and row.content != _content(identity_by_position[row.position], row)
    }
    sorted_receipts = sorted(receipts, key=lambda r: r.window)
    expired = [s for r in sorted_receipts if r.expired_at is not None for s in r.plan.splits]
    absent = {
        position
        for position in identity_by_position.keys() - times.keys()
        if not _is_in(position, expired)
    }
    return Report(
        missing=tuple(sorted(absent | _incomplete(rows, identity_by_position))),
        duplicated=tuple(
            sorted(
                {
                    *twice,
                    *both,
                    *(
                        position
                        for position, n in Counter(row.position for row in refused).items()
                        if n > 1
                    ),
                }
            )
        ),
        invented=tuple(sorted((times.keys() - identity_by_position.keys()) | altered)),
        out_of_order=tuple(position for piece in split_rows for position in _out_of_order(piece)),
        receipts=(
            *_against_data(sorted_receipts, rows, "rows"),
            *_against_data(sorted_receipts, refused, "dead letters"),
        ),
        accounting=(
            *(line for r in sorted_receipts for line in _sums(r)),
            *(
                f"window {finding.window}: {finding.message}"
                for finding in (*compare_receipts(sorted_receipts), *check_tiling(sorted_receipts))
                if finding.level == "wrong"
            ),
        ),
    )


def _rows(piece: pa.Table, metadata: Mapping[str, str], content: str | None) -> Iterator[_Row]:
    topics, partitions, offsets, windows = (
        piece[metadata[name]].to_pylist() for name in ("topic", "partition", "offset", "window")
    )
    contents = piece[content].to_pylist() if content is not None else [None] * piece.num_rows
    ordinals = (
        piece[metadata["ordinal"]].to_pylist() if "ordinal" in metadata else [0] * piece.num_rows
    )
    for topic, partition, offset, ordinal, window, identity in zip(
        topics, partitions, offsets, ordinals, windows, contents, strict=True
    ):
        yield _Row((TopicPartition(topic, partition), offset), ordinal, window, identity)


def _content(identity: object, row: _Row) -> object:
    """Returns the identity that a row must have."""
    if not isinstance(identity, tuple):
        return identity
    return identity[row.ordinal] if row.ordinal < len(identity) else None


def _incomplete(
    rows: Iterable[_Row], identity_by_position: Mapping[MessagePosition, object]
) -> set[MessagePosition]:
    """Returns the messages that have some of their rows, but not all."""
    ordinals: dict[MessagePosition, set[int]] = {}
    for row in rows:
        ordinals.setdefault(row.position, set()).add(row.ordinal)
    expected_counts = {
        position: len(identity)
        if isinstance(identity := identity_by_position.get(position), tuple)
        else max(row_ordinals) + 1
        for position, row_ordinals in ordinals.items()
    }
    return {
        position
        for position, row_ordinals in ordinals.items()
        if not row_ordinals >= set(range(expected_counts[position]))
    }


def _out_of_order(piece: Sequence[_Row]) -> Iterator[MessagePosition]:
    last: dict[TopicPartition, int] = {}
    for row in piece:
        tp, offset = row.position
        if offset < last.get(tp, offset):
            yield row.position
        last[tp] = offset


def _against_data(receipts: Sequence[Receipt], rows: Sequence[_Row], kind: str) -> Iterator[str]:
    """Compares each receipt's counts with the rows, and each row with its window's splits."""
    row_counts = Counter(row.window for row in rows)
    for r in receipts:
        receipt_rows = sum(s.rows_staged if kind == "rows" else s.dead_staged for s in r.splits)
        if kind == "rows" and r.expired_at is not None:
            receipt_rows = 0
        if receipt_rows != row_counts.get(r.window.key, 0):
            yield (
                f"window {r.window.key}: the receipt says {receipt_rows} {kind}, the table holds"
                f" {row_counts.get(r.window.key, 0)}"
            )
    ranges = {r.window.key: r.plan.splits for r in receipts}
    for window in sorted(row_counts.keys() - ranges.keys()):
        yield f"window {window}: {row_counts[window]} {kind}, but no receipt"
    for row in rows:
        tp, offset = row.position
        if row.window in ranges and not _is_in(row.position, ranges[row.window]):
            yield f"window {row.window}: {tp}@{offset} lies in none of its ranges ({kind})"


def _is_in(position: MessagePosition, splits: Iterable[Split]) -> bool:
    tp, offset = position
    return any(s.tp == tp and s.start <= offset < s.stop for s in splits)


def _sums(receipt: Receipt) -> Iterator[str]:
    """Checks the counts of each split, and that a receipt's totals are their sums.

    `compare_receipts` compares the totals with the plan.
    """
    key, total = receipt.window.key, receipt.counts
    for s in receipt.splits:
        span = f"window {key}, {s.topic}[{s.partition}] {s.start} to {s.stop}"
        if s.read != s.valid + s.dead + s.dropped + s.filtered:
            yield (
                f"{span}: read {s.read} is not valid {s.valid} + dead {s.dead} + dropped"
                f" {s.dropped} + filtered {s.filtered}"
            )
        changes = s.rows + s.deletes
        if (s.rows_staged, s.dead_staged) != (changes, s.dead) or changes < s.valid:
            yield (
                f"{span}: staged {s.rows_staged} + {s.dead_staged}, counted"
                f" {format_count(changes, 'row')} of {format_count(s.valid, 'message')} + {s.dead}"
            )
        if s.next_offset < s.stop or s.missing < 0 or s.skipped < 0:
            yield (
                f"{span}: read {format_count(s.read, 'message')} up to {s.next_offset}, skipped"
                f" {s.skipped}"
            )
    names = ("read", "valid", "rows", "deletes", "dead", "dropped", "filtered", "skipped")
    if [getattr(total, n) for n in names] != [
        sum(getattr(s, n) for s in receipt.splits) for n in names
    ]:
        yield f"window {key}: the totals are not the sums over its splits"
    if total.skipped and not receipt.partial:
        yield (
            f"window {key}: {format_count(total.skipped, 'offset')} skipped, and the receipt"
            " doesn't say that it is partial"
        )
