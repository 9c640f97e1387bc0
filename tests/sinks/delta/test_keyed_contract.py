"""The sink contracts on a Delta table with a primary key: where no two rows have one key, it is as any other table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_keyed_contract import SinkKeyedContract
from tests.sinks.beside import DeltaKeyedBoth
from tests.sinks.delta.pieces import delta_pieces
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.delta import newest
from windrow.ingest.sinks.delta import table as tables


@pytest.mark.some(1)
class TestDeltaKeyedSink(SinkKeyedContract, SinkGridsContract, DeadLettersContract):
    """On real Delta tables."""

    MARKS = False

    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(str(tmp_path / "orders"), schema, PrimaryKey(("id",), marks=self.MARKS, buckets=3), metadata)

    def reopen(self, sink: DeltaKeyedBoth) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(sink.uri, sink.schema, sink.primary_key, sink.metadata)

    def pieces(self, sink: DeltaKeyedBoth) -> list[pa.Table]:
        """By window and split: in a bucket's file rows stand in no order that means anything."""
        rows = [piece for piece in delta_pieces(sink.uri) if piece.num_rows]
        return (
            [pa.concat_tables(rows).sort_by([("_window", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")])]
            if rows
            else []
        )

    @contextmanager
    def no_answer(self, sink: DeltaKeyedBoth) -> Iterator[None]:
        append = tables.append
        with pytest.MonkeyPatch.context() as patch:

            def unanswered(*args: object, **kwargs: object) -> None:
                patch.undo()
                append(*args, **kwargs)  # type: ignore[arg-type]
                raise OSError("connection reset")

            patch.setattr(tables, "append", unanswered)
            yield


class TestDeltaMarkedSink(TestDeltaKeyedSink):
    """Where what is deleted stays as its key."""

    MARKS = True


class TestDeltaKeyedSinkByDeltalake(TestDeltaKeyedSink):
    """The same where no table is a plain one: it is loaded for each look."""

    @pytest.fixture(autouse=True)
    def _by_deltalake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(newest, "is_plain", lambda *_: False)
