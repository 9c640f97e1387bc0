"""A table is made once, and bound; later it is held against what is wanted of it,
before anything is read.

Making it, its mark and windrow's own tables is one transaction, and one such
transaction at a time: of those that race, one binds the table, and the others find
whose it is. A table that somebody else made is taken over if it has the wanted columns
and no row: that is how it gets partitions, constraints or a tablespace of its owner's
choice.

Columns that it lacks are brought by the commit of the first rows that have them (`evolve`).
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
from windrow.ingest.sinks.postgres import catalog
from windrow.ingest.sinks.postgres.catalog import TableThere, Target
from windrow.ingest.sinks.postgres.columns import (
    HASH,
    CatalogColumn,
    column_type,
    evolution_of,
    strange,
)
from windrow.ingest.sinks.postgres.form import KeyedForm, other_key
from windrow.ingest.sinks.postgres.merge import tombstones_name
from windrow.ingest.sinks.postgres.names import mark_of
from windrow.ingest.sinks.postgres.server import (
    Connection,
    TablePlace,
    commit,
    identifier,
    reading,
    reason,
    writing,
)
from windrow.ingest.sinks.postgres.unfit import refuse_unfit
from windrow.ingest.sinks.schema_evolution import Evolution, allowed_changes

_SETUP = 7_308_332_045_911_029_879
"""The advisory lock under which tables are made; any number will do."""

_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index x WHERE x.indrelid = to_regclass(%s) AND x.indisunique AND x.indisvalid AND x.indpred IS NULL
        AND x.indexprs IS NULL AND x.indimmediate AND %s = (
            SELECT array_agg(a.attname::text ORDER BY a.attname COLLATE "C") FROM pg_attribute a
            WHERE a.attrelid = x.indrelid AND a.attnum = ANY((x.indkey::int2[])[0:x.indnkeyatts - 1])
        )
)
"""  # noqa: E501
"""Whether an index keeps exactly these columns unique."""


class WantedTable(msgspec.Struct, frozen=True):
    """What a table is to be like: its columns, which of them is the window's, and what
    may become of columns that are there.

    `merged`: where rows replace each other, by which columns.
    """

    schema: pa.Schema
    window: str
    evolve: Evolve = "add_columns"
    merged: KeyedForm | None = None


def ensure(place: TablePlace, wanted: WantedTable, mine: TableOwner) -> None:
    """Create the table and bind it, unless that is done.

    Idempotent; of calls that race one does it.

    Raises:
        SchemaChangedError, SpecError: as `seen`; or the user may not do this there.
        LostConnectionError: whether it was done can't be told; it may be done again.
    """
    with reading(place.url) as connection:
        found = seen(connection, place, wanted)
    if found is None or found.target is None or found.stale:
        with writing(place.url, "setup") as connection:
            _ensure(connection, place, wanted, mine)
            commit(connection)


def seen(connection: Connection, place: TablePlace, wanted: WantedTable) -> TableThere | None:
    """The table as it is, if it is there and can become, or stay, the wanted one.

    Raises:
        SchemaChangedError: every difference that no commit may make good, column by column.
        SpecError: it can hold no windows, or somebody else's rows are in it.
    """
    found = catalog.table_at(connection, place)
    refuse_unfit(
        connection,
        place,
        [wanted.window],
        () if wanted.merged is None else wanted.merged.key.columns,
    )
    if found is not None and found.target is None:
        refuse_others_rows(connection, place)
        _refuse_strange(place, found.columns, wanted.schema)
    elif found is not None and found.target is not None:
        refuse_other_columns(place, found.target, found.columns, wanted)
    return found


def _ensure(
    connection: Connection, place: TablePlace, wanted: WantedTable, mine: TableOwner
) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_SETUP])
    if not catalog.has_own(connection, place):
        _make_own(connection, place)
    found = catalog.table_at(connection, place)
    if found is None:
        _create(connection, place, wanted)
    if found is None or found.target is None:
        _bind(connection, place, wanted, mine, found)
    elif found.stale:
        _put_mark(connection, place, found.target)


def refuse_other_columns(
    place: TablePlace, target: Target, columns: Sequence[CatalogColumn], wanted: WantedTable
) -> None:
    """Hold a bound table against the wanted columns.

    Raises:
        SchemaChangedError: they differ in more than a commit may change, or somebody
            changed the table.
    """
    keys = other_key(target.columns, wanted.schema)
    if keys:
        what = (
            f"the table {place} has another key, order or mode, which it keeps for ever: {keys[0]}"
        )
        raise SchemaChangedError(
            what,
            "setup",
            "Set sink back to what it was; or begin a pipeline with another id and table.",
        )
    allowed_changes(
        f"{place}",
        wanted.evolve,
        lambda by: evolution_of(target.columns, wanted.schema, by),
    )
    _refuse_strange(place, columns, target.columns)


def _refuse_strange(place: TablePlace, columns: Sequence[CatalogColumn], schema: pa.Schema) -> None:
    wrong = strange(columns, schema)
    if wrong:
        what = f"the table {place} has other columns than windrow brings: " + "; ".join(wrong)
        do = "Did somebody else make or change it? Give it these columns, or name another table."
        if any(c.generated and c.name in schema.names for c in columns):
            do += (
                " Of a generated one: ALTER COLUMN ... DROP EXPRESSION, or of an identity SET"
                " GENERATED BY DEFAULT."
            )
        raise SchemaChangedError(what, "setup", do)


def become_of(
    place: TablePlace, target: Target, columns: Sequence[CatalogColumn], wanted: WantedTable
) -> Evolution:
    """What becomes of the table's columns, as it is at the commit, so that staged rows
    fit it: it may be another one than when they were.

    Raises:
        SchemaChangedError: a staged column can't be one of the table's.
    """
    become = evolution_of(target.columns, wanted.schema, wanted.evolve)
    problems = [
        *other_key(target.columns, wanted.schema),
        *become.problems,
        *strange(columns, target.columns),
    ]
    if problems:
        what = f"the staged rows don't fit the table {place} any more: " + "; ".join(problems)
        raise SchemaChangedError(
            what,
            "commit",
            "Nothing was committed. The table was changed meanwhile: run the window again.",
        )
    return become


def change_columns(
    connection: Connection,
    place: TablePlace,
    target: Target,
    become: Evolution,
    wanted: WantedTable,
) -> None:
    """Change the table's columns, within a transaction; those of its tombstones with them."""
    parts = [sql.SQL("ADD COLUMN {} {}").format(identifier(f.name), _type(f)) for f in become.added]
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
    if wanted.merged is not None and wanted.merged.buries:
        _widen_tombstones(connection, place, target, become, wanted.merged)
    if become.added or become.altered:
        put = place.query("UPDATE {targets} SET columns = %s WHERE id = %s")
        connection.execute(put, [become.columns.serialize().to_pybytes(), target.id])


# --------------------------------------------------------------------------------------------------


def _make_own(connection: Connection, place: TablePlace) -> None:
    if not _ask(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", place.own):
        connection.execute(place.query("CREATE SCHEMA {own}"), ())
    for statement in catalog.TABLES.split(";"):
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
    mine: TableOwner,
    found: TableThere | None,
) -> None:
    """Bind a table that is new, or somebody else's and empty."""
    if found is not None:
        refuse_others_rows(connection, place)
        _refuse_strange(place, found.columns, wanted.schema)
    target, window = (
        Target(uuid.uuid4(), mine, wanted.window, wanted.schema, 0),
        identifier(wanted.window),
    )
    connection.execute(
        place.query(
            "CREATE INDEX ON {table} USING brin ({window}) WITH (autosummarize = on)", window=window
        ),
        (),
    )
    _put_mark(connection, place, target)
    put = (
        "INSERT INTO {targets} (id, place, pipeline, ledger, grid, window_column, columns, form)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
    )
    columns = wanted.schema.serialize().to_pybytes()
    values = [
        target.id,
        str(place.name),
        mine.pipeline,
        mine.ledger,
        mine.grid,
        wanted.window,
        columns,
        catalog.FORM,
    ]
    connection.execute(place.query(put), values)
    if wanted.merged is not None:
        _bind_key(connection, place, target, wanted.merged, new=found is None)


def _put_mark(connection: Connection, place: TablePlace, target: Target) -> None:
    """By this the table is known (see `catalog`)."""
    row = connection.execute("SELECT to_regclass(%s)::oid::bigint", [place.name.quoted]).fetchone()
    comment = sql.Literal(mark_of(target.id, 0 if row is None else row[0]))
    put = place.query(
        "COMMENT ON COLUMN {table}.{window} IS {comment}",
        window=identifier(target.window_column),
        comment=comment,
    )
    connection.execute(put, ())


def _bind_key(
    connection: Connection, place: TablePlace, target: Target, form: KeyedForm, *, new: bool
) -> None:
    """Have the database itself keep each key once, and a place for the keys that were taken out."""
    key = sql.SQL(", ").join(map(identifier, form.key.columns))
    if new:
        connection.execute(place.query("ALTER TABLE {table} ADD PRIMARY KEY ({key})", key=key), ())
    elif not _ask(connection, _UNIQUE, place.name.quoted, sorted(form.key.columns)):
        try:
            connection.execute(place.query("CREATE UNIQUE INDEX ON {table} ({key})", key=key), ())
        except psycopg.errors.FeatureNotSupported as error:
            what = (
                f"the table {place} can't keep {', '.join(form.key.columns)} unique:"
                f" {reason(place.url, error)}"
            )
            raise SpecError(
                what, "setup", "Partition it by columns of sink.primary_key alone."
            ) from error
    if form.buries:
        fields = [target.columns.field(name) for name in (*form.tombstone, HASH.name)]
        columns = [sql.SQL("{} {} NOT NULL").format(identifier(f.name), _type(f)) for f in fields]
        make = "CREATE TABLE {tombstones} ({columns}, PRIMARY KEY ({key}))"
        tombstones = tombstones_name(place, target)
        names = {
            "tombstones": identifier(tombstones.schema, tombstones.table),
            "columns": sql.SQL(", ").join(columns),
            "key": key,
        }
        connection.execute(place.query(make, **names), ())


def _widen_tombstones(
    connection: Connection,
    place: TablePlace,
    target: Target,
    become: Evolution,
    form: KeyedForm,
) -> None:
    tombstones = tombstones_name(place, target)
    for old, new in become.altered:
        if new.name in form.tombstone and column_type(old.type) != column_type(new.type):
            names = {
                "tombstones": identifier(tombstones.schema, tombstones.table),
                "name": identifier(new.name),
                "type": _type(new),
            }
            connection.execute(
                place.query("ALTER TABLE {tombstones} ALTER COLUMN {name} TYPE {type}", **names), ()
            )


def refuse_others_rows(connection: Connection, place: TablePlace) -> None:
    """Look whether a table that isn't bound is empty.

    Raises:
        SpecError: it holds rows of somebody else's.
    """
    if catalog.has_rows(connection, place):
        what = f"the table {place} was not made by windrow, and holds rows"
        raise SpecError(
            what, "setup", "Set sink.table to a name that isn't taken, or to a table without rows."
        )


def _type(field: pa.Field) -> sql.SQL:
    return sql.SQL(str(column_type(field.type)))  # of our own making


def _ask(connection: Connection, question: str, *values: object) -> bool:
    row = connection.execute(question, values).fetchone()
    return row is not None and bool(row[0])
