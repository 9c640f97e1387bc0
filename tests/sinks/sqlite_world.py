"""The smallest sink as the harness of `tests.chaos` has it; a place is its file."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tests.sinks.beside import WithDeadLetters
from tests.sinks.sqlite_sink import SqliteSink
from tests.sinks.things import ROWS
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.decision import Seen, decide
from windrow.ingest.sinks.delta.kind import dead_letters_beside

LOCKS = True


class SqliteBoth(WithDeadLetters, SqliteSink):
    """With its dead letters at hand."""

    def __init__(self, place: str) -> None:
        super().__init__(place, ROWS, DEFAULT)
        self.dead_letters = dead_letters_beside(place)


def sink_at(place: str) -> Any:
    """The sink at a place."""
    return SqliteBoth(place)


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows: one table per split and commit."""
    return [table for tables in sink.kept_rows().values() for table in tables]


class ReceiptFirst(SqliteBoth):
    """A broken twin: the receipt, and then its rows, in a transaction each."""

    def commit(self, receipt: Any, staged: Any) -> Any:
        with self.writing() as database:
            held = decide(receipt, Seen.among(receipt, self.file, self.binding(), self.receipts()))
            if held is not None:
                return AlreadyDone(held)
            database.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, '[]')", [receipt.window.key, to_json(receipt)])
        crash_point("commit.before")
        with self.writing() as database:
            rows = json.dumps([word for s in staged for word in s.rows])
            database.execute("UPDATE windows SET rows = ? WHERE key = ?", [rows, receipt.window.key])
        return Done(Committed(receipt, None))
