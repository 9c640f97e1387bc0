"""The SQLite file and its table: changes by other programs, and other users of the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.full_disk import files_end_at
from tests.heard import hear_waits
from tests.sinks.sqlite.world import SqliteBoth, pieces
from windrow.ingest.errors import (
    OwnerError,
    RefusedError,
    SchemaChangedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kit.commit.table_store import TableChange
from windrow.ingest.sinks.sqlite.network_disk import refuse_network
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    messages,
    plan,
    receipt,
    run_together,
    stage,
    staged_receipt,
    window,
)
from windrow.ingest.testing.contracts.with_dead_letters import OWNER


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.sqlite")


@pytest.fixture
def sink(path: str) -> Any:
    sink = SqliteBoth(path, ROWS)
    sink.prepare()
    return sink


@pytest.fixture
def user(sink: Any) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the file."""
    with closing(sqlite3.connect(sink.store.path, isolation_level=None)) as opened:
        yield opened


def test_a_locked_file(sink: Any, user: sqlite3.Connection) -> None:
    """A commit to a locked file waits, then raises UnreachableError. A look doesn't wait."""
    user.execute("BEGIN IMMEDIATE")
    sink.store.wait_seconds = 0.01
    with pytest.raises(UnreachableError, match="was locked by another process for too long"):
        sink.commit(*staged_receipt(sink, 0))
    assert sink.look(window(0)) is None


def test_a_check_keeps_locks(sink: Any, user: sqlite3.Connection) -> None:
    """Checking whether the file can be written releases no lock of this process.

    POSIX releases all locks of a process on a file when the process closes any descriptor of
    the file.
    """
    user.execute("PRAGMA journal_mode = delete").fetchall()
    user.execute("BEGIN EXCLUSIVE")
    sink.store.check_write()
    read = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0).execute('SELECT * FROM orders')"
    checker = subprocess.run(
        [sys.executable, "-c", read, sink.store.path],
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert "database is locked" in checker.stderr


HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = " + sys.argv[2]).fetchall()
database.execute(sys.argv[3])
database.execute("SELECT * FROM sqlite_master").fetchall()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("mode", "begin"), [("wal", "BEGIN IMMEDIATE"), ("delete", "BEGIN")])
def test_who_holds_a_file_is_named(
    sink: Any, monkeypatch: pytest.MonkeyPatch, mode: str, begin: str
) -> None:
    """The process that holds the file's lock is named: a writer, or a reader of a file without
    a write-ahead log.

    A commit waits for the reader as long as for a writer, before its COMMIT. After that the
    file has a write-ahead log again.
    """
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.1)
    window_receipt, staged = staged_receipt(sink, 0)
    sink.store.wait_seconds = 0.5
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, sink.store.path, mode, begin],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "up\n"
        with hear_waits() as heard, pytest.raises(UnreachableError, match="locked"):
            sink.commit(window_receipt, staged)
        message = heard.get(timeout=30).getMessage()
        assert f"shop.sqlite, which process {holder.pid} (" in message
        holder.stdin.close()
        holder.wait(30)
    assert isinstance(sink.commit(window_receipt, staged), Done)
    with closing(sqlite3.connect(sink.store.path)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_reader_holds_no_commit_up(sink: Any, user: sqlite3.Connection) -> None:
    """A reader doesn't delay a commit, and still sees its first state."""
    sink.commit(*staged_receipt(sink, 0))
    user.execute("BEGIN")
    old_count = user.execute("SELECT count(*) FROM orders").fetchone()
    assert isinstance(sink.commit(*staged_receipt(sink, 1)), Done)
    assert user.execute("SELECT count(*) FROM orders").fetchone() == old_count


def test_a_commit_outlives_a_loss_of_power(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is on disk when it returns: it uses SQLite's strictest mode of synchronous."""
    connect, modes = sqlite3.connect, []

    class Seen(sqlite3.Connection):
        def close(self) -> None:
            modes.extend(self.execute("PRAGMA synchronous").fetchone())
            super().close()

    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Seen))
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert set(modes) == {3}


def test_two_pipelines_share_a_file(sink: Any) -> None:
    """Two pipelines in one file each have their own table, windows and offsets.

    One table has one pipeline.
    """
    other_sink = SqliteBoth(sink.store.path, ROWS, table="returns")
    with pytest.raises(OwnerError):
        SqliteBoth(sink.store.path, ROWS).prepare(TableOwner("returns", "ledger-1", "hourly"))
    other_sink.prepare(TableOwner("returns", "ledger-1", "hourly"))
    for table in (sink, other_sink):
        planned = plan(table, 0, pipeline="orders" if table is sink else "returns")
        staged = stage(table, planned, 0, "a1")
        table.commit_dead(planned, "a1", staged)
        assert isinstance(table.commit(receipt(planned, staged, 0, "a1"), staged), Done)
    assert [c.receipt.window.pipeline for t in (sink, other_sink) for c in t.receipts()] == [
        "orders",
        "returns",
    ]
    assert [
        table.read_dead(c.receipt.window).num_rows
        for table in (sink, other_sink)
        for c in table.receipts()
    ] == [2, 2]


def test_those_who_make_a_table_at_once(path: str) -> None:
    """Of several sinks that make the table at once, one makes it, and none fails."""
    run_together([lambda: SqliteBoth(path, ROWS).prepare()] * 8)
    assert SqliteBoth(path, ROWS).owner() == OWNER


def test_columns_are_added_by_the_rows_that_have_them(sink: Any) -> None:
    """A new column is added in the transaction of its first rows.

    An older process goes on, and another type is refused.
    """
    sink.commit(*staged_receipt(sink, 0))
    wider = SqliteBoth(sink.store.path, ROWS.append(pa.field("tags", pa.list_(pa.string()))))
    wider.prepare()
    assert wider.columns_to_come() == ("tags (list<item: string>)",)
    planned = plan(wider, 1)
    split = planned.splits[0]
    stager = wider.stager(planned, 0, "a1")(split)
    rows = pa.record_batch([["1"], [1], [["a"]]], schema=wider.schema)
    stager.add(rows, messages(split).slice(0, 1))
    (word,) = stager.finish().committables
    with wider.store.writing() as state:
        state.put(TableChange(window=window(1), staged=(word,), columns=wider.columns))
    sink.prepare()
    assert [piece["tags"].to_pylist() for piece in pieces(sink)][-1] == [["a"]]
    narrower = SqliteBoth(sink.store.path, ROWS.set(1, pa.field("amount", pa.string())))
    with pytest.raises(
        SchemaChangedError, match="amount: int64 in the table, string in the schema"
    ):
        narrower.prepare()


def test_a_dropped_table_is_made_anew(sink: Any, user: sqlite3.Connection) -> None:
    """A dropped table is made again, and the old table's windows don't count."""
    sink.commit(*staged_receipt(sink, 0))
    user.execute("DROP TABLE orders")
    assert (sink.look(window(0)), sink.owner()) == (None, None)
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert len(pieces(sink)) == 2


@pytest.mark.parametrize(
    "table_sql", ["CREATE TABLE orders (id)", "CREATE VIEW orders AS SELECT 1 AS id"]
)
def test_somebody_elses_table_is_refused(path: str, table_sql: str) -> None:
    """A table that windrow didn't make is refused, and its file doesn't change."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(table_sql)
    old_content = Path(path).read_bytes()
    sink = SqliteBoth(path, ROWS)
    for ask in (sink.prepare, lambda: sink.commit(*staged_receipt(sink, 0, dead=False))):
        with pytest.raises(SpecError, match="holds a table or view orders that windrow didn't"):
            ask()
    assert Path(path).read_bytes() == old_content


def test_who_only_looks_changes_no_file(path: str) -> None:
    """A look doesn't change the file: neither one without a table of windrow, nor a copy
    without its write-ahead log.

    A commit to a missing table doesn't either.
    """
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE customers (id)")
    old_content, sink = Path(path).read_bytes(), SqliteBoth(path, ROWS)
    with pytest.raises(RefusedError):
        sink.commit(*staged_receipt(sink, 0, dead=False))
    assert (sink.look(window(0)), sink.owner(), list(sink.receipts())) == (None, None, [])
    assert Path(path).read_bytes() == old_content
    sink.prepare()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE").fetchall()
    old_content = Path(path).read_bytes()
    assert (sink.look(window(0)), list(sink.audit().receipts())) == (None, [])
    assert Path(path).read_bytes() == old_content


def test_a_receipt_takes_no_offsets_of_another_window(sink: Any) -> None:
    """A receipt with offsets of another window is refused by the database, whatever the look
    found.
    """
    sink.commit(*staged_receipt(sink, 0))
    same = plan(sink, 1, (0, 10))
    window_receipt = receipt(same, stage(sink, same, 0, "a1"), 0, "a1")
    with pytest.raises(RefusedError, match="refuses it: UNIQUE"), sink.store.writing() as state:
        state.put(TableChange(receipt=window_receipt))
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), AlreadyDone)


@pytest.mark.parametrize(
    "harm",
    [
        "SET owner = '{'",
        "SET columns = 'x'",
        "SET columns = x'00'",
        "SET columns = substr(columns, 1, 99)",
        "SET version = 'x'",
        "SET window_column = 7",
        "SET id = 'x'",
    ],
)
def test_a_damaged_row_of_windrows_own_is_told(
    sink: Any, user: sqlite3.Connection, harm: str
) -> None:
    """A damaged row in windrow's own tables raises RefusedError, and doesn't count as a missing
    table.
    """
    sink.commit(*staged_receipt(sink, 0))
    user.execute(f"UPDATE windrow_tables {harm} WHERE name = 'orders'")
    with pytest.raises(RefusedError):
        list(sink.audit().receipts())


@pytest.mark.parametrize("harm", ["value = 'x'", "name = '[x'", "name = 'x'"])
def test_a_damaged_note_was_never_put(sink: Any, user: sqlite3.Connection, harm: str) -> None:
    """Dead letters with a damaged note count as not stored, and verify reports it."""
    window_receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(window_receipt.plan, "a1", staged)
    user.execute(f"UPDATE windrow_notes SET {harm}")
    assert sink.dead_letters.attempts(lambda _: True) == {}
    with pytest.raises(RefusedError, match="or run windrow replay"):
        sink.dead_letters.count(window(0), "a1")


def test_another_form_is_refused(sink: Any, user: sqlite3.Connection) -> None:
    """A table of another form is refused."""
    user.execute("UPDATE windrow_tables SET form = 1")
    with pytest.raises(SpecError, match="was made by another version of windrow"):
        sink.look(window(0))


@pytest.mark.parametrize(
    ("harming", "says"),
    [
        (Path.unlink, "1 of 2 staged files are gone"),
        (lambda file: file.write_bytes(b"x" * file.stat().st_size), "is damaged"),
    ],
)
def test_a_staged_file_that_is_not_whole(
    sink: Any, harming: Callable[[Path], object], says: str
) -> None:
    """A staged file that was changed refuses its window, and nothing is committed."""
    window_receipt, staged = staged_receipt(sink, 0)
    word, *_ = staged[0].rows
    harming(Path(sink.store.staged.uri) / msgspec.json.decode(word)["path"])
    with pytest.raises(RefusedError, match=says):
        sink.commit(window_receipt, staged)
    assert (sink.look(window(0)), pieces(sink)) == (None, [])


@pytest.mark.parametrize(
    ("change_sql", "says"),
    [
        (
            "CREATE TRIGGER less BEFORE INSERT ON orders BEGIN SELECT RAISE(IGNORE); END",
            "would have 0 rows",
        ),
        ("CREATE UNIQUE INDEX once ON orders (_topic)", "UNIQUE constraint failed: orders._topic"),
        (
            "CREATE TRIGGER a AFTER INSERT ON orders BEGIN DELETE FROM orders WHERE _partition;END",
            "would have 9 rows",
        ),
        ("ALTER TABLE orders DROP COLUMN amount", 'ADD COLUMN "amount" INTEGER'),
    ],
)
def test_what_a_user_made_of_the_table(
    sink: Any, user: sqlite3.Connection, change_sql: str, says: str
) -> None:
    """A change of the table by a user that keeps rows out refuses the window, and nothing is
    committed.
    """
    user.execute(change_sql)
    with pytest.raises(RefusedError, match=says):
        sink.commit(*staged_receipt(sink, 0))
    if "DROP" not in change_sql:
        assert sink.look(window(0)) is None


def replacing(user: sqlite3.Connection) -> None:
    """Makes the table again, so that a new row replaces a row of another window."""
    ((table_sql,), (index,)) = user.execute(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'orders' AND sql > '' ORDER BY type DESC"
    )
    names = ", ".join(name for _, name, *_ in user.execute("PRAGMA table_info(orders)"))
    once = f"place AS (_offset % {PER_WINDOW}), UNIQUE (_partition, place) ON CONFLICT REPLACE"
    user.execute("ALTER TABLE orders RENAME TO before")
    user.execute(f"{table_sql.rpartition(')')[0]}, {once})")
    user.execute(f"INSERT INTO orders ({names}) SELECT {names} FROM before")
    user.execute("DROP TABLE before")
    user.execute(index)


def deleting(user: sqlite3.Connection) -> None:
    """Adds a trigger that deletes other windows' rows; it writes the table's name in another
    case.
    """
    user.execute(
        "CREATE TRIGGER newest AFTER INSERT ON ORDERS BEGIN"
        " DELETE FROM orders WHERE _window <> new._window; END"
    )


@pytest.mark.parametrize("harm", [replacing, deleting])
def test_no_window_takes_rows_of_others(
    sink: Any, user: sqlite3.Connection, harm: Callable[[sqlite3.Connection], None]
) -> None:
    """A window whose commit would remove other windows' rows is refused, and nothing is
    committed.

    The window's own rows are complete, so only the other rows show it.
    """
    sink.commit(*staged_receipt(sink, 0))
    rows = user.execute("SELECT * FROM orders").fetchall()
    harm(user)
    with pytest.raises(RefusedError, match="takes some away"):
        sink.commit(*staged_receipt(sink, 1))
    assert len(user.execute("SELECT * FROM orders").fetchall()) == len(rows)


@pytest.mark.parametrize(("folder", "kind"), [("/srv/shared", "nfs4"), ("/", None)])
def test_a_network_file_system(tmp_path: Path, folder: str, kind: str | None) -> None:
    """A network file system is refused with its name.

    A local disk mounted within one, or beside it, is accepted.
    """
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "disk / ext4 rw 0 0\nhost:/x /srv/shared nfs4 rw 0 0\ndisk /srv/shared/local xfs rw 0 0\n"
    )
    refuse_network(f"{folder}/local/orders.sqlite", str(mounts))
    if kind is not None:
        with pytest.raises(SpecError, match=f"is on a network file system \\({kind}\\)"):
            refuse_network(f"{folder}/orders.sqlite", str(mounts))


def test_a_text_that_is_none(sink: Any, user: sqlite3.Connection) -> None:
    """A text that isn't UTF-8 is reported without its bytes."""
    sink.commit(*staged_receipt(sink, 0))
    user.execute("UPDATE orders SET id = CAST(x'ff736563726574' AS TEXT)")
    with pytest.raises(RefusedError, match="a text isn't UTF-8") as caught:
        pieces(sink)
    assert "secret" not in str(caught.value)


def test_a_disk_that_is_full(sink: Any) -> None:
    """A full disk raises UnreachableError, and the transaction is rolled back.

    With space the window commits.
    """
    window_receipt, staged = staged_receipt(sink, 0)
    with files_end_at(20_000), pytest.raises(UnreachableError, match=r"is its disk full|no room"):
        sink.commit(window_receipt, staged)
    assert (sink.look(window(0)), pieces(sink)) == (None, [])
    assert isinstance(sink.commit(window_receipt, staged), Done)
