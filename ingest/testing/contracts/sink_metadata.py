"""The contract suite of a sink's metadata columns: all of them, under any names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import FIRST, ROWS, TOPIC, window

RENAMED = {name: f"kafka-{name}" for name in TYPES}
"""All metadata columns, under names that need quotes in SQL."""


class SinkMetadataContract(SinkUnderTest):
    """The suite that runs on every sink."""

    def test_metadata_columns_by_any_name(self, tmp_path: Path) -> None:
        """With other names for all metadata columns, commits and replacements work, and dead
        letters keep the default names.
        """
        sink = self.make(tmp_path, ROWS, RENAMED)
        sink.prepare()
        for n in range(3):
            self.commit(sink, n)
        newest = self.generations(sink)[-1]
        if newest:
            assert isinstance(self.commit(sink, 1, generation=newest, attempt="b1"), Done)
        self.reopen(sink).prepare()
        assert [c.receipt.generation for c in self.reopen(sink).receipts()] == [0, newest, 0]
        assert {*ROWS.names, *RENAMED.values()} == set(self.pieces(sink)[0].column_names)
        assert {"_topic", "_partition", "_offset", "_timestamp", "_window"} <= set(
            sink.read_dead(window(0)).column_names
        )
        assert self.report(sink, [0, 1, 2]).ok, str(self.report(sink, [0, 1, 2]))
        assert {a for piece in self.pieces(sink) for a in piece["kafka-attempt"].to_pylist()} == (
            {"a1", "b1"} if newest else {"a1"}
        )

    def test_metadata_columns_say_what_the_message_does(self, tmp_path: Path) -> None:
        """Each metadata column has its type, and the value of the row's message. If a header's
        key is there twice, the last value counts.
        """
        sink = self.make(tmp_path, ROWS, RENAMED)
        sink.prepare()
        self.commit(sink, 0)
        pieces = self.pieces(sink)
        assert {
            name: pieces[0].schema.field(column).type for name, column in RENAMED.items()
        } == TYPES
        rows = [
            {name: row[column] for name, column in RENAMED.items()}
            for piece in pieces
            for row in piece.to_pylist()
        ]
        (row,) = (row for row in rows if (row["partition"], row["offset"]) == (1, 1))
        assert row == {
            "topic": TOPIC.topic,
            "partition": 1,
            "offset": 1,
            "ordinal": 0,
            "timestamp": FIRST + timedelta(milliseconds=1),
            "timestamp-type": "CreateTime",
            "headers": [("h", None)],
            "header-list": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "leader-epoch": 7,
            "key": None,
            "value": b"v1",
            "value-size": 2,
            "attempt": "a1",
            "window": window(0).key,
        }

    def test_a_column_with_a_metadata_columns_name(self, tmp_path: Path) -> None:
        """A metadata column with the name of a row's column is refused, and the text names both."""
        with pytest.raises(SpecError, match=r"column amount .* metadata key \(Amount\)"):
            self.make(tmp_path, ROWS, {**DEFAULT, "key": "Amount"})
