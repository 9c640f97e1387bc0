"""What windrow keeps of its tables in a schema of its own: whose each table is, its
columns, receipts, ranges and notes.

    targets    one row a table: whose it is, its columns as windrow brought them, how many commits
               there were. Its lock is the table's.
    receipts   one row a window and generation; the primary key is the fence: no generation is
               committed twice
    ranges     which offsets are committed under which window, for the question whether a plan
               overlaps; one row each is looked at
    notes      numbers by name: of dead letters, which attempt's are there, and what is published

A table says by the comment on its window column which row of `targets` is its own: a
name can be given to another table, and a table's number changes when it is restored
from a dump. A copy (`CREATE TABLE ... (LIKE ... INCLUDING ALL)`) has the comment, too.
So that says the table's number besides: of tables with one comment it is the table that
has this number, and where there is only one, it was restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import class_row

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.postgres.columns import CatalogColumn
from windrow.ingest.sinks.postgres.lock import lock_row
from windrow.ingest.sinks.postgres.names import MARK, TableName, marked, quoted
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    identifier,
    set_lock_timeout,
)
from windrow.ingest.sinks.table_store import StoredReceipt

FORM = 2
"""The version of what is kept here; a table that was begun with another one is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS {targets} (
    id uuid PRIMARY KEY, place text NOT NULL, pipeline text NOT NULL, ledger text NOT NULL, grid text NOT NULL,
    window_column text NOT NULL, columns bytea NOT NULL, commits bigint NOT NULL DEFAULT 0, form integer NOT NULL
);
CREATE TABLE IF NOT EXISTS {receipts} (
    target uuid, window_key text COLLATE "C", generation integer, version bigint NOT NULL, receipt text NOT NULL, sha256 bytea NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (target, window_key, generation)
);
CREATE TABLE IF NOT EXISTS {ranges} (
    target uuid, topic_id text COLLATE "C", partition integer, stop bigint, start bigint NOT NULL, window_key text NOT NULL COLLATE "C",
    PRIMARY KEY (target, topic_id, partition, stop)
);
CREATE INDEX IF NOT EXISTS ranges_of_window ON {ranges} (target, window_key);
CREATE TABLE IF NOT EXISTS {notes} (target uuid, name text COLLATE "C", value bigint NOT NULL, PRIMARY KEY (target, name));
"""  # noqa: E501

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
    a.atthasdef OR a.attgenerated <> '' OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    col_description(a.attrelid, a.attnum)
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""  # noqa: E501

_LIKE = """
SELECT n.nspname::text, c.relname::text
FROM pg_description d JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classoid = 'pg_class'::regclass AND d.objsubid > 0 AND starts_with(d.description, %(mark)s) AND c.relkind IN ('r', 'p')
    AND c.oid <> to_regclass(%(table)s) AND c.oid NOT IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))
ORDER BY c.oid = %(number)s DESC, 1, 2 LIMIT 1
"""  # noqa: E501
"""Another table with a mark; rather the one that has the number which the mark says.

Partitions are often made as copies of their table.
"""

_RECEIPTS = """
SELECT coalesce(k.window_key, g.window_key) AS window_key, k.receipt, k.generation, k.sha256, k.version,
    coalesce(g.ranges, '{{}}') AS ranges
FROM (
    SELECT DISTINCT ON (window_key) window_key, receipt, sha256, version, generation FROM {receipts}
    WHERE target = %(target)s {some} ORDER BY window_key, generation DESC
) k FULL JOIN (
    SELECT window_key, array_agg(concat_ws(' ', topic_id, partition, start, stop)) AS ranges
    FROM {ranges} WHERE target = %(target)s {some} GROUP BY window_key
) g ON g.window_key = k.window_key ORDER BY 1
"""  # noqa: E501
"""A window that has ranges was committed, also where its receipt is gone."""

_OVERLAPPING = """
SELECT DISTINCT r.window_key FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine (topic_id, partition, start, stop)
CROSS JOIN LATERAL (
    SELECT window_key, start FROM {ranges} r
    WHERE r.target = %s AND r.topic_id = mine.topic_id AND r.partition = mine.partition AND r.stop > mine.start
    ORDER BY r.stop LIMIT 1
) r WHERE r.start < mine.stop
"""  # noqa: E501
"""Committed ranges never overlap each other, so the first one that ends behind a
range's start is the only one to be looked at.
"""

_PUT_RANGES = """
INSERT INTO {ranges} (target, window_key, topic_id, partition, start, stop)
SELECT %s, %s, mine.* FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine
"""
"""One statement: after several that the driver sends as one batch, PostgreSQL 18
doesn't end a session for idling in its transaction.
"""

_SUMMARIZE = """
SELECT brin_summarize_new_values(x.indexrelid::regclass)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
WHERE a.amname = 'brin' AND i.relkind = 'i'
    AND x.indrelid IN (SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)) WHERE isleaf)
"""  # noqa: E501

_GLANCE = "50ms"
"""So long is waited for what need not be done now."""

_LOST = (
    "windrow verify SPEC --restore-receipts puts it back from the ledger's copy; if there is none,"
    " restore the schema from a backup."
)


class Target(msgspec.Struct, frozen=True):
    """A bound table: its id, to what it is bound, what its window column is called, and
    its columns as windrow brought them.

    `commits`: how many there were.
    """

    id: UUID
    owner: TableOwner
    window_column: str
    columns: pa.Schema
    commits: int


class TableThere(msgspec.Struct, frozen=True):
    """A table that is there: its columns by the catalog; `target` is None if windrow has not bound it.

    `stale`: its mark says another number than it has, as it was restored from a dump.
    """  # noqa: E501

    columns: tuple[CatalogColumn, ...]
    target: Target | None
    stale: bool = False


def table_at(connection: Connection, place: TablePlace) -> TableThere | None:
    """The table at a place as it is now; None if there is none.

    Raises:
        SpecError: it isn't a table, its mark is of another schema of windrow's, or
            another table has that mark, too.
    """
    asked = "SELECT oid::bigint, relkind::text FROM pg_class WHERE oid = to_regclass(%s)"
    one = connection.execute(asked, [place.name.quoted]).fetchone()
    if one is None:
        return None
    if one[1] not in {"r", "p"}:
        raise SpecError(
            f"{place} is no table",
            "setup",
            "Set sink.table to a table, or to a name that isn't taken.",
        )
    rows = connection.execute(_COLUMNS, [place.name.quoted]).fetchall()
    columns = tuple(CatalogColumn(*row[:5]) for row in rows)
    found = next(
        ((row[0], said) for row in rows if (said := marked(str(row[5] or ""))) is not None), None
    )
    if found is None:
        return TableThere(columns, None)
    window, (mark, number) = found
    stale = number != one[0]
    if stale:
        _refuse_copy(connection, place, window, mark, number)
    return TableThere(columns, _target(connection, place, mark), stale)


def _refuse_copy(
    connection: Connection, place: TablePlace, window: str, mark: UUID, number: int | None
) -> None:
    names = {"mark": f"{MARK}{mark}", "table": place.name.quoted, "number": number or 0}
    row = connection.execute(_LIKE, names).fetchone()
    if row is not None:
        other = TableName(*row)
        what = (
            f"the table {place.name} is a copy of {other}, or that of it: the comments on their"
            " columns name one table of windrow's"
        )
        take = "COMMENT ON COLUMN {}.{} IS NULL"
        do = (
            f"Take the comment off the copy: {take.format(place.name.quoted, quoted(window))}; an"
            " empty one is taken as yours then. If it is to take the other's place, with the rows:"
            f" {take.format(other.quoted, quoted(window))}."
        )
        raise SpecError(what, "setup", do)


def _target(connection: Connection, place: TablePlace, mark: UUID) -> Target:
    asked = f"SELECT {_OF_TARGET}, commits, form FROM {{targets}} WHERE id = %s"  # noqa: S608
    row = (
        connection.execute(place.query(asked), [mark]).fetchone()
        if has_own(connection, place, "targets")
        else None
    )
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
            f"the table {place} was begun by {'an earlier' if row[-1] < FORM else 'a later'}"
            " version of windrow, which keeps other notes"
        )
        raise SpecError(
            what, "setup", "Go on with that version; or begin a pipeline with another id and table."
        )
    return _as_target(row)


_OF_TARGET = "id, pipeline, ledger, grid, window_column, columns"


def _as_target(row: tuple[Any, ...]) -> Target:
    return Target(
        row[0], TableOwner(*row[1:4]), row[4], pa.ipc.read_schema(pa.py_buffer(row[5])), row[6]
    )


def has_own(connection: Connection, place: TablePlace, table: str = "notes") -> bool:
    """Whether windrow's own tables are there, of which the notes are made last; or one of them."""
    return _is(
        connection,
        sql.SQL("SELECT to_regclass(%s) IS NOT NULL"),
        TableName(place.own, table).quoted,
    )


def locked(
    connection: Connection, place: TablePlace
) -> tuple[Target, tuple[CatalogColumn, ...]] | None:
    """The bound table, locked until the end of the transaction, and its columns; None
    if it isn't there (any more).

    No other commit comes into it meanwhile: what is looked at from here on stays so.
    """
    found = table_at(connection, place)
    mark = None if found is None or found.target is None else found.target.id
    lock = f"UPDATE {{targets}} SET commits = commits + 1 WHERE id = %s RETURNING {_OF_TARGET}, commits - 1"  # noqa: E501, S608
    row = None if mark is None else lock_row(connection, place, lock, [mark])
    now = None if row is None else table_at(connection, place)  # as it is since the lock is ours
    return None if row is None or now is None else (_as_target(row), now.columns)


# --------------------------------------------------------------------------------------------------


class KeptReceipt(msgspec.Struct, frozen=True):
    """The newest receipt of a window as it lies in windrow's tables, and the ranges
    that lie there under its name.
    """

    window_key: str
    generation: int | None
    receipt: str | None
    sha256: bytes | None
    version: int | None
    ranges: list[str]

    def stored(self) -> StoredReceipt | Unreadable:
        """The receipt, unless something but windrow has changed what is kept of the window."""
        key = self.window_key
        if self.receipt is None or self.generation is None:
            return Unreadable(key, f"window {key} is committed, and its receipt is missing", _LOST)
        if _digest(key, self.generation, self.ranges, self.receipt) != self.sha256:
            what = (
                f"what windrow keeps of window {key}, its receipt and which offsets it holds, is"
                " not what was committed"
            )
            return Unreadable(key, what, _LOST)
        return StoredReceipt(key, self.receipt, self.version)


def _digest(key: str, generation: int, ranges: Sequence[str], text: str) -> bytes:
    """Proves a receipt, under which name it lies, and the ranges that lie beside it."""
    return hashlib.sha256(
        "\n".join([key, str(generation), *sorted(ranges), text]).encode()
    ).digest()


def _range_texts(receipt: Receipt) -> list[str]:
    return [
        f"{one.topic_id} {one.partition} {one.start} {one.stop}" for one in covered(receipt.plan)
    ]


def receipts(
    connection: Connection, place: TablePlace, target: Target, keys: Collection[str] | None = None
) -> Iterator[KeptReceipt]:
    """The newest of some windows; or of all, a bounded number at a time; in the order
    of keys; within a transaction.
    """
    some = sql.SQL("" if keys is None else "AND window_key = ANY(%(keys)s)")
    with connection.cursor(
        "" if keys is not None else "receipts", row_factory=class_row(KeptReceipt)
    ) as cursor:
        if keys is None:
            cursor.itersize = 200
        yield from cursor.execute(
            place.query(_RECEIPTS, some=some), {"target": target.id, "keys": list(keys or ())}
        )


def committed(connection: Connection, place: TablePlace, target: Target) -> set[str]:
    """The keys of all windows that have a receipt."""
    query = place.query("SELECT DISTINCT window_key FROM {receipts} WHERE target = %s")
    return {key for (key,) in connection.execute(query, [target.id])}


def overlapping(
    connection: Connection, place: TablePlace, target: Target, ranges: Sequence[Covered]
) -> set[str]:
    """The keys of committed windows that hold any of these offsets."""
    return {
        key
        for (key,) in connection.execute(
            place.query(_OVERLAPPING), [*_columns_of(ranges), target.id]
        )
    }


def _columns_of(ranges: Sequence[Covered]) -> list[list[Any]]:
    return [
        [getattr(one, name) for one in ranges]
        for name in ("topic_id", "partition", "start", "stop")
    ]


def put_receipt(
    connection: Connection, place: TablePlace, target: Target, receipt: Receipt
) -> None:
    """Keep a receipt, and the ranges of a window that is new.

    The primary key refuses a generation that is there.
    """
    _put_receipt(connection, place, target, receipt, to_json(receipt))
    if receipt.generation == 0:
        _put_ranges(connection, place, target, receipt)


def _put_receipt(
    connection: Connection, place: TablePlace, target: Target, receipt: Receipt, text: str
) -> None:
    put = (
        "INSERT INTO {receipts} (target, window_key, generation, version, receipt, sha256) VALUES"
        " (%s, %s, %s, %s, %s, %s)"
    )
    key, digest = (
        receipt.window.key,
        _digest(receipt.window.key, receipt.generation, _range_texts(receipt), text),
    )
    connection.execute(
        place.query(put), [target.id, key, receipt.generation, target.commits + 1, text, digest]
    )


def _put_ranges(
    connection: Connection, place: TablePlace, target: Target, receipt: Receipt
) -> None:
    if receipt.plan.splits:
        connection.execute(
            place.query(_PUT_RANGES),
            [target.id, receipt.window.key, *_columns_of(covered(receipt.plan))],
        )


def restore(
    connection: Connection, place: TablePlace, target: Target, window: Window, text: str
) -> None:
    """Put a damaged receipt's text, a missing receipt, one that lies under another
    name, or a window's ranges back.

    A receipt's own fingerprint proves its text; where its row is gone, that the
    window's ranges are those of the text.

    Raises:
        RefusedError: the commit named another text.
    """
    receipt = from_json(text, Receipt)
    said = _digest(window.key, receipt.generation, _range_texts(receipt), text)
    back = (
        "UPDATE {receipts} SET window_key = %s, generation = %s, receipt = %s WHERE target = %s AND"
        " sha256 = %s"
    )
    if not connection.execute(
        place.query(back), [window.key, receipt.generation, text, target.id, said]
    ).rowcount:
        kept = next(receipts(connection, place, target, [window.key]), None)
        lost = (
            kept is not None
            and kept.receipt is None
            and sorted(kept.ranges) == sorted(_range_texts(receipt))
        )
        if not lost:
            raise RefusedError(
                f"the commit of window {window.key} named another receipt", "check", "Look again."
            )
        _put_receipt(connection, place, target, receipt, text)
    connection.execute(
        place.query("DELETE FROM {ranges} WHERE target = %s AND window_key = %s"),
        [target.id, window.key],
    )
    _put_ranges(connection, place, target, receipt)


# --------------------------------------------------------------------------------------------------


def delete_rows(connection: Connection, place: TablePlace, target: Target, key: str) -> None:
    """Take all rows of a window out of the table.

    Raises:
        RefusedError: some stay, and would be there beside the new ones.
    """
    window = identifier(target.window_column)
    connection.execute(place.query("DELETE FROM {table} WHERE {window} = %s", window=window), [key])
    if has_rows(connection, place, target, key):
        raise rows_stay(place)


def rows_stay(place: TablePlace) -> RefusedError:
    """What to say where rows that are to go are still in the table."""
    what = f"{place} keeps rows that were deleted: a trigger or a rule of the table holds them"
    return RefusedError(
        what, "commit", "Nothing was committed. Take it off, then run the window again."
    )


def windows(connection: Connection, place: TablePlace, target: Target) -> set[str]:
    """The keys of all windows that the table holds rows of. Reads all of it."""
    query = place.query(
        "SELECT DISTINCT {window} FROM {table}", window=identifier(target.window_column)
    )
    return {row[0] for row in connection.execute(query, ())}


def summarize(connection: Connection, place: TablePlace) -> None:
    """Tell the index which windows the newest rows are of: until then, whoever asks for
    a window looks into all of them.

    Not where that would have to wait: who vacuums the table, or makes an index of it
    beside its writers, may take hours, and would keep all windows out. Then a later
    commit does it, or the server by itself.
    """
    # a savepoint: the rows stay
    with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
        set_lock_timeout(connection, _GLANCE)
        connection.execute(_SUMMARIZE, [place.name.quoted, place.name.quoted])
    set_lock_timeout(connection)


def has_rows(
    connection: Connection, place: TablePlace, target: Target | None = None, key: str | None = None
) -> bool:
    """Whether the table has any row, or any of a window."""
    if target is None:
        return _is(connection, place.query("SELECT EXISTS (SELECT FROM {table})"))
    window = identifier(target.window_column)
    return _is(
        connection,
        place.query("SELECT EXISTS (SELECT FROM {table} WHERE {window} = %s)", window=window),
        key,
    )


def _is(connection: Connection, question: sql.SQL | sql.Composed, *values: object) -> bool:
    row = connection.execute(question, values).fetchone()
    return row is not None and bool(row[0])


# --------------------------------------------------------------------------------------------------


def note(connection: Connection, place: TablePlace, target: Target, name: str) -> int | None:
    """The value of a note; None if there is none."""
    asked = place.query("SELECT value FROM {notes} WHERE target = %s AND name = %s")
    row = connection.execute(asked, [target.id, name]).fetchone()
    return None if row is None else int(row[0])


def notes(connection: Connection, place: TablePlace, target: Target) -> dict[str, int]:
    """All notes."""
    return dict(
        connection.execute(
            place.query("SELECT name, value FROM {notes} WHERE target = %s"), [target.id]
        ).fetchall()
    )


def put_note(
    connection: Connection, place: TablePlace, target: Target, name: str, value: int
) -> None:
    """Put a note in the place of the one that is there."""
    put = (
        "INSERT INTO {notes} (target, name, value) VALUES (%s, %s, %s) ON CONFLICT (target, name)"
        " DO UPDATE SET value = excluded.value"
    )
    connection.execute(place.query(put), [target.id, name, value])
