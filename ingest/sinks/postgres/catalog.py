"""Windrow's own tables in PostgreSQL: owners, receipts, ranges and notes of its tables.

They are in a schema of their own:

    targets    one row per table: its owner, its columns as windrow wrote them, the number of
               commits. A lock on the row is the table's lock.
    receipts   one row per window and generation. The primary key refuses a second receipt of a
               generation.
    ranges     the offsets of committed windows, by which a plan that overlaps them is refused.
    notes      numbers by name: which attempts' dead letters are stored, and which are published.
    tombstones_<id of the target>
               the keys that deletes have removed from a table with a primary key.

The comment on a table's window column has the id of its row in `targets`: a table's name may be
given to another table, and its oid changes when it is restored from a dump. A copy of the table
(`CREATE TABLE ... (LIKE ... INCLUDING ALL)`) has the comment, too. So the comment also has the
table's oid: of several tables with one comment it is the one with this oid. A single table with
another oid was restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import class_row

from windrow.ingest.errors import DamagedError, RefusedError, SpecError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.postgres.columns import CatalogColumn
from windrow.ingest.sinks.postgres.lock import lock_row
from windrow.ingest.sinks.postgres.names import COMMENT, TableName, bound_by
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    has_table,
    identifier,
    is_true,
    set_lock_timeout,
)
from windrow.ingest.sinks.sql_names import quoted
from windrow.ingest.sinks.stored_receipts import ReceiptRow, range_texts, row_digest
from windrow.ingest.sinks.table_store import StoredReceipt

FORM = 3
"""The version of these tables. A table that was made with another one is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS {targets} (
    id uuid PRIMARY KEY, place text NOT NULL,
    pipeline text NOT NULL, ledger text NOT NULL, grid text NOT NULL,
    window_column text NOT NULL, columns bytea NOT NULL,
    commits bigint NOT NULL DEFAULT 0, form integer NOT NULL
);
CREATE TABLE IF NOT EXISTS {receipts} (
    target uuid, window_key text COLLATE "C", generation integer,
    version bigint NOT NULL, receipt text NOT NULL, sha256 bytea NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (target, window_key, generation)
);
CREATE TABLE IF NOT EXISTS {ranges} (
    target uuid, topic_id text COLLATE "C", partition integer, stop bigint,
    start bigint NOT NULL, window_key text NOT NULL COLLATE "C",
    PRIMARY KEY (target, topic_id, partition, stop)
);
CREATE INDEX IF NOT EXISTS ranges_of_window ON {ranges} (target, window_key);
CREATE TABLE IF NOT EXISTS {notes} (
    target uuid, name text COLLATE "C", value bigint NOT NULL, PRIMARY KEY (target, name)
);
"""

_TARGET = """
SELECT id, pipeline, ledger, grid, window_column, columns, commits, form
FROM {targets} WHERE id = %s
"""

_LOCK = """
UPDATE {targets} SET commits = commits + 1 WHERE id = %s
RETURNING id, pipeline, ledger, grid, window_column, columns, commits - 1
"""

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
    a.atthasdef OR a.attgenerated <> '' OR a.attidentity <> '',
    a.attgenerated <> '' OR a.attidentity = 'a',
    col_description(a.attrelid, a.attnum)
FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_SAME_COMMENT = """
SELECT n.nspname::text, c.relname::text
FROM pg_description d
    JOIN pg_class c ON c.oid = d.objoid
    JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classoid = 'pg_class'::regclass AND d.objsubid > 0
    AND starts_with(d.description, %(comment)s) AND c.relkind IN ('r', 'p')
    AND c.oid <> to_regclass(%(table)s)
    AND c.oid NOT IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))
ORDER BY c.oid = %(oid)s DESC, 1, 2 LIMIT 1
"""
"""Another table with the same comment, first of all the one whose oid the comment has.

The table's own partitions don't count: often they are made as copies of it.
"""

_RECEIPTS = """
SELECT coalesce(k.window_key, g.window_key) AS window_key, k.receipt, k.generation, k.sha256,
    k.version, coalesce(g.ranges, '{{}}') AS ranges
FROM (
    SELECT DISTINCT ON (window_key) window_key, receipt, sha256, version, generation
    FROM {receipts} WHERE target = %(target)s {some} ORDER BY window_key, generation DESC
) k FULL JOIN (
    SELECT window_key, array_agg(concat_ws(' ', topic_id, partition, start, stop)) AS ranges
    FROM {ranges} WHERE target = %(target)s {some} GROUP BY window_key
) g ON g.window_key = k.window_key
ORDER BY 1
"""
"""A window that has ranges was committed, even if its receipt is missing."""

_OVERLAPPING = """
SELECT DISTINCT r.window_key
FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[])
    AS mine (topic_id, partition, start, stop)
CROSS JOIN LATERAL (
    SELECT window_key, start FROM {ranges} r
    WHERE r.target = %s AND r.topic_id = mine.topic_id AND r.partition = mine.partition
        AND r.stop > mine.start
    ORDER BY r.stop LIMIT 1
) r
WHERE r.start < mine.stop
"""
"""Committed ranges never overlap each other. So of those that end behind the start of the asked
range only the first one has to be compared.
"""

_PUT_RANGES = """
INSERT INTO {ranges} (target, window_key, topic_id, partition, start, stop)
SELECT %s, %s, mine.* FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine
"""
"""A single statement: after several ones that the driver sends as a batch, PostgreSQL 18 doesn't
end a session that is idle in its transaction.
"""

_SUMMARIZE = """
SELECT brin_summarize_new_values(x.indexrelid::regclass)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
WHERE a.amname = 'brin' AND i.relkind = 'i' AND x.indrelid IN (
    SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)) WHERE isleaf
)
"""

_BRIEFLY = "50ms"
"""Longest wait for a lock that is taken for work that can be left out."""

_BACKUP = "the schema, together with the table,"
"""What is restored from a backup if there is no copy of a receipt."""

_RESTORE_TOMBSTONES = (
    "Restore it from a backup, together with the table. Until then no window can be committed:"
    " nobody could tell which keys were taken out."
)


class Target(msgspec.Struct, frozen=True):
    """The row of a bound table in `targets`.

    `columns`: the table's columns as windrow wrote them. `commits`: the number of commits so far.
    """

    id: UUID
    owner: TableOwner
    window_column: str
    columns: pa.Schema
    commits: int


class ExistingTable(msgspec.Struct, frozen=True):
    """A table at a place.

    `columns`: by PostgreSQL's catalog. `target`: None if windrow hasn't bound the table.
    `restored`: its comment has another oid than the table, because it was restored from a dump.
    """

    columns: tuple[CatalogColumn, ...]
    target: Target | None
    restored: bool = False


def table_at(connection: Connection, place: TablePlace) -> ExistingTable | None:
    """Looks up the table at a place; None if it doesn't exist.

    Raises:
        SpecError: it isn't a table; it is a copy of a bound table; or it was bound with another
            schema for windrow's own tables, or by another version of windrow.
    """
    asked = "SELECT oid::bigint, relkind::text FROM pg_class WHERE oid = to_regclass(%s)"
    one = connection.execute(asked, [place.name.quoted]).fetchone()
    if one is None:
        return None
    oid, kind = one
    if kind not in {"r", "p"}:
        raise SpecError(
            f"{place} is no table",
            "setup",
            "Set sink.table to a table, or to a name that isn't taken.",
        )
    rows = connection.execute(_COLUMNS, [place.name.quoted]).fetchall()
    columns = tuple(CatalogColumn(*row[:5]) for row in rows)
    for name, *_, comment in rows:
        bound = bound_by(comment or "")
        if bound is not None:
            table_id, bound_oid = bound
            if bound_oid != oid:
                _refuse_copy(connection, place, name, table_id, bound_oid)
            return ExistingTable(columns, _target(connection, place, table_id), bound_oid != oid)
    return ExistingTable(columns, None)


def _refuse_copy(
    connection: Connection, place: TablePlace, window: str, table_id: UUID, oid: int
) -> None:
    names = {"comment": f"{COMMENT}{table_id}", "table": place.name.quoted, "oid": oid}
    row = connection.execute(_SAME_COMMENT, names).fetchone()
    if row is not None:
        other = TableName(*row)
        what = (
            f"the table {place.name} is a copy of {other}, or the other way round: the comments on"
            " their columns name the same table"
        )
        take = "COMMENT ON COLUMN {}.{} IS NULL"
        do = (
            f"Take the comment off the copy: {take.format(place.name.quoted, quoted(window))}; then"
            " windrow takes it if it is empty. If the copy is to take the other table's place, with"
            f" its rows: {take.format(other.quoted, quoted(window))}."
        )
        raise SpecError(what, "setup", do)


def _target(connection: Connection, place: TablePlace, table_id: UUID) -> Target:
    row = None
    if has_table(connection, TableName(place.own, "targets")):
        row = connection.execute(place.query(_TARGET), [table_id]).fetchone()
    if row is None:
        what = (
            f"the table {place} was bound by windrow, and the schema {place.own} knows nothing"
            " of it"
        )
        do = (
            "Set sink.windrow_schema to the schema that it was begun with; or restore that from a"
            " backup, together with the table."
        )
        raise SpecError(what, "setup", do)
    if row[-1] != FORM:
        what = (
            f"the table {place} was made by another version of windrow, in form {row[-1]}; this one"
            f" knows form {FORM}"
        )
        do = "Use the windrow that made it, or begin a pipeline with another id and table."
        raise SpecError(what, "setup", do)
    return _as_target(row)


def _as_target(row: tuple[Any, ...]) -> Target:
    try:
        columns = pa.ipc.read_schema(pa.py_buffer(row[5]))
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"the row {row[0]} of windrow's table targets is damaged: its columns can't be read",
            "setup",
            f"Restore {_BACKUP} from a backup.",
        ) from error
    return Target(row[0], TableOwner(*row[1:4]), row[4], columns, row[6])


def locked(
    connection: Connection, place: TablePlace
) -> tuple[Target, tuple[CatalogColumn, ...]] | None:
    """Locks a bound table until the end of the transaction; None if it doesn't exist.

    No other commit changes the table meanwhile, so all that is read from here on stays true.
    """
    found = table_at(connection, place)
    if found is None or found.target is None:
        return None
    row = lock_row(connection, place, _LOCK, [found.target.id])
    # the table may have changed until the lock was granted
    now = None if row is None else table_at(connection, place)
    return None if row is None or now is None else (_as_target(row), now.columns)


def tombstones_name(place: TablePlace, target: Target) -> TableName:
    """The table with the tombstones of a table."""
    return TableName(place.own, f"tombstones_{target.id.hex}")


# ------------------------------------------------------------------------------- a bound table


class BoundTable:
    """A bound table in one transaction: its receipts, ranges, notes and rows.

    It answers questions of `sinks.table_store.TableState`.

    Args:
        connection: in a transaction.
        place: the table's.
        target: the table's row in `targets`.
        columns: its columns by PostgreSQL's catalog.
    """

    def __init__(
        self,
        connection: Connection,
        place: TablePlace,
        target: Target,
        columns: Sequence[CatalogColumn],
    ) -> None:
        self.connection, self.place = connection, place
        self.target, self.catalog_columns = target, columns

    @property
    def version(self) -> int:
        return self.target.commits

    @property
    def owner(self) -> TableOwner:
        return self.target.owner

    # --------------------------------------------------------------------- receipts and ranges

    def committed(self) -> Collection[str]:
        """Committed windows, those whose receipt was deleted among them: their ranges say so."""
        query = self.place.query(
            "SELECT window_key FROM {receipts} WHERE target = %(target)s"
            " UNION SELECT window_key FROM {ranges} WHERE target = %(target)s"
        )
        found = self.connection.execute(query, {"target": self.target.id})
        return {key for (key,) in found}

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        for row in self._receipt_rows(keys):
            yield row.stored(_BACKUP)

    def _receipt_rows(self, keys: Collection[str] | None) -> Iterator[ReceiptRow]:
        """Reads the newest receipts of some windows, or of all in bounded memory."""
        some = sql.SQL("" if keys is None else "AND window_key = ANY(%(keys)s)")
        query = self.place.query(_RECEIPTS, some=some)
        name = "receipts" if keys is None else ""  # with a name it is a cursor of the server
        with self.connection.cursor(name, row_factory=class_row(ReceiptRow)) as cursor:
            if keys is None:
                cursor.itersize = 200
            yield from cursor.execute(query, {"target": self.target.id, "keys": list(keys or ())})

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        values = [*_range_arrays(ranges), self.target.id]
        found = self.connection.execute(self.place.query(_OVERLAPPING), values)
        return {key for (key,) in found}

    def put_receipt(self, receipt: Receipt) -> None:
        """Inserts a receipt, with the ranges of a window that is new.

        The primary key refuses a generation that has a receipt.
        """
        self._insert_receipt(receipt, to_json(receipt))
        if receipt.generation == 0:
            self._insert_ranges(receipt)

    def _insert_receipt(self, receipt: Receipt, text: str) -> None:
        put = (
            "INSERT INTO {receipts} (target, window_key, generation, version, receipt, sha256)"
            " VALUES (%s, %s, %s, %s, %s, %s)"
        )
        key, generation = receipt.window.key, receipt.generation
        proof = row_digest(key, generation, range_texts(receipt), text)
        values = [self.target.id, key, generation, self.version + 1, text, proof]
        self.connection.execute(self.place.query(put), values)

    def _insert_ranges(self, receipt: Receipt) -> None:
        if receipt.plan.splits:
            values = [self.target.id, receipt.window.key, *_range_arrays(covered(receipt.plan))]
            self.connection.execute(self.place.query(_PUT_RANGES), values)

    def restore_receipt(self, window: Window, text: str) -> None:
        """Puts back a window's receipt and its ranges.

        The receipt may be damaged, missing, or under another window's key. The digest in its row
        proves the text. If the row is missing, the window's ranges must be those of the text.

        Raises:
            RefusedError: the commit wrote another text.
        """
        receipt = from_json(text, Receipt)
        generation, ranges = receipt.generation, range_texts(receipt)
        back = (
            "UPDATE {receipts} SET window_key = %s, generation = %s, receipt = %s"
            " WHERE target = %s AND sha256 = %s"
        )
        proof = row_digest(window.key, generation, ranges, text)
        values = [window.key, generation, text, self.target.id, proof]
        if not self.connection.execute(self.place.query(back), values).rowcount:
            next(self._receipt_rows([window.key])).refuse_other(receipt, _BACKUP)
            self._insert_receipt(receipt, text)
        # the ranges may be under another window's key, too
        forget = self.place.query(
            "DELETE FROM {ranges} WHERE target = %s AND (window_key = %s OR (topic_id, partition,"
            " start, stop) IN (SELECT * FROM unnest(%s::text[], %s::integer[], %s::bigint[],"
            " %s::bigint[])))"
        )
        own = _range_arrays(covered(receipt.plan))
        self.connection.execute(forget, [self.target.id, window.key, *own])
        self._insert_ranges(receipt)

    # ----------------------------------------------------------------------------------- notes

    def note(self, name: str) -> int | None:
        asked = self.place.query("SELECT value FROM {notes} WHERE target = %s AND name = %s")
        row = self.connection.execute(asked, [self.target.id, name]).fetchone()
        return None if row is None else int(row[0])

    def notes(self) -> Mapping[str, int]:
        asked = self.place.query("SELECT name, value FROM {notes} WHERE target = %s")
        return dict(self.connection.execute(asked, [self.target.id]).fetchall())

    def put_note(self, name: str, value: int) -> None:
        """Inserts a note, or replaces it."""
        put = (
            "INSERT INTO {notes} (target, name, value) VALUES (%s, %s, %s)"
            " ON CONFLICT (target, name) DO UPDATE SET value = excluded.value"
        )
        self.connection.execute(self.place.query(put), [self.target.id, name, value])

    # ------------------------------------------------------------------------------------ rows

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        if keys is not None:
            return set(filter(self._has_rows, keys))
        asked = self.place.query("SELECT DISTINCT {window} FROM {table}", window=self._window)
        return {row[0] for row in self.connection.execute(asked, ())}

    def _has_rows(self, key: str) -> bool:
        asked = "SELECT EXISTS (SELECT FROM {table} WHERE {window} = %s)"
        return is_true(self.connection, self.place.query(asked, window=self._window), key)

    def delete_rows(self, key: str) -> None:
        """Deletes all rows of a window.

        Raises:
            RefusedError: some rows are still there.
        """
        delete = "DELETE FROM {table} WHERE {window} = %s"
        self.connection.execute(self.place.query(delete, window=self._window), [key])
        if self._has_rows(key):
            raise rows_stay(self.place)

    def summarize(self) -> None:
        """Adds the newest rows to the index of windows.

        Until that is done, a query for any window reads all of these rows. It is left out where it
        would have to wait: a VACUUM, or a CREATE INDEX CONCURRENTLY, may take hours, and would keep
        all windows out. Then a later commit does it, or the server by itself.
        """
        # a savepoint, so that the rows stay after a timeout
        with suppress(psycopg.errors.LockNotAvailable), self.connection.transaction():
            set_lock_timeout(self.connection, _BRIEFLY)
            self.connection.execute(_SUMMARIZE, [self.place.name.quoted] * 2)
        set_lock_timeout(self.connection)

    @property
    def _window(self) -> sql.Composable:
        return identifier(self.target.window_column)

    # ------------------------------------------------------------------------------ tombstones

    @property
    def tombstones_name(self) -> TableName:
        """The table with the tombstones."""
        return tombstones_name(self.place, self.target)

    def refuse_lost_tombstones(self) -> None:
        """Refuses a table without its tombstones.

        Raises:
            DamagedError: the table with the tombstones is missing.
        """
        name = self.tombstones_name
        if not has_table(self.connection, name):
            what = f"the table {name}, which says which keys {self.place} has lost by deletes,"
            raise DamagedError(f"{what} is missing", "commit", _RESTORE_TOMBSTONES)


def rows_stay(place: TablePlace) -> RefusedError:
    """The error for rows that are still in the table after they were deleted."""
    what = f"{place} keeps rows that were deleted: a trigger or a rule of the table holds them"
    return RefusedError(
        what, "commit", "Nothing was committed. Take it off, then run the window again."
    )


def _range_arrays(ranges: Sequence[Covered]) -> list[list[Any]]:
    """The ranges as arrays for `unnest`, one per column."""
    return [
        [getattr(one, name) for one in ranges]
        for name in ("topic_id", "partition", "start", "stop")
    ]
