"""The contract of readers and runs about logs that were cut off, and about those that grew again.

All scenes are written to one cluster, which is cut off once, because a real broker must restart
for it. A suite supplies the fixture `cut`, which is a `Cut`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.contracts.logs import CuttableCluster, Sent
from tests.contracts.reading import gathered
from tests.contracts.source_desk import SourceDesk, hour, minutes
from windrow.ingest.admin.verify import Finding, verify
from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import CutOffError, DataLossError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.source import OnLoss
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan, ReadSummary
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.run_windows import preview, run

KEPT, GONE, NEW = 6, 4, 8
"""Messages of a reader's log: below the cut, removed by the cut, and written after it."""

BATCH = {"grid": "batch", "max_records": 600}


def _messages(count: int) -> list[Sent]:
    return [Sent(b"%d" % n) for n in range(count)]


@dataclass
class Cut:
    """A cluster whose logs were cut off.

    Attributes:
        cluster: the cluster.
        new_desk: makes a desk with its own table. All desks write to the same `Logs`.
        reader_of: makes a reader for a plan.
        desks: the desks by scene.
        topics: the topic-partitions by scene.
        readers: the desk for logs that are only read.
        broker: the broker of that desk.
        grown: a log that was cut at KEPT and grew again.
        short: a log that was cut at KEPT and didn't grow.
        intact: a log that was not cut, and grew under the new leader.
        trimmed: a log like `intact`, but the messages from the old leader were deleted.
        old: the leader epoch before the cut.
        new: the leader epoch after the cut.
    """

    cluster: CuttableCluster
    new_desk: Callable[[], SourceDesk]
    reader_of: Callable[[ReadPlan], Reader]
    desks: dict[str, SourceDesk] = field(default_factory=dict)
    topics: dict[str, TopicPartition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Writes the logs, cuts them off, and writes on."""
        self.readers = self.new_desk()
        self.broker: Broker = self.readers.broker_at("read_committed")
        logs = self.readers.logs
        topic = logs.topic(4)
        self.grown, self.short, self.intact, self.trimmed = tps = [
            TopicPartition(topic, p) for p in range(4)
        ]
        for tp in tps:
            logs.send(tp, *_messages(KEPT))
            logs.send(tp, *_messages(GONE))
        self.old = self._epoch()
        self._begin()
        logs.cut(
            self.cluster,
            {self.grown: KEPT, self.short: KEPT} | dict.fromkeys(self.topics.values(), 400),
        )
        for tp in (self.grown, self.intact, self.trimmed):
            logs.send(tp, *_messages(NEW))
        logs.cluster.delete_before(self.trimmed, KEPT + GONE)
        self.new = self._epoch()
        for name, minute in (("batches", 61), ("planned", 61), ("later hours", 121)):
            self.desks[name].send(self.topics[name], *minutes(*[minute] * 500))

    def _epoch(self) -> int:
        epoch = self.broker.stable_ends([self.grown])[self.grown].leader_epoch
        assert epoch is not None
        return epoch

    def _begin(self) -> None:
        """Makes the runs before the cut: batches, hours, and a window that was planned but not
        run.
        """
        for name in ("batches", "planned", "idle batches", "idle hours", "later hours"):
            desk = self.desks[name] = self.new_desk()
            tp = self.topics[name] = desk.logs.partition()
            desk.send(tp, *minutes(*[1] * 400))
            desk.send(tp, *minutes(*[1] * 300))
        self.run("batches")
        pipeline = self.pipeline("planned")
        pipeline.ledger.freeze_plans([preview(pipeline, hour(0))])
        self.run("idle batches")
        self.run("idle hours", 0)
        self.run("later hours", 0)

    def pipeline(self, name: str, on_loss: OnLoss = "fail") -> Pipeline:
        """Returns a scene's pipeline."""
        source = {"topic": self.topics[name].topic, "on_loss": on_loss}
        return self.desks[name].pipeline(source, BATCH if "batches" in name else None)

    def run(self, name: str, n: int = 0, on_loss: OnLoss = "fail") -> Result | None:
        """Runs a scene's n-th hour, or its next batch."""
        pipeline = self.pipeline(name, on_loss)
        if "batches" in name:
            return self.desks[name].batch(pipeline, f"{name} {n} {on_loss}")
        return run(pipeline, hour(n), Request(f"{n} {on_loss}"))

    def findings(self, name: str) -> list[Finding]:
        """Returns the findings of `verify` about a scene's topic that say "wrong"."""
        pipeline = self.pipeline(name)
        verification = verify(
            pipeline.spec.id, pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker
        )
        return [f for f in verification.findings if f.about == "topic" and f.level == "wrong"]

    def read(
        self, tp: TopicPartition, start: int, stop: int, *epochs: int, on_loss: OnLoss = "fail"
    ) -> tuple[list[int], ReadSummary]:
        """Returns the offsets and the summary that a reader gives for a split.

        Args:
            tp: the topic-partition.
            start: the split's start.
            stop: the split's stop.
            *epochs: the leader epochs of start and stop.
            on_loss: what the reader does about lost messages.
        """
        plan = ReadPlan(
            self.broker.cluster_id(), {tp.topic: self.broker.topic(tp.topic).topic_id}, on_loss
        )
        reader = self.reader_of(plan)
        batches, summary = gathered(reader, Split(tp.topic, tp.partition, start, stop, *epochs))
        return [o for batch in batches for o in batch.column("offset").to_pylist()], summary


class ReadTruncationContract:
    """The promises of a reader.

    The tests change nothing, so several readers can be tested on one cluster.
    """

    def test_a_log_that_was_cut_below_the_start_and_grew_is_a_loss(self, cut: Cut) -> None:
        """A log that was cut below the start and grew again raises DataLossError.

        The epoch of the start tells it, even if the log reaches beyond the stop again.
        """
        for stop_epoch in (cut.old, cut.new):
            with pytest.raises(DataLossError, match="cut off and has grown again") as error:
                cut.read(cut.grown, 8, 14, cut.old, stop_epoch)
            assert (error.value.topic, error.value.offset) == (cut.grown.topic, 8)

    def test_a_client_that_has_read_another_split_notices_a_cut_too(self, cut: Cut) -> None:
        """A client that has read another split before still notices a cut.

        A worker keeps its client between splits. A client that knows the topic's leaders
        doesn't check epochs by itself.
        """
        with keeping():
            assert cut.read(cut.intact, 8, 10, cut.old, cut.old)[0] == [8, 9]
            with pytest.raises(DataLossError, match="cut off and has grown again"):
                cut.read(cut.grown, 8, 14, cut.old, cut.new)

    def test_who_skips_reads_what_the_plan_saw(self, cut: Cut) -> None:
        """With `on_loss` "skip", a reader gives only messages that existed at planning time.

        If the log was cut before the split's stop was frozen, the messages up to the stop are
        given. If it was cut afterwards, the messages there are others, and all are skipped.
        """
        offsets, summary = cut.read(cut.grown, 8, 14, cut.old, cut.new, on_loss="skip")
        assert (offsets, summary.skipped, summary.diverged, summary.next_offset) == (
            [*range(8, 14)],
            0,
            True,
            14,
        )
        offsets, summary = cut.read(cut.grown, 8, 14, cut.old, cut.old, on_loss="skip")
        assert (offsets, summary.skipped, summary.diverged, summary.next_offset) == (
            [],
            6,
            False,
            14,
        )

    def test_a_log_that_was_cut_inside_a_split_and_grew_is_a_loss(self, cut: Cut) -> None:
        """A log that was cut inside a split and grew again raises DataLossError.

        Messages with a later epoch than the stop's are not the planned ones. With `on_loss`
        "skip", the messages before them are read.
        """
        with pytest.raises(DataLossError, match="cut off and has grown again") as error:
            cut.read(cut.grown, 2, 10, cut.old, cut.old)
        assert error.value.offset == KEPT
        offsets, summary = cut.read(cut.grown, 2, 10, cut.old, cut.old, on_loss="skip")
        assert (offsets, summary.read, summary.skipped, summary.next_offset) == (
            [2, 3, 4, 5],
            4,
            4,
            10,
        )

    def test_a_cut_at_or_above_a_split_is_no_loss(self, cut: Cut) -> None:
        """A cut at or above the stop, at the start, or before the split was planned, is no loss."""
        assert cut.read(cut.grown, 2, KEPT, cut.old, cut.old)[0] == [2, 3, 4, 5]
        assert cut.read(cut.grown, KEPT, 14, cut.old, cut.new)[0] == [*range(KEPT, 14)]
        assert cut.read(cut.grown, 8, 14, cut.new, cut.new)[0] == [*range(8, 14)]

    def test_a_log_that_ends_below_the_start_is_a_loss(self, cut: Cut) -> None:
        """A log that was cut below the start and didn't grow raises DataLossError with its end."""
        with pytest.raises(DataLossError, match="0 to 6"):
            cut.read(cut.short, 8, 10, cut.old, cut.old)
        offsets, summary = cut.read(cut.short, 2, 10, cut.old, cut.old, on_loss="skip")
        assert (offsets, summary.skipped) == ([2, 3, 4, 5], 4)

    def test_a_clean_change_of_leader_is_no_loss(self, cut: Cut) -> None:
        """A new leader without a cut is no loss, even if the cluster has forgotten the
        old epoch.
        """
        assert cut.read(cut.intact, 8, 10, cut.old, cut.old)[0] == [8, 9]
        assert cut.read(cut.intact, 8, 18, cut.old, cut.new)[0] == [*range(8, 18)]
        assert cut.read(cut.trimmed, 10, 18, cut.old, cut.new)[0] == [*range(10, 18)]


class TruncationContract(ReadTruncationContract):
    """The promises of a reader and of runs."""

    def test_a_batch_after_a_log_was_cut_and_grew(self, cut: Cut) -> None:
        """A batch whose log was cut off and grew again is refused.

        Batches have 600 messages; the log is cut to 400 and grows to 900. With `on_loss`
        "skip", the batch has the existing messages, and its receipt is partial.
        """
        with pytest.raises(DataLossError, match="cut off and has grown again") as refused:
            cut.run("batches", 1)
        assert (refused.value.exit_code, refused.value.offset) == (1, 600)
        result = cut.run("batches", 2, "skip")
        assert result is not None
        receipt = result.committed.receipt
        assert [(s.start, s.stop) for s in receipt.plan.splits] == [(600, 900)]
        assert (receipt.counts.read, receipt.counts.skipped) == (300, 0)
        assert ["grown again" in words for words in receipt.partial] == [True]
        assert cut.run("batches", 3) is None

    def test_a_window_that_was_planned_before_the_cut(self, cut: Cut) -> None:
        """A window that was planned before the cut doesn't take later messages for the planned
        ones.

        It is refused, or with `on_loss` "skip" they are skipped and counted.
        """
        with pytest.raises(DataLossError, match="cut off and has grown again"):
            cut.run("planned")
        result = cut.run("planned", 0, "skip")
        assert result is not None
        counts = result.committed.receipt.counts
        assert (counts.read, counts.skipped) == (400, 300)
        assert result.committed.receipt.partial

    @pytest.mark.slow
    def test_a_batch_while_the_log_ends_below_the_last(self, cut: Cut) -> None:
        """A batch whose log ends below the last boundary is refused, and `verify` reports it.

        It is not taken for a batch without messages.
        """
        with pytest.raises(CutOffError, match=r"ends at offset 400 now, below 600.*on_loss: skip"):
            cut.run("idle batches", 1)
        assert cut.run("idle batches", 2, "skip") is None
        (finding,) = cut.findings("idle batches")
        assert "ends at offset 400 now, below 600" in finding.message
        assert "on_loss: skip" in finding.advice

    @pytest.mark.slow
    def test_an_hour_while_the_log_ends_below_the_last(self, cut: Cut) -> None:
        """An hour whose log ends below the last boundary is not taken for an hour without
        messages.

        It is refused before its boundary is frozen. With `on_loss` "skip", its receipt is
        partial.
        """
        with pytest.raises(CutOffError, match=r"ends at offset 400 now, below 700"):
            cut.run("idle hours", 1)
        assert cut.pipeline("idle hours").ledger.boundary("things", hour(1).end) is None
        result = cut.run("idle hours", 1, "skip")
        assert result is not None
        assert [
            "ends at offset 400 now, below 700" in words
            for words in result.committed.receipt.partial
        ] == [True]
        with pytest.raises(CutOffError):
            run(
                cut.pipeline("idle hours"),
                Window("things", hour(1).end, hour(2).end),
                Request("next"),
            )
        assert [f.level for f in cut.findings("idle hours")] == ["wrong"]

    @pytest.mark.slow
    def test_an_hour_that_lies_in_what_was_cut_off(self, cut: Cut) -> None:
        """An hour whose messages were cut off before its end was frozen is refused, also after
        the log grew.
        """
        with pytest.raises(
            CutOffError, match=r"was cut off below offset 700 and has grown again.*on_loss: skip"
        ) as refused:
            cut.run("later hours", 1)
        assert refused.value.exit_code == 1
        (finding,) = cut.findings("later hours")
        assert "was cut off below offset 700 and has grown again" in finding.message
        result = cut.run("later hours", 1, "skip")
        assert result is not None
        assert (
            result.committed.receipt.counts.read,
            ["has grown again" in words for words in result.committed.receipt.partial],
        ) == (
            0,
            [True],
        )
        with pytest.raises(DataLossError, match="has grown again"):
            cut.run("later hours", 2)
