"""A third kind of sink, as small as one can be that keeps every promise: one SQLite file, a row of it for each window."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from windrow.ingest.config.places import absolute
from windrow.ingest.config.values import Text
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.binding import Binding, refuse_other_binding
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.decision import Seen, decide
from windrow.ingest.sinks.delta.kind import dead_letters_beside
from windrow.ingest.sinks.inline import InlineSink, tables
from windrow.ingest.sinks.kind import SinkSection


class SqliteSection(SinkSection):
    kind: Literal["sqlite"]
    file: Text

    def place(self, folder: Path) -> str:
        return absolute(self.file, folder)


class Sqlite:
    section = SqliteSection

    def make(self, section, rows, metadata, folder):
        return SqliteSink(section.place(folder), rows, metadata)

    def dead_letters(self, section, folder):
        return dead_letters_beside(section.place(folder))


SQLITE = Sqlite()


class SqliteSink(InlineSink):
    def __init__(self, file, rows, metadata):
        super().__init__(f"sqlite:{file}", rows, metadata)
        self.file = file

    @contextmanager
    def writing(self):
        with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("CREATE TABLE IF NOT EXISTS windows (key PRIMARY KEY, content, rows)")
            yield database
            database.execute("COMMIT")

    def kept(self):
        if not Path(self.file).exists():
            return []
        with closing(sqlite3.connect(self.file, timeout=60)) as database:  # who commits on a busy disk keeps readers out
            return database.execute("SELECT * FROM windows ORDER BY key").fetchall()

    def binding(self):
        return next((from_json(content, Binding) for key, content, _ in self.kept() if not key), None)

    def prepare(self, binding):
        with self.writing() as database:
            database.execute("INSERT OR IGNORE INTO windows VALUES ('', ?, '[]')", [to_json(binding)])
        refuse_other_binding(self.file, self.binding(), binding)

    def receipts(self):
        return (Committed(from_json(content, Receipt), None) for key, content, _ in self.kept() if key)

    def kept_rows(self):
        return {key: tables(json.loads(rows)) for key, _, rows in self.kept() if key}

    def commit(self, receipt, staged):
        try:
            with self.writing() as database:  # no other writer from here on: what is seen stays so
                committed = decide(receipt, Seen.among(receipt, self.file, self.binding(), self.receipts()))
                if committed is not None:
                    return AlreadyDone(committed)
                stays = (
                    [] if receipt.mending is None else next(json.loads(rows) for key, _, rows in self.kept() if key == receipt.window.key)
                )
                rows = json.dumps(stays + [word for s in staged for word in s.rows])
                crash_point("commit.before")
                database.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?)", [receipt.window.key, to_json(receipt), rows])
            crash_point("commit.after")
        except sqlite3.OperationalError as error:
            return Unknown(str(error))
        return Done(Committed(receipt, None))
