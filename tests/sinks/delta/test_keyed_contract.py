"""The sink contracts on a Delta table with a primary key: where no two rows have one
key, it is as any other table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_keyed_contract import SinkKeyedContract
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.hooks import answered
from tests.sinks.with_dead_letters import DeltaKeyedBoth
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.table_store import Unanswered


@pytest.mark.some(1)
class TestDeltaKeyedSink(SinkKeyedContract, SinkGridsContract, DeadLettersContract):
    """On real Delta tables."""

    MARKS = False

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(
            str(tmp_path / "orders"),
            schema,
            PrimaryKey(("id",), marks=self.MARKS, buckets=3),
            metadata,
        )

    def reopen(self, sink: DeltaKeyedBoth) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(sink.uri, sink.schema, sink.primary_key, sink.metadata)

    def pieces(self, sink: DeltaKeyedBoth) -> list[pa.Table]:
        """By window and split: in a bucket's file rows stand in no order that means anything."""
        rows = [piece for piece in delta_pieces(sink.uri) if piece.num_rows]
        return (
            [
                pa.concat_tables(rows).sort_by(
                    [
                        ("_window", "ascending"),
                        ("_partition", "ascending"),
                        ("_offset", "ascending"),
                    ]
                )
            ]
            if rows
            else []
        )

    @contextmanager
    def no_answer(self, sink: DeltaKeyedBoth) -> Iterator[None]:
        answered(sink, (Unanswered("connection reset"), True))
        yield


class TestDeltaMarkedSink(TestDeltaKeyedSink):
    """Where what is deleted stays as its key."""

    MARKS = True
