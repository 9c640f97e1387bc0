"""Tables in an SQLite file for tests. A location is the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tests.sinks.world import SinkWorld
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.sinks.sqlite.store import SqliteStore
from windrow.ingest.testing.contracts.commit_hooks import on_put
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters


class SqliteBoth(WithDeadLetters, WindowTable):
    """A table in an SQLite file, with its dead letters in the same file."""

    store: SqliteStore

    def __init__(
        self,
        path: str,
        rows: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        table: str = "orders",
    ) -> None:
        super().__init__(SqliteStore(path, table, metadata), rows)
        self.dead_letters = DeadLetterTable(SqliteStore(path, f"{table}_dead"))


def receipt_first(sink: Any) -> None:
    """Makes a broken twin that writes the receipt and then its rows, in two transactions."""

    def twice(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(msgspec.structs.replace(change, staged=(), columns=None))
        crash_point("commit.before")
        with SqliteStore(sink.store.path, sink.store.table).writing() as then:
            assert then is not None
            then.put(msgspec.structs.replace(change, replaces=False, receipt=None))
        return put_answer

    on_put(sink, twice)


class SqliteWorld(SinkWorld):
    """Tables in SQLite files. A piece is a run of one topic-partition's offsets."""

    locks = True
    twins = (receipt_first,)

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder / "orders.sqlite")

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return SqliteBoth(location, rows, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        batches_by_piece, last = [], None
        with sink.store.reading() as state:
            for batch in () if state is None else state.scan(None):
                names = [sink.metadata[name] for name in ("window", "topic", "partition", "offset")]
                for row, (*where, offset) in enumerate(
                    zip(*(batch[n].to_pylist() for n in names), strict=True)
                ):
                    if last is None or where != last[0] or offset <= last[1]:
                        batches_by_piece.append(list[pa.RecordBatch]())
                    batches_by_piece[-1].append(batch.slice(row, 1))
                    last = where, offset
        return [pa.Table.from_batches(batches).combine_chunks() for batches in batches_by_piece]


pieces = SqliteWorld().pieces
