"""What of a server, a user, or a table of an owner's own is refused before anything is
read, because no window could go in, or stay in.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, reading

_OLDEST = 140_000

_UNKEPT = """
SELECT c.oid::regclass::text, CASE c.relkind WHEN 'f' THEN 'a foreign table' ELSE 'unlogged' END FROM pg_class c
WHERE (
        c.oid IN (SELECT to_regclass(%s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%s)))
        OR (c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relname IN ('targets', 'receipts', 'ranges', 'notes'))
    ) AND (c.relpersistence = 'u' OR c.relkind = 'f')
ORDER BY 1 LIMIT 1
"""  # noqa: E501

_UNEQUAL = """
SELECT a.attname::text, c.collname::text FROM pg_attribute a JOIN pg_collation c ON NOT c.collisdeterministic AND (
    c.oid = a.attcollation OR c.oid IN (
        SELECT k.compared FROM pg_index x CROSS JOIN unnest(x.indkey::int2[], x.indcollation::oid[]) AS k (attnum, compared)
        WHERE x.indrelid = a.attrelid AND x.indisunique AND k.attnum = a.attnum
    )
)
WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY(%s) ORDER BY 1 LIMIT 1
"""  # noqa: E501
"""Columns, or unique indexes of them, for which texts are equal that have other bytes."""

_DEFERRABLE = """
SELECT x.indexrelid::regclass::text FROM pg_index x
WHERE x.indrelid = to_regclass(%s) AND NOT x.indimmediate AND x.indpred IS NULL AND x.indexprs IS NULL AND %s = (
    SELECT array_agg(a.attname::text ORDER BY a.attname COLLATE "C") FROM pg_attribute a
    WHERE a.attrelid = x.indrelid AND a.attnum = ANY((x.indkey::int2[])[0:x.indnkeyatts - 1])
)
LIMIT 1
"""  # noqa: E501


def refuse_unfit(
    connection: Connection, place: TablePlace, told_apart: Sequence[str], key: Sequence[str]
) -> None:
    """Look whether the table, if it is there, can hold windows, whatever its columns are.

    Args:
        connection: to the server, in a transaction.
        place: the table's.
        told_apart: the columns by which rows are told apart, besides the key's.
        key: those of the primary key, if there is one.

    Raises:
        SpecError: it can't; or the database can't hold every text.
    """
    _refuse_other_encoding(connection, place)
    _refuse_unkept(connection, place)
    _refuse_unequal(connection, place, [*told_apart, *key])
    _refuse_deferrable(connection, place, key)


def _refuse_other_encoding(connection: Connection, place: TablePlace) -> None:
    if connection.info.parameter_status("server_encoding") != "UTF8":
        what = f"the database {place.url.place} isn't in UTF8, and could not hold every text"
        raise SpecError(
            what, "setup", "Make a database with ENCODING 'UTF8', and name it in sink.url."
        )


def _refuse_unkept(connection: Connection, place: TablePlace) -> None:
    """Look whether the table, if it is there, its partitions and windrow's own tables
    keep what is committed, with the receipts.

    Raises:
        SpecError: one is unlogged, so that a crash empties it and the receipts stay; or
            lies on a server with commits of its own.
    """
    row = connection.execute(_UNKEPT, [place.name.quoted, place.name.quoted, place.own]).fetchone()
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


def _refuse_unequal(connection: Connection, place: TablePlace, told_apart: Sequence[str]) -> None:
    """Look whether what windrow tells rows apart by are different values for the database, too.

    Raises:
        SpecError: a column, or a unique index, has a nondeterministic collation.
    """
    row = connection.execute(_UNEQUAL, [place.name.quoted, list(told_apart)]).fetchone()
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
    """See that no constraint keeps the key unique only at a transaction's end, by which
    rows can't be merged.
    """
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


def _ask(connection: Connection, question: str, *values: object) -> bool:
    row = connection.execute(question, values).fetchone()
    return row is not None and bool(row[0])


# --------------------------------------------------------------------------------------------------

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
        " c.relnamespace = to_regnamespace(quote_ident(%(own)s)) AND c.relname IN ('targets',"
        " 'receipts', 'ranges', 'notes') AND c.relkind = 'r'"
    ),
}
_TEMPORARY = {
    "TEMPORARY in the database": "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
}
"""What the user must be allowed to do, and how that is asked."""


def refuse_unwritable(place: TablePlace, *, merged: bool = False) -> None:
    """See whether the server can take the table, and the user may make or write it.

    `merged`: a table whose rows replace each other.

    Raises:
        SpecError: the server is too old, has another encoding, takes no writes; or
            rights are missing: says which.
    """
    names = {"schema": place.name.schema, "table": place.name.quoted, "own": place.own}
    with reading(place.url) as connection:
        if connection.info.server_version < _OLDEST:
            what = (
                f"the server {place.url.place} is PostgreSQL"
                f" {connection.info.server_version // 10_000}"
            )
            raise SpecError(what, "setup", f"Use PostgreSQL {_OLDEST // 10_000} or a later one.")
        _refuse_other_encoding(connection, place)
        if _ask(connection, "SELECT pg_is_in_recovery()"):
            what = f"the server {place.url.place} is a standby, which takes no writes"
            raise SpecError(
                what,
                "setup",
                "Name the primary in sink.url, or all servers with"
                " target_session_attrs=read-write.",
            )
        if not _ask(
            connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", place.name.schema
        ):
            what = f"the database {place.url.place} has no schema {place.name.schema}"
            raise SpecError(
                what, "setup", "Make it with CREATE SCHEMA, or name another one in sink.table."
            )
        missing = []
        for right, question in (_RIGHTS | (_TEMPORARY if merged else {})).items():
            row = connection.execute(question, names).fetchone()
            missing += (
                []
                if row is not None and row[0]
                else [right.format(schema=place.name.schema, table=place.name, own=place.own)]
            )
        if missing:
            what = (
                f"the user {connection.info.user} on {place.url.place} lacks: {'; '.join(missing)}"
            )
            raise SpecError(what, "setup", "Grant it, or name another user in sink.url.")
