"""Damages of a table in an SQLite file, and the advice that windrow gives."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.advice.world import Advice, Step, World, retry_step
from tests.cli.conftest import Stage, hour
from windrow.ingest.sinks.sqlite.store import SqliteStore

FILE = "shop.sqlite"


@dataclass
class SqliteWorld(World):
    """A pipeline on an SQLite table, with a backup.

    Attributes:
        holder: another connection to the file, which may hold a lock.
    """

    holder: sqlite3.Connection = field(init=False)

    def asks(self, statement: str) -> list[Any]:
        """Runs a statement, like a user does with SQLite's shell."""
        with closing(sqlite3.connect(FILE, isolation_level=None)) as database:
            return database.execute(statement).fetchall()

    def keeps(self) -> None:
        """Makes a backup, as docs/backups.md describes it."""
        with closing(sqlite3.connect(FILE)) as file, closing(sqlite3.connect("kept")) as backup:
            file.backup(backup)

    def restores(self, _: re.Match[str] | None = None) -> None:
        """Replaces the file by the backup."""
        for log in ("-wal", "-shm"):
            (self.stage.folder / f"{FILE}{log}").unlink(missing_ok=True)
        shutil.copy("kept", FILE)


def world(stage: Stage, request: pytest.FixtureRequest) -> SqliteWorld:
    """Returns a pipeline with its table and a backup."""
    del request
    new_world: SqliteWorld = SqliteWorld.on(stage, f"{{kind: sqlite, path: {FILE}, table: things}}")
    new_world.keeps()
    return new_world


def sql_step(words: str) -> Step:
    """Returns a step that runs the statement in the message."""
    return Step(words, lambda world, match: world.asks(match[0]))


def harms(*statements: str) -> Callable[[SqliteWorld], None]:
    """Returns a function that runs statements; INDEX becomes the index by which windrow
    knows the table.
    """

    def do(world: SqliteWorld) -> None:
        query = "SELECT name FROM sqlite_master WHERE tbl_name = 'things' AND name GLOB 'windrow_*'"
        ((index,),) = world.asks(query)
        for statement in statements:
            world.asks(statement.replace("INDEX", f"INDEX {index}", 1).replace("HOUR", hour(1)))

    return do


VERIFY = "windrow verify SPEC"
RUN = f"windrow run SPEC --window {hour(2)}"
DEEP = Step("windrow verify SPEC --deep", lambda w, _: w.types("windrow verify SPEC --deep"))
RESTORE = Step("windrow verify SPEC --restore-receipts")
BACKUP = Step("[Rr]estore the file from a backup", SqliteWorld.restores)


def removed(file: Path) -> None:
    file.unlink()


def flipped(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def harm_staged(harm: Callable[[Path], None]) -> None:
    """Damages the files that tasks have staged."""
    for file in Path(f"{FILE}.staged").rglob("*.parquet"):
        harm(file)


def anew(world: SqliteWorld, unique: str) -> None:
    """Makes the table again, with one more column, which may be unique."""
    ((create_statement,), (index,)) = world.asks(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'things' AND sql > '' ORDER BY type DESC"
    )
    columns = create_statement.partition("(")[2].rpartition(")")[0].partition(", mine")[0]
    names = ", ".join(name for _, name, *_ in world.asks("PRAGMA table_info(things)"))
    column_names = ", ".join(name for name in names.split(", ") if name != "mine")
    world.asks("ALTER TABLE things RENAME TO before")
    world.asks(f"CREATE TABLE things ({columns}, mine INTEGER DEFAULT 1 {unique})")
    world.asks(
        f"INSERT INTO things ({column_names}, mine) SELECT {column_names}, rowid FROM before"
    )
    world.asks("DROP TABLE before")
    world.asks(index)


def replay_step(number: int) -> Step:
    """Returns a step that replays a window, as the message says it."""
    return Step(f"windrow replay SPEC --window {hour(number)}")


def locks(mode: str, begin: str) -> Callable[[SqliteWorld], None]:
    """Returns a function that leaves a transaction open, with this journal mode."""

    def do(world: SqliteWorld) -> None:
        world.patches.setattr(SqliteStore, "wait_seconds", 0.1)
        world.holder = sqlite3.connect(FILE, isolation_level=None)
        world.holder.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        world.holder.execute(begin)
        world.holder.execute("SELECT * FROM things").fetchall()

    return do


def names(world: SqliteWorld, old_name: str, new_name: str) -> None:
    """Changes the table's name in the spec."""
    spec = Path(world.stage.spec)
    spec.write_text(spec.read_text().replace(f"table: {old_name}", f"table: {new_name}"))


def renamed(world: SqliteWorld) -> None:
    """Renames the table, also in the spec."""
    harms("ALTER TABLE things RENAME TO thangs")(world)
    names(world, "things", "thangs")


BACK = Step("rename it back", lambda w, _: w.asks("ALTER TABLE thangs RENAME TO things"))
ROWS = [
    *(
        Advice(
            f"locked: {begin}, {mode}",
            locks(mode, begin),
            RUN,
            "was locked by another process for too long",
            [
                Step("Have that process commit, or end it", lambda w, _: w.holder.close()),
                retry_step(RUN),
            ],
            code=3,
        )
        for mode, begin in [("wal", "BEGIN IMMEDIATE"), ("delete", "BEGIN")]
    ),
    *(
        Advice(name, harms(harm), VERIFY, says, [RESTORE])
        for name, harm, says in [
            (
                "lost receipt",
                "DELETE FROM windrow_receipts WHERE window = 'HOUR'",
                "is committed, and its receipt is missing",
            ),
            (
                "cut receipt",
                "UPDATE windrow_receipts SET receipt = substr(receipt, 1, 200)",
                "are not those that were committed",
            ),
            (
                "renamed receipt",
                "UPDATE windrow_receipts SET window = 'x' WHERE window = 'HOUR'",
                "is committed, and its receipt is missing",
            ),
            (
                "edited receipt",
                """UPDATE windrow_receipts SET receipt = replace(receipt, '"generation":0',
                '"generation":5') WHERE window = 'HOUR'""",
                "are not those that were committed",
            ),
            (
                "deleted offsets",
                "DELETE FROM windrow_offsets",
                "are not those that were committed",
            ),
        ]
    ),
    Advice(
        "lost receipt, before a run",
        harms("DELETE FROM windrow_receipts WHERE window = 'HOUR'"),
        RUN,
        "is committed, and its receipt is missing",
        [RESTORE],
    ),
    Advice(
        "receipt and offsets lost",
        harms(
            "DELETE FROM windrow_receipts WHERE window = 'HOUR'",
            "DELETE FROM windrow_offsets WHERE window = 'HOUR'",
        ),
        VERIFY,
        "rows of a window without a receipt",
        [
            Step(
                "Run the window again",
                lambda w, _: w.types(f"windrow run SPEC --window {hour(1)}"),
            ),
            Step(
                "remove them",
                lambda w, _: w.asks(f"DELETE FROM things WHERE _window = '{hour(1)}'"),
            ),
            Step(
                "Run the window again",
                lambda w, _: w.types(f"windrow run SPEC --window {hour(1)}"),
            ),
        ],
    ),
    *(
        Advice(
            f"dropped index, before {command.split()[1]}",
            harms("DROP INDEX"),
            command,
            "has lost columns, or its index",
            [sql_step(r"CREATE INDEX \w+ ON \S+ \(\S+\)")],
        )
        for command in (RUN, VERIFY, "windrow doctor SPEC", "windrow rebind SPEC --yes")
    ),
    *(
        Advice(
            f"dropped column, before {command.split()[1]}",
            harms("ALTER TABLE things DROP COLUMN id"),
            command,
            "has lost columns, or its index",
            [
                sql_step("ALTER TABLE \\S+ ADD COLUMN \\S+ INTEGER"),
                DEEP,
                replay_step(0),
                replay_step(1),
            ],
        )
        for command in (RUN, VERIFY, "windrow doctor SPEC")
    ),
    Advice(
        "dropped window column",
        harms("DROP INDEX", "ALTER TABLE things DROP COLUMN _window"),
        RUN,
        "has lost columns, or its index",
        [
            sql_step("ALTER TABLE \\S+ ADD COLUMN \\S+ TEXT"),
            sql_step(r"DELETE FROM \S+ WHERE \S+ IS NULL"),
            sql_step(r"CREATE INDEX \w+ ON \S+ \(\S+\)"),
            DEEP,
            replay_step(0),
            replay_step(1),
        ],
    ),
    Advice(
        "rows whose window is null",
        harms(
            "DROP INDEX",
            "ALTER TABLE things DROP COLUMN _window",
            "ALTER TABLE things ADD COLUMN _window TEXT",
            "CREATE INDEX ON things (_window)",
        ),
        VERIFY,
        "rows of no window",
        [
            Step(
                "Delete them before a window is replayed",
                lambda w, _: w.asks("DELETE FROM things WHERE _window IS NULL"),
            ),
            replay_step(0),
            replay_step(1),
        ],
    ),
    Advice(
        "renamed column",
        harms("ALTER TABLE things RENAME COLUMN id TO number"),
        VERIFY,
        "has lost columns, or its index",
        [
            Step(
                "under its name of before",
                lambda w, _: w.asks("ALTER TABLE things RENAME COLUMN number TO id"),
            )
        ],
    ),
    Advice(
        "renamed table",
        harms("ALTER TABLE things RENAME TO thangs"),
        RUN,
        "isn't there, and the ledger knows 2 committed windows",
        [BACK],
    ),
    Advice(
        "renamed table, and sink.table with it",
        renamed,
        "windrow rebind SPEC --yes",
        "thangs that windrow didn't make",
        [
            BACK,
            Step("also in sink.table", lambda w, _: names(w, "thangs", "things")),
        ],
        code=2,
    ),
    Advice(
        "a trigger that refuses",
        harms(
            """CREATE TRIGGER no BEFORE INSERT ON things BEGIN
            SELECT RAISE(ABORT, 'no more'); END"""
        ),
        RUN.replace(hour(2), hour(3)),
        "has a constraint or a trigger that refuses it",
        [
            Step("Change that", lambda w, _: w.asks("DROP TRIGGER no")),
            retry_step(RUN.replace(hour(2), hour(3))),
        ],
    ),
    Advice(
        "a trigger that deletes",
        harms(
            """CREATE TRIGGER once AFTER INSERT ON things BEGIN
            DELETE FROM things WHERE _window <> new._window OR _offset = 0; END"""
        ),
        RUN.replace(hour(2), hour(3)),
        "a trigger, or .*, takes some away",
        [
            Step("Drop the trigger", lambda w, _: w.asks("DROP TRIGGER once")),
            Step("run it again", lambda w, _: w.types(RUN.replace(hour(2), hour(3)))),
        ],
    ),
    Advice(
        "a table that was made anew with ON CONFLICT REPLACE",
        lambda w: anew(w, "UNIQUE ON CONFLICT REPLACE"),
        RUN.replace(hour(2), hour(3)),
        "ON CONFLICT in the table's definition, .*, takes some away",
        [
            Step("make the table anew without ON CONFLICT", lambda w, _: anew(w, "")),
            Step("run it again", lambda w, _: w.types(RUN.replace(hour(2), hour(3)))),
        ],
    ),
    Advice(
        "a trigger that deleted",
        harms(
            """CREATE TRIGGER once AFTER UPDATE ON things BEGIN
            DELETE FROM things WHERE _window <> new._window; END""",
            "UPDATE things SET id = id WHERE _window = 'HOUR' AND _offset = 2",
            "DROP TRIGGER once",
            """CREATE TRIGGER once AFTER INSERT ON things BEGIN
            DELETE FROM things WHERE _window <> new._window; END""",
        ),
        VERIFY,
        "Another program changed the table",
        [
            Step(
                f"windrow replay SPEC --window {hour(0)}",
                lambda w, match: w.types(match[0]),
            ),
            Step("Drop the trigger", lambda w, _: w.asks("DROP TRIGGER once")),
            replay_step(0),
        ],
    ),
    *(
        Advice(
            f"staged file {harm.__name__}",
            lambda w, harm=harm: w.before_commit(lambda: harm_staged(harm)),
            RUN.replace(hour(2), hour(3)),
            says,
            [retry_step(RUN.replace(hour(2), hour(3)))],
        )
        for harm, says in [(removed, "are gone or cut short"), (flipped, "is damaged")]
    ),
    Advice(
        "rows that are gone",
        harms("DELETE FROM things WHERE _window = 'HOUR' AND _offset = 2"),
        VERIFY,
        "Another program changed the table",
        [replay_step(1)],
    ),
    *(
        Advice(f"damaged: {harm}", harms(f"UPDATE windrow_tables SET {harm}"), VERIFY, says, [step])
        for harm, says, step in [
            ("owner = '{'", "in windrow_tables is damaged", BACKUP),
            ("columns = x'00'", "in windrow_tables is damaged", BACKUP),
        ]
    ),
    Advice(
        "windrow's row of the table is lost",
        harms("DELETE FROM windrow_tables"),
        "windrow rebind SPEC --yes",
        "windrow_tables has lost its row",
        [BACKUP],
        code=2,
    ),
    Advice(
        "one of windrow's own tables is dropped",
        harms("DROP TABLE windrow_offsets"),
        VERIFY,
        "no such table: windrow_offsets",
        [BACKUP],
    ),
    Advice(
        "no database",
        lambda w: (w.stage.folder / FILE).write_text("notes, " * 500),
        VERIFY,
        "is no SQLite database",
        [BACKUP],
        code=2,
    ),
]
