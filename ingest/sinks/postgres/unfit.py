"""Refuses servers, users and tables that can take no windows, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.postgres.names import OWN_TABLES
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    has_schema,
    is_true,
    reading,
)

_OLDEST = 140_000
"""The oldest supported version of the server."""

_NOT_DURABLE = """
SELECT c.oid::regclass::text, CASE c.relkind WHEN 'f' THEN 'a foreign table' ELSE 'unlogged' END
FROM pg_class c
WHERE (c.relpersistence = 'u' OR c.relkind = 'f') AND (
    c.oid IN (SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)))
    OR (c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relname = ANY(%s))
)
ORDER BY 1 LIMIT 1
"""

_INEXACT = """
SELECT a.attname::text, c.collname::text
FROM pg_attribute a JOIN pg_collation c ON NOT c.collisdeterministic AND (
    c.oid = a.attcollation OR c.oid IN (
        SELECT k.collid FROM pg_index x
        CROSS JOIN unnest(x.indkey::int2[], x.indcollation::oid[]) AS k (attnum, collid)
        WHERE x.indrelid = a.attrelid AND x.indisunique AND k.attnum = a.attnum
    )
)
WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY(%s) ORDER BY 1 LIMIT 1
"""
"""Columns, or unique indexes of them, by whose collation texts with other bytes are equal."""

_DEFERRABLE = """
SELECT x.indexrelid::regclass::text FROM pg_index x
WHERE x.indrelid = to_regclass(%s) AND NOT x.indimmediate AND x.indpred IS NULL
    AND x.indexprs IS NULL AND %s = (
        SELECT array_agg(a.attname::text ORDER BY a.attname COLLATE "C") FROM pg_attribute a
        WHERE a.attrelid = x.indrelid AND a.attnum = ANY((x.indkey::int2[])[0:x.indnkeyatts - 1])
    )
LIMIT 1
"""


def refuse_unfit(
    connection: Connection, place: TablePlace, window: str, key: Sequence[str]
) -> None:
    """Refuses a table that can't hold windows, whatever its columns are, if it exists.

    Args:
        connection: to the server, in a transaction.
        place: the table's.
        window: the window's column.
        key: the columns of the primary key, if there is one.

    Raises:
        SpecError: says why; or the database isn't in UTF8.
    """
    _refuse_other_encoding(connection, place)
    _refuse_not_durable(connection, place)
    _refuse_inexact(connection, place, [window, *key])
    _refuse_deferrable(connection, place, key)


def _refuse_other_encoding(connection: Connection, place: TablePlace) -> None:
    if connection.info.parameter_status("server_encoding") != "UTF8":
        what = f"the database {place.url.place} isn't in UTF8, and could not hold every text"
        raise SpecError(
            what, "setup", "Make a database with ENCODING 'UTF8', and name it in sink.url."
        )


def _refuse_not_durable(connection: Connection, place: TablePlace) -> None:
    """Refuses unlogged and foreign tables, among partitions and windrow's own tables, too.

    A crash empties an unlogged table and leaves the receipts; a foreign one has commits of its own.
    """
    values = [place.name.quoted, place.name.quoted, place.own, list(OWN_TABLES)]
    row = connection.execute(_NOT_DURABLE, values).fetchone()
    if row is not None:
        what = (
            f"{row[0]}, where rows of {place} or their receipts would lie, is {row[1]}: a crash"
            " could take the one and leave the other"
        )
        raise SpecError(
            what,
            "setup",
            "ALTER TABLE ... SET LOGGED, or detach that partition; or name another table in"
            " sink.table.",
        )


def _refuse_inexact(connection: Connection, place: TablePlace, columns: Sequence[str]) -> None:
    """Refuses columns by which rows are found, if they have a nondeterministic collation."""
    row = connection.execute(_INEXACT, [place.name.quoted, list(columns)]).fetchone()
    if row is not None:
        what = (
            f"the table {place} can't tell rows apart by {row[0]}: by the collation {row[1]}"
            " different texts are equal"
        )
        do = (
            'ALTER TABLE ... ALTER COLUMN ... TYPE text COLLATE "C" (or of the index: make it'
            " anew); or name another table in sink.table."
        )
        raise SpecError(what, "setup", do)


def _refuse_deferrable(connection: Connection, place: TablePlace, key: Sequence[str]) -> None:
    """Refuses a deferrable constraint of the key: ON CONFLICT can't use it."""
    row = connection.execute(_DEFERRABLE, [place.name.quoted, sorted(key)]).fetchone()
    if row is not None:
        what = (
            f"the constraint {row[0]}, which keeps {', '.join(key)} unique, is deferrable: the"
            f" table {place} can't be merged by it"
        )
        raise SpecError(
            what,
            "setup",
            "Drop it: windrow makes a unique index if there is none; or make it NOT DEFERRABLE.",
        )


# ------------------------------------------------------------------------------------------ rights

_RIGHTS = {
    "CREATE in the schema {schema}": (
        "SELECT to_regclass(%(table)s) IS NOT NULL OR has_schema_privilege(%(schema)s, 'CREATE')"
    ),
    "SELECT, INSERT and DELETE of the table {table}, as its owner": (
        "SELECT to_regclass(%(table)s) IS NULL OR pg_has_role((SELECT relowner FROM pg_class WHERE"
        " oid = to_regclass(%(table)s)), 'USAGE')"
    ),
    "USAGE and CREATE in the schema {own}, or CREATE in the database": (
        "SELECT CASE WHEN to_regnamespace(quote_ident(%(own)s)) IS NULL THEN"
        " has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege(%(own)s,"
        " 'USAGE') AND has_schema_privilege(%(own)s, 'CREATE') END"
    ),
    "SELECT, INSERT, UPDATE and DELETE of all tables in the schema {own}": (
        "SELECT coalesce(bool_and(has_table_privilege(c.oid, right_to)), true) FROM pg_class c"
        " CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_to WHERE"
        " c.relnamespace = to_regnamespace(quote_ident(%(own)s))"
        " AND c.relname = ANY(%(own_tables)s) AND c.relkind = 'r'"
    ),
}
_TEMPORARY = {
    "TEMPORARY in the database": "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
}
"""The rights that a user needs, and the query that tells whether he has each."""


def refuse_unwritable(place: TablePlace, *, merged: bool = False) -> None:
    """Refuses a server that can take no tables, and a user who lacks a right.

    Args:
        place: the table's.
        merged: whether the table has a primary key.

    Raises:
        SpecError: the server is too old, has another encoding or takes no writes; or names the
            rights that are missing.
    """
    with reading(place.url) as connection:
        version = connection.info.server_version
        if version < _OLDEST:
            what = f"the server {place.url.place} is PostgreSQL {version // 10_000}"
            raise SpecError(what, "setup", f"Use PostgreSQL {_OLDEST // 10_000} or a later one.")
        _refuse_other_encoding(connection, place)
        if is_true(connection, "SELECT pg_is_in_recovery()"):
            what = f"the server {place.url.place} is a standby, which takes no writes"
            raise SpecError(
                what,
                "setup",
                "Name the primary in sink.url, or all servers with"
                " target_session_attrs=read-write.",
            )
        if not has_schema(connection, place.name.schema):
            what = f"the database {place.url.place} has no schema {place.name.schema}"
            raise SpecError(
                what, "setup", "Make it with CREATE SCHEMA, or name another one in sink.table."
            )
        _refuse_missing_rights(connection, place, _RIGHTS | (_TEMPORARY if merged else {}))


def _refuse_missing_rights(
    connection: Connection, place: TablePlace, rights: Mapping[str, str]
) -> None:
    names = {
        "schema": place.name.schema,
        "table": place.name.quoted,
        "own": place.own,
        "own_tables": list(OWN_TABLES),
    }
    missing = []
    for right, question in rights.items():
        row = connection.execute(question, names).fetchone()
        if row is None or not row[0]:
            missing.append(right.format(schema=place.name.schema, table=place.name, own=place.own))
    if missing:
        what = f"the user {connection.info.user} on {place.url.place} lacks: {'; '.join(missing)}"
        raise SpecError(what, "setup", "Grant it, or name another user in sink.url.")
