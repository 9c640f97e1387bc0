"""A Delta table whose schema changes between windows, with the rows that it must show to every
reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.admin.findings import Finding
from windrow.ingest.admin.verify_contents import compare_contents
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.testing.contracts.windows import plan, staged_rows

KEY = PrimaryKey(("id",), buckets=9)
KEYS = 15
"""Number of different ids in each topic-partition.

Windows have ten offsets, so they share ids and buckets.
"""

Row = dict[str, Any]
AnySink = DeltaBoth | DeltaKeyedBoth


def schema_of(**columns: pa.DataType) -> pa.Schema:
    """Returns a schema with an `id` that is never null, and the given nullable columns."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            *(pa.field(name, kind) for name, kind in columns.items()),
        ]
    )


def value(column: pa.Field, offset: int) -> Any:
    """Returns a column's value in a message's row.

    Every seventh value is null if the column is nullable.
    """
    kind = column.type
    if column.nullable and offset % 7 == 6:
        return None
    if pa.types.is_integer(kind):
        return offset % 100 - 50
    if pa.types.is_floating(kind):
        return float(np.float32(offset / 10)) if pa.types.is_float32(kind) else offset / 10
    if pa.types.is_decimal(kind):
        return Decimal(offset % 100 - 50).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return date(2026, 1, 1) + timedelta(days=offset)
    if pa.types.is_timestamp(kind):
        return datetime(2026, 1, 1, tzinfo=None if kind.tz is None else UTC) + timedelta(
            microseconds=offset
        )
    if pa.types.is_list(kind):
        return [value(kind.value_field, offset)]
    if pa.types.is_map(kind):
        return [("a key", value(kind.item_field, offset))]
    assert pa.types.is_string(kind)
    return f"s{offset}"


def _as_entries(value: Any) -> Any:
    """Returns a map as a list of entries, as most readers do; other values are unchanged."""
    return list(value.items()) if isinstance(value, dict) else value


def row_of(schema: pa.Schema, partition: int, offset: int) -> Row:
    """Returns a message's row."""
    return {
        f.name: f"{partition}-{offset % KEYS}" if f.name == "id" else value(f, offset)
        for f in schema
    }


@dataclass
class Evolving:
    """A table and the rows that were committed to it.

    Attributes:
        uri: folder of the table.
        keyed: True if rows of one id replace each other.
        committed: rows by window number, then by (partition, offset).
    """

    uri: str
    keyed: bool
    committed: dict[int, dict[tuple[int, int], Row]] = field(default_factory=dict)

    def sink(self, schema: pa.Schema, evolve: Evolve = "add_columns") -> AnySink:
        """Returns a new prepared sink."""
        sink = (
            DeltaKeyedBoth(self.uri, schema, KEY, evolve=evolve)
            if self.keyed
            else DeltaBoth(self.uri, schema, evolve=evolve)
        )
        sink.prepare()
        return sink

    def stage_window(
        self, sink: AnySink, number: int, generation: int = 0
    ) -> tuple[Receipt, list[Staged]]:
        """Returns the receipt of a window, and the files that its tasks stage."""

        def rows_of(split: Split) -> list[pa.RecordBatch]:
            rows = [
                row_of(sink.schema, split.partition, offset)
                for offset in range(split.start, split.stop)
            ]
            return [pa.RecordBatch.from_pylist(rows, sink.schema)]

        attempt = f"a{number}.{generation}"
        return staged_rows(sink, plan(sink, number), rows_of, generation, attempt)

    def commit(
        self,
        sink: AnySink,
        number: int,
        generation: int = 0,
        staged: tuple[Receipt, list[Staged]] | None = None,
    ) -> None:
        """Commits a window, and notes it."""
        receipt, files = staged or self.stage_window(sink, number, generation)
        outcome = sink.commit(receipt, files)
        assert isinstance(outcome, Done), outcome
        self.note(sink, number)

    def note(self, sink: AnySink, number: int) -> None:
        """Notes that a window is committed, with the columns of this sink."""
        splits = plan(sink, number).splits
        self.committed[number] = {
            (s.partition, o): row_of(sink.schema, s.partition, o)
            for s in splits
            for o in range(s.start, s.stop)
        }

    def expected_rows(self) -> dict[tuple[int, int], Row]:
        """Returns the rows that the table must show, by (partition, offset)."""
        row_by_position = {
            position: row
            for number in sorted(self.committed)
            for position, row in self.committed[number].items()
        }
        newest = (
            {row["id"]: position for position, row in row_by_position.items()} if self.keyed else {}
        )
        return {
            position: row
            for position, row in row_by_position.items()
            if not self.keyed or newest[row["id"]] == position
        }

    def find_mistakes(self) -> list[str]:
        """Returns a text for each mistake: a reader with wrong rows, a file whose types differ
        from the table's, or a finding of verification.
        """
        names = [f.name for f in self.columns()]
        must = {
            position: {name: _as_entries(row.get(name)) for name in names}
            for position, row in self.expected_rows().items()
        }
        mistakes = [
            f"{reader}: {rows} is not {must}" for reader, rows in self._read(names) if rows != must
        ]
        return [*mistakes, *self._strange_files(), *(f.message for f in self.findings())]

    def columns(self) -> pa.Schema:
        """Returns the table's columns without the metadata columns."""
        schema = pa.schema(DeltaTable(self.uri).schema())
        return pa.schema([f for f in schema if not f.name.startswith("_")])

    def findings(self) -> list[Finding]:
        """Returns the findings of a verification that reads everything back."""
        sink = (
            DeltaKeyedBoth(self.uri, schema_of(), KEY)
            if self.keyed
            else DeltaBoth(self.uri, schema_of())
        )
        audit, receipts = sink.audit(), [c.receipt for c in sink.receipts()]
        findings = compare_contents(receipts, audit, sink.dead_letters)
        return (
            findings
            if audit.keyed is None
            else [
                *findings,
                *compare_merged(receipts, audit, audit.keyed, deep=True, complete=True),
            ]
        )

    def _read(self, names: list[str]) -> Iterator[tuple[str, dict[tuple[int, int], Row]]]:
        column_list = ", ".join(f'"{name}"' for name in (*names, "_partition", "_offset"))
        table = DeltaTable(self.uri)
        files = [str(Path(self.uri) / path) for path in self.files()]
        readers: Mapping[str, Callable[[], list[Row]]] = {
            "pyarrow": table.to_pyarrow_table().to_pylist,
            "deltalake": (
                lambda: pa.table(
                    QueryBuilder()
                    .register("t", table)
                    .execute(f"SELECT {column_list} FROM t")
                    .read_all()
                ).to_pylist()
            ),
            "polars": pl.read_delta(self.uri).to_dicts,
            "duckdb": lambda: _by_duckdb(files),
        }
        for reader, read in readers.items():
            rows = read()
            row_by_position = {
                (row["_partition"], row["_offset"]): {
                    name: _as_entries(row.get(name)) for name in names
                }
                for row in rows
            }
            assert len(row_by_position) == len(rows), f"{reader} sees a row twice"
            yield reader, row_by_position

    def files(self) -> list[str]:
        return [
            unquote(path)
            for path in pa.table(DeltaTable(self.uri).get_add_actions())["path"].to_pylist()
        ]

    def _strange_files(self) -> list[str]:
        """Returns a text for each column of a file whose type isn't the table's.

        A file may lack columns of the table.
        """
        kinds, mistakes = {f.name: f.type for f in self.columns()}, []
        for path in self.files():
            file_schema = pq.read_schema(Path(self.uri) / path)
            mistakes += [
                f"{path}: {f.name} is {f.type}, not {kinds[f.name]}"
                for f in file_schema
                if f.name in kinds and f.type != kinds[f.name]
            ]
        return mistakes


def _by_duckdb(files: list[str]) -> list[Row]:
    """Reads the Parquet files alone, as a reader does that doesn't know Delta's log."""
    with duckdb.connect(config={"threads": 1}) as connection:
        cursor = connection.execute("SELECT * FROM read_parquet(?, union_by_name=true)", [files])
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def entries_with(uri: str, action: str) -> list[int]:
    """Returns the versions whose log entries have such an action."""
    log = sorted((Path(uri) / "_delta_log").glob("*.json"))
    return [
        int(p.stem)
        for p in log
        if any(action in msgspec.json.decode(line) for line in p.read_bytes().splitlines())
    ]
