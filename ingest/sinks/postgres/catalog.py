"""What windrow keeps of its tables in a schema of its own: whose each table is, its columns, receipts, ranges and marks.

    targets    one row a table: whose it is, its columns as windrow brought them, how many commits there were. Its lock is the table's.
    receipts   one row a window and generation; the primary key is the fence: no generation is committed twice
    ranges     which offsets are committed under which window, for the question whether a plan overlaps; one row each is looked at
    marks      of dead letters: which attempt's are there, and what is published

A table says by the comment on its window column which row of `targets` is its own: a name can be given to another table, and a table's
number changes when it is restored from a dump. A copy (`CREATE TABLE ... (LIKE ... INCLUDING ALL)`) has the comment, too. So that says the
table's number besides: of tables with one comment it is the table that has this number, and where there is only one, it was restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import class_row

from windrow.ingest.errors import DamagedError, RefusedError, SpecError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Covered, covered
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.decision import Seen, adjacent
from windrow.ingest.sinks.postgres.columns import CatalogColumn
from windrow.ingest.sinks.postgres.lock import lock_row
from windrow.ingest.sinks.postgres.names import MARK, TableName, marked, quoted
from windrow.ingest.sinks.postgres.server import Connection, Rollback, TablePlace, identifier, set_lock_timeout

TABLES = """
CREATE TABLE IF NOT EXISTS {targets} (
    id uuid PRIMARY KEY, place text NOT NULL, pipeline text NOT NULL, ledger text NOT NULL, grid text NOT NULL,
    window_column text NOT NULL, columns bytea NOT NULL, commits bigint NOT NULL DEFAULT 0, form integer NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS {receipts} (
    target uuid, window_key text COLLATE "C", generation integer, version bigint NOT NULL, receipt text NOT NULL, sha256 bytea NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (target, window_key, generation)
);
CREATE TABLE IF NOT EXISTS {ranges} (
    target uuid, topic_id text COLLATE "C", partition integer, stop bigint, start bigint NOT NULL, window_key text NOT NULL COLLATE "C",
    PRIMARY KEY (target, topic_id, partition, stop)
);
CREATE TABLE IF NOT EXISTS {marks} (
    target uuid, window_key text COLLATE "C", attempt text COLLATE "C", mark text COLLATE "C", value bigint NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (target, window_key, attempt, mark)
);
"""

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
    a.atthasdef OR a.attgenerated <> '' OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    col_description(a.attrelid, a.attnum)
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_LIKE = """
SELECT n.nspname::text, c.relname::text
FROM pg_description d JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classoid = 'pg_class'::regclass AND d.objsubid > 0 AND starts_with(d.description, %(mark)s) AND c.relkind IN ('r', 'p')
    AND c.oid <> to_regclass(%(table)s) AND c.oid NOT IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))
ORDER BY c.oid = %(number)s DESC, 1, 2 LIMIT 1
"""
"""Another table with a mark; rather the one that has the number which the mark says. Partitions are often made as copies of their table."""

_NEWEST = """
SELECT DISTINCT ON (window_key) window_key, receipt, sha256, version, generation FROM {receipts}
WHERE target = %(target)s {some} ORDER BY window_key, generation DESC
"""

_EVERY = """
SELECT coalesce(k.window_key, g.window_key) AS window_key, k.generation, k.receipt, k.sha256, k.version,
    coalesce(g.ranges, '{{}}') AS ranges
FROM ({newest}) k FULL JOIN (
    SELECT window_key, array_agg(concat_ws(' ', topic_id, partition, start, stop)) AS ranges
    FROM {ranges} WHERE target = %(target)s GROUP BY window_key
) g ON g.window_key = k.window_key ORDER BY 1
"""
"""A window that has ranges was committed, also where its receipt is gone."""

_OVERLAPPING = """
SELECT DISTINCT r.window_key FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine (topic_id, partition, start, stop)
CROSS JOIN LATERAL (
    SELECT window_key, start FROM {ranges} r
    WHERE r.target = %s AND r.topic_id = mine.topic_id AND r.partition = mine.partition AND r.stop > mine.start
    ORDER BY r.stop LIMIT 1
) r WHERE r.start < mine.stop
"""
"""Committed ranges never overlap each other, so the first one that ends behind a range's start is the only one to be looked at."""

_PUT_RANGES = """
INSERT INTO {ranges} (target, window_key, topic_id, partition, start, stop)
SELECT %s, %s, mine.* FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS mine
"""
"""One statement: after several that the driver sends as one batch, PostgreSQL 18 doesn't end a session for idling in its transaction."""

_SUMMARIZE = """
SELECT brin_summarize_new_values(x.indexrelid::regclass)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
WHERE a.amname = 'brin' AND i.relkind = 'i'
    AND x.indrelid IN (SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)) WHERE isleaf)
"""

_GLANCE = "50ms"
"""So long is waited for what need not be done now."""

_LOST = "windrow verify SPEC --restore-receipts puts it back from the ledger's copy; if there is none, restore the schema from a backup."


class Target(msgspec.Struct, frozen=True):
    """A bound table: its id, to what it is bound, what its window column is called, and its columns as windrow brought them."""

    id: UUID
    binding: Binding
    window_column: str
    columns: pa.Schema
    commits: int


class TableThere(msgspec.Struct, frozen=True):
    """A table that is there: its columns by the catalog; `target` is None if windrow has not bound it.

    `stale`: its mark says another number than it has, as it was restored from a dump.
    """

    columns: tuple[CatalogColumn, ...]
    target: Target | None
    stale: bool = False


def table_at(connection: Connection, place: TablePlace) -> TableThere | None:
    """The table at a place as it is now; None if there is none.

    Raises:
        SpecError: it isn't a table, its mark is of another schema of windrow's, or another table has that mark, too.
    """
    asked = "SELECT oid::bigint, relkind::text FROM pg_class WHERE oid = to_regclass(%s)"
    one = connection.execute(asked, [place.name.quoted]).fetchone()
    if one is None:
        return None
    if one[1] not in {"r", "p"}:
        raise SpecError(f"{place} is no table", "setup", "Set sink.table to a table, or to a name that isn't taken.")
    rows = connection.execute(_COLUMNS, [place.name.quoted]).fetchall()
    columns = tuple(CatalogColumn(*row[:5]) for row in rows)
    found = next(((row[0], said) for row in rows if (said := marked(str(row[5] or ""))) is not None), None)
    if found is None:
        return TableThere(columns, None)
    window, (mark, number) = found
    stale = number != one[0]
    if stale:
        _refuse_copy(connection, place, window, mark, number)
    return TableThere(columns, _target(connection, place, mark), stale)


def _refuse_copy(connection: Connection, place: TablePlace, window: str, mark: UUID, number: int | None) -> None:
    names = {"mark": f"{MARK}{mark}", "table": place.name.quoted, "number": number or 0}
    row = connection.execute(_LIKE, names).fetchone()
    if row is not None:
        other = TableName(*row)
        what = f"the table {place.name} is a copy of {other}, or that of it: the comments on their columns name one table of windrow's"
        take = "COMMENT ON COLUMN {}.{} IS NULL"
        do = (
            f"Take the comment off the copy: {take.format(place.name.quoted, quoted(window))}; an empty one is taken as yours then. "
            f"If it is to take the other's place, with the rows: {take.format(other.quoted, quoted(window))}."
        )
        raise SpecError(what, "setup", do)


def _target(connection: Connection, place: TablePlace, mark: UUID) -> Target:
    asked = "SELECT id, pipeline, ledger, grid, window_column, columns, commits FROM {targets} WHERE id = %s"
    row = connection.execute(place.query(asked), [mark]).fetchone() if has_own(connection, place) else None
    if row is None:
        what = f"the table {place} was bound by windrow, and the schema {place.own} knows nothing of it"
        do = "Set sink.windrow_schema to the schema that it was begun with; or restore that from a backup, together with the table."
        raise SpecError(what, "setup", do)
    return _as_target(row)


def _as_target(row: tuple[Any, ...]) -> Target:
    return Target(row[0], Binding(*row[1:4]), row[4], pa.ipc.read_schema(pa.py_buffer(row[5])), row[6])


def has_own(connection: Connection, place: TablePlace) -> bool:
    """Whether windrow's own tables are there."""
    return _is(connection, sql.SQL("SELECT to_regclass(%s) IS NOT NULL"), TableName(place.own, "marks").quoted)


def locked(connection: Connection, place: TablePlace) -> tuple[Target, tuple[CatalogColumn, ...]]:
    """The bound table, locked until the end of the transaction, and its columns: no other commit comes into it, and what is seen stays so.

    Raises:
        RefusedError: it isn't there any more.
    """
    found = table_at(connection, place)
    lock = "UPDATE {targets} SET commits = commits + 1 WHERE id = %s RETURNING id, pipeline, ledger, grid, window_column, columns, commits"
    mark = None if found is None or found.target is None else found.target.id
    row = None if mark is None else lock_row(connection, place, lock, [mark])
    now = None if row is None else table_at(connection, place)  # as it is since the lock is ours
    if row is None or now is None:
        raise RefusedError(f"the table {place} isn't there any more", "commit", "Was it removed meanwhile? Run the window again.")
    return _as_target(row), now.columns


# -------------------------------------------------------------------------------------------------------------------------- receipts


class KeptReceipt(msgspec.Struct, frozen=True):
    """A receipt as it lies in the table. `ranges`: those that are kept for its window; None where they weren't asked for."""

    window_key: str
    generation: int | None
    receipt: str | None
    sha256: bytes | None
    version: int | None
    ranges: list[str] | None = None

    def committed(self) -> Committed | Unreadable:
        """What it says, or that it is missing or damaged."""
        key = self.window_key
        if self.receipt is None or self.version is None:
            return lost(key)
        if hashlib.sha256(self.receipt.encode()).digest() != self.sha256:
            return Unreadable(key, f"the receipt of window {key} is not what was committed", _LOST)
        try:
            receipt = from_json(self.receipt, Receipt)
        except (msgspec.DecodeError, ValueError):
            what = f"the receipt of window {key} can't be read"
            return Unreadable(key, what, "A later version of windrow wrote it: use that one.")
        if (receipt.window.key, receipt.generation) != (key, self.generation):
            what = f"the receipt of window {receipt.window.key} lies under {key}, generation {self.generation}: it was changed by hand"
            return Unreadable(receipt.window.key, what, _LOST)
        if self.ranges is not None and sorted(self.ranges) != sorted(map(_range_text, covered(receipt.plan))):
            return Unreadable(key, f"the offsets of window {key} are not in windrow's table of ranges: something else changed that", _LOST)
        return Committed(receipt, self.version)

    def whole(self) -> Committed:
        """What it says.

        Raises:
            DamagedError: it is damaged.
        """
        found = self.committed()
        if isinstance(found, Unreadable):
            raise DamagedError(found.what, "commit", found.do)
        return found


def newest(connection: Connection, place: TablePlace, target: Target, keys: Sequence[str]) -> dict[str, KeptReceipt]:
    """Of some windows, by key: the receipt of the newest generation."""
    query = place.query(_NEWEST, some=sql.SQL("AND window_key = ANY(%(keys)s)"))
    with connection.cursor(row_factory=class_row(KeptReceipt)) as cursor:
        return {kept.window_key: kept for kept in cursor.execute(query, {"target": target.id, "keys": list(keys)})}


def committed(connection: Connection, place: TablePlace, target: Target) -> set[str]:
    """The keys of all windows that have a receipt."""
    query = place.query("SELECT DISTINCT window_key FROM {receipts} WHERE target = %s")
    return {key for (key,) in connection.execute(query, [target.id])}


def every(connection: Connection, place: TablePlace, target: Target) -> Iterator[KeptReceipt]:
    """Of all windows, in the order of keys, a bounded number at a time; within a transaction."""
    with connection.cursor("receipts", row_factory=class_row(KeptReceipt)) as cursor:
        cursor.itersize = 200
        newest = place.query(_NEWEST, some=sql.SQL(""))
        yield from cursor.execute(place.query(_EVERY, newest=newest), {"target": target.id})


def lost(key: str) -> Unreadable:
    """What to say of a window whose receipt is gone."""
    return Unreadable(key, f"window {key} is committed, and its receipt is missing", _LOST)


def seen(connection: Connection, place: TablePlace, target: Target, receipt: Receipt) -> Seen:
    """What the table holds that bears on a receipt.

    Raises:
        DamagedError: it has the ranges of a window whose receipt is missing or damaged.
    """
    key = receipt.window.key
    overlapping = [row[0] for row in connection.execute(place.query(_OVERLAPPING), [*_ranges(receipt), target.id])]
    before, after = adjacent(receipt)
    kept = newest(connection, place, target, [k for k in {key, before, after, *overlapping} if k is not None])
    held = {k: found.whole() for k, found in kept.items()}
    gone = next((lost(k) for k in overlapping if k not in held), None)
    if gone is not None:
        raise DamagedError(gone.what, "commit", gone.do)
    others = [held[k].receipt for k in overlapping if k != key]
    return Seen(str(place), target.binding, held.get(key), held.get(before or ""), held.get(after), others)


def _ranges(receipt: Receipt) -> list[list[str] | list[int]]:
    """What a receipt's plan covers: one list a column."""
    mine = covered(receipt.plan)
    return [[c.topic_id for c in mine], [c.partition for c in mine], [c.start for c in mine], [c.stop for c in mine]]


def put_receipt(connection: Connection, place: TablePlace, target: Target, receipt: Receipt) -> Committed:
    """Keep a receipt, and the ranges of a window that is new. The primary key refuses a generation that is there."""
    _put_receipt(connection, place, target, receipt, to_json(receipt))
    if receipt.generation == 0:
        _put_ranges(connection, place, target, receipt)
    return Committed(receipt, target.commits)


def _put_receipt(connection: Connection, place: TablePlace, target: Target, receipt: Receipt, text: str) -> None:
    put = "INSERT INTO {receipts} (target, window_key, generation, version, receipt, sha256) VALUES (%s, %s, %s, %s, %s, %s)"
    digest = hashlib.sha256(text.encode()).digest()
    connection.execute(place.query(put), [target.id, receipt.window.key, receipt.generation, target.commits, text, digest])


def _put_ranges(connection: Connection, place: TablePlace, target: Target, receipt: Receipt) -> None:
    if receipt.plan.splits:
        connection.execute(place.query(_PUT_RANGES), [target.id, receipt.window.key, *_ranges(receipt)])


def _range_text(one: Covered) -> str:
    return f"{one.topic_id} {one.partition} {one.start} {one.stop}"


def text_of(connection: Connection, place: TablePlace, target: Target, receipt: Receipt) -> str | None:
    """The exact text of a receipt, as it lies there; None if it doesn't."""
    asked = "SELECT receipt FROM {receipts} WHERE target = %s AND window_key = %s AND generation = %s"
    row = connection.execute(place.query(asked), [target.id, receipt.window.key, receipt.generation]).fetchone()
    return None if row is None else str(row[0])


def restore(connection: Connection, place: TablePlace, window: Window, text: str, *, dry_run: bool) -> None:
    """Put a damaged receipt's text, a missing receipt, one that lies under another name, or a window's ranges back.

    A receipt's own fingerprint proves its text; where its row is gone, that the window's ranges are those of the text.

    Raises:
        RefusedError: the window isn't committed, or its commit named another text.
    """
    target, _ = locked(connection, place)
    receipt, said = from_json(text, Receipt), hashlib.sha256(text.encode()).digest()
    back = "UPDATE {receipts} SET window_key = %s, generation = %s, receipt = %s WHERE target = %s AND sha256 = %s"
    if not connection.execute(place.query(back), [window.key, receipt.generation, text, target.id, said]).rowcount:
        asked = "SELECT concat_ws(' ', topic_id, partition, start, stop) FROM {ranges} WHERE target = %s AND window_key = %s"
        ranges = [row[0] for row in connection.execute(place.query(asked), [target.id, window.key])]
        same = bool(ranges) and sorted(ranges) == sorted(map(_range_text, covered(receipt.plan)))
        if not same or window.key in newest(connection, place, target, [window.key]):
            raise RefusedError(f"the commit of window {window.key} named another receipt, or there is none", "check", "Look again.")
        _put_receipt(connection, place, target, receipt, text)
    connection.execute(place.query("DELETE FROM {ranges} WHERE target = %s AND window_key = %s"), [target.id, window.key])
    _put_ranges(connection, place, target, receipt)
    if dry_run:
        raise Rollback(None)


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
    return RefusedError(what, "commit", "Nothing was committed. Take it off, then run the window again.")


def windows(connection: Connection, place: TablePlace, target: Target) -> set[str]:
    """The keys of all windows that the table holds rows of. Reads all of it."""
    query = place.query("SELECT DISTINCT {window} FROM {table}", window=identifier(target.window_column))
    return {row[0] for row in connection.execute(query, ())}


def summarize(connection: Connection, place: TablePlace) -> None:
    """Tell the index which windows the newest rows are of: until then, whoever asks for a window looks into all of them.

    Not where that would have to wait: who vacuums the table, or makes an index of it beside its writers, may take hours, and would keep all
    windows out. Then a later commit does it, or the server by itself.
    """
    with suppress(psycopg.errors.LockNotAvailable), connection.transaction():  # a savepoint: the rows stay
        set_lock_timeout(connection, _GLANCE)
        connection.execute(_SUMMARIZE, [place.name.quoted, place.name.quoted])
    set_lock_timeout(connection)


def has_rows(connection: Connection, place: TablePlace, target: Target | None = None, key: str | None = None) -> bool:
    """Whether the table has any row, or any of a window."""
    if target is None:
        return _is(connection, place.query("SELECT EXISTS (SELECT FROM {table})"))
    window = identifier(target.window_column)
    return _is(connection, place.query("SELECT EXISTS (SELECT FROM {table} WHERE {window} = %s)", window=window), key)


def _is(connection: Connection, question: sql.SQL | sql.Composed, *values: object) -> bool:
    row = connection.execute(question, values).fetchone()
    return row is not None and bool(row[0])


# ----------------------------------------------------------------------------------------------------------------------------- marks


def mark(connection: Connection, place: TablePlace, target: Target, key: str, attempt: str, name: str) -> int | None:
    """The value of an attempt's mark; None if there is none."""
    asked = "SELECT value FROM {marks} WHERE target = %s AND window_key = %s AND attempt = %s AND mark = %s"
    row = connection.execute(place.query(asked), [target.id, key, attempt, name]).fetchone()
    return None if row is None else int(row[0])


def put_mark(connection: Connection, place: TablePlace, target: Target, key: str, attempt: str, name: str, value: int) -> None:
    """Put an attempt's mark. The primary key refuses a second one."""
    put = "INSERT INTO {marks} (target, window_key, attempt, mark, value) VALUES (%s, %s, %s, %s, %s)"
    connection.execute(place.query(put), [target.id, key, attempt, name, value])
