"""A table in an SQLite file as a table store, with pessimistic commits.

`BEGIN EXCLUSIVE` locks other writers out from the look to the COMMIT, so a put meets no
conflict. Rows, receipt, offsets and notes are in the file together, or not at all.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.errors import (
    DamagedError,
    RefusedError,
    SpecError,
    UnreachableError,
    format_count,
)
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Split, Window, covered_ranges
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Capabilities, Unreadable
from windrow.ingest.sinks.kit import (
    DATA_FOLDER,
    STORE_WAITS,
    Answer,
    Evolution,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    Place,
    ReceiptRow,
    RowFile,
    StagedFiles,
    StoredReceipt,
    TableChange,
    TextStager,
    Unanswered,
    Written,
    lock_holder,
    quote_identifier,
    read_batches,
    receipt_digest,
    refuse_unstorable,
    refuse_unwritable,
    rows_per_batch,
    staged_path,
    table_schema,
    waiting_for,
    window_folder,
)
from windrow.ingest.sinks.sqlite.columns import batch_of, declared, driver_rows
from windrow.ingest.sinks.sqlite.network_disk import refuse_network

_FORM = 2
"""The version of windrow's own tables.

A table's `id` in `windrow_tables` is also part of the name of the table's index.
"""

_OWN = """
CREATE TABLE IF NOT EXISTS windrow_tables (
    name TEXT PRIMARY KEY COLLATE NOCASE, form INTEGER NOT NULL, id TEXT NOT NULL,
    owner TEXT NOT NULL, window_column TEXT NOT NULL, columns BLOB NOT NULL,
    version INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS windrow_receipts (
    id TEXT, window TEXT, version INTEGER NOT NULL, receipt TEXT NOT NULL, sha256 BLOB NOT NULL,
    PRIMARY KEY (id, window)
);
CREATE TABLE IF NOT EXISTS windrow_offsets (
    id TEXT, topic_id TEXT, partition INTEGER, stop INTEGER, start INTEGER NOT NULL,
    window TEXT NOT NULL, PRIMARY KEY (id, topic_id, partition, stop)
);
CREATE INDEX IF NOT EXISTS windrow_offsets_of ON windrow_offsets (id, window);
CREATE TABLE IF NOT EXISTS windrow_notes (
    id TEXT, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (id, name)
)
"""
_FIND = """
SELECT form, id, owner, window_column, columns, version FROM windrow_tables WHERE name = ?
"""
_WINDOWS = """
SELECT coalesce(CAST(window AS TEXT), '') AS window FROM windrow_receipts WHERE id = :id AND {some}
UNION SELECT coalesce(CAST(window AS TEXT), '') FROM windrow_offsets WHERE id = :id AND {some}
"""
"""A window with offsets was committed, even if its receipt is missing."""

_RECEIPTS = f"""
SELECT w.window, r.receipt, r.sha256, r.version, o.ranges
FROM ({_WINDOWS}) w
LEFT JOIN windrow_receipts r ON r.id = :id AND r.window = w.window
LEFT JOIN (
    SELECT window,
        group_concat(topic_id || ' ' || partition || ' ' || start || ' ' || stop, char(10)) ranges
    FROM windrow_offsets WHERE id = :id AND {{some}} GROUP BY window
) o ON o.window = w.window
ORDER BY w.window
"""  # noqa: S608
_COUNTS = """
SELECT mine, CASE WHEN EXISTS (
    SELECT 1 FROM sqlite_master WHERE tbl_name = :table COLLATE NOCASE
    AND (type = 'trigger' OR sql LIKE '%conflict%')
) THEN (SELECT count(*) FROM {table}) - mine ELSE 0 END
FROM (SELECT count(*) AS mine FROM {table} WHERE {window} = :key)
"""
"""Counts the rows of a window, and all other rows if an INSERT may remove some of them.

An INSERT may remove rows of a table with a trigger, or with ON CONFLICT REPLACE in its
definition.
"""

_AGAIN = "Fix that, then run it again: it looks first."
_ERRORS = {
    sqlite3.SQLITE_NOTADB: (
        SpecError,
        "is no SQLite database",
        "Set sink.path to another file. If it was the table's: Restore the file from a backup.",
    ),
    sqlite3.SQLITE_READONLY: (
        SpecError,
        "can't be written",
        "Let this user write the file, and in its folder.",
    ),
    sqlite3.SQLITE_CORRUPT: (DamagedError, "is damaged", "Restore the file from a backup."),
    sqlite3.SQLITE_FULL: (UnreachableError, "has no room left on its disk", _AGAIN),
    sqlite3.SQLITE_IOERR: (
        UnreachableError,
        "can't be read or written: is its disk full, or gone?",
        _AGAIN,
    ),
    sqlite3.SQLITE_BUSY: (
        UnreachableError,
        "was locked by another process for too long",
        "Nothing was committed. Have that process commit, or end it, and run this again.",
    ),
    sqlite3.SQLITE_ERROR: (
        RefusedError,
        "was changed by somebody else, and refuses it",
        "Undo that, or restore the file from a backup; then run it again: it looks first.",
    ),
    sqlite3.SQLITE_CONSTRAINT: (
        RefusedError,
        "has a constraint or a trigger that refuses it",
        "Nothing was committed. Change that, or the rules of the schema; then run it again.",
    ),
}


class SqliteStore:
    """A table in a file on this machine. Several tables may be in one file."""

    capabilities = Capabilities()
    primary_key = None
    waits = STORE_WAITS
    wait_seconds: float = 60
    """The seconds that a transaction waits for another one."""

    def __init__(self, path: str, table: str, metadata: Mapping[str, str] = DEFAULT) -> None:
        self.path, self.table, self.metadata = Place.normalized(path).uri, table, metadata
        self.location, self.database = f"{self.path}#{table}", self.path
        self.identity = f"sqlite:{self.path}#{table.lower()}"
        staging = f"{self.path}.staged/{table.lower()}"
        self.staged = StagedFiles(staging, (DATA_FOLDER,), RowFile, consumed=True)

    def is_at(self, identity: str) -> bool:
        path, _, table = identity.removeprefix("sqlite:").rpartition("#")
        return table == self.table.lower() and Place(path).is_same(Place(self.path))

    def places(self) -> Sequence[str]:
        return [self.staged.uri]

    def check_columns(self, rows: pa.Schema) -> None:
        refuse_unstorable(rows, self.metadata, lambda kind: declared(kind) is not None, "in SQLite")

    def columns(self, rows: pa.Schema) -> pa.Schema:
        return table_schema(rows, self.metadata)

    def check_write(self) -> None:
        refuse_network(self.path)
        refuse_unwritable(str(Path(self.path).parent))
        # The file isn't opened, because closing it would end this process's locks on it.
        if Path(self.path).exists() and not os.access(self.path, os.W_OK):
            kind, problem, advice = _ERRORS[sqlite3.SQLITE_READONLY]
            raise kind(f"the database {self.path} {problem}", "setup", advice)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        self.check_write()
        with self.reading() as state:
            if state is not None:
                return
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        with self._transaction("BEGIN EXCLUSIVE", "rwc") as database:
            if self.open_table(database) is None:
                self._make(database, columns, owner)
                database.execute("COMMIT")

    def _make(self, database: sqlite3.Connection, columns: pa.Schema, owner: TableOwner) -> None:
        """Creates windrow's own tables if they are missing, and the table with its index."""
        for statement in _OWN.split(";"):
            database.execute(statement)
        # An earlier table with this name may have been dropped.
        for own_table in ("receipts", "offsets", "notes"):
            of_it = "id IN (SELECT id FROM windrow_tables WHERE name = ?)"
            database.execute(f"DELETE FROM windrow_{own_table} WHERE {of_it}", [self.table])  # noqa: S608
        name, window, table_id = (
            quote_identifier(self.table),
            columns.names[-1],
            uuid.uuid4().hex[:16],
        )
        database.execute(f"CREATE TABLE {name} ({', '.join(map(_defined, columns))})")
        database.execute(f"CREATE INDEX windrow_{table_id} ON {name} ({quote_identifier(window)})")
        row = (
            self.table,
            _FORM,
            table_id,
            to_json(owner),
            window,
            columns.serialize().to_pybytes(),
            0,
        )
        database.execute("INSERT OR REPLACE INTO windrow_tables VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def reading(self) -> Iterator[SqliteState | None]:
        if not Path(self.path).exists():
            yield None
            return
        with self._transaction("BEGIN") as database:
            yield self.open_table(database)

    @contextmanager
    def writing(self) -> Iterator[SqliteState | None]:
        with self.writing_all([self]) as (state,):
            yield state

    @contextmanager
    def writing_all(self, stores: Sequence[SqliteStore]) -> Iterator[Sequence[SqliteState | None]]:
        # First without a lock, which would change the file's mode: a file of another program
        # stays unchanged.
        with self.reading() as state:
            pass
        if state is None:
            yield [None for _ in stores]
            return
        # If the file has no write-ahead log, this waits for its readers. Without that an INSERT
        # and the COMMIT would wait for them.
        with self._transaction("BEGIN EXCLUSIVE") as database:
            yield [store.open_table(database) for store in stores]

    def stager(self, layout: Layout, window: Window) -> SqliteStagerFactory:
        return SqliteStagerFactory(self.staged.uri, layout, window.key)

    def open_table(self, database: sqlite3.Connection) -> SqliteState | None:
        """Opens the table; None if it doesn't exist.

        Raises:
            SpecError: something else has this name, or the file is a ledger.
            DamagedError: windrow's row of the table is damaged.
            RefusedError: another program changed the table, and it lacks columns or its index.
        """
        if _has_table(database, "windrow_ledger_2"):
            raise SpecError(
                f"{self.path} is a ledger, which has the file for itself",
                "setup",
                "Set sink.path, or state, to another file.",
            )
        if not _has_table(database, self.table):
            return None
        row = (
            database.execute(_FIND, [self.table]).fetchone()
            if _has_table(database, "windrow_tables")
            else None
        )
        if row is None:
            raise SpecError(
                f"{self.path} holds a table or view {self.table} that windrow didn't make, or"
                " windrow_tables has lost its row",
                "setup",
                "If the table was renamed, rename it back (ALTER TABLE), also in sink.table. Else"
                " set sink.table to a name that isn't taken; or restore the file from a backup.",
            )
        if row[0] != _FORM:
            raise SpecError(
                f"the table {self.location} was made by another version of windrow",
                "setup",
                "Take that version, or name another table; nothing is wrong with this one.",
            )
        try:
            state = SqliteState(self, database, *row[1:])
        except (LookupError, OSError, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise DamagedError(
                f"the row of the table {self.location} in windrow_tables is damaged",
                "setup",
                "Restore the file from a backup.",
            ) from error
        state.refuse_changed()
        return state

    @contextmanager
    def _transaction(self, begin: str, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """Opens a transaction. It is rolled back unless it is committed.

        Args:
            begin: the statement that begins it.
            mode: SQLite's mode of the file; `rwc` creates the file.
        """
        uri = f"{Path(self.path).as_uri()}?mode={mode}"
        try:
            # check_same_thread is off, because DuckDB counts rows, and continues a scan in another
            # thread.
            opened = sqlite3.connect(
                uri, 0, isolation_level=None, check_same_thread=False, uri=True
            )
            with closing(opened) as database:
                with waiting_for(
                    lambda: f"the lock of {self.path}, {lock_holder(self.path, f'{self.path}-shm')}"
                ):
                    if begin != "BEGIN":
                        # In WAL mode readers and a commit don't wait for each other. SQLite
                        # refuses the change while another connection uses the file in the old mode.
                        with suppress(sqlite3.OperationalError):
                            database.execute("PRAGMA journal_mode = WAL")
                    database.execute(f"PRAGMA busy_timeout = {self.wait_seconds * 1000:.0f}")
                    # With EXTRA a commit survives a loss of power.
                    database.execute("PRAGMA synchronous = EXTRA")
                    database.execute(begin)
                    # The snapshot begins with the first read, not with BEGIN.
                    database.execute("SELECT 1 FROM sqlite_master").fetchone()
                yield database
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            kind, problem, advice = _ERRORS.get(code, (UnreachableError, "can't be used", _AGAIN))
            # An error of Python's own would quote the text.
            reason = error if hasattr(error, "sqlite_errorcode") else "a text isn't UTF-8"
            raise kind(f"the database {self.path} {problem}: {reason}", "commit", advice) from error


class SqliteState:
    """The table as one transaction sees it (`sinks.kit.commit.table_store.TableState`)."""

    def __init__(
        self,
        store: SqliteStore,
        database: sqlite3.Connection,
        table_id: str,
        owner: str,
        window: str,
        columns: bytes,
        version: int,
    ) -> None:
        self.version, self.owner = int(version), from_json(owner, TableOwner)
        self._store, self._database, self._table_id = store, database, table_id
        self._columns = pa.ipc.read_schema(pa.py_buffer(columns))
        self._table, self._window = quote_identifier(store.table), quote_identifier(window)
        self._window_field = self._columns.field(window)

    def refuse_changed(self) -> None:
        """Refuses a table without its index, or without columns of its rows.

        Raises:
            RefusedError: they are missing; the error says how to restore them.
        """
        table, index = self._table, f"windrow_{self._table_id}"
        query = (
            "SELECT lower(name) FROM pragma_table_info(:table) UNION ALL SELECT name FROM"
            " sqlite_master WHERE type = 'index' AND tbl_name = :table COLLATE NOCASE"
        )
        existing_names = {
            name for (name,) in self._database.execute(query, {"table": self._store.table})
        }
        repairs = [
            f"ALTER TABLE {table} ADD COLUMN {quote_identifier(field.name)} {declared(field.type)}"
            for field in self._columns
            if field.name.lower() not in existing_names
        ]
        if self._window[1:-1].lower() not in existing_names:
            repairs.append(f"DELETE FROM {table} WHERE {self._window} IS NULL")  # noqa: S608
        if index not in existing_names:
            repairs.append(f"CREATE INDEX {index} ON {table} ({self._window})")
        if repairs:
            raise RefusedError(
                f"the table {self._store.location} has lost columns, or its index {index}",
                "setup",
                "If the rows are windrow's, bring back what is missing (a column that was renamed"
                f" under its name of before): {'; '.join(repairs)}. Then windrow verify SPEC --deep"
                " names the windows that have to be read again; if their messages aren't in Kafka"
                " any more, restore the file from a backup instead. If the rows aren't windrow's,"
                " drop the table, and windrow makes its own; or set sink.table to a name that isn't"
                " taken.",
            )

    def note(self, name: str) -> int | None:
        return self.notes().get(name)

    def notes(self) -> Mapping[str, int]:
        # A note with a damaged value counts as never put.
        query = "SELECT name, value FROM windrow_notes WHERE id = ? AND typeof(value) = 'integer'"
        return dict(self._run_query(query))

    def committed(self) -> Collection[str]:
        return {key for (key,) in self._of_windows(_WINDOWS, None)}

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        return (row.stored("the file") for row in self._receipt_rows(keys))

    def _receipt_rows(self, keys: Collection[str] | None) -> Iterator[ReceiptRow]:
        for key, receipt, sha256, version, ranges in self._of_windows(_RECEIPTS, keys):
            text = None if receipt is None else str(receipt)
            number = version if isinstance(version, int) else None
            yield ReceiptRow(key, text, sha256, number, (ranges or "").splitlines())

    def _of_windows(self, question: str, keys: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
        condition, values = _among("window", keys)
        return self._database.execute(
            question.format(some=condition), {"id": self._table_id, **values}
        )

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        query = (
            "SELECT window FROM windrow_offsets WHERE id = ? AND topic_id = ? AND partition = ? AND"
            " stop > ? AND start < ?"
        )
        return {
            key
            for r in ranges
            for (key,) in self._run_query(query, r.topic_id, r.partition, r.start, r.stop)
        }

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        condition, values = _among(self._window, keys)
        query = f"SELECT DISTINCT {self._window} FROM {self._table} WHERE {condition}"  # noqa: S608
        return {key for (key,) in self._database.execute(query, values)}

    def size(self) -> None:
        """Returns None, because SQLite would have to count the rows."""

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        return Evolution.compare_added(self._columns, columns, self._store.location).changes

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        read = pa.schema([field for field in self._columns if names is None or field.name in names])
        condition, values = _among(self._window, None if window is None else [window.key])
        query = (
            f"SELECT {', '.join(map(quote_identifier, read.names))} FROM {self._table} WHERE"  # noqa: S608
            f" {condition}"
        )
        # The size of each batch decides how many rows the next batch may have.
        cursor, count = self._database.execute(query, values), 64
        while rows := cursor.fetchmany(count):
            batch = batch_of(rows, read, self._store.location)
            yield batch
            count = rows_per_batch(len(rows), batch.nbytes)

    def unneeded(self, old: Mapping[str, int], _cutoff: int) -> Mapping[str, int]:
        return old

    def put(self, change: TableChange) -> Answer:
        self.write(change)
        return self.commit(None)

    def write(self, change: TableChange) -> None:
        execute, version = self._database.execute, self.version + 1
        for expiry in change.expiries():
            self.write(expiry)
        if change.columns is not None:
            self._take_columns(change.columns)
        if change.window is not None:
            self._put_rows(change.window.key, change.staged, replaces=change.replaces)
        if change.receipt is not None:
            self._put_receipt(change.receipt, to_json(change.receipt))
        for name, value in change.notes.items():
            execute(
                "INSERT OR REPLACE INTO windrow_notes VALUES (?, ?, ?)",
                [self._table_id, name, value],
            )
        execute("UPDATE windrow_tables SET version = ? WHERE id = ?", [version, self._table_id])

    def commit(self, receipt: Receipt | None) -> Answer:
        try:
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            return Unanswered(str(error), error.sqlite_errorcode == sqlite3.SQLITE_FULL)
        return Written(self.version + 1, receipt)

    def _put_receipt(self, receipt: Receipt, text: str, insert: str = "INSERT") -> None:
        """Replaces a window's receipt and its ranges.

        Args:
            receipt: the window's receipt.
            text: the receipt as it is stored.
            insert: the statement that inserts ranges. It decides what happens to equal ranges
                of another window.
        """
        execute, table_id, key = self._database.execute, self._table_id, receipt.window.key
        execute("DELETE FROM windrow_offsets WHERE id = ? AND window = ?", [table_id, key])
        for r in covered_ranges(receipt.plan):
            row = table_id, r.topic_id, r.partition, r.stop, r.start, key
            execute(f"{insert} INTO windrow_offsets VALUES (?, ?, ?, ?, ?, ?)", row)
        execute(
            "INSERT OR REPLACE INTO windrow_receipts VALUES (?, ?, ?, ?, ?)",
            [table_id, key, self.version + 1, text, receipt_digest(key, receipt, text)],
        )

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        receipt = from_json(text, Receipt)
        # The row may have got another window's key.
        proven = self._database.execute(
            "DELETE FROM windrow_receipts WHERE id = ? AND sha256 = ?",
            [self._table_id, receipt_digest(window.key, receipt, text)],
        )
        if not proven.rowcount:
            next(self._receipt_rows([window.key])).refuse_other(receipt, "the file")
        # Its ranges may have got another key too.
        self._put_receipt(receipt, text, "INSERT OR REPLACE")
        if not dry_run:
            self._database.execute("COMMIT")

    def _take_columns(self, columns: pa.Schema) -> None:
        """Adds the columns that the table lacks."""
        evolved_columns = Evolution.compare_added(
            self._columns, columns, self._store.location
        ).columns
        for field in list(evolved_columns)[len(self._columns) :]:
            self._database.execute(f"ALTER TABLE {self._table} ADD COLUMN {_defined(field)}")
        content = evolved_columns.serialize().to_pybytes()
        self._database.execute(
            "UPDATE windrow_tables SET columns = ? WHERE id = ?", [content, self._table_id]
        )

    def _put_rows(self, key: str, staged: Sequence[str], *, replaces: bool) -> None:
        """Inserts the rows of staged files, one batch at a time.

        Args:
            key: the window's key.
            staged: committables of the files.
            replaces: whether the window's rows in the table are removed.

        Raises:
            RefusedError: the table has too many or too few rows after that, of this window or
                of others.
        """
        folder, table, window = self._store.staged.folder, self._table, self._window
        files = self._store.staged.decode_committables(staged)
        self._store.staged.refuse_gone(files)
        counts = (
            _COUNTS.format(table=table, window=window),
            {"key": key, "table": self._store.table},
        )
        old_count, others = self._database.execute(*counts).fetchone()
        if replaces:
            self._database.execute(f"DELETE FROM {table} WHERE {window} = ?", [key])  # noqa: S608
        for batch in (batch for file in files for batch in read_batches(folder, file.path)):
            rows = batch.append_column(self._window_field, pa.repeat(key, batch.num_rows))
            names = ", ".join(map(quote_identifier, rows.schema.names))
            marks = ", ".join("?" * rows.num_columns)
            statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
            self._database.executemany(statement, driver_rows(rows))
        expected_counts = (0 if replaces else old_count) + sum(file.rows for file in files), others
        actual_counts = self._database.execute(*counts).fetchone()
        if actual_counts != expected_counts:
            raise RefusedError(
                f"{self._store.location} would have {format_count(sum(actual_counts), 'row')}"
                f" after window {key}, and not {sum(expected_counts)}: a trigger, or ON CONFLICT"
                " in the table's definition, keeps rows out, takes some away, or makes more",
                "commit",
                "Nothing was committed. Drop the trigger, or make the table anew without ON"
                " CONFLICT; then run it again.",
            )

    def _run_query(self, question: str, *values: object) -> Iterator[tuple[Any, ...]]:
        yield from self._database.execute(question, [self._table_id, *values])


def _among(column: str, keys: Collection[str] | None) -> tuple[str, dict[str, str]]:
    """Returns a condition on a column, and the values of its parameters."""
    return (
        ("TRUE", {})
        if keys is None
        else (f"{column} IN (SELECT value FROM json_each(:keys))", {"keys": json.dumps([*keys])})  # noqa: S608
    )


def _has_table(database: sqlite3.Connection, name: str) -> bool:
    """Returns whether the file has a table or a view with this name."""
    query = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    return database.execute(query, [name]).fetchone() is not None


def _defined(field: pa.Field) -> str:
    constraint = "" if field.nullable else " NOT NULL"
    return f"{quote_identifier(field.name)} {declared(field.type)}{constraint}"


# --------------------------------------------------------------------------------------------------


class SqliteStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        uri: the place of the staged files.
        layout: the columns of a staged batch.
        window: the window's key.
    """

    uri: str
    layout: Layout
    window: str

    def __call__(self, split: Split) -> TextStager[RowFile]:
        """Makes a stager whose file name is unique to this call."""
        path = staged_path(window_folder(self.window), self.layout.attempt)
        writer = ParquetRowWriter(self.layout.schema, {}, "snappy")
        file = GrowingFile(Place(self.uri), path, writer)
        return TextStager(self.uri, self.layout, split, file)
