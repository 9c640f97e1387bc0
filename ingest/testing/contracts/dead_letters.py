"""The contract suite of stores of dead letters, with any sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windrow.ingest.admin.chosen_dead_letters import refused_attempts
from windrow.ingest.errors import GridError, OwnerError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import swept


class DeadLettersContract(SinkUnderTest):
    """The suite that runs on every store."""

    def test_dead_letters_of_the_counted_attempt_only(self, sink: Any) -> None:
        """Readers see only the dead letters of the receipt's attempt, and each only once,
        even if they were committed twice.
        """
        first, first_files = staged_receipt(sink, 0, 0, "died before its commit")
        sink.commit_dead(first.plan, first.attempt, first_files)
        assert sink.read_dead(window(0)).num_rows == 0
        assert sink.read_dead(window(0), attempt=first.attempt).num_rows == first.counts.dead
        new_receipt, staged = staged_receipt(sink, 0, 0, "a2")
        sink.commit_dead(new_receipt.plan, "a2", staged)
        self.reopen(sink).commit_dead(new_receipt.plan, "a2", staged)
        sink.commit(new_receipt, staged)
        dead_rows = sink.read_dead(window(0))
        assert set(dead_rows["attempt"].to_pylist()) == {"a2"}
        assert dead_rows.num_rows == new_receipt.counts.dead
        assert self.report(sink, [0]).ok

    def test_refused_attempts_are_known_until_their_window_is_committed(self, sink: Any) -> None:
        """For each uncommitted window, the store knows the newest attempt with dead letters,
        so that the dead letters of a refused window can be read.
        """
        assert sink.refused() == {}
        # the newest attempt, "a2", isn't the last in the order of names
        for number, attempt in ((0, "z9"), (0, "a2"), (1, "b1")):
            refused, files = staged_receipt(sink, number, 0, attempt)
            sink.commit_dead(refused.plan, attempt, files)
        clean, none = staged_receipt(sink, 2, 0, "c1", dead=False)
        sink.commit_dead(clean.plan, "c1", none)
        assert self.reopen(sink).refused() == {window(0).key: "a2", window(1).key: "b1"}
        self.commit(sink, 0, attempt="a3")
        assert self.reopen(sink).refused() == {window(1).key: "b1"}

    def test_a_corrected_retry_leaves_no_message_on_both_sides(self, sink: Any) -> None:
        """If a later attempt makes a row of a message, the message's dead letter of an earlier
        attempt doesn't count.
        """
        refused, refused_files = staged_receipt(sink, 0, 0, "old schema")
        sink.commit_dead(refused.plan, refused.attempt, refused_files)
        new_receipt, staged = staged_receipt(sink, 0, 0, "replayed", dead=False)
        sink.commit_dead(new_receipt.plan, "replayed", staged)
        sink.commit(new_receipt, staged)
        assert sink.read_dead(window(0)).num_rows == 0
        assert self.report(sink, [0]).ok

    def test_a_dead_letter_is_the_whole_message(self, sink: Any) -> None:
        """A dead letter is read with the same bytes, headers (in order, with duplicates), position,
        stage, reason, schema and attempt as it was written.
        """
        self.commit(sink, 0)
        row = sink.read_dead(window(0), limit=1).to_pylist()[0]
        assert (row["_topic"], row["_offset"], row["key"], row["value"]) == (
            "shop.orders",
            3,
            None,
            b"v3",
        )
        assert row["_timestamp"] is None
        assert [tuple(h.values()) for h in row["headers"]] == [("h", b"1"), ("h", None)]
        assert (row["stage"], row["reason"], row["detail"], row["timestamp_type"]) == (
            "value",
            "truncated",
            "at $.amount",
            "CreateTime",
        )
        assert row["schema_id"] == "7"
        assert (row["attempt"], row["generation"], row["pipeline"], row["leader_epoch"]) == (
            "a1",
            0,
            "orders",
            7,
        )

    def test_expired_dead_letters_are_gone(self, sink: Any) -> None:
        """Expired dead letters of a window are removed and noted, and the window stays committed.

        Dead letters that a later attempt leaves stay, and so do those of other windows.
        """
        for number in (0, 1):
            self.commit(sink, number)
        store = sink.dead_letters
        assert not store.is_expired(window(0), "a1")
        assert [store.expire(window(0), attempt) for attempt in ("a1", "a1")] == [True, True]
        fresh = self.reopen(sink)
        assert [fresh.dead_letters.is_expired(window(n), "a1") for n in (0, 1)] == [True, False]
        assert [fresh.read_dead(window(n)).num_rows for n in (0, 1)] == [0, 2]
        assert fresh.look(window(0)) is not None
        later, files = staged_receipt(fresh, 1, 1, "later")
        fresh.commit_dead(later.plan, "later", files)
        assert not fresh.dead_letters.expire(window(1), "a1")
        assert not fresh.dead_letters.is_expired(window(1), "a1")
        assert fresh.dead_letters.count(window(1), "a1") == later.counts.dead

    def test_refused_attempts_of_some_windows(self, sink: Any) -> None:
        """Only uncommitted windows among the requested windows are returned."""
        for number in (0, 1):
            refused, files = staged_receipt(sink, number, 0, f"a{number}")
            sink.commit_dead(refused.plan, f"a{number}", files)
        self.commit(sink, 1, attempt="b1")
        done = [window(1)]
        assert refused_attempts(sink.dead_letters, done, [window(1), window(2)]) == {}
        assert refused_attempts(sink.dead_letters, done, [window(0), window(1)]) == {
            window(0).key: "a0"
        }

    def test_they_are_counted_and_read_back(self, sink: Any) -> None:
        """`count` counts the dead letters of one attempt; `contents` has those of all attempts."""
        for attempt in ("a1", "a2"):
            refused, files = staged_receipt(sink, 0, 0, attempt)
            sink.commit_dead(refused.plan, attempt, files)
        store = self.reopen(sink).dead_letters
        assert [store.count(window(0), attempt) for attempt in ("a1", "a2", "a3")] == [2, 2, 0]
        assert store.count(window(1), "a1") == 0
        read = [
            attempt
            for batch in store.contents(window(0))
            for attempt in batch["attempt"].to_pylist()
        ]
        assert sorted(map(str, read)) == ["a1", "a1", "a2", "a2"]
        assert list(store.contents(window(1))) == []

    def test_their_store_is_bound(self, sink: Any) -> None:
        """The store refuses another pipeline, ledger or grid, as a table does."""
        store = self.reopen(sink).dead_letters
        store.prepare(TableOwner("orders", "ledger-1", "hourly"))
        for owner, error in (
            (TableOwner("returns", "ledger-1", "hourly"), OwnerError),
            (TableOwner("orders", "ledger-2", "hourly"), OwnerError),
            (TableOwner("orders", "ledger-1", "daily"), GridError),
        ):
            with pytest.raises(error):
                store.prepare(owner)

    def test_what_is_committed_is_never_swept(self, sink: Any) -> None:
        """A sweep never removes committed dead letters."""
        self.commit(sink, 0)
        assert swept(sink.dead_letters, timedelta(hours=1)) == []
        assert sink.read_dead(window(0)).num_rows == 2
