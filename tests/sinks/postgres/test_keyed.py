"""A PostgreSQL table with a primary key: the promises of all keyed tables, its key in the
database, and broken merges.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.sinks.keyed_contract import (
    KEYS,
    A,
    B,
    KeyedTableContract,
    log_of,
    out_of_order,
    replay_between,
)
from tests.sinks.keyed_logs import KEY, NARROW, ROWS, Change
from tests.sinks.postgres.world import PostgresBoth, PostgresKeyed, PostgresKeyedBoth, place_of
from windrow.ingest.errors import DamagedError, RefusedError, SchemaChangedError, SpecError
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.postgres import merge as merging
from windrow.ingest.testing.contracts.windows import window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

pytestmark = pytest.mark.slow  # starts a server


class TestPostgresKeyedTable(KeyedTableContract):
    """The contract of keyed tables on a real PostgreSQL, with fewer logs, because each takes
    longer.
    """

    LOGS = 2

    @pytest.fixture(autouse=True)
    def _places(self, database: str) -> None:
        self.places = (f"{database}#public.t{number}" for number in count())

    def table(self, kind: str, rows: Any = ROWS) -> PostgresKeyed:
        return PostgresKeyed(next(self.places), KEYS[kind], rows=rows)


@pytest.fixture
def table(database: str) -> PostgresKeyed:
    """A new table with the usual key."""
    return PostgresKeyed(f"{database}#public.t", KEYS["upsert"])


def run(database: str, statement: str) -> list[Any]:
    """Runs a statement as another client."""
    with psycopg.connect(database, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(statement))  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def test_the_database_keeps_each_key_once(database: str, table: PostgresKeyed) -> None:
    """The key is the table's primary key, so another client can't insert it a second time."""
    table.commit(log_of([[Change(A, 1)]]), 0)
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(database, "INSERT INTO t SELECT * FROM t")
    query = (
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 't'::regclass AND"
        " contype = 'p'"
    )
    assert run(database, query) == [("PRIMARY KEY (shop, id)",)]


def test_a_row_that_changes_keeps_what_hangs_on_it(database: str, table: PostgresKeyed) -> None:
    """A row that another replaces is updated, not deleted: foreign keys to it and the owner's
    own columns stay.
    """
    run(
        database,
        "ALTER TABLE t ADD noted int DEFAULT 7; CREATE TABLE o (shop text, id bigint, FOREIGN KEY"
        " (shop, id) REFERENCES t)",
    )
    log = log_of([[Change(A, 1)]], [[Change(A, 2)]])
    table.commit(log, 0)
    run(database, "INSERT INTO o VALUES ('a', 1); UPDATE t SET noted = 8")
    table.commit(log, 1)
    assert run(database, "SELECT amount, noted FROM t JOIN o USING (shop, id)") == [(2, 8)]


@pytest.mark.parametrize("unique", ["PRIMARY KEY (id, shop)", "UNIQUE (id, shop)", ""])
def test_a_table_of_the_owners_own(database: str, unique: str) -> None:
    """An empty table of the owner's is taken over.

    If it doesn't keep the key unique, it gets an index that does.
    """
    first_table = PostgresKeyed(f"{database}#public.first", KEYS["upsert"])
    assert first_table.held_rows() == {}
    run(
        database,
        (
            "CREATE TABLE mine (LIKE first)"
            if not unique
            else f"CREATE TABLE mine (LIKE first, {unique})"
        ),
    )
    own_table = PostgresKeyed(f"{database}#public.mine", KEYS["upsert"])
    query = "SELECT count(*) FROM pg_index WHERE indrelid = 'mine'::regclass AND indisunique"
    assert run(database, query) == [(1,)]
    own_table.commit(log_of([[Change(A, 1)], [Change(A, 2)]]), 0)
    assert not own_table.find_mistakes()


@pytest.mark.parametrize(
    "other_key",
    [
        PrimaryKey(("id",)),
        PrimaryKey(("id", "shop")),
        PrimaryKey(KEY, marks=True),
        PrimaryKey(KEY, version="revision"),
    ],
)
def test_the_key_is_for_ever(table: PostgresKeyed, other_key: PrimaryKey) -> None:
    """A table refuses another key, order or mode, and refuses appends.

    The error says which key it has.
    """
    with pytest.raises(SchemaChangedError, match="the primary key shop, id"):
        PostgresKeyedBoth(place_of(table.uri), ROWS, other_key).prepare(OWNER)
    with pytest.raises(SchemaChangedError, match="no primary key in the spec"):
        PostgresBoth(place_of(table.uri), ROWS).prepare(OWNER)
    assert table.sink.look(window(0)) is None


def test_a_key_must_fit_the_columns(database: str) -> None:
    """A key that doesn't fit the columns, or a reserved column name, is refused before anything
    is made.
    """
    location = place_of(f"{database}#public.t")
    with pytest.raises(SpecError, match="revision: a column of the key is never null"):
        PostgresKeyedBoth(location, ROWS, PrimaryKey(("revision",)))
    with pytest.raises(SpecError, match="_hash: the name is used twice"):
        PostgresKeyedBoth(
            location, ROWS.append(ROWS.field("amount").with_name("_HASH")), PrimaryKey(KEY)
        )


def test_tombstones_are_widened_with_the_key(database: str) -> None:
    """A deleted key of the wider type isn't brought back by an older window."""
    table = PostgresKeyed(f"{database}#public.t", KEYS["upsert"], rows=NARROW)
    log = log_of(
        [[Change(("a", 1 << 40), 1)]],
        [[Change(A, None)]],
        [[Change(("a", 1 << 40), None), Change(B, 3)]],
    )
    table.commit(log, 1)
    table.turn_to(ROWS)
    table.commit(log, 2)
    table.commit(log, 0)
    assert sorted(table.held_rows()) == [B]
    assert not table.find_mistakes()


def test_lost_tombstones_refuse_windows(database: str, table: PostgresKeyed) -> None:
    """Without tombstones all windows are refused, because it is unknown which keys were
    deleted.

    Verification says so.
    """
    log = log_of([[Change(A, 1)]], [[Change(A, None)]])
    table.commit(log, 1)
    ((name,),) = run(
        database, "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'tombstones%'"
    )
    run(database, f"DROP TABLE windrow.{name}")
    with pytest.raises(DamagedError, match=name):
        table.commit(log, 0)
    assert [f.level for f in table.findings()] == ["wrong"]
    assert table.held_rows() == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM {}", "0 tombstones in the table, 1 by its receipts"),
        (
            "INSERT INTO {} SELECT 'z', id, _window, _topic, _partition, _offset, _hash FROM {}",
            "2 tombstones in the table",
        ),
        ("UPDATE {} SET shop = 'z'", "the tombstones are not those that were committed"),
        (
            "UPDATE {} SET _offset = _offset + 1",
            "the tombstones are not those that were committed",
        ),
        (
            "UPDATE {} SET _window = _window || '+'",
            "the tombstones are not those that were committed",
        ),
    ],
)
def test_tombstones_that_somebody_changed_are_found(
    database: str, table: PostgresKeyed, change: str, message: str
) -> None:
    """Verification compares the tombstones with the receipts: it finds a missing or extra key,
    another key, offset or window.
    """
    log = log_of(
        [[Change(A, 1)], [Change(B, 1)]], [[Change(A, None)]], [[Change(B, None)]], [[Change(B, 2)]]
    )
    for number in log:
        table.commit(log, number)
    assert not table.find_mistakes()
    ((name,),) = run(
        database, "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'tombstones%'"
    )
    run(database, change.replace("{}", f"windrow.{name}"))
    findings = table.findings()
    assert {f.level for f in findings} == {"wrong"}
    assert message in findings[0].message


@pytest.mark.parametrize(
    "change",
    ["UPDATE t SET amount = amount + 1", "DELETE FROM t", "UPDATE t SET _hash = 1, _offset = 9"],
)
def test_what_else_writes_is_found(database: str, table: PostgresKeyed, change: str) -> None:
    """Verification finds any value, row or coordinate that another client changed: it reads the
    values, and doesn't trust stored hashes.
    """
    table.commit(log_of([[Change(A, 1)]]), 0)
    run(database, change)
    assert {f.level for f in table.findings()} == {"wrong"}


def test_a_row_that_a_trigger_keeps_refuses_its_delete(database: str, table: PostgresKeyed) -> None:
    """A table whose trigger only marks deleted rows refuses the window, and nothing is
    committed.

    The key would have both a row and a tombstone.
    """
    log = log_of([[Change(A, 1)]], [[Change(A, None)]])
    table.commit(log, 0)
    run(
        database,
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    )
    run(database, "CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()")
    receipt, staged = table.stage_window(log, 1, 0)
    with pytest.raises(RefusedError, match="keeps rows that were deleted"):
        table.sink.commit(receipt, staged)
    assert not table.find_mistakes()


def test_a_trigger_that_deletes_other_keys_refuses_the_window(
    database: str, table: PostgresKeyed
) -> None:
    """A trigger that deletes other keys refuses the window, and nothing is committed.

    Other triggers don't.
    """
    log = log_of([[Change(A, 1)], [Change(B, 1)]], [[Change(A, 2)], [Change(B, 2)]])
    table.commit(log, 0)
    body = "BEGIN {} RETURN NULL; END"
    function_sql = "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ {} $$"
    run(
        database,
        function_sql.format(body.format("DELETE FROM t WHERE id <> NEW.id OR shop <> NEW.shop;")),
    )
    run(database, "CREATE TRIGGER f AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()")
    staged = table.stage_window(log, 1, 0)
    with pytest.raises(RefusedError, match="more or fewer rows after window"):
        table.sink.commit(*staged)
    run(database, function_sql.format(body.format("NULL;")))
    table.commit(log, 1)
    assert not table.find_mistakes()


def test_a_key_that_no_index_takes_refuses_its_window(table: PostgresKeyed) -> None:
    """A key too long for an index raises RefusedError without the key, because it is the
    window's data and not an outage.
    """
    dice = random.Random(1)  # compressible text may fit
    long = "".join(map(chr, dice.choices(range(0x4E00, 0x9000), k=4000)))
    receipt, staged = table.stage_window(log_of([[Change((long, 1), 1)]]), 0, 0)
    with pytest.raises(RefusedError, match="index row") as refused:
        table.sink.commit(receipt, staged)
    assert long[:10] not in str(refused.value)
    assert table.sink.look(window(0)) is None


# --- broken twins


def _late_is_in_time(self: Any) -> None:
    """Makes every change count as newer than the table's, as if windows came in order."""


def _no_tombstones(self: Any) -> list[Any]:
    return [self.location.table]


@pytest.mark.parametrize(
    ("left_out", "instead"), [("drop_late", _late_is_in_time), ("others", _no_tombstones)]
)
def test_windows_out_of_order_catch_the_twin(
    table: PostgresKeyed,
    monkeypatch: pytest.MonkeyPatch,
    left_out: str,
    instead: Callable[[Any], Any],
) -> None:
    """A merge that ignores the order of windows, or later deletes, fails the check that the
    real merge passes.
    """
    monkeypatch.setattr(merging.Merge, left_out, instead)
    assert out_of_order(table)


def test_windows_out_of_order(table: PostgresKeyed) -> None:
    """The real merge passes the check of windows out of order."""
    assert not out_of_order(table)


def test_replayed_messages_catch_the_twin(
    table: PostgresKeyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that takes replayed messages as later than all others of their window fails the
    check.
    """
    init = merging.Merge.__init__

    def as_new(self: Any, *args: Any) -> None:
        init(self, *args)
        self.dead_replay = False

    monkeypatch.setattr(merging.Merge, "__init__", as_new)
    replay_between(table)
    assert table.find_mistakes()


def test_uncounted_tombstones_catch_the_twin(
    table: PostgresKeyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that removes tombstones without counting them is found: receipts and tombstones
    don't add up.
    """
    counted = merging.Merge.count_rows

    def but_those_that_go(self: Any, rows_of: str, alias: str) -> tuple[int, int]:
        return (0, 0) if rows_of.startswith("{tombstones}") else counted(self, rows_of, alias)

    monkeypatch.setattr(merging.Merge, "count_rows", but_those_that_go)
    log = log_of([[Change(A, None)]], [[Change(A, 1)]])
    table.commit(log, 0)
    assert not table.find_mistakes()
    table.commit(log, 1)
    assert "0 tombstones in the table, 1 by its receipts" in table.find_mistakes()
