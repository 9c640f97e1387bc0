"""The sink contracts on a Delta table with a primary key: where no two rows have one key, it is as any other table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.errors import RefusedError
from ingest.ports.sink import Done
from ingest.schema.metadata import DEFAULT
from ingest.schema.primary_key import PrimaryKey
from ingest.sinks.delta import newest
from ingest.sinks.delta import table as tables
from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_contract import SinkContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.sinks.beside import DeltaKeyedBoth
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.things import plan, receipt, staged_mending, staged_receipt, window


class TestDeltaKeyedSink(SinkContract, SinkGridsContract, DeadLettersContract):
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

    def test_replaced_by_nothing(self, sink: Any) -> None:
        """A replacement without rows is refused, where the window had the last word; one of a window without rows is a commit like any."""
        self.commit(sink, 0)
        self.commit(sink, 1)
        with pytest.raises(RefusedError, match="of 18 keys it had the last word"):
            sink.commit(receipt(plan(sink, 0), [], 1, "b1"), [])
        assert sink.look(window(0)).receipt.generation == 0
        assert self.report(sink, [0, 1]).ok
        empty = plan(sink, 2, offsets=(20, 20))
        for generation in (0, 1):
            assert isinstance(sink.commit(receipt(empty, [], generation, f"c{generation}"), []), Done)

    def test_a_replacement_takes_mended_rows_with_it(self, sink: Any) -> None:
        """A replacement without the mended keys is refused as any that says less; one that has them stands in their place."""
        self.commit(sink, 0)
        sink.commit(*staged_mending(sink, sink.look(window(0)).receipt, "m1"))
        with pytest.raises(RefusedError, match="of 2 keys it had the last word"):
            self.commit(sink, 0, generation=2, attempt="b1")
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))
        assert isinstance(sink.commit(*staged_receipt(sink, 0, 2, "b2", dead=False)), Done)
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))


class TestDeltaMarkedSink(TestDeltaKeyedSink):
    """Where what is deleted stays as its key."""

    MARKS = True


class TestDeltaKeyedSinkByDeltalake(TestDeltaKeyedSink):
    """The same where no table is a plain one: it is loaded for each look."""

    @pytest.fixture(autouse=True)
    def _by_deltalake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(newest, "is_plain", lambda *_: False)
