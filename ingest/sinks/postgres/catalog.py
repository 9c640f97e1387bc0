"""Windrow's own tables in PostgreSQL: owners, receipts, ranges and notes of its tables.

They are in their own schema:

    targets    one row per table: its owner, its columns as windrow wrote them, the number of
               commits. A lock on the row is the table's lock.
    receipts   one row per window and generation. The primary key refuses a second receipt of a
               generation.
    ranges     the offsets of committed windows. A plan that overlaps them is refused.
    notes      numbers by name: which attempts' dead letters are stored, and which are published.
    tombstones_<id of the target>
               the keys that deletes have removed from a table with a primary key.

A table is known by its oid, in `targets.relation`, because its name may be given to another table.
The column's type is `regclass`. A dump holds such a value as the table's name, and a restore reads
it as the new oid of the table. So a table that was dumped and restored together with this schema is
recognized. `targets.place` has the table's name at its newest commit.
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

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Window, covered_ranges
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.kit import ReceiptRow, StoredReceipt, receipt_digest, waiting_for
from windrow.ingest.sinks.postgres.columns import CatalogColumn
from windrow.ingest.sinks.postgres.names import TableName
from windrow.ingest.sinks.postgres.server import (
    LOCK_WAIT,
    Connection,
    TablePlace,
    commit,
    has_table,
    identifier,
    is_true,
    set_local,
)

FORM = 4
"""The version of these tables. Tables of another version are refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS {targets} (
    id uuid PRIMARY KEY, place text NOT NULL, relation regclass UNIQUE,
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

_TABLE = """
SELECT relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_class p WHERE (p.relpersistence = 'u' OR p.relkind = 'f') AND p.oid IN (
        SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)
    )
)
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""

_TARGET = """
SELECT form, id, pipeline, ledger, grid, window_column, columns, commits
FROM {targets} WHERE relation = to_regclass(%(relation)s)
"""

_LOCK = """
UPDATE {targets} SET commits = commits + 1, place = %(place)s
WHERE relation = to_regclass(%(relation)s)
RETURNING form, id, pipeline, ledger, grid, window_column, columns, commits - 1
"""

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) || CASE
    WHEN a.attgenerated <> '' OR a.attidentity = 'a' THEN ' generated always' ELSE ''
    END, NOT a.attnotnull,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND NOT c.relhastriggers
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
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
"""A window with ranges was committed, even if its receipt is missing."""

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
"""Committed ranges never overlap each other. So only one range must be compared with an asked
range: the first committed range that ends after the asked range's start.
"""

_PUT_RANGES = """
INSERT INTO {ranges} (target, window_key, topic_id, partition, start, stop)
SELECT %s, %s, mine.* FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine
"""
"""A single statement. After several statements that the driver sends as a batch, PostgreSQL 18
doesn't end a session that is idle in its transaction.
"""

_SUMMARIZE = """
SELECT brin_summarize_new_values(x.indexrelid::regclass)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
WHERE a.amname = 'brin' AND i.relkind = 'i' AND x.indrelid IN (
    SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)) WHERE isleaf
)
"""

_MAY_CHANGE_ROWS = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE (relhastriggers OR relhasrules) AND oid IN (
        SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s))
    )
)
"""
"""Asks whether the table or a partition has rules or triggers; foreign keys are triggers, too."""

_ROW_COUNTS = """
SELECT (SELECT count(*) FROM {table} WHERE {window} = %(key)s),
    CASE WHEN current_setting('track_counts')::boolean THEN (
        SELECT sum(pg_stat_get_xact_tuples_inserted(t) - pg_stat_get_xact_tuples_deleted(t))
        FROM (
            SELECT to_regclass(%(name)s) UNION
            SELECT relid FROM pg_partition_tree(to_regclass(%(name)s))
        ) AS of_table (t)
    ) ELSE (SELECT count(*) FROM {table}) END::bigint
"""
"""Counts the rows of a window, and the rows that this transaction has added to the table minus
those that it has deleted. If the server doesn't keep these counts, it counts all rows instead.
"""

_BRIEFLY = "50ms"
"""Longest wait for a lock whose work can be skipped."""

_BACKUP = "the schema, together with the table,"
"""What the user restores from a backup if there is no copy of a receipt."""


class Target(msgspec.Struct, frozen=True):
    """The row of a bound table in `targets`.

    Attributes:
        id: the id of the row.
        owner: the table's owner.
        window_column: the column with the window's key.
        columns: the table's columns as windrow wrote them.
        commits: the number of commits so far.
    """

    id: UUID
    owner: TableOwner
    window_column: str
    columns: pa.Schema
    commits: int


class ExistingTable(msgspec.Struct, frozen=True):
    """A table at a place.

    Attributes:
        columns: the table's columns in PostgreSQL's catalog.
        target: the table's row in `targets`; None if windrow hasn't bound the table.
    """

    columns: tuple[CatalogColumn, ...]
    target: Target | None


def find_table(
    connection: Connection, location: TablePlace, *, lock: bool = False
) -> ExistingTable | None:
    """Looks up the table at a place; returns None if it doesn't exist.

    Args:
        connection: a connection in a transaction.
        location: the table's place.
        lock: True to lock the table until the end of the transaction. While it is locked, no other
            commit changes it, so all data that is read after this call stays true.

    Raises:
        SpecError: the relation isn't a table that survives a crash, or another version of windrow
            made it.
    """
    target = None
    if has_table(connection, TableName(location.own_schema, "targets")):
        lock_note = ", which another session, usually a commit, has locked" if lock else ""
        with waiting_for(f"the table {location}{lock_note}"):
            target = _target(connection, location, _LOCK if lock else _TARGET)
    row = connection.execute(_TABLE, [location.name.quoted]).fetchone()
    if row is None:
        return None
    if not row[0]:
        raise SpecError(
            f"{location} is no table, or it or a partition of it is unlogged or foreign: a crash"
            " would take its rows, and leave their receipts, or it has commits of its own",
            "setup",
            "Set sink.table to a table, or to a name that isn't taken; or ALTER TABLE ... SET"
            " LOGGED, or ... DETACH PARTITION.",
        )
    rows = connection.execute(_COLUMNS, [location.name.quoted]).fetchall()
    return ExistingTable(tuple(CatalogColumn(*row) for row in rows), target)


def _target(connection: Connection, location: TablePlace, query: str) -> Target | None:
    try:
        names = {"relation": location.name.quoted, "place": str(location.name)}
        row = connection.execute(location.query(query), names).fetchone()
    except psycopg.errors.UndefinedColumn:
        row = (f"{FORM - 1} or before",)
    if row is None:
        return None
    if row[0] != FORM:
        raise SpecError(
            f"windrow's tables in the schema {location.own_schema} were made by another version of"
            f" windrow, in form {row[0]}; this one knows form {FORM}",
            "setup",
            "Use the windrow that made them, or set sink.windrow_schema to another schema and"
            " sink.table to a new table.",
        )
    columns = pa.ipc.read_schema(pa.py_buffer(row[6]))
    return Target(row[1], TableOwner(*row[2:5]), row[5], columns, row[7])


def tombstones_name(location: TablePlace, target: Target) -> TableName:
    """Returns the name of the table with the tombstones of a table."""
    return TableName(location.own_schema, f"tombstones_{target.id.hex}")


# ------------------------------------------------------------------------------- a bound table


class BoundTable:
    """A bound table in one transaction: its receipts, ranges, notes and rows.

    It implements a part of `sinks.kit.commit.table_store.TableState`.

    Args:
        connection: a connection in a transaction.
        location: the table's place.
        target: the table's row in `targets`.
        columns: the table's columns in PostgreSQL's catalog.
    """

    def __init__(
        self,
        connection: Connection,
        location: TablePlace,
        target: Target,
        columns: Sequence[CatalogColumn],
    ) -> None:
        self.connection, self.location = connection, location
        self.target, self.catalog_columns = target, columns
        self.version, self.owner = target.commits, target.owner
        self._window = identifier(target.window_column)

    # --------------------------------------------------------------------- receipts and ranges

    def committed(self) -> Collection[str]:
        """Returns the committed windows. Ranges show a window whose receipt was deleted."""
        query = self.location.query(
            "SELECT window_key FROM {receipts} WHERE target = %(target)s"
            " UNION SELECT window_key FROM {ranges} WHERE target = %(target)s"
        )
        cursor = self.connection.execute(query, {"target": self.target.id})
        return {key for (key,) in cursor}

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        for row in self._receipt_rows(keys):
            yield row.stored(_BACKUP)

    def _receipt_rows(self, keys: Collection[str] | None) -> Iterator[ReceiptRow]:
        """Reads the newest receipts of some windows, or of all windows in bounded memory."""
        key_filter = sql.SQL("" if keys is None else "AND window_key = ANY(%(keys)s)")
        query = self.location.query(_RECEIPTS, some=key_filter)
        name = "receipts" if keys is None else ""  # a name makes it a cursor of the server
        with self.connection.cursor(name, row_factory=class_row(ReceiptRow)) as cursor:
            if keys is None:
                cursor.itersize = 200
            yield from cursor.execute(query, {"target": self.target.id, "keys": list(keys or ())})

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        values = [*_range_arrays(ranges), self.target.id]
        cursor = self.connection.execute(self.location.query(_OVERLAPPING), values)
        return {key for (key,) in cursor}

    def put_receipt(self, receipt: Receipt, text: str) -> None:
        """Inserts a receipt, and replaces the ranges of the window.

        The primary key refuses a second receipt of a generation.
        """
        key, generation = receipt.window.key, receipt.generation
        forget = "DELETE FROM {ranges} WHERE target = %s AND window_key = %s"
        self.connection.execute(self.location.query(forget), [self.target.id, key])
        ranges = _range_arrays(covered_ranges(receipt.plan))
        self.connection.execute(self.location.query(_PUT_RANGES), [self.target.id, key, *ranges])
        statement = (
            "INSERT INTO {receipts} (target, window_key, generation, version, receipt, sha256)"
            " VALUES (%s, %s, %s, %s, %s, %s)"
        )
        proof = receipt_digest(key, receipt, text, generation)
        values = [self.target.id, key, generation, self.version + 1, text, proof]
        self.connection.execute(self.location.query(statement), values)

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Restores a window's receipt and its ranges.

        The digest in the receipt's row proves the text. If the row is missing, the window's ranges
        must be the ranges of the text.
        """
        receipt = from_json(text, Receipt)
        row = next(self._receipt_rows([window.key]))
        if row.sha256 != receipt_digest(window.key, receipt, text, receipt.generation):
            row.refuse_other(receipt, _BACKUP)
        forget = "DELETE FROM {receipts} WHERE target = %s AND window_key = %s AND generation >= %s"
        newer = [self.target.id, window.key, receipt.generation]
        self.connection.execute(self.location.query(forget), newer)
        self.put_receipt(receipt, text)
        if not dry_run:
            commit(self.connection)

    # ----------------------------------------------------------------------------------- notes

    def note(self, name: str) -> int | None:
        return self.notes().get(name)

    def notes(self) -> Mapping[str, int]:
        query = self.location.query("SELECT name, value FROM {notes} WHERE target = %s")
        return dict(self.connection.execute(query, [self.target.id]).fetchall())

    def put_note(self, name: str, value: int) -> None:
        """Inserts a note, or replaces it."""
        statement = (
            "INSERT INTO {notes} (target, name, value) VALUES (%s, %s, %s)"
            " ON CONFLICT (target, name) DO UPDATE SET value = excluded.value"
        )
        self.connection.execute(self.location.query(statement), [self.target.id, name, value])

    # ------------------------------------------------------------------------------------ rows

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        query = "SELECT DISTINCT {window} FROM {table}"
        if keys is not None:
            query += " WHERE {window} = ANY(%(keys)s)"
        cursor = self.connection.execute(
            self.location.query(query, window=self._window), {"keys": list(keys or ())}
        )
        return {key for (key,) in cursor}

    def delete_rows(self, key: str) -> None:
        """Deletes all rows of a window.

        Raises:
            RefusedError: some rows are still there.
        """
        delete = "DELETE FROM {table} WHERE {window} = %s"
        self.connection.execute(self.location.query(delete, window=self._window), [key])
        if self.holding([key]):
            raise kept_rows_error(self.location)

    def row_counts(self, key: str) -> tuple[int, int] | None:
        """Counts the rows of a window, and the rows of the table.

        The second number may begin anywhere: it is only for a comparison with a later call. The
        result is None if the table has neither triggers nor rules, because then each statement's
        own count is right.
        """
        name = self.location.name.quoted
        if not is_true(self.connection, _MAY_CHANGE_ROWS, name, name):
            return None
        return self.connection.execute(
            self.location.query(_ROW_COUNTS, window=self._window), {"name": name, "key": key}
        ).fetchone()

    def refuse_other_counts(
        self, key: str, old_counts: tuple[int, int], window_rows: int, all_rows: int
    ) -> None:
        """Runs deferred triggers now, and refuses rows that triggers or rules added or deleted.

        Args:
            key: the window's key.
            old_counts: the result of `row_counts` before the window's rows were written.
            window_rows: the rows that the window has gained by windrow's own statements.
            all_rows: the rows that the table has gained by windrow's own statements.

        Raises:
            RefusedError: the window or the table has gained a different number of rows.
        """
        expected_counts = old_counts[0] + window_rows, old_counts[1] + all_rows
        with waiting_for(f"the deferred triggers of {self.location}"):
            self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        counts = self.row_counts(key)
        if counts != expected_counts:
            raise RefusedError(
                f"{self.location} would have more or fewer rows after window {key} than windrow"
                " wrote:"
                " a trigger, a rule or a foreign key of the table adds rows, or deletes some, of"
                " this window or of others",
                "commit",
                "Nothing was committed. Take it off, then run the window again.",
            )

    def summarize(self) -> None:
        """Adds the newest rows to the index of windows.

        Before that, a query for any window reads all of these rows. The work is skipped if it has
        to wait for a lock: a VACUUM, or a CREATE INDEX CONCURRENTLY, may take hours, and would
        block all windows. Then a later commit does the work, or the server by itself.
        """
        # a savepoint, so that the inserted rows stay after a timeout
        with suppress(psycopg.errors.LockNotAvailable), self.connection.transaction():
            set_local(self.connection, lock_timeout=_BRIEFLY)
            self.connection.execute(_SUMMARIZE, [self.location.name.quoted] * 2)
        set_local(self.connection, lock_timeout=LOCK_WAIT)


def kept_rows_error(location: TablePlace) -> RefusedError:
    """Makes the error for rows that are still in the table after they were deleted."""
    return RefusedError(
        f"{location} keeps rows that were deleted: a trigger or a rule of the table holds them",
        "commit",
        "Nothing was committed. Take it off, then run the window again.",
    )


def _range_arrays(ranges: Sequence[Covered]) -> list[list[Any]]:
    """Returns the ranges as arrays for `unnest`, one array per column."""
    return [
        [getattr(span, name) for span in ranges]
        for name in ("topic_id", "partition", "start", "stop")
    ]
