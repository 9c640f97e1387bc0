"""The contract suite of a sink's audit, its capabilities and its sweep."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.ports.sink import Done, RowsHeld
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import TOPIC, plan, receipt, staged_receipt, window


class SinkAuditContract(SinkUnderTest):
    """The suite that runs on every sink that keeps each row."""

    def test_it_says_what_it_promises(self, sink: Any) -> None:
        """The sink has the capabilities that its suite is for."""
        assert sink.capabilities == self.capabilities

    def test_rows_are_held_against_their_windows(self, sink: Any) -> None:
        """An audit returns the windows that have rows, and counts the rows by topic-partition.
        Rows that are only staged don't count.
        """
        self.commit(sink, 0)
        self.commit(sink, 2)
        staged_receipt(sink, 1)
        empty = plan(sink, 3, offsets=(30, 30))
        assert isinstance(sink.commit(receipt(empty, [], 0, "a1"), []), Done)
        audit = self.reopen(sink).audit()
        assert audit.windows() == {window(0).key, window(2).key}
        assert audit.rows_held(window(2)) == [
            RowsHeld(TOPIC.topic, p, 9, 9, 20, 29) for p in range(2)
        ]
        assert audit.rows_held(window(1)) == audit.rows_held(window(3)) == []

    def test_contents_are_what_was_committed(self, sink: Any) -> None:
        """The rows that an audit reads have the checksums of the receipt, even after a
        replacement; an uncommitted window has no rows.
        """
        for generation in self.generations(sink):
            self.commit(sink, 0, generation, f"a{generation}")
            committed, audit = self.reopen(sink).look(window(0)).receipt, self.reopen(sink).audit()
            back = sum_by_split(committed.splits, audit.contents(window(0)), audit.metadata)
            expected = tuple(s.checksums.rows for s in committed.splits)
            assert (back.checksums, back.outside) == (expected, 0)
        assert list(audit.contents(window(1))) == []

    def test_an_audit_without_a_table(self, tmp_path: Any) -> None:
        """An audit without a table finds nothing, and doesn't make a table."""
        from windrow.ingest.testing.contracts.windows import ROWS

        fresh = self.make(tmp_path / "none", ROWS)
        assert (
            list(fresh.audit().receipts()),
            fresh.audit().windows(),
            fresh.audit().rows_held(window(0)),
        ) == ([], set(), [])
        assert fresh.owner() is None

    def test_what_is_committed_is_never_swept(self, sink: Any) -> None:
        """A sweep removes nothing that belongs to a commit."""
        for generation in self.generations(sink):
            self.commit(sink, 0, generation, f"a{generation}")
        assert sink.sweep(timedelta(hours=1), dry_run=True) == sink.sweep(timedelta(hours=1)) == []
        assert self.report(sink, [0]).ok
