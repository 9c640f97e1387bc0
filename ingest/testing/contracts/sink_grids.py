"""The contract suite of adjacent windows: on any grid, as micro-batches, and after a rebase."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windrow.ingest.errors import IdentityError, RefusedError
from windrow.ingest.model.boundary import TopicSeen
from windrow.ingest.model.grid import batch_at, window_at
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.ports.sink import Done
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import FIRST, ROWS, TOPIC, plan, plan_of, window

REBORN = TopicSeen(TOPIC.topic, "topic-id-2", TOPIC.partitions)
OTHER = TopicSeen("shop.returns", "topic-id-3", 1)


class SinkGridsContract(SinkUnderTest):
    """The suite that runs on every sink."""

    @pytest.mark.parametrize("committed_first", [0, 1])
    @pytest.mark.parametrize(
        ("topics", "cluster"),
        [
            ((REBORN,), "cluster"),
            ((REBORN, OTHER), "cluster"),
            ((REBORN,), "another"),
            ((OTHER,), "another"),
        ],
        ids=[
            "topic made anew",
            "topic made anew, another added",
            "cluster replaced",
            "all replaced",
        ],
    )
    def test_a_rebase_is_a_legal_seam(
        self, sink: Any, topics: tuple[TopicSeen, ...], cluster: str, committed_first: int
    ) -> None:
        """After a rebase, offsets of a cluster or topic with another id needn't continue those of
        the previous window. Either window may be committed first.
        """
        plans = [plan(sink, 0), plan_of(sink, window(1), (3, 5), topics, cluster)]
        for planned in plans if committed_first == 0 else reversed(plans):
            assert isinstance(self.commit_plan(sink, planned), Done)
        assert self.report(sink, [0]).accounting == ()

    def test_a_rebase_excuses_only_what_it_changed(self, sink: Any) -> None:
        """If one topic was made anew, the offsets of other topics must still be contiguous."""
        self.commit_plan(sink, plan_of(sink, window(0), (0, 10), (TOPIC, OTHER)))
        with pytest.raises(IdentityError, match=window(0).key) as refused:
            self.commit_plan(sink, plan_of(sink, window(1), (12, 15), (REBORN, OTHER)))
        assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
            OTHER.topic,
            0,
            12,
        )
        assert isinstance(
            self.commit_plan(sink, plan_of(sink, window(1), (10, 15), (REBORN, OTHER))), Done
        )

    def test_a_topic_that_only_the_later_side_knows_is_refused(self, sink: Any) -> None:
        """A window is refused if its start has a topic that the previous window's end lacks.
        Adjacent windows of one ledger share their boundary, so there must be two ledgers.
        """
        self.commit_plan(sink, plan_of(sink, window(0), (0, 10), (TOPIC,)))
        with pytest.raises(IdentityError, match="nowhere") as refused:
            self.commit_plan(sink, plan_of(sink, window(1), (10, 20), (TOPIC, OTHER)))
        assert refused.value.topic == OTHER.topic

    def test_a_topic_that_a_rebase_left_out_is_no_tear(self, sink: Any) -> None:
        """A topic may be missing at the start of the next window, as after a rebase. The offsets
        of the other topics must still be contiguous.
        """
        self.commit_plan(sink, plan_of(sink, window(0), (0, 10), (TOPIC, OTHER)))
        with pytest.raises(IdentityError, match=window(0).key):
            self.commit_plan(sink, plan_of(sink, window(1), (11, 20), (TOPIC,)))
        assert isinstance(
            self.commit_plan(sink, plan_of(sink, window(1), (10, 20), (TOPIC,))), Done
        )

    def test_micro_batches(self, tmp_path: Path) -> None:
        """Micro-batches work like other windows: they have a key, are replaced alone, and their
        offsets must be contiguous by number.
        """
        sink = self.make(tmp_path, ROWS)
        sink.prepare(TableOwner("orders", "ledger-1", "batch"))
        plans = [plan_of(sink, batch_at("orders", n), (10 * n, 10 * n + 10)) for n in range(3)]
        for planned in plans:
            assert isinstance(self.commit_plan(sink, planned, grid="batch"), Done)
        newest = self.generations(sink)[-1]
        if newest:
            assert isinstance(
                self.commit_plan(sink, plans[1], generation=newest, grid="batch"), Done
            )
        assert [c.receipt.window.start for c in self.reopen(sink).receipts()] == [0, 1, 2]
        assert self.reopen(sink).look(batch_at("orders", 1)).receipt.generation == newest
        assert {k for piece in self.pieces(sink) for k in piece["_window"].to_pylist()} == {
            f"batch-00000000{n}" for n in range(3)
        }
        torn = plan_of(sink, batch_at("orders", 3), (31, 40))
        with pytest.raises(IdentityError, match="batch-000000002"):
            self.commit_plan(sink, torn, grid="batch")
        assert self.report(sink, [0, 1, 2]).ok, str(self.report(sink, [0, 1, 2]))

    def test_windows_of_unequal_length(self, tmp_path: Path) -> None:
        """On a cron grid with windows of unequal length, a window's offsets must continue those of
        its neighbours on the grid.
        """
        grid, sink = "0 0,3 * * *", self.make(tmp_path, ROWS)
        sink.prepare(TableOwner("orders", "ledger-1", grid))
        short = window_at("orders", grid, FIRST)
        long = window_at("orders", grid, FIRST + timedelta(hours=3))
        self.commit_plan(sink, plan_of(sink, long, (10, 20)), grid=grid)
        for offsets in ((0, 9), (0, 12)):
            with pytest.raises(RefusedError, match=long.key):
                self.commit_plan(sink, plan_of(sink, short, offsets), grid=grid)
        assert isinstance(self.commit_plan(sink, plan_of(sink, short, (0, 10)), grid=grid), Done)
        following = window_at("orders", grid, FIRST + timedelta(hours=24))
        with pytest.raises(IdentityError, match=long.key):
            self.commit_plan(sink, plan_of(sink, following, (25, 30)), grid=grid)
        assert self.report(sink, [0, 1]).ok, str(self.report(sink, [0, 1]))
