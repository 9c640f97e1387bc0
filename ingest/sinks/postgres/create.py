"""Creates and binds a table, and compares one that exists with the wanted columns.

The table, the comment that binds it and windrow's own tables are made in one transaction, and one
such transaction runs at a time: of runs that race one binds the table, and the others see its
owner. A table that somebody else made is bound if it has the wanted columns and no row. So it can
have partitions, constraints or a tablespace of its owner's choice.

Missing columns are added by the commit of the first rows that have them (`evolve`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import SchemaChangedError, SpecError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.postgres.catalog import (
    FORM,
    TABLES,
    BoundTable,
    ExistingTable,
    Target,
    table_at,
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
from windrow.ingest.sinks.postgres.names import OWN_TABLES, TableName, bound_comment
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    commit,
    has_schema,
    has_table,
    identifier,
    is_true,
    reading,
    reason,
    writing,
)
from windrow.ingest.sinks.postgres.unfit import refuse_unfit
from windrow.ingest.sinks.schema_evolution import Evolution, allowed_changes
from windrow.ingest.sinks.sql_names import quoted

_SETUP = 7_308_332_045_911_029_879
"""The number of the advisory lock under which tables are made; any number will do."""

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
"""Question whether an index keeps exactly these columns unique."""


_BY_NAME = """
SELECT t.id, t.window_column, to_regclass(%s)::oid::bigint FROM {targets} t WHERE t.place = %s
ORDER BY (SELECT max(committed_at) FROM {receipts} WHERE target = t.id) DESC NULLS LAST LIMIT 1
"""
"""The bound table of a name; the one with the newest receipt, if the name was used again."""


class WantedTable(msgspec.Struct, frozen=True):
    """The table that a spec describes.

    `window`: the name of the window's column. `evolve`: what may become of the columns of a table
    that exists. `keyed`: the columns of a table with a primary key.
    """

    schema: pa.Schema
    window: str
    evolve: Evolve = "add_columns"
    keyed: KeyedColumns | None = None


def ensure(place: TablePlace, wanted: WantedTable, owner: TableOwner) -> None:
    """Creates the table and binds it, unless that is done.

    Idempotent; of calls that race one does it.

    Raises:
        SchemaChangedError, SpecError: as `checked`; or the user lacks a right.
        LostConnectionError: nobody knows whether it was done; it may be done again.
    """
    with reading(place.url) as connection:
        found = checked(connection, place, wanted)
    if found is None or found.target is None or found.restored:
        with writing(place.url, "setup") as connection:
            _ensure(connection, place, wanted, owner)
            commit(connection)


def checked(connection: Connection, place: TablePlace, wanted: WantedTable) -> ExistingTable | None:
    """Looks up the table, and refuses one that can't be bound; None if it doesn't exist.

    The columns of a bound table aren't compared (`column_changes`).

    Raises:
        SchemaChangedError: a table of somebody else's has other columns than the wanted ones.
        SpecError: the table can hold no windows, or has rows of somebody else's.
    """
    found = table_at(connection, place)
    key = () if wanted.keyed is None else wanted.keyed.key.columns
    refuse_unfit(connection, place, wanted.window, key)
    if found is not None and found.target is None:
        refuse_others_rows(connection, place)
        _refuse_misfit(place, found.columns, wanted.schema)
    return found


def _ensure(
    connection: Connection, place: TablePlace, wanted: WantedTable, owner: TableOwner
) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_SETUP])
    if not has_table(connection, TableName(place.own, OWN_TABLES[-1])):  # which is made last
        _make_own_tables(connection, place)
    found = table_at(connection, place)
    if found is None:
        _create(connection, place, wanted)
    if found is None or found.target is None:
        _bind(connection, place, wanted, owner, found)
    elif found.restored:
        _put_comment(connection, place, found.target)


def column_changes(table: BoundTable, wanted: WantedTable) -> Sequence[str]:
    """Returns the changes of the columns that the first rows would bring, in words.

    Raises:
        SchemaChangedError: the wanted columns differ in more than a commit may change, or somebody
            changed the table.
    """
    place, current = table.place, table.target.columns
    keys = key_difference(current, wanted.schema)
    if keys:
        what = f"the table {place} has another primary key, version or mode: {keys[0]}"
        raise SchemaChangedError(
            what,
            "setup",
            "A table never changes these. Set sink back to what it was; or begin a pipeline with"
            " another id and table.",
        )
    changes = allowed_changes(
        str(place), wanted.evolve, lambda by: evolution_of(current, wanted.schema, by)
    )
    _refuse_misfit(place, table.catalog_columns, _there(table, wanted))
    return changes


def _there(table: BoundTable, wanted: WantedTable) -> pa.Schema:
    """The columns that the table must have: windrow's, and wanted ones that others have added."""
    new = [f for f in wanted.schema if f.name not in table.target.columns.names]
    there = {c.name for c in table.catalog_columns}
    return pa.schema([*table.target.columns, *(f for f in new if f.name in there)])


def _refuse_misfit(place: TablePlace, columns: Sequence[CatalogColumn], schema: pa.Schema) -> None:
    wrong = column_problems(columns, schema)
    if wrong:
        what = f"the table {place} has other columns than windrow brings: " + "; ".join(wrong)
        do = "Did somebody else make or change it? Give it these columns, or name another table."
        if any(c.generated and c.name in schema.names for c in columns):
            do += (
                " Of a generated one: ALTER COLUMN ... DROP EXPRESSION, or of an identity SET"
                " GENERATED BY DEFAULT."
            )
        raise SchemaChangedError(what, "setup", do)


def evolution_at_commit(table: BoundTable, wanted: WantedTable) -> Evolution:
    """Works out how the table, as it is at the commit, takes the staged rows.

    It may have changed since they were staged.

    Raises:
        SchemaChangedError: the table can't take a staged column.
    """
    target = table.target
    become = evolution_of(target.columns, wanted.schema, wanted.evolve)
    problems = [
        *key_difference(target.columns, wanted.schema),
        *become.problems,
        *column_problems(table.catalog_columns, _there(table, wanted)),
    ]
    if problems:
        what = f"the staged rows don't fit the table {table.place} any more: " + "; ".join(problems)
        raise SchemaChangedError(
            what,
            "commit",
            "Nothing was committed. The table was changed meanwhile: run the window again.",
        )
    return become


def change_columns(table: BoundTable, become: Evolution, keyed: KeyedColumns | None) -> None:
    """Changes the columns of the table, and of its tombstones, within the transaction."""
    connection, place = table.connection, table.place
    add = sql.SQL("ADD COLUMN IF NOT EXISTS {} {}")  # another client may have added it before
    parts = [add.format(identifier(f.name), _type(f)) for f in become.added]
    for old, new in become.altered:
        name = identifier(new.name)
        if column_type(old.type) != column_type(new.type):
            parts.append(sql.SQL("ALTER COLUMN {} TYPE {}").format(name, _type(new)))
        if new.nullable and not old.nullable:
            parts.append(sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(name))
    if parts:
        connection.execute(
            place.query("ALTER TABLE {table} {parts}", parts=sql.SQL(", ").join(parts)), ()
        )
    if keyed is not None and keyed.has_tombstones:
        _widen_tombstones(table, become, keyed)
    if become.added or become.altered:
        put = place.query("UPDATE {targets} SET columns = %s WHERE id = %s")
        connection.execute(put, [become.columns.serialize().to_pybytes(), table.target.id])


# --------------------------------------------------------------------------------------------------


def _make_own_tables(connection: Connection, place: TablePlace) -> None:
    if not has_schema(connection, place.own):
        connection.execute(place.query("CREATE SCHEMA {own}"), ())
    for statement in TABLES.split(";"):
        if statement.strip():
            connection.execute(place.query(statement), ())


def _create(connection: Connection, place: TablePlace, wanted: WantedTable) -> None:
    columns = [
        sql.SQL("{} {} {}").format(
            identifier(f.name), _type(f), sql.SQL("" if f.nullable else "NOT NULL")
        )
        for f in wanted.schema
    ]
    connection.execute(
        place.query("CREATE TABLE {table} ({columns})", columns=sql.SQL(", ").join(columns)), ()
    )


def _bind(
    connection: Connection,
    place: TablePlace,
    wanted: WantedTable,
    owner: TableOwner,
    found: ExistingTable | None,
) -> None:
    """Binds a table that is new, or somebody else's and empty."""
    if found is not None:
        refuse_others_rows(connection, place)
        _refuse_misfit(place, found.columns, wanted.schema)
    target = Target(uuid.uuid4(), owner, wanted.window, wanted.schema, 0)
    index = "CREATE INDEX ON {table} USING brin ({window}) WITH (autosummarize = on)"
    connection.execute(place.query(index, window=identifier(wanted.window)), ())
    _put_comment(connection, place, target)
    put = (
        "INSERT INTO {targets} (id, place, pipeline, ledger, grid, window_column, columns, form)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
    )
    columns = wanted.schema.serialize().to_pybytes()
    bound_to = [owner.pipeline, owner.ledger, owner.grid]
    values = [target.id, str(place.name), *bound_to, wanted.window, columns, FORM]
    connection.execute(place.query(put), values)
    if wanted.keyed is not None:
        _bind_key(connection, place, target, wanted.keyed, new=found is None)


def _put_comment(connection: Connection, place: TablePlace, target: Target) -> None:
    """Puts the comment by which the table is known (`catalog`)."""
    row = connection.execute("SELECT to_regclass(%s)::oid::bigint", [place.name.quoted]).fetchone()
    comment = sql.Literal(bound_comment(target.id, 0 if row is None else row[0]))
    put = place.query(
        "COMMENT ON COLUMN {table}.{window} IS {comment}",
        window=identifier(target.window_column),
        comment=comment,
    )
    connection.execute(put, ())


def _bind_key(
    connection: Connection, place: TablePlace, target: Target, keyed: KeyedColumns, *, new: bool
) -> None:
    """Makes the primary key or a unique index, and the table of the tombstones."""
    key = sql.SQL(", ").join(map(identifier, keyed.key.columns))
    if new:
        connection.execute(place.query("ALTER TABLE {table} ADD PRIMARY KEY ({key})", key=key), ())
    elif not is_true(connection, _UNIQUE, place.name.quoted, sorted(keyed.key.columns)):
        try:
            connection.execute(place.query("CREATE UNIQUE INDEX ON {table} ({key})", key=key), ())
        except psycopg.errors.FeatureNotSupported as error:
            what = (
                f"the table {place} can't keep {', '.join(keyed.key.columns)} unique:"
                f" {reason(place.url, error)}"
            )
            raise SpecError(
                what, "setup", "Partition it by columns of sink.primary_key alone."
            ) from error
    if keyed.has_tombstones:
        fields = [target.columns.field(name) for name in (*keyed.tombstone, HASH.name)]
        columns = [sql.SQL("{} {} NOT NULL").format(identifier(f.name), _type(f)) for f in fields]
        tombstones = tombstones_name(place, target)
        make = place.query(
            "CREATE TABLE {tombstones} ({columns}, PRIMARY KEY ({key}))",
            tombstones=identifier(tombstones.schema, tombstones.table),
            columns=sql.SQL(", ").join(columns),
            key=key,
        )
        connection.execute(make, ())


def _widen_tombstones(table: BoundTable, become: Evolution, keyed: KeyedColumns) -> None:
    tombstones = identifier(table.tombstones_name.schema, table.tombstones_name.table)
    for old, new in become.altered:
        if new.name in keyed.tombstone and column_type(old.type) != column_type(new.type):
            widen = table.place.query(
                "ALTER TABLE {tombstones} ALTER COLUMN {name} TYPE {type}",
                tombstones=tombstones,
                name=identifier(new.name),
                type=_type(new),
            )
            table.connection.execute(widen, ())


def refuse_others_rows(connection: Connection, place: TablePlace) -> None:
    """Refuses a table that isn't bound and isn't empty.

    Raises:
        SpecError: the table has rows. If windrow's own tables know one of its name, the error has
            the statement that puts back the comment by which it is known.
    """
    if not is_true(connection, place.query("SELECT EXISTS (SELECT FROM {table})")):
        return
    do = "Set sink.table to a name that isn't taken, or to a table without rows."
    known = (
        has_table(connection, TableName(place.own, "targets"))
        and connection.execute(
            place.query(_BY_NAME), [place.name.quoted, str(place.name)]
        ).fetchone()
    )
    if known:
        column = f"{place.name.quoted}.{quoted(known[1])}"
        do = (
            f"If windrow wrote its rows, the comment on {column}, by which it is known, was"
            f" changed: COMMENT ON COLUMN {column} IS '{bound_comment(known[0], known[2])}'; puts"
            f" it back. If it was dropped, ALTER TABLE {place.name.quoted} ADD COLUMN IF NOT EXISTS"
            f" {quoted(known[1])} text; goes before, and windrow verify SPEC --deep says what comes"
            f" after. {do}"
        )
    raise SpecError(f"the table {place} was not made by windrow, and holds rows", "setup", do)


def _type(field: pa.Field) -> sql.SQL:
    return sql.SQL(str(column_type(field.type)))
