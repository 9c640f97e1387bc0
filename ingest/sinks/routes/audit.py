"""Verifies several tables together, and that all of them have the same windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.errors import counted
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import Audit, RowsHeld, Sink, Unreadable
from windrow.ingest.sinks.routes.parts import routed

_DO_ROUTE = (
    "The ledger has no copy of the receipts of a route's table. Restore what windrow keeps next to"
    " it (the folder _windrow, or the schema windrow) from a backup. If there is none, move the"
    " table away (in a database, rename it): windrow rebind SPEC goes on without it, and its"
    " windows can be run again."
)


class RoutedAudit:
    """`ports.sink.Audit` over several tables; `other` is the one with the receipts."""

    def __init__(self, tables: Sequence[Sink], other: Sink) -> None:
        self._tables, self._other = tables, other
        self._audits = [sink.audit() for sink in (*tables, other)]
        self.lists = [one for audit in self._audits for one in audit.lists]

    @property
    def metadata(self) -> Mapping[str, str]:
        """Names of the metadata columns, the same in all tables."""
        return self._audits[-1].metadata

    @property
    def keyed(self) -> None:
        """None, because these tables have no primary key."""

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Receipts of all windows; a window whose tables don't agree is unreadable."""
        known = set()
        tables = [
            (sink.identity, _by_key(audit))
            for sink, audit in zip(self._tables, self._audits[:-1], strict=True)
        ]
        for found in self._audits[-1].receipts():
            if isinstance(found, Unreadable):
                known.add(found.key)
                yield found
            else:
                known.add(found.receipt.window.key)
                yield _checked(found, tables)
        for name, held in tables:
            for key in sorted(held.keys() - known):
                known.add(key)
                what = (
                    f"window {key} is in {name} and not in {self._other.identity}: a run of it"
                    " ended between two tables"
                )
                yield Unreadable(
                    key,
                    what,
                    "Run the window again: it is read from the same offsets, and tables that have"
                    " it already keep their rows.",
                )

    def windows(self) -> set[str]:
        return set().union(*(audit.windows() for audit in self._audits))

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """Sums of the rows and offsets in all tables.

        Rows are read only where a message may have rows in two tables.
        """
        by_tp: dict[TopicPartition, list[RowsHeld]] = defaultdict(list)
        for audit in self._audits:
            for held in audit.rows_held(window):
                by_tp[TopicPartition(held.topic, held.partition)].append(held)
        shared = (
            {tp for tp, held in by_tp.items() if len(held) > 1}
            if self._has_wide_messages(window)
            else set()
        )
        offsets = _distinct(self.contents(window), self.metadata, shared) if shared else {}
        return [_summed(held, offsets.get(tp)) for tp, held in sorted(by_tp.items())]

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        return (batch for audit in self._audits for batch in audit.contents(window))

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Restores the receipt of the whole window."""
        self._audits[-1].restore(window, text, dry_run=dry_run)

    def _has_wide_messages(self, window: Window) -> bool:
        """Returns whether a message of the window became several rows."""
        committed = self._other.look(window)
        return (
            committed is not None
            and committed.receipt.counts.rows != committed.receipt.counts.valid
        )


def _by_key(audit: Audit) -> dict[str, Receipt | Unreadable]:
    return {
        found.key if isinstance(found, Unreadable) else found.receipt.window.key: _receipt(found)
        for found in audit.receipts()
    }


def _receipt(found: Committed | Unreadable) -> Receipt | Unreadable:
    return found if isinstance(found, Unreadable) else found.receipt


def _checked(
    committed: Committed, tables: Sequence[tuple[str, Mapping[str, Receipt | Unreadable]]]
) -> Committed | Unreadable:
    """Returns a window's receipt if each table that it names has these rows."""
    receipt, by_name = committed.receipt, dict(tables)
    for said in receipt.routed:
        held = by_name.get(said.table, {}).get(receipt.window.key)
        if isinstance(held, Unreadable):
            return msgspec.structs.replace(held, do=_DO_ROUTE)
        if held is None and not said.rows:
            continue
        if (
            held is None
            or held.generation != receipt.generation
            or routed(said.table, held) != said
        ):
            named = said.table in by_name
            has = (
                "no route names now"
                if not named
                else "doesn't have it"
                if held is None
                else (
                    f"has generation {held.generation} of it with"
                    f" {counted(held.counts.rows, 'row')}"
                )
            )
            what = (
                f"window {receipt.window.key}, generation {receipt.generation}, has"
                f" {counted(said.rows, 'row')} in {said.table}, which {has}"
            )
            return Unreadable(
                receipt.window.key,
                what,
                f"windrow replay SPEC --window {receipt.window.key} reads the window again and"
                " brings all tables to one generation."
                if named
                else "Name the table under sink.tables again; if it was moved, move it back.",
            )
    return committed


def _distinct(
    batches: Iterator[pa.RecordBatch], names: Mapping[str, str], wanted: set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Counts the distinct offsets of some topic-partitions; takes eight bytes a row."""
    topic, partition, offset = columns = [names[name] for name in ("topic", "partition", "offset")]
    read = [pa.Table.from_batches([batch.select(columns)]) for batch in batches]
    counted = (
        pa.concat_tables(read, promote_options="permissive")
        .group_by([topic, partition])
        .aggregate([(offset, "count_distinct")])
    )
    found = {
        TopicPartition(g[topic], g[partition]): g[f"{offset}_count_distinct"]
        for g in counted.to_pylist()
    }
    return {tp: count for tp, count in found.items() if tp in wanted}


def _summed(held: Sequence[RowsHeld], offsets: int | None) -> RowsHeld:
    first = held[0]
    return RowsHeld(
        first.topic,
        first.partition,
        sum(h.rows for h in held),
        sum(h.offsets for h in held) if offsets is None else offsets,
        min(h.lowest for h in held),
        max(h.highest for h in held),
    )
