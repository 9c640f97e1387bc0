"""Lookups in a database: a real PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import datetime as dt
import math
import os
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pytest
from pydantic import ValidationError

from tests.lookups.mariadb.server import mariadb as running
from tests.sinks.worlds import world_of
from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest import client_cache
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.ports.lookup import LookupSource
from windrow.ingest.testing.contracts.transform import apply, messages_for
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.testing.contracts.windows import commit_rows
from windrow.ingest.transform.lookup.step import Lookup

ORDERS = pa.RecordBatch.from_pydict(
    {"order": pa.array([10, 11, 12, 13]), "customer": pa.array([3, 1, 7, None])}
)


class Server:
    """A database with a table `customers`, as a source of lookups."""

    def __init__(self, url: str, run: Callable[[str], None]) -> None:
        self.url, self.run = url, run
        run("CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(20), city TEXT)")
        people = "(1, 'Ann', 'Kyiv'), (2, 'Bob', NULL), (3, NULL, NULL)"
        run(f"INSERT INTO customers VALUES {people}")

    def source(self, **more: Any) -> LookupSource:
        return SqlSection(sql=self.url, relation="customers", **more).source(Path("/"))

    def lookup(self, **more: Any) -> Lookup:
        take = (("name", "who"), ("city", "city"))
        return Lookup("customers", (("customer", "id"),), take, self.source(**more))


@pytest.fixture
def sqlite(tmp_path: Path) -> Server:
    def run(statement: str) -> None:
        with sqlite3.connect(tmp_path / "there.db") as connection:
            connection.execute(statement)

    return Server(f"sqlite:///{tmp_path}/there.db", run)


@pytest.fixture
def postgresql(database: str) -> Server:
    def run(statement: str) -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    return Server(database, run)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    """The URL of a MariaDB server."""
    with tempfile.TemporaryDirectory(prefix="windrow-my-") as folder, running(Path(folder)) as url:
        yield url


@pytest.fixture
def mysql(mariadb: str) -> Server:
    """A MariaDB database of the test's own, which ends with the server."""
    import pymysql

    address = urlsplit(mariadb)
    connect = partial(
        pymysql.connect,
        host=address.hostname,
        port=address.port,
        user=address.username,
        autocommit=True,
    )

    name = f"test_{uuid.uuid4().hex}"

    def run(statement: str, database: str | None = name) -> None:
        with connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4", None)
    return Server(urlunsplit(address._replace(path=f"/{name}")), run)


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("mysql", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> Server:
    """Each database."""
    database: Server = request.getfixturevalue(request.param)
    return database


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """The cache of a worker, which keeps a connection for the next batch."""
    with client_cache.keeping():
        yield


def test_each_row_gets_what_its_key_has(server: Server) -> None:
    """Each row gets the columns of its key, with the database's types.

    Nothing can be written, and no version is pinned.
    """
    lookup = server.lookup()
    assert lookup.source.version() == ""
    output = apply(lookup, decoded(ORDERS))
    assert output.rows["who"].to_pylist() == [None, "Ann", None, None]
    assert output.rows["city"].to_pylist() == [None, "Kyiv", None, None]
    assert output.rows.schema.equals(lookup.columns(columns_of(ORDERS)).arrow_schema)
    (looked_up,) = output.lookups
    assert (looked_up.keys, looked_up.requests, looked_up.hits) == (3, 1, 2)


def test_so_many_keys_are_asked_for_at_once(server: Server) -> None:
    """A thousand keys are requested in a query, also if a key has several columns."""
    rows = ", ".join(f"({n}, 'n{n}', NULL)" for n in range(10, 2600))
    server.run(f"INSERT INTO customers VALUES {rows}")
    batch = pa.RecordBatch.from_pydict(
        {
            "customer": pa.array(range(10, 2510)),
            "name": pa.array([f"n{n}" for n in range(10, 2510)]),
        }
    )
    both_keys = (("customer", "id"), ("name", "name"))
    for key in (both_keys[:1], both_keys):
        output = apply(Lookup("c", key, (("id", "there"),), server.source()), decoded(batch))
        assert output.rows["there"].to_pylist() == list(range(10, 2510))
        assert output.lookups[0].requests == 3


def test_a_text_is_equal_to_none_that_differs(server: Server) -> None:
    """A text matches only an identical text, even if the database ignores differences.

    A row that the database returns for two such keys counts for its own key only.
    """
    ci = {"sqlite": "TEXT COLLATE NOCASE", "mysql": "VARCHAR(9)"}
    server.run(f"CREATE TABLE tags (tag {ci.get(server.url.partition(':')[0], 'TEXT')}, n INTEGER)")
    server.run("INSERT INTO tags VALUES ('Zed', 1), ('?', 2)")
    fillers = [f"between {n}" for n in range(1500)]  # so that each key is in its own query
    rows = pa.RecordBatch.from_pydict({"tag": ["Zed", "zed", "ZED", "?", "\U0001f600", *fillers]})
    tags_source = SqlSection(sql=server.url, relation="tags").source(Path("/"))
    output = apply(Lookup("tags", (("tag", "tag"),), (("n", "n"),), tags_source), decoded(rows))
    assert output.rows["n"].to_pylist()[:5] == [1, None, None, 2, None]
    assert output.lookups[0].hits == 2


@pytest.mark.long
def test_mysql_types_that_a_table_takes(mysql: Server) -> None:
    """Values of supported MySQL types are unchanged, and columns of other types are left out."""
    mysql.run(
        "CREATE TABLE types (id BIGINT UNSIGNED, i INT UNSIGNED, s SMALLINT, b TINYINT(1), f FLOAT,"
        " d DOUBLE, n DECIMAL(12, 2), t TEXT, v VARCHAR(9) CHARACTER SET latin1, c CHAR(3),"
        " y VARBINARY(9), o BLOB, day DATE, z TIMESTAMP(6), local DATETIME, clock TIME,"
        " e ENUM('x', 'y'), j BIT(3))"
    )
    mysql.run(
        "INSERT INTO types (id, i, s, b, f, d, n, t, v, c, y, o, day, z, e) VALUES (1, 4294967295,"
        " 2, true, 0.5, 0.1, 12.30, '\U0001f600', 'ä', 'ab', x'00ff', x'01', '2026-01-05',"
        " '2026-01-04 23:00:00.000001', 'y')"
    )
    types_source = SqlSection(sql=mysql.url, relation="types").source(Path("/"))
    names = types_source.schema().names
    assert names == ["id", "i", "s", "b", "f", "d", "n", "t", "v", "c", "y", "o", "day", "z", "e"]
    take = tuple((name, f"its_{name}") for name in names)
    keys = [("id", 1), ("v", "ä"), ("y", b"\0\xff"), ("n", Decimal("12.30")), ("e", "y")]
    keys += [("day", dt.date(2026, 1, 5)), ("z", dt.datetime(2026, 1, 4, 23, 0, 0, 1, dt.UTC))]
    for key, value in keys:
        row = pa.RecordBatch.from_pydict(
            {"key": pa.array([value], types_source.schema().field(key).type)}
        )
        output_row = apply(
            Lookup("t", (("key", key),), take, types_source), decoded(row)
        ).rows.to_pylist()[0]
        assert list(output_row.values())[1:] == [
            1,
            4294967295,
            2,
            1,
            0.5,
            0.1,
            Decimal("12.30"),
            "\U0001f600",
            "ä",
            "ab",
            b"\x00\xff",
            b"\x01",
            dt.date(2026, 1, 5),
            dt.datetime(2026, 1, 4, 23, 0, 0, 1, dt.UTC),
            "y",
        ]


@pytest.mark.long
def test_a_key_that_a_mysql_column_has_no_characters_for(mysql: Server) -> None:
    """A key with characters that the MySQL column's character set lacks is a miss.

    The other keys are answered.
    """
    mysql.run("CREATE TABLE codes (code VARCHAR(9) COLLATE latin1_general_cs, n INT)")
    mysql.run("INSERT INTO codes VALUES ('ä', 1), ('x?', 2)")
    rows = pa.RecordBatch.from_pydict({"code": ["ä", "x\U0001f600", "Б", "x?", "'; DROP", "\\'"]})
    codes_source = SqlSection(sql=mysql.url, relation="codes").source(Path("/"))
    output = apply(Lookup("codes", (("code", "code"),), (("n", "n"),), codes_source), decoded(rows))
    assert output.rows["n"].to_pylist() == [1, None, None, 2, None, None]


@pytest.mark.long
def test_mysql_is_only_read_and_asked_for_a_time(mysql: Server) -> None:
    """Lookups in MySQL are read-only and have a timeout, and missing rights are reported."""
    mysql.run(
        "CREATE VIEW slow AS SELECT id, benchmark(1000000000, md5(id)) AS name FROM customers"
    )
    slow = SqlSection(sql=mysql.url, relation="slow", timeout="200ms").source(Path("/"))
    key = (("customer", "id"),)
    with pytest.raises(UnreachableError, match=r"took longer than 0\.2 s"):
        apply(Lookup("slow", key, (("name", "who"),), slow), decoded(ORDERS))
    mysql.run(
        "CREATE FUNCTION written() RETURNS INT MODIFIES SQL DATA BEGIN"
        " INSERT INTO customers VALUES (9, 'Ida', NULL); RETURN 1; END"
    )
    mysql.run("CREATE VIEW writes AS SELECT id, written() AS n FROM customers")
    writes = SqlSection(sql=mysql.url, relation="writes").source(Path("/"))
    with pytest.raises(UnreachableError, match=r"error|25006"):
        apply(Lookup("writes", key, (("n", "n"),), writes), decoded(ORDERS))
    mysql.run("CREATE OR REPLACE USER stranger")
    stranger = SqlSection(sql=mysql.url.replace("me@", "stranger@"), relation="customers")
    with pytest.raises(SpecError, match="lacks SELECT on"):
        stranger.source(Path("/")).version()


@pytest.mark.long
def test_a_mysql_server_that_goes_away(mysql: Server) -> None:
    """A lost MySQL connection raises UnreachableError, and the next try reconnects."""
    lookup = mysql.lookup()
    step, input_batch = lookup.open(), decoded(ORDERS)
    step(input_batch, messages_for(input_batch))
    mysql.run("KILL USER me")
    more = decoded(pa.RecordBatch.from_pydict({"order": [1], "customer": [2]}))
    with pytest.raises(UnreachableError, match=r"Lost connection|gone away|killed"):
        step(more, messages_for(more))
    assert apply(lookup, more).rows["who"].to_pylist() == ["Bob"]


def test_all_tasks_see_one_state_of_postgresql(postgresql: Server) -> None:
    """All tasks of a window see one snapshot of PostgreSQL, even tasks that start later."""
    lookup = postgresql.lookup()
    with lookup.source.hold("", 1) as snapshot:
        first = lookup.pinned({"customers": snapshot})
        assert apply(first, decoded(ORDERS)).rows["who"][2].as_py() is None
        postgresql.run("INSERT INTO customers VALUES (7, 'Gus', NULL)")
        assert apply(first, decoded(ORDERS)).rows["who"][2].as_py() is None
        with client_cache.keeping():  # another worker with its own connection
            assert apply(first, decoded(ORDERS)).rows["who"][2].as_py() is None
    assert apply(lookup, decoded(ORDERS)).rows["who"][2].as_py() == "Gus"


def test_a_snapshot_whose_holder_is_gone_is_asked_for_again_with_the_window(
    postgresql: Server,
) -> None:
    """A snapshot whose holder is gone raises UnreachableError with the advice to run again.

    No other state is looked up in its place.
    """
    lookup = postgresql.lookup()
    with lookup.source.hold("", 1) as snapshot:
        pass
    with pytest.raises(UnreachableError, match="that all tasks share is gone") as excinfo:
        apply(lookup.pinned({"customers": snapshot}), decoded(ORDERS))
    assert "Run the window again" in excinfo.value.advice


def test_a_server_that_is_slow_is_not_waited_for(postgresql: Server) -> None:
    """A slow query raises UnreachableError after its timeout."""
    postgresql.run("CREATE VIEW slow AS SELECT id, name FROM customers, pg_sleep(60)")
    slow_source = SqlSection(sql=postgresql.url, relation="slow", timeout="200ms").source(Path("/"))
    with pytest.raises(UnreachableError, match=r"took longer than 0\.2 s"):
        apply(
            Lookup("slow", (("customer", "id"),), (("name", "who"),), slow_source), decoded(ORDERS)
        )


def test_a_server_that_goes_away(postgresql: Server) -> None:
    """A lost PostgreSQL connection raises UnreachableError, and the next try reconnects."""
    lookup = postgresql.lookup()
    step = lookup.open()
    input_batch = decoded(ORDERS)
    step(input_batch, messages_for(input_batch))
    postgresql.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )
    more = decoded(pa.RecordBatch.from_pydict({"order": [1], "customer": [2]}))
    with pytest.raises(UnreachableError):
        step(more, messages_for(more))
    assert apply(lookup, more).rows["who"].to_pylist() == ["Bob"]


def test_postgresql_types_that_a_table_takes(postgresql: Server) -> None:
    """Values of supported PostgreSQL types are unchanged.

    Each type except floats can be a key. Columns of other types are left out, and a lookup of
    them is refused.
    """
    postgresql.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    postgresql.run("CREATE DOMAIN code AS UUID CHECK (VALUE IS NOT NULL)")
    postgresql.run("CREATE DOMAIN small AS SMALLINT")
    postgresql.run("CREATE DOMAIN smaller AS small")
    values = {
        "id": ("BIGINT", 1),
        "s": ("SMALLINT", 2),
        "t": ("TEXT", "x"),
        "b": ("BOOLEAN", True),
        "r": ("REAL", 0.5),
        "d": ("DOUBLE PRECISION", 0.1),
        "n": ("NUMERIC(12, 2)", Decimal("12.30")),
        "free": ("NUMERIC", Decimal("-12.000000000000000001")),
        "z": ("TIMESTAMPTZ", dt.datetime(2026, 1, 4, 23, tzinfo=dt.UTC)),
        "y": ("BYTEA", b"\x00\xff"),
        "c": ("CHAR(3)", "ab"),
        "day": ("DATE", dt.date(2026, 1, 5)),
        "u": ("UUID", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "m": ("MOOD", "ok"),
        "du": ("CODE", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "ds": ("SMALLER", 3),
    }
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in values.items())
    postgresql.run(f"CREATE TABLE types ({columns}, local TIMESTAMP, j JSONB, many UUID[])")
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        places = ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO types ({', '.join(values)}) VALUES ({places})"
        connection.execute(statement, [v for _, v in values.values()])  # type: ignore[call-overload]
    types_source = SqlSection(sql=postgresql.url, relation="types").source(Path("/"))
    assert types_source.schema().names == list(values)
    take = tuple((name, f"its_{name}") for name in values)
    for name, (_, value) in values.items():
        if name in {"r", "d"}:
            continue
        keys = pa.array([value], types_source.schema().field(name).type)
        if pa.types.is_string(keys.type):  # None of these keys causes an error of the database.
            keys = pa.concat_arrays([keys, pa.array([f"{value}x", value.upper(), "", "\0"])])
        row = pa.RecordBatch.from_arrays([keys], ["key"])
        other_column = "s" if name == "id" else "id"
        pair = row.append_column("other", pa.array([values[other_column][1]] * row.num_rows))
        for key in ((("key", name),), (("key", name), ("other", other_column))):
            output_row, *others = apply(
                Lookup("t", key, take, types_source), decoded(pair)
            ).rows.to_pylist()
            assert list(output_row.values())[2:] == [v for _, v in values.values()]
            assert all(row["its_id"] is None for row in others)
    with pytest.raises(SpecError, match="no column local of a type that a table takes"):
        Lookup("t", (("key", "id"),), (("local", "f"),), types_source).columns(columns_of(row))


@pytest.mark.parametrize("style", ["ISO, DMY", "SQL, DMY", "German", "Postgres, MDY"])
def test_what_a_server_of_postgresql_has_for_its_clients_changes_no_value(
    style: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's settings for clients change no value, nor does the environment.

    They set the formats of dates and instants, the zone, and the digits of floats.
    """
    name = postgresql.url.partition("?")[0].rpartition("/")[2]
    for setting in (
        f"datestyle = '{style}'",
        "timezone = 'America/New_York'",
        "extra_float_digits = 0",
        "bytea_output = 'escape'",
    ):
        postgresql.run(f"ALTER DATABASE {name} SET {setting}")
    monkeypatch.setenv("PGDATESTYLE", style)
    monkeypatch.setenv("PGTZ", "Europe/Berlin")
    postgresql.run("CREATE TABLE dim (id INT, at TIMESTAMPTZ, day DATE, d FLOAT8, y BYTEA)")
    instants = ["0001-01-01 00:00:00+00", "2026-02-03 04:05:06.000001+00"]
    instants.append("9999-12-31 23:59:59.999999+00")
    for n, instant in enumerate(instants):
        day = instant.partition(" ")[0]
        values = f"({n}, '{instant}', DATE '{day}', 0.1::float8 + 0.2, '\\x5cff')"
        postgresql.run(f"INSERT INTO dim VALUES {values}")
    take = tuple((name, f"its_{name}") for name in ("at", "day", "d", "y"))
    source = SqlSection(sql=postgresql.url, relation="dim").source(Path("/"))
    rows = pa.RecordBatch.from_pydict({"id": [0, 1, 2]})
    expected = [
        {
            "its_at": (moment := dt.datetime.fromisoformat(instant)),
            "its_day": moment.date(),
            "its_d": 0.1 + 0.2,
            "its_y": b"\\\xff",
        }
        for instant in instants
    ]
    lookup = Lookup("dim", (("id", "id"),), take, source)
    with source.hold("", 1) as snapshot:
        output_rows = apply(lookup.pinned({"dim": snapshot}), decoded(rows)).rows.to_pylist()
    assert [{n: v for n, v in row.items() if n != "id"} for row in output_rows] == expected
    keys = output_rows[1]["its_at"], output_rows[1]["its_day"]
    for column, key in zip(("at", "day"), keys, strict=True):
        row = pa.RecordBatch.from_pydict(
            {"key": pa.array([key], source.schema().field(column).type)}
        )
        lookup_by_column = Lookup("dim", (("key", column),), (("id", "its"),), source)
        assert apply(lookup_by_column, decoded(row)).rows["its"].to_pylist() == [1]


def test_the_password_is_read_where_it_is_needed(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is accepted only by reference, and no message contains it."""
    with pytest.raises(ValidationError, match="by reference"):
        SqlSection(sql="postgresql://me:secret@host/db", relation="t")
    with pytest.raises(ValidationError, match="must be a reference"):
        SqlSection(sql="postgresql://me@host/db", relation="t", password="secret")
    # PostgreSQL takes 0 for no limit.
    with pytest.raises(ValidationError, match="must be 100ms to 5m"):
        SqlSection(sql="postgresql://me@host/db", relation="t", timeout="0s")
    monkeypatch.setenv("PG_SECRET", "hush")
    lookup = postgresql.lookup(password={"env": "PG_SECRET"})
    assert apply(lookup, decoded(ORDERS)).rows["who"][1].as_py() == "Ann"
    assert "hush" not in repr(lookup)
    assert "hush" not in lookup.source.identity
    del os.environ["PG_SECRET"]
    with client_cache.keeping(), pytest.raises(SpecError, match="PG_SECRET"):
        apply(lookup, decoded(ORDERS))


@pytest.mark.parametrize(
    ("url", "relation", "message"),
    [
        ("sqlite:///nowhere/there.db", "customers", "can't be asked: unable to open"),
        ("sqlite:///etc/passwd", "customers", "can't be asked: file is not a database"),
        (None, "nothing", "there is no table or view nothing"),
        (None, "elsewhere.customers", "can't be asked: unknown database"),
    ],
)
def test_what_is_not_there_is_told(
    sqlite: Server, url: str | None, relation: str, message: str
) -> None:
    """A missing file, table or database raises SpecError with its name, and no file is made."""
    missing_source = SqlSection(sql=url or sqlite.url, relation=relation).source(Path("/"))
    with pytest.raises(SpecError, match=message):
        missing_source.version()
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@host/db?password=secret",
        "postgresql://me%3Asecret@host/db",
        "postgresql://me@host:port/db",
        "postgresql://[::1/db",
        "mysql://me:secret@host/db",
        "mysql://me@host/db?passwd=secret",
        "oracle://me@host/db",
        "sqlite:///",
        "sqlite:///$HOME/shop.db",
        "sqlite:///~nobody-has-this-name/shop.db",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    """A URL with a password is refused, and the error doesn't contain it."""
    with pytest.raises(ValidationError) as refused:
        SqlSection(sql=url, relation="t")
    assert "secret" not in str(refused.value)


def test_a_key_that_a_database_can_not_have_is_a_miss(postgresql: Server) -> None:
    """A key that the column can't hold is a miss.

    It is a number that is too large, a text with NUL, or a value shorter than its CHAR column.
    """
    postgresql.run("CREATE TABLE codes (small SMALLINT, code CHAR(5), n INT)")
    postgresql.run("INSERT INTO codes VALUES (1, 'DE', 49)")
    codes_source = SqlSection(sql=postgresql.url, relation="codes").source(Path("/"))
    rows = pa.RecordBatch.from_pydict({"n": [1, 2**40], "code": ["DE", "D\0"]})
    for column, source_column in (("n", "small"), ("code", "code")):
        output = apply(
            Lookup("codes", ((column, source_column),), (("n", "tel"),), codes_source),
            decoded(rows),
        )
        assert output.rows["tel"].to_pylist() == [49, None]


_UNFIT = [
    ("sqlite", "INT", "1.5"),
    ("sqlite", "INT", "9.3e18"),
    ("sqlite", "INT", "'hush'"),
    ("sqlite", "INT", "x'ff'"),
    ("sqlite", "TEXT", "CAST(x'ff' AS TEXT)"),
    ("sqlite", "REAL", "'hush'"),
    ("postgresql", "TIMESTAMPTZ", "'infinity'"),
    ("postgresql", "TIMESTAMPTZ", "'-infinity'"),
    ("postgresql", "TIMESTAMPTZ", "'0044-03-15 00:00:00+00 BC'"),
    ("postgresql", "TIMESTAMPTZ", "'20000-01-01 00:00:00+00'"),
    ("postgresql", "DATE", "'infinity'"),
    ("postgresql", "DATE", "'0044-03-15 BC'"),
    ("postgresql", "DATE", "'20000-01-01'"),
    ("postgresql", "NUMERIC(9, 2)", "'NaN'"),
    ("postgresql", "NUMERIC", "'Infinity'"),
    ("postgresql", "NUMERIC", "1e-19"),
    ("postgresql", "NUMERIC", "1e20"),
    ("mysql", "DATE", "'0000-00-00'"),
    ("mysql", "TIMESTAMP NULL", "'0000-00-00 00:00:00'"),
]


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [pytest.param(*case, marks=pytest.mark.long if case[0] == "mysql" else ()) for case in _UNFIT],
)
def test_a_value_that_a_table_can_not_have(
    kind: str, declared: str, value: str, request: pytest.FixtureRequest
) -> None:
    """A value that a table can't hold makes dead letters of the messages with its key.

    It is neither cut nor requested again, and no other message is affected. The reason has the
    column and not the value.
    """
    server: Server = request.getfixturevalue(kind)
    server.run(f"CREATE TABLE odd (id INT, n INT, its {declared})")
    ignore = "IGNORE " if kind == "mysql" else ""
    server.run(f"INSERT {ignore}INTO odd VALUES (1, 10, {value}), (3, 30, NULL), (4, 40, NULL)")
    odd_source = SqlSection(sql=server.url, relation="odd").source(Path("/"))
    lookup = Lookup("odd", (("customer", "id"),), (("n", "n"), ("its", "its")), odd_source)
    output = apply(lookup, decoded(ORDERS))
    assert dead(output) == [(1, "rules", "lookup:odd:refused")]
    assert output.rows["n"].to_pylist() == [30, None, None]
    (detail,) = output.dead_detail.to_pylist()
    assert "its row has a value in its that is no" in detail
    assert "hush" not in detail
    assert (output.lookups[0].hits, output.lookups[0].misses) == (1, 2)
    only = replace(lookup, take=(("n", "n"),))
    assert apply(only, decoded(ORDERS)).rows["n"].to_pylist() == [30, 10, None, None]


def test_any_number_may_be_in_a_column_of_sqlite(sqlite: Server) -> None:
    """A float of SQLite without a fraction is an integer in an integer column."""
    sqlite.run("CREATE TABLE odd (id INT, its INT)")
    sqlite.run("INSERT INTO odd VALUES (1, 9e18)")
    odd_source = SqlSection(sql=sqlite.url, relation="odd").source(Path("/"))
    lookup = Lookup("odd", (("customer", "id"),), (("its", "its"),), odd_source)
    assert apply(lookup, decoded(ORDERS)).rows["its"][1].as_py() == int(9e18)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_windrow_table_has_the_values_that_were_committed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A table of windrow keeps NaN, infinities and -0.0, which SQLite itself would change.

    A text that looks like one of them stays a text.
    """
    floats = [math.nan, -0.0, 0.0, -math.inf, None, 5e-324, 0.1]
    texts = ["NaN", "-0.0", "", "\U0001f600", None, "5e-324", "0.1"]
    rows = pa.RecordBatch.from_pydict({"id": range(7), "f": floats, "t": texts})
    url = f"sqlite:///{tmp_path}/own.db"
    sink_uri = f"{tmp_path}/own.db"
    if kind == "postgres":
        url = request.getfixturevalue("database")
        sink_uri = f"{url}#public.orders"
    commit_rows(world_of(kind).sink_at(sink_uri, rows.schema), rows)
    table_source = SqlSection(sql=url, relation="orders").source(tmp_path)
    take = (("f", "its_f"), ("t", "its_t"))
    lookup = Lookup("own", (("id", "id"),), take, table_source, first_by=("_offset", False))
    output_rows = apply(lookup, decoded(rows)).rows
    assert list(map(str, output_rows["its_f"].to_pylist())) == list(map(str, floats))
    assert output_rows["its_t"].to_pylist() == texts


def test_two_sources_of_one_server_are_not_mixed_up(postgresql: Server) -> None:
    """Two sources of one server with the same table name in different schemas aren't mixed up.

    Each has its own connection.
    """
    looked_up_names = []
    for name in ("one", "two"):
        postgresql.run(f"CREATE SCHEMA {name}")
        postgresql.run(f"CREATE TABLE {name}.shop (id INT, name TEXT)")
        postgresql.run(f"INSERT INTO {name}.shop VALUES (1, '{name}')")
        url = f"{postgresql.url}&options=-csearch_path%3D{name}"
        shop_source = SqlSection(sql=url, relation="shop").source(Path("/"))
        lookup = Lookup("shop", (("customer", "id"),), (("name", "its"),), shop_source)
        looked_up_names.append(apply(lookup, decoded(ORDERS)).rows["its"][1].as_py())
    assert looked_up_names == ["one", "two"]


def test_a_server_that_ends_idle_transactions_ends_no_snapshot(postgresql: Server) -> None:
    """A server that ends idle transactions doesn't end a snapshot.

    This holds for the driver's and the workers' transactions. Servers in clouds end idle
    transactions after some time.
    """
    name = postgresql.url.partition("?")[0].rpartition("/")[2]
    postgresql.run(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '1ms'")
    lookup = postgresql.lookup()
    with lookup.source.hold("", 1) as snapshot:
        postgresql.run("SELECT pg_sleep(0.2)")
        assert apply(lookup.pinned({"customers": snapshot}), decoded(ORDERS)).lookups[0].hits == 2


def test_what_can_not_be_read_is_refused_without_its_value(postgresql: Server) -> None:
    """A value that can't be read raises RefusedError, and a missing right raises SpecError.

    The errors don't contain the value. Another try helps in neither case.
    """
    postgresql.run("CREATE VIEW odd AS SELECT id, 1 / (id - 1) AS n FROM customers")
    odd_source = SqlSection(sql=postgresql.url, relation="odd").source(Path("/"))
    with pytest.raises(RefusedError, match="has a value that can't be read"):
        apply(Lookup("odd", (("customer", "id"),), (("n", "n"),), odd_source), decoded(ORDERS))
    postgresql.run("CREATE VIEW denied AS SELECT 1 AS id, 'x'::text AS name")
    postgresql.run("DROP ROLE IF EXISTS stranger")
    postgresql.run("CREATE ROLE stranger LOGIN")
    stranger = postgresql.url.replace("postgres:@", "stranger:@", 1)
    denied = SqlSection(sql=stranger, relation="denied").source(Path("/"))
    with pytest.raises(SpecError, match=r"lacks SELECT on the table public\.denied"):
        apply(Lookup("d", (("customer", "id"),), (("name", "n"),), denied), decoded(ORDERS))
