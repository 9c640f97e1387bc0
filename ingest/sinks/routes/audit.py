"""Verifies several tables together, and checks that all of them have the same windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Checksums, Committed, Counts, Receipt, SplitCounts
from windrow.ingest.ports.sink import Audit, RowsHeld, Sink, Unreadable
from windrow.ingest.sinks.kit import checksum_text
from windrow.ingest.sinks.routes.parts import to_routed

_DO_ROUTE = (
    "The ledger has no copy of the receipts of a route's table. Restore what windrow keeps next to"
    " it (the folder _windrow, or the schema windrow) from a backup. If there is none, move the"
    " table away (in a database, rename it): windrow rebind SPEC goes on without it, and its"
    " windows can be run again."
)


class RoutedAudit:
    """The questions of verification, answered over several tables (`ports.sink.Audit`).

    Args:
        tables: the tables of the routes.
        default_sink: the table with the receipts of whole windows.
    """

    def __init__(self, tables: Sequence[Sink], default_sink: Sink) -> None:
        self._tables, self._default_sink = tables, default_sink
        self._audits = [sink.audit() for sink in (*tables, default_sink)]
        self._appended = [audit for audit in self._audits if audit.keyed is None]
        self.keyed_tables = [audit for audit in self._audits if audit.keyed is not None]
        self.lists = [receipt_list for audit in self._audits for receipt_list in audit.lists]

    @property
    def metadata(self) -> Mapping[str, str]:
        """The names of the metadata columns, the same in all tables."""
        return self._audits[-1].metadata

    @property
    def keyed(self) -> None:
        """None: not all of these tables have a primary key."""

    def less_keyed(self, receipt: Receipt) -> Receipt:
        splits = list(receipt.splits)
        for sink, audit in zip(self._tables, self._audits, strict=False):
            committed = sink.look(receipt.window) if audit.keyed is not None else None
            if committed is not None:
                own = committed.receipt.splits
                splits = [_less(*pair) for pair in zip(splits, own, strict=True)]
        return msgspec.structs.replace(receipt, splits=tuple(splits), counts=Counts.total(splits))

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Yields the receipts of all windows. A window whose tables don't agree is unreadable."""
        known_keys = set()
        tables = [
            (sink.identity, _by_key(audit))
            for sink, audit in zip(self._tables, self._audits[:-1], strict=True)
        ]
        for committed in self._audits[-1].receipts():
            if isinstance(committed, Unreadable):
                known_keys.add(committed.key)
                yield committed
            else:
                known_keys.add(committed.receipt.window.key)
                yield _check_tables(committed, tables)
        for name, receipt_by_key in tables:
            for key in sorted(receipt_by_key.keys() - known_keys):
                known_keys.add(key)
                message = (
                    f"window {key} is in {name} and not in {self._default_sink.identity}: a run of"
                    " it ended between two tables"
                )
                yield Unreadable(
                    key,
                    message,
                    "Run the window again: it is read from the same offsets, and tables that have"
                    " it already keep their rows.",
                )

    def windows(self) -> set[str]:
        return set().union(*(audit.windows() for audit in self._appended))

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """Returns the sums of the rows and offsets in all tables.

        Rows are read only if a message may have rows in two tables.
        """
        by_tp: dict[TopicPartition, list[RowsHeld]] = defaultdict(list)
        for audit in self._appended:
            for split_rows in audit.rows_held(window):
                by_tp[TopicPartition(split_rows.topic, split_rows.partition)].append(split_rows)
        shared = (
            {tp for tp, held_rows in by_tp.items() if len(held_rows) > 1}
            if self._has_wide_messages(window)
            else set()
        )
        offsets = _count_distinct(self.contents(window), self.metadata, shared) if shared else {}
        return [_sum_rows(held_rows, offsets.get(tp)) for tp, held_rows in sorted(by_tp.items())]

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        return (batch for audit in self._appended for batch in audit.contents(window))

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Restores the receipt of the whole window."""
        self._audits[-1].restore(window, text, dry_run=dry_run)

    def _has_wide_messages(self, window: Window) -> bool:
        """Returns whether a message of the window became several rows."""
        committed = self._default_sink.look(window)
        return (
            committed is not None
            and committed.receipt.counts.rows != committed.receipt.counts.valid
        )


def _less(split: SplitCounts, own: SplitCounts) -> SplitCounts:
    """Returns a split's counts without those of one table."""
    checksum = checksum_text(int(split.checksums.rows, 16) - int(own.checksums.rows, 16))
    return msgspec.structs.replace(
        split,
        valid=split.valid - own.valid,
        rows=split.rows - own.rows,
        deletes=split.deletes - own.deletes,
        checksums=Checksums(checksum, split.checksums.dead),
    )


def _by_key(audit: Audit) -> dict[str, Receipt | Unreadable]:
    return {
        committed.key
        if isinstance(committed, Unreadable)
        else committed.receipt.window.key: _receipt(committed)
        for committed in audit.receipts()
    }


def _receipt(committed: Committed | Unreadable) -> Receipt | Unreadable:
    return committed if isinstance(committed, Unreadable) else committed.receipt


def _check_tables(
    committed: Committed, tables: Sequence[tuple[str, Mapping[str, Receipt | Unreadable]]]
) -> Committed | Unreadable:
    """Returns a window's receipt if each table that it names has the rows that it names."""
    receipt, by_name = committed.receipt, dict(tables)
    for routed_rows in receipt.routed:
        table_receipt = by_name.get(routed_rows.table, {}).get(receipt.window.key)
        if isinstance(table_receipt, Unreadable):
            return msgspec.structs.replace(table_receipt, advice=_DO_ROUTE)
        if table_receipt is None and not routed_rows.rows:
            continue
        if (
            table_receipt is None
            or table_receipt.generation != receipt.generation
            or to_routed(routed_rows.table, table_receipt) != routed_rows
        ):
            named = routed_rows.table in by_name
            state = (
                "no route names now"
                if not named
                else "doesn't have it"
                if table_receipt is None
                else (
                    f"has generation {table_receipt.generation} of it with"
                    f" {format_count(table_receipt.counts.rows, 'row')}"
                )
            )
            message = (
                f"window {receipt.window.key}, generation {receipt.generation}, has"
                f" {format_count(routed_rows.rows, 'row')} in {routed_rows.table}, which {state}"
            )
            return Unreadable(
                receipt.window.key,
                message,
                f"windrow replay SPEC --window {receipt.window.key} reads the window again and"
                " brings all tables to one generation."
                if named
                else "Name the table under sink.tables again; if it was moved, move it back.",
            )
    return committed


def _count_distinct(
    batches: Iterator[pa.RecordBatch],
    names: Mapping[str, str],
    topic_partitions: set[TopicPartition],
) -> dict[TopicPartition, int]:
    """Counts the distinct offsets of some topic-partitions. It needs eight bytes a row."""
    topic, partition, offset = columns = [names[name] for name in ("topic", "partition", "offset")]
    read = [pa.Table.from_batches([batch.select(columns)]) for batch in batches]
    counted = (
        pa.concat_tables(read, promote_options="permissive")
        .group_by([topic, partition])
        .aggregate([(offset, "count_distinct")])
    )
    distinct_counts = {
        TopicPartition(g[topic], g[partition]): g[f"{offset}_count_distinct"]
        for g in counted.to_pylist()
    }
    return {tp: count for tp, count in distinct_counts.items() if tp in topic_partitions}


def _sum_rows(held_rows: Sequence[RowsHeld], offsets: int | None) -> RowsHeld:
    """Adds up the rows of one topic-partition in several tables.

    Args:
        held_rows: the rows in each table.
        offsets: number of distinct offsets; None if no offset is in two tables.
    """
    first = held_rows[0]
    return RowsHeld(
        first.topic,
        first.partition,
        sum(h.rows for h in held_rows),
        sum(h.offsets for h in held_rows) if offsets is None else offsets,
        min(h.lowest for h in held_rows),
        max(h.highest for h in held_rows),
    )
