"""What every sink promises of checksums: what is read back is what the receipt says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.admin.verify_contents import summed
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Checksums, Receipt, Staging
from windrow.ingest.testing.contracts.sink_metadata import RENAMED
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import ROWS, plan, stage_split, window


class SinkChecksumsContract(SinkUnderTest):
    """Runs unchanged on every sink."""

    def read_back(self, sink: Any, receipt: Receipt) -> list[Checksums]:
        """The checksums of what a window holds now, per split."""
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
        """Rows and dead letters have, per split, the receipt's checksums, whatever the
        metadata columns are; so after replacing.
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
        """A stager that was given nothing has the checksums of nothing; one without
        dead letters has theirs.
        """
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
    sums = summed(
        receipt.splits, (batch for table in tables for batch in table.to_batches()), names
    )
    assert sums.outside == 0
    return sums.checksums
