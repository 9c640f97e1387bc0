"""Creates and binds a table, and compares an existing table with the wanted columns.

The table, its row in `targets` and windrow's own tables are made in one transaction. Only one such
transaction runs at a time. If runs race, one of them binds the table, and the others see its owner.
A table that somebody else made is bound if it has the wanted columns and no row. So its owner can
choose partitions, constraints or a tablespace.

Missing columns are added by the commit of the first rows that have them (`evolve`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import SchemaChangedError, SpecError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.settings.grants import lacking_error
from windrow.ingest.sinks.kit import Evolve, allowed_changes
from windrow.ingest.sinks.postgres.catalog import (
    FORM,
    TABLES,
    BoundTable,
    ExistingTable,
    Target,
    find_table,
    tombstones_name,
)
from windrow.ingest.sinks.postgres.columns import (
    HASH,
    CatalogColumn,
    KeyedColumns,
    column_problems,
    column_type,
    evolution_of,
    key_difference,
)
from windrow.ingest.sinks.postgres.names import OWN_TABLES, TableName
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    begin_write,
    commit,
    find_lacking,
    has_table,
    identifier,
    is_true,
)

_SETUP = 7_308_332_045_911_029_879
"""The number of the advisory lock under which tables are made. It is arbitrary."""

_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index x
    WHERE x.indrelid = to_regclass(%s) AND x.indisunique AND x.indisvalid AND x.indpred IS NULL
        AND x.indexprs IS NULL AND x.indimmediate AND %s = (
            SELECT array_agg(a.attname::text ORDER BY a.attname COLLATE "C") FROM pg_attribute a
            WHERE a.attrelid = x.indrelid
                AND a.attnum = ANY((x.indkey::int2[])[0:x.indnkeyatts - 1])
        )
)
"""
"""Asks whether a unique index has exactly these columns."""

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
"""Finds a column in which texts with different bytes may be equal, by its collation or by the
collation of one of its unique indexes.
"""

_BY_NAME = """
SELECT format('UPDATE %%I.targets SET relation = %%L WHERE id = %%L;', %s::text, %s::text, t.id)
FROM {targets} t WHERE t.place = %s
ORDER BY (SELECT max(committed_at) FROM {receipts} WHERE target = t.id) DESC NULLS LAST LIMIT 1
"""
"""Makes the statement that binds a table in place of the bound table that had its name. If
several bound tables had the name, the table replaces the one with the newest receipt.
"""


class TableSpec(msgspec.Struct, frozen=True):
    """The table that a spec describes.

    Attributes:
        schema: the table's columns.
        window: the name of the window's column.
        evolve: which changes of an existing table's columns are allowed.
        keyed: the columns of a table with a primary key.
    """

    schema: pa.Schema
    window: str
    evolve: Evolve = "add_columns"
    keyed: KeyedColumns | None = None


def ensure(location: TablePlace, table_spec: TableSpec, owner: TableOwner) -> None:
    """Creates the table and binds it, unless that is done already.

    The function is idempotent. If several calls race, one of them creates the table.

    Raises:
        SchemaChangedError: a table that somebody else made lacks the wanted columns.
        SpecError: the table can hold no windows, or has rows that windrow didn't write; or the user
            lacks a right.
        LostConnectionError: it is unknown whether the table was made; the call may be repeated.
    """
    with begin_write(location, "setup") as connection:
        _make_own_tables(connection, location)
        existing = check_table(connection, location, table_spec)
        if existing is None:
            _create(connection, location, table_spec)
        if existing is None or existing.target is None:
            _bind(connection, location, table_spec, owner)
        commit(connection)


def try_to_create(location: TablePlace) -> None:
    """Makes a table and windrow's own tables, unless they exist, and rolls that back.

    So the server itself reports a missing right, or another obstacle. Rights on tables that
    exist are asked for.

    Raises:
        SpecError, UnreachableError: the tables can't be made.
    """
    with begin_write(location, "setup") as connection:
        _make_own_tables(connection, location)
        if find_table(connection, location) is None:
            connection.execute(location.query("CREATE TABLE {table} ()"), ())
    lacking = find_lacking(location)
    if lacking:
        raise lacking_error(f"the table {location}", lacking, "setup")


def check_table(
    connection: Connection, location: TablePlace, table_spec: TableSpec
) -> ExistingTable | None:
    """Looks up the table, and refuses a table that can't hold windows.

    The result is None if the table doesn't exist. The columns of a bound table aren't compared
    here; `column_changes` compares them.
    """
    existing = find_table(connection, location)
    key = () if table_spec.keyed is None else table_spec.keyed.key.columns
    _refuse_inexact(connection, location, [table_spec.window, *key])
    if existing is not None and existing.target is None:
        refuse_foreign_rows(connection, location)
        _refuse_other_columns(location, existing.columns, table_spec.schema)
    return existing


def _refuse_inexact(connection: Connection, location: TablePlace, columns: Sequence[str]) -> None:
    """Refuses nondeterministic collations in columns by which rows are found."""
    row = connection.execute(_INEXACT, [location.name.quoted, list(columns)]).fetchone()
    if row is not None:
        raise SpecError(
            f"the table {location} can't tell rows apart by {row[0]}: by the collation {row[1]}"
            " different texts are equal",
            "setup",
            'ALTER TABLE ... ALTER COLUMN ... TYPE text COLLATE "C" (or of the index: make it'
            " anew); or name another table in sink.table.",
        )


def column_changes(table: BoundTable, table_spec: TableSpec) -> Sequence[str]:
    """Returns the column changes that the first rows would need, in words.

    Raises:
        SchemaChangedError: the wanted columns differ in more than a commit may change, or somebody
            changed the table.
    """
    location, current = table.location, table.target.columns
    keys = key_difference(current, table_spec.schema)
    if keys:
        raise SchemaChangedError(
            f"the table {location} has another primary key, version or mode: {keys[0]}",
            "setup",
            "A table never changes these. Set sink back to what it was; or begin a pipeline with"
            " another id and table.",
        )
    changes = allowed_changes(
        str(location),
        table_spec.evolve,
        lambda mode: evolution_of(current, table_spec.schema, mode),
    )
    _refuse_other_columns(location, table.catalog_columns, _required_columns(table, table_spec))
    return changes


def _required_columns(table: BoundTable, table_spec: TableSpec) -> pa.Schema:
    """Returns the columns that the table must have.

    They are windrow's columns, and the wanted columns that others have added.
    """
    new = [f for f in table_spec.schema if f.name not in table.target.columns.names]
    column_names = {c.name for c in table.catalog_columns}
    return pa.schema([*table.target.columns, *(f for f in new if f.name in column_names)])


def _refuse_other_columns(
    location: TablePlace, columns: Sequence[CatalogColumn], schema: pa.Schema
) -> None:
    problems = column_problems(columns, schema)
    if problems:
        raise SchemaChangedError(
            f"the table {location} has other columns than windrow brings: " + "; ".join(problems),
            "setup",
            "Did somebody else make or change it? Give it these columns, or name another table.",
        )


def change_columns(table: BoundTable, table_spec: TableSpec) -> pa.Schema:
    """Changes the columns of the table, and of its tombstones, within the transaction.

    Returns:
        The new columns, to which the staged rows can be written.

    Raises:
        SchemaChangedError: the table was changed after the rows were staged, and can't take them.
    """
    current, keyed = table.target.columns, table_spec.keyed
    evolution = evolution_of(current, table_spec.schema, table_spec.evolve)
    problems = column_problems(table.catalog_columns, _required_columns(table, table_spec))
    evolution.refuse_files(
        str(table.location), [*key_difference(current, table_spec.schema), *problems]
    )
    if not (evolution.added or evolution.altered):
        return evolution.columns
    add = sql.SQL("ADD COLUMN IF NOT EXISTS {} {}")  # another client may have added it before
    added = [add.format(identifier(f.name), _type(f)) for f in evolution.added]
    widened = {
        new.name: sql.SQL("ALTER COLUMN {} TYPE {}").format(identifier(new.name), _type(new))
        for old, new in evolution.altered
        if column_type(old.type) != column_type(new.type)
    }
    nullable = [
        sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(identifier(new.name))
        for old, new in evolution.altered
        if new.nullable and not old.nullable
    ]
    _alter(table, table.location.name, [*added, *widened.values(), *nullable])
    if keyed is not None and keyed.has_tombstones:
        of_keys = [part for name, part in widened.items() if name in keyed.tombstone]
        _alter(table, tombstones_name(table.location, table.target), of_keys)
    statement = table.location.query("UPDATE {targets} SET columns = %s WHERE id = %s")
    table.connection.execute(
        statement, [evolution.columns.serialize().to_pybytes(), table.target.id]
    )
    return evolution.columns


def _alter(table: BoundTable, name: TableName, parts: Sequence[sql.Composable]) -> None:
    if parts:
        altered = identifier(name.schema, name.table)
        alter = table.location.query(
            "ALTER TABLE {altered} {parts}", altered=altered, parts=sql.SQL(", ").join(parts)
        )
        table.connection.execute(alter, ())


# --------------------------------------------------------------------------------------------------


def _make_own_tables(connection: Connection, location: TablePlace) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_SETUP])
    if has_table(connection, TableName(location.own_schema, OWN_TABLES[-1])):  # the last one made
        return
    if not is_true(
        connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", location.own_schema
    ):
        connection.execute(location.query("CREATE SCHEMA {own}"), ())
    for statement in TABLES.strip().split(";\n"):
        connection.execute(location.query(statement), ())


def _create(connection: Connection, location: TablePlace, table_spec: TableSpec) -> None:
    columns: list[sql.Composable] = [
        sql.SQL("{} {} {}").format(
            identifier(f.name), _type(f), sql.SQL("" if f.nullable else "NOT NULL")
        )
        for f in table_spec.schema
    ]
    if table_spec.keyed is not None:
        columns.append(
            sql.SQL("PRIMARY KEY ({})").format(_join_names(table_spec.keyed.key.columns))
        )
    connection.execute(
        location.query("CREATE TABLE {table} ({columns})", columns=sql.SQL(", ").join(columns)), ()
    )


def _bind(
    connection: Connection, location: TablePlace, table_spec: TableSpec, owner: TableOwner
) -> None:
    """Binds a table that is new, or that somebody else made and that is empty."""
    index = "CREATE INDEX ON {table} USING brin ({window}) WITH (autosummarize = on)"
    connection.execute(location.query(index, window=identifier(table_spec.window)), ())
    # A dump would have the oid of a dropped table as a number. Another table may get that oid.
    forget = "UPDATE {targets} SET relation = NULL WHERE relation NOT IN (SELECT oid FROM pg_class)"
    connection.execute(location.query(forget), ())
    target = Target(uuid.uuid4(), owner, table_spec.window, table_spec.schema, 0)
    statement = (
        "INSERT INTO {targets} (id, place, relation, pipeline, ledger, grid, window_column,"
        " columns, form) VALUES (%s, %s, to_regclass(%s), %s, %s, %s, %s, %s, %s)"
    )
    columns = table_spec.schema.serialize().to_pybytes()
    bound_to = [owner.pipeline, owner.ledger, owner.grid]
    values = [
        target.id,
        str(location.name),
        location.name.quoted,
        *bound_to,
        table_spec.window,
        columns,
    ]
    connection.execute(location.query(statement), [*values, FORM])
    if table_spec.keyed is not None:
        _bind_key(connection, location, target, table_spec.keyed)


def _bind_key(
    connection: Connection, location: TablePlace, target: Target, keyed: KeyedColumns
) -> None:
    """Makes a unique index, unless the key has one, and the table of tombstones."""
    key = _join_names(keyed.key.columns)
    if not is_true(connection, _UNIQUE, location.name.quoted, sorted(keyed.key.columns)):
        connection.execute(location.query("CREATE UNIQUE INDEX ON {table} ({key})", key=key), ())
    if keyed.has_tombstones:
        fields = [target.columns.field(name) for name in (*keyed.tombstone, HASH.name)]
        columns = [sql.SQL("{} {} NOT NULL").format(identifier(f.name), _type(f)) for f in fields]
        tombstones = tombstones_name(location, target)
        make = location.query(
            "CREATE TABLE {tombstones} ({columns}, PRIMARY KEY ({key}))",
            tombstones=identifier(tombstones.schema, tombstones.table),
            columns=sql.SQL(", ").join(columns),
            key=key,
        )
        connection.execute(make, ())


def refuse_foreign_rows(connection: Connection, location: TablePlace) -> None:
    """Refuses a table that isn't bound and isn't empty.

    Raises:
        SpecError: the table has rows. If windrow's own tables have a table of this name, the error
            has the statement that binds the new table in its place.
    """
    if not is_true(connection, location.query("SELECT EXISTS (SELECT FROM {table})")):
        return
    advice = "Set sink.table to a name that isn't taken, or to a table without rows."
    names = [location.own_schema, location.name.quoted, str(location.name)]
    bound_row = (
        has_table(connection, TableName(location.own_schema, "targets"))
        and connection.execute(location.query(_BY_NAME), names).fetchone()
    )
    if bound_row:
        advice = (
            f"If windrow wrote its rows, and the table was copied or restored since: {bound_row[0]}"
            " makes it windrow's again, and windrow verify SPEC --deep says which windows it lacks."
            f" {advice}"
        )
    raise SpecError(
        f"the table {location} was not made by windrow, as far as the schema {location.own_schema}"
        " knows, and holds rows",
        "setup",
        advice,
    )


def _join_names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(identifier, names))


def _type(field: pa.Field) -> sql.SQL:
    return sql.SQL(str(column_type(field.type)))
