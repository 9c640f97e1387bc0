"""The contract suite of checksums: the rows that are read have the receipt's checksums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Checksums, Receipt, Staging
from windrow.ingest.testing.contracts.sink_metadata import RENAMED
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import ROWS, plan, stage_split, window


class SinkChecksumsContract(SinkUnderTest):
    """The suite that runs on every sink."""

    def read_back(self, sink: Any, receipt: Receipt) -> list[Checksums]:
        """Returns the checksums of a window's rows and dead letters in the table, per split."""
        rows, dead = self.pieces(sink), [sink.read_dead(receipt.window)]
        sums = [
            _sums(receipt, tables, names)
            for tables, names in ((rows, sink.metadata), (dead, DEFAULT))
        ]
        return [Checksums(*both) for both in zip(*sums, strict=True)]

    @pytest.mark.parametrize("metadata", [DEFAULT, RENAMED], ids=["default", "renamed"])
    def test_what_is_read_back_is_what_the_receipt_says(
        self, tmp_path: Path, metadata: Mapping[str, str]
    ) -> None:
        """Rows and dead letters of each split have the receipt's checksums, with any names of
        metadata columns, and after a replacement.
        """
        sink = self.make(tmp_path, ROWS, metadata)
        sink.prepare()
        for generation in self.generations(sink):
            self.commit(sink, 0, generation, f"a{generation}")
            committed_receipt = self.reopen(sink).look(window(0)).receipt
            assert [s.checksums for s in committed_receipt.splits] == self.read_back(
                sink, committed_receipt
            )
            assert (
                len(
                    {
                        c
                        for s in committed_receipt.splits
                        for c in (s.checksums.rows, s.checksums.dead)
                    }
                )
                == 4
            )

    def test_of_nothing_it_is_nothing(self, sink: Any) -> None:
        """A stager without rows or dead letters has the checksum of no rows."""
        planned = plan(sink, 0)
        rows, letters = (store.stager(planned, 0, "a1") for store in (sink, sink.dead_letters))
        for factory in (rows, letters):
            assert factory(planned.splits[0]).finish() == Staging()
        assert Checksums(Staging().checksum, Staging().checksum) == Checksums()
        staged = stage_split(
            rows(planned.splits[0]), letters(planned.splits[0]), planned.splits[0], dead=False
        )
        assert staged.counts.checksums.dead == Checksums().dead
        assert staged.counts.checksums.rows != Checksums().rows


def _sums(
    receipt: Receipt, tables: Iterable[pa.Table], names: Mapping[str, str]
) -> tuple[str, ...]:
    sums = sum_by_split(
        receipt.splits, (batch for table in tables for batch in table.to_batches()), names
    )
    assert sums.outside == 0
    return sums.checksums
