"""Merges a window's changes into a table with a primary key, in one transaction.

The database keeps the last change of each key. The change is a row of the table. If it was a
delete, it is a *tombstone* in one of windrow's own tables: the key, the window, and the message's
place. No key has both. A merge has four steps:

    1 COPY loads the staged changes into a temporary table.
    2 Only the last change of each key is kept: by version, if there is one, then by topic,
      partition and offset, and by the order within the message.
    3 Late changes are dropped: the key's row or tombstone is of a later window. In a dead-letter
      replay, changes of earlier messages of the same window are late, too.
    4 The remaining changes replace rows and tombstones.

The order of windows decides, never the order in which they are committed. Each step is one
statement for all keys. The server counts the rows and the checksum for the receipt, because each
row and each tombstone is stored with its hash.

The driver reads only rows whose change left columns unchanged (`UNAVAILABLE`), because their hash
differs from the staged hash. `ingest/sinks/delta/merge.py` explains when the kept values are right,
and which merges are refused because of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from psycopg import sql

from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.kit import (
    DELETED,
    UNAVAILABLE,
    MergeCounts,
    committed_by_key,
    refuse_unmergeable,
)
from windrow.ingest.sinks.postgres.catalog import BoundTable, kept_rows_error, tombstones_name
from windrow.ingest.sinks.postgres.columns import HASH, KeyedColumns, column_type
from windrow.ingest.sinks.postgres.encode import read_rows
from windrow.ingest.sinks.postgres.server import identifier
from windrow.ingest.sinks.postgres.stage import (
    CopyFile,
    CopyFiles,
    copy_in,
    refuse_fewer_rows,
)

_CHANGES = sql.Identifier("pg_temp", "windrow_changes")
_LAST = sql.Identifier("pg_temp", "windrow_last")
"""Temporary tables: the staged changes, and the last change of each key."""


def merge(
    table: BoundTable,
    keyed: KeyedColumns,
    columns: pa.Schema,
    receipt: Receipt,
    staged: CopyFiles,
    files: Sequence[CopyFile],
) -> Receipt:
    """Merges staged changes into a table; returns the receipt with the counts of the merge.

    Args:
        table: the table, in a transaction that has its lock.
        keyed: the columns by which the table is merged.
        columns: the table's columns in this transaction.
        receipt: the window's receipt.
        staged: the folder of the files.
        files: the files with the changes.

    Raises:
        RefusedError: a replacement lacks keys whose last change came from its window; a file has
            changed since it was staged; or a trigger keeps the table from changing.
        psycopg.Error: the server refuses a statement, for example if the tombstones are missing.
    """
    merging = Merge(table, keyed, columns, receipt)
    merging.load(staged, files)
    merging.keep_the_last()
    merging.drop_late()
    lost_values, missing = merging.late_for_kept_values(), 0
    if receipt.generation > 0:
        lost_values += merging.partial_changes()
        if receipt.dead_replay is None:
            missing = merging.missing_keys()
            lost_values += merging.kept_later()
    refuse_unmergeable(receipt.window.key, missing, lost_values)
    merging.fill_in_kept_values()
    merging.write()
    key = receipt.window.key
    older = committed_by_key(table, [key]).get(key) if receipt.generation > 0 else None
    merged = merging.counts.to_merged(
        None if older is None else older.receipt,
        tombstones_changed=merging.tombstones_changed if keyed.has_tombstones else None,
    )
    return msgspec.structs.replace(receipt, merged=merged)


class Merge:
    """One merge, whose methods are its steps."""

    def __init__(
        self, table: BoundTable, keyed: KeyedColumns, columns: pa.Schema, receipt: Receipt
    ) -> None:
        self.counts, self.tombstones_changed = MergeCounts(), MergeCounts()
        self._late: dict[str, int] = {}
        self.table, self.location, self._connection = table, table.location, table.connection
        self._keyed, self._columns = keyed, columns
        self._key, self.dead_replay = receipt.window.key, receipt.dead_replay is not None

    def load(self, files: CopyFiles, chosen: Sequence[CopyFile]) -> None:
        """Loads the staged changes into a temporary table, numbered in their order."""
        changes = self._changes.append(UNAVAILABLE)
        columns = [
            sql.SQL("{} {}").format(identifier(f.name), sql.SQL(str(column_type(f.type))))
            for f in changes
        ]
        self._execute(
            "CREATE TEMPORARY TABLE {changes} ({columns}, {nth} bigint GENERATED ALWAYS AS"
            " IDENTITY) ON COMMIT DROP",
            columns=sql.SQL(", ").join(columns),
        )
        copy_in(self._connection, self.location, files, chosen, _CHANGES)

    @property
    def _changes(self) -> pa.Schema:
        return (
            self._columns
            if self._keyed.key.marks
            else self._columns.append(pa.field(DELETED, pa.bool_()))
        )

    @property
    def _last_first(self) -> sql.Composable:
        """The order of changes by key, with the last change of each key first."""
        version = (
            []
            if self._keyed.key.version is None
            else [sql.SQL("{} DESC NULLS LAST").format(identifier(self._keyed.key.version))]
        )
        topic, *position = map(identifier, self._keyed.position)
        order = [
            *map(identifier, self._keyed.key.columns),
            *version,
            sql.SQL('{} COLLATE "C" DESC').format(topic),
            *(sql.SQL("{} DESC").format(name) for name in position),
            sql.SQL("{} DESC").format(self._nth),
        ]
        return sql.SQL(", ").join(order)

    def keep_the_last(self) -> None:
        """Selects the last change of each key."""
        self._execute(
            "CREATE TEMPORARY TABLE {last} ON COMMIT DROP AS SELECT DISTINCT ON ({key}) * FROM"
            " {changes} ORDER BY {order}",
            order=self._last_first,
        )
        self._execute("CREATE UNIQUE INDEX ON {last} ({key})")
        self._execute("ANALYZE {last}")

    def drop_late(self) -> None:
        """Drops the changes of keys that have a later row or tombstone.

        The dropped changes with a later row are counted, by the window of that row.
        """
        late = (
            "WITH late AS (DELETE FROM {last} w USING {others} t WHERE {same} AND ({wins}) IS NOT"
            " TRUE RETURNING t.{window} AS by) SELECT by, count(*) FROM late GROUP BY by"
        )
        counts = [
            self._connection.execute(
                self._query(late, others=others, wins=self._wins()), ()
            ).fetchall()
            for others in self.others()
        ]
        self._late = dict(counts[0])

    def late_for_kept_values(self) -> int:
        """Counts the keys with a later row, from a window that kept values of earlier rows."""
        later = committed_by_key(self.table, self._late)
        return sum(
            keys
            for key, keys in self._late.items()
            if key in later and later[key].receipt.kept_keys
        )

    def kept_later(self) -> int:
        """Counts the keys for which later windows kept values of earlier rows."""
        later = [key for key in self.table.committed() if key > self._key]
        return sum(
            committed.receipt.kept_keys
            for committed in committed_by_key(self.table, later).values()
        )

    def partial_changes(self) -> int:
        """Counts the changes that leave columns unchanged."""
        return int(self._first_row("SELECT count(*) FROM {changes} w WHERE {leaves}")[0])

    def fill_in_kept_values(self) -> None:
        """Fills in the values of columns that changes left unchanged.

        A value comes from the key's last change that has the column, or else from the key's row. In
        the list of unchanged columns, a column's name becomes null when its value is found, and
        empty if the source of the value was deleted.
        """
        unchanged_columns = self._connection.execute(
            self._query("SELECT DISTINCT unnest({unavailable}) FROM {last} w WHERE {leaves}"), ()
        ).fetchall()
        if not unchanged_columns:
            return
        earlier = (
            "(SELECT DISTINCT ON ({key}) * FROM {changes} WHERE ({name} = ANY({unavailable})) IS"
            " NOT TRUE ORDER BY {order})"
        )
        for (name,) in unchanged_columns:
            for others, has_deleted in (
                (self._query(earlier, order=self._last_first, name=_literal(name)), True),
                (self.location.table, self._keyed.key.marks),
            ):
                self._execute(
                    "UPDATE {last} w SET {column} = t.{column}, {unavailable} = array_replace("
                    "w.{unavailable}, {name}, CASE WHEN {gone} THEN '' END) FROM {others} t WHERE"
                    " {same} AND {name} = ANY(w.{unavailable})",
                    others=others,
                    name=_literal(name),
                    column=identifier(name),
                    gone=sql.SQL("t.{}").format(identifier(DELETED))
                    if has_deleted
                    else sql.SQL("false"),
                )
        self.counts.kept_count, self.counts.unknown = self._first_row(
            "SELECT count(*) FILTER (WHERE known), count(*) FILTER (WHERE NOT known) FROM (SELECT"
            " cardinality(array_remove(w.{unavailable}, NULL)) = 0 AS known FROM {last} w WHERE"
            " {leaves}) counted"
        )
        number = self._nth_name
        schema = pa.schema(
            [*(f for f in self._changes if f.name != HASH.name), pa.field(number, pa.int64())]
        )
        numbers: list[int] = []
        hashes: list[int] = []
        for batch in read_rows(
            self._connection,
            self.location,
            schema,
            self._query("w WHERE {leaves}"),
            (),
            source=_LAST,
        ):
            numbers += batch[number].to_pylist()
            hashes += self._keyed.hashes(batch.drop_columns([number])).view(np.int64).tolist()
        self._connection.execute(
            self._query(
                "UPDATE {last} w SET {hash} = v.hash FROM unnest(%s::bigint[], %s::bigint[]) AS v"
                " (nth, hash) WHERE w.{nth} = v.nth"
            ),
            (numbers, hashes),
        )

    def missing_keys(self) -> int:
        """Counts the keys whose last change came from the window and is missing in this attempt."""
        query = (
            "SELECT count(*) FROM {others} t WHERE t.{window} = %s AND NOT EXISTS (SELECT FROM"
            " {last} w WHERE {same})"
        )
        return sum(
            int(self._first_row(query, self._key, others=others)[0]) for others in self.others()
        )

    def write(self) -> None:
        """Replaces rows and tombstones by the remaining changes.

        Raises:
            RefusedError: a trigger keeps rows out of the table or in it, or adds or deletes rows.
        """
        counts, names = self.counts, [identifier(name) for name in self._columns.names]
        old_counts = self.table.row_counts(self._key)
        if old_counts is not None:
            (replaced,) = self._first_row(
                "SELECT count(*) FROM {table} t JOIN {last} w ON {same} WHERE t.{window} = %s",
                self._key,
            )
        counts.rows_removed, counts.removed = self.count_rows(
            "{table} t JOIN {last} w ON {same}", alias="t"
        )
        counts.rows_added, counts.added = self.count_rows("{last} w WHERE {stays}", alias="w")
        if self._keyed.has_tombstones:
            self._execute("DELETE FROM {table} t USING {last} w WHERE {same} AND w.{deleted}")
            if self._first_row(
                "SELECT count(*) FROM {table} t JOIN {last} w ON {same} WHERE w.{deleted}"
            )[0]:
                raise kept_rows_error(self.location)
            self._change_tombstones()
        others = [
            identifier(name) for name in self._columns.names if name not in self._keyed.key.columns
        ]
        written_rows = self._execute(
            "INSERT INTO {table} AS t ({names}) SELECT {names} FROM {last} w WHERE {stays} ON"
            " CONFLICT ({key}) DO UPDATE SET {put}",
            names=sql.SQL(", ").join(names),
            put=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in others),
        )
        refuse_fewer_rows(self.location, written_rows, counts.rows_added)
        if old_counts is not None:
            gained = [
                counts.rows_added - removed_rows for removed_rows in (replaced, counts.rows_removed)
            ]
            self.table.refuse_other_counts(self._key, old_counts, *gained)

    def _change_tombstones(self) -> None:
        """Writes a tombstone for each deleted key, and deletes tombstones of keys with a row."""
        changed = self.tombstones_changed
        changed.rows_removed, changed.removed = self.count_rows(
            "{tombstones} t JOIN {last} w ON {same}", alias="t"
        )
        changed.rows_added, changed.added = self.count_rows("{last} w WHERE w.{deleted}", alias="w")
        self._execute("DELETE FROM {tombstones} t USING {last} w WHERE {same}")
        self._execute(
            "INSERT INTO {tombstones} ({tombstone})"
            " SELECT {tombstone} FROM {last} w WHERE w.{deleted}",
            tombstone=sql.SQL(", ").join(map(identifier, [*self._keyed.tombstone, HASH.name])),
        )

    # ----------------------------------------------------------------------------------------------

    def others(self) -> list[sql.Composable]:
        """Returns the tables with the last committed change of each key: rows, and tombstones."""
        rows = self.location.table
        return [rows, self._tombstones] if self._keyed.has_tombstones else [rows]

    @property
    def _tombstones(self) -> sql.Composable:
        name = tombstones_name(self.location, self.table.target)
        return identifier(name.schema, name.table)

    def _wins(self) -> sql.Composable:
        """Returns the condition that the change `w` is later than the row or tombstone `t`.

        Null means that it isn't later.
        """
        is_later = sql.SQL('t.{} COLLATE "C" <= {} COLLATE "C"').format(
            identifier(self._keyed.window), _literal(self._key)
        )
        if self.dead_replay:
            position = sql.SQL('({0}.{1} COLLATE "C", {0}.{2}, {0}.{3})')
            change_position, row_position = (
                position.format(sql.SQL(side), *map(identifier, self._keyed.position))
                for side in "wt"
            )
            is_own_row = sql.SQL("t.{} = {}").format(
                identifier(self._keyed.window), _literal(self._key)
            )
            is_later = sql.SQL("{} AND (NOT {} OR {} > {})").format(
                is_later, is_own_row, change_position, row_position
            )
        if self._keyed.key.version is None:
            return is_later
        new, old = (
            sql.SQL("{}.{}").format(sql.SQL(side), identifier(self._keyed.key.version))
            for side in "wt"
        )
        higher = (
            "{new} > {old} OR ({new} IS NOT NULL AND {old} IS NULL) OR ({new} IS NOT DISTINCT FROM"
            " {old} AND {after})"
        )
        return sql.SQL(higher).format(new=new, old=old, after=is_later)

    @property
    def _nth_name(self) -> str:
        """The name of the column with a change's number, which no other column has."""
        name = "nth"
        while name in self._columns.names:
            name += "_"
        return name

    @property
    def _nth(self) -> sql.Composable:
        return identifier(self._nth_name)

    def _query(self, text: str, **names: sql.Composable) -> sql.Composed:
        key = [identifier(name) for name in self._keyed.key.columns]
        stays = (
            sql.SQL("true")
            if self._keyed.key.marks
            else sql.SQL("NOT w.{}").format(identifier(DELETED))
        )
        return self.location.query(
            text,
            changes=_CHANGES,
            last=_LAST,
            tombstones=self._tombstones,
            key=sql.SQL(", ").join(key),
            same=sql.SQL(" AND ").join(sql.SQL("t.{0} = w.{0}").format(name) for name in key),
            stays=stays,
            deleted=identifier(DELETED),
            unavailable=identifier(UNAVAILABLE.name),
            leaves=sql.SQL("cardinality(w.{}) > 0").format(identifier(UNAVAILABLE.name)),
            hash=identifier(HASH.name),
            window=identifier(self._keyed.window),
            nth=self._nth,
            **names,
        )

    def _execute(self, text: str, **names: sql.Composable) -> int:
        return self._connection.execute(self._query(text, **names), ()).rowcount

    def _first_row(self, text: str, *values: object, **names: sql.Composable) -> tuple[Any, ...]:
        row = self._connection.execute(self._query(text, **names), values).fetchone()
        return row or (0, 0)

    def count_rows(self, rows_of: str, alias: str) -> tuple[int, int]:
        """Counts rows, and sums up their hashes."""
        # this text contains no value
        counts = f"SELECT count(*), coalesce(sum({alias}.{{hash}}), 0) FROM {rows_of}"  # noqa: S608
        rows, hashes = self._first_row(counts)
        return int(rows), int(hashes)


def _literal(text: str) -> sql.Composable:
    """Returns a literal for a query with parameters, in which a percent sign is escaped."""
    return sql.Literal(text.replace("%", "%%"))
