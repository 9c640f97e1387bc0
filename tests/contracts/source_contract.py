"""The contract of the whole source, on any broker.

The module of an implementation supplies the fixture `desk`. Many tests are taken from Flink's
source suites: one split, many splits, restart, more splits than workers, idle and growing
partitions. Others repeat known faults of other readers. Most tests end with the checker's
verdict.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contracts.logs import UNSTAMPED, instant_at
from tests.contracts.source_desk import (
    FIRST,
    HOUR,
    DyingEngine,
    InterruptedRunError,
    SourceDesk,
    hour,
    minutes,
)
from windrow.ingest.admin.rebase import propose, rebase
from windrow.ingest.errors import DataLossError, IdentityError, NotClosedError, SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.source import Earliest
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.micro_batches import is_done, run_batches
from windrow.ingest.runner.run_windows import preview, run


class SourceContract:
    """The promises of the source; each test uses topics of its own."""

    # ----------------------------------------------------------------------------------------------

    def test_a_single_split(self, desk: SourceDesk) -> None:
        """A window of one split has every message once."""
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 59, 61))
        desk.run(desk.pipeline({"topic": tp.topic}), 0, 1)
        assert desk.verdict().ok, str(desk.verdict())

    def test_many_splits(self, desk: SourceDesk) -> None:
        """Splits are balanced, none is empty, and together they are exactly the window.

        There are more splits than partitions or workers.
        """
        topic = desk.logs.topic(2)
        for p, count in enumerate((23, 5)):
            desk.send(TopicPartition(topic, p), *minutes(*range(count)))
        (result,) = desk.run(desk.pipeline({"topic": topic, "split_records": 4}), 0)
        sizes = [s.stop - s.start for s in result.committed.receipt.plan.splits]
        assert sorted(sizes) == [2, 3, 3, 4, 4, 4, 4, 4]
        assert desk.verdict().ok, str(desk.verdict())

    def test_a_restart_in_mid_window(self, desk: SourceDesk) -> None:
        """A run that dies after some staged splits leaves nothing visible.

        The next run reads the same offsets, although new messages came.
        """
        topic = desk.logs.topic(2)
        for p in range(2):
            desk.send(TopicPartition(topic, p), *minutes(*range(10)))
        desk.engine = DyingEngine(splits_done=3)
        source = {"topic": topic, "split_records": 4}
        with pytest.raises(InterruptedRunError):
            desk.run(desk.pipeline(source), 0)
        planned = preview(desk.pipeline(source), hour(0))
        assert not list(desk.pipeline(source).sink.receipts())
        for p in range(2):
            # the first message of each pair is too late for the frozen boundary and is in the
            # next window
            desk.send(TopicPartition(topic, p), *minutes(30, 65))
        first, second = desk.run(desk.pipeline(source), 0, 1)
        assert first.committed.receipt.plan == planned
        assert second.committed.receipt.counts.late == 2
        assert desk.verdict().ok, str(desk.verdict())

    # ----------------------------------------------------------------------------------------------

    def test_idle_partitions(self, desk: SourceDesk) -> None:
        """Partitions without messages, in one window or in all, neither delay nor lose anything."""
        topic = desk.logs.topic(3)
        desk.send(TopicPartition(topic, 0), *minutes(0, 10, 130))
        desk.send(TopicPartition(topic, 1), *minutes(70))
        desk.run(desk.pipeline({"topic": topic}), 0, 1, 2, 3)
        assert desk.verdict().ok, str(desk.verdict())

    def test_growing_partitions(self, desk: SourceDesk) -> None:
        """A partition that is added between windows is read from 0 by exactly one window.

        The windows may be run in any order.
        """
        topic = desk.logs.topic(1)
        desk.send(TopicPartition(topic, 0), *minutes(0, 70, 130, 190))
        pipeline = desk.pipeline({"topic": topic})
        desk.run(pipeline, 0)
        desk.logs.cluster.add_partitions(topic, 3)
        desk.send(TopicPartition(topic, 1), *minutes(10, 75, 135))
        desk.send(TopicPartition(topic, 2), *minutes(140))
        desk.run(pipeline, 2, 1, 3)
        assert desk.verdict().ok, str(desk.verdict())

    def test_chosen_partitions(self, desk: SourceDesk) -> None:
        """Only the chosen topic-partitions are read.

        A topic-partition that is chosen later begins at its offset of the first window.
        """
        topic = desk.logs.topic(3)
        for p in range(3):
            desk.send(TopicPartition(topic, p), *minutes(5, 65, 125))
        desk.run(desk.pipeline({"partitions": {topic: [0]}}), 0, 1)
        desk.run(desk.pipeline({"partitions": {topic: [0, 2]}}), 2)
        assert desk.verdict({TopicPartition(topic, 1): {0, 1, 2}}).ok, str(desk.verdict())

    # ----------------------------------------------------------------------------------------------

    def test_several_topics(self, desk: SourceDesk) -> None:
        """Several topics are one table; equal offsets of two topics are two messages."""
        topics = [desk.logs.topic(2), desk.logs.topic(1)]
        for topic in topics:
            desk.send(TopicPartition(topic, 0), *minutes(0, 61))
        desk.run(desk.pipeline({"topic": topics}), 1, 0)
        assert desk.verdict().ok, str(desk.verdict())

    @pytest.mark.parametrize(
        ("start", "joining", "missing"),
        [
            ("label", "start", 1),
            ("earliest", "start", 0),
            ("latest", "start", 0),
            ("label", "window", 3),
            ("earliest", "window", 3),
        ],
    )
    def test_a_topic_that_joins(
        self, desk: SourceDesk, start: str, joining: str, missing: int
    ) -> None:
        """With `joining` "start", a new topic begins where it would have begun in the first
        window.

        Its messages from before the current window are late messages of this window. With
        `joining` "window", the topic begins with this window, and the receipt counts the
        earlier messages.
        """
        old, new = desk.logs.topic(1), desk.logs.topic(1)
        desk.send(TopicPartition(old, 0), *minutes(0, 61, 125))
        desk.send(TopicPartition(new, 0), *minutes(-5, 0, 61, 125))
        desk.run(desk.pipeline({"topic": old, "start": "label"}), 0, 1)
        both = {"topic": [old, new], "start": start, "joining": joining}
        (joined,) = desk.run(desk.pipeline(both), 2)
        receipt = joined.committed.receipt
        assert (receipt.counts.late, receipt.passed_over) == (3 - missing, missing)
        desk.send(TopicPartition(new, 0), *minutes(185))
        (later_run,) = desk.run(desk.pipeline(both), 3)
        assert (
            later_run.committed.receipt.counts.late,
            later_run.committed.receipt.passed_over,
        ) == (0, 0)
        desk.run(desk.pipeline(both), 1)
        assert desk.verdict({TopicPartition(new, 0): set(range(missing))}).ok, str(desk.verdict())

    @pytest.mark.parametrize("history", ["nothing", "an empty window", "another topic"])
    def test_a_topic_without_timestamps(self, desk: SourceDesk, history: str) -> None:
        """Windows in time refuse a topic-partition without timestamps, and the error names ways
        out.

        Later messages with timestamps make the windows run, and every message is read.
        """
        other_topic, topic = desk.logs.topic(1), desk.logs.topic(1)
        tp, names = TopicPartition(topic, 0), [other_topic, topic]
        if history == "an empty window":
            desk.run(desk.pipeline({"topic": names}), 0)
        if history == "another topic":
            desk.send(TopicPartition(other_topic, 0), *minutes(0, 61))
            desk.run(desk.pipeline({"topic": other_topic}), 0)
        desk.send(tp, *[UNSTAMPED] * 5)
        with pytest.raises(
            SpecError, match=rf"^{topic}\[0\]: none of its messages has a timestamp"
        ) as refused:
            desk.run(desk.pipeline({"topic": names}), 1)
        assert (refused.value.topic, refused.value.partition) == (topic, 0)
        assert "window.grid: batch" in refused.value.advice
        assert "LogAppendTime" in refused.value.advice
        desk.send(tp, *minutes(65, 125))
        desk.run(desk.pipeline({"topic": names}), 2, 1)
        desk.run(desk.pipeline({"topic": names}), 0)
        assert desk.verdict().ok, str(desk.verdict())

    def test_micro_batches_need_no_timestamps(self, desk: SourceDesk) -> None:
        """Micro-batches read messages without timestamps."""
        tp = desk.logs.partition()
        desk.send(tp, *[UNSTAMPED] * 5)
        desk.batch(desk.pipeline({"topic": tp.topic}, {"grid": "batch"}), "a")
        assert desk.verdict().ok, str(desk.verdict())

    @pytest.mark.parametrize("joins", [False, True])
    def test_messages_without_timestamps_before_the_first_stamped_one(
        self, desk: SourceDesk, joins: bool
    ) -> None:
        """Messages without timestamps before the first stamped message are in the first window.

        If their topic joins later, they are in the window in which it joins. If an earlier
        message is from before the first window, they are before the first window, too.
        """
        other_topic, topic, old = (desk.logs.topic(1) for _ in range(3))
        desk.send(TopicPartition(other_topic, 0), *minutes(0, 61, 121))
        if joins:
            desk.run(desk.pipeline({"topic": other_topic}), 0)
        desk.send(TopicPartition(topic, 0), UNSTAMPED, UNSTAMPED, *minutes(5), UNSTAMPED)
        desk.send(TopicPartition(topic, 0), *minutes(62, 125))
        desk.send(TopicPartition(old, 0), UNSTAMPED, *minutes(-9), UNSTAMPED, *minutes(5, 125))
        runs = desk.run(desk.pipeline({"topic": [other_topic, topic, old]}), 1, 0)
        begun = runs[0 if joins else 1].committed.receipt.plan
        assert {s.topic: s.start for s in begun.splits if s.topic != other_topic} == {
            topic: 0,
            old: 3,
        }
        desk.run(desk.pipeline({"topic": [other_topic, topic, old]}), 2)
        assert desk.verdict({TopicPartition(old, 0): {0, 1, 2}}).ok, str(desk.verdict())

    def test_a_pattern_finds_topics_as_they_come(self, desk: SourceDesk) -> None:
        """A topic that begins to match the pattern is read from the next window on."""
        first = desk.logs.topic(1)
        desk.send(TopicPartition(first, 0), *minutes(0, 61))
        desk.run(desk.pipeline({"topic_pattern": f"{first}.*"}), 0)
        second = desk.logs.topic(1)
        desk.send(TopicPartition(second, 0), *minutes(5, 65))
        desk.run(desk.pipeline({"topic_pattern": f"{first}|{second}"}), 1)
        assert desk.verdict().ok, str(desk.verdict())

    def test_a_removed_topic(self, desk: SourceDesk) -> None:
        """A topic that was deleted fails the next window with its name.

        With `on_removed` "drop", the window reads the other topics.
        """
        kept_topic, gone_topic = desk.logs.topic(1), desk.logs.topic(1)
        for topic in (kept_topic, gone_topic):
            desk.send(TopicPartition(topic, 0), *minutes(0))
        source = {"topic_pattern": f"{kept_topic}|{gone_topic}"}
        desk.run(desk.pipeline(source), 0)
        desk.logs.cluster.delete(gone_topic)
        desk.send(TopicPartition(kept_topic, 0), *minutes(61))
        with pytest.raises(DataLossError, match=gone_topic):
            desk.run(desk.pipeline(source), 1)
        desk.run(desk.pipeline(source | {"on_removed": "drop"}), 1)
        assert desk.verdict().ok, str(desk.verdict())

    def test_a_recreated_topic(self, desk: SourceDesk) -> None:
        """A topic that was deleted and made again is refused with its name.

        After a rebase it is read from 0, and the committed rows stay.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1))
        pipeline = desk.pipeline({"topic": tp.topic})
        desk.run(pipeline, 0)
        old_ids = desk.sent_ids.pop(tp)
        desk.logs.recreate(tp.topic)
        desk.send(tp, *minutes(61, 62, 63))
        with pytest.raises(IdentityError, match="rebase"):
            desk.run(pipeline, 1)
        dry = propose(pipeline, None)
        assert propose(pipeline, None) == dry, "a dry run records nothing"
        with pytest.raises(IdentityError):
            desk.run(pipeline, 1)
        rebase(pipeline, None)
        (result,) = desk.run(pipeline, 1)
        assert [(s.start, s.stop) for s in result.committed.receipt.plan.splits] == [(0, 3)]
        assert desk.sink is not None
        assert sorted(i for piece in desk.sink.pieces() for i in piece["id"].to_pylist()) == sorted(
            [*old_ids.values(), *desk.sent_ids[tp].values()]
        )

    # ----------------------------------------------------------------------------------------------

    def test_markers_and_aborted_messages(self, desk: SourceDesk) -> None:
        """Markers and aborted messages are counted, and no committed message is lost.

        They may be at both ends of a window.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0))
        desk.logs.transaction(tp, *desk.things(*minutes(0, 1)), commit=False)
        messages = desk.things(*minutes(2, 3))
        desk.note(tp, desk.logs.end(tp), messages)
        desk.logs.transaction(tp, *messages, commit=True)
        desk.send(tp, *minutes(61))
        desk.logs.transaction(tp, *desk.things(*minutes(62, 63)), commit=False)
        first, second = desk.run(desk.pipeline({"topic": tp.topic}), 0, 1)
        assert desk.verdict().ok, str(desk.verdict())
        assert [r.committed.receipt.counts.aborted for r in (first, second)] == [2, 2]

    def test_an_open_transaction_delays_a_window(self, desk: SourceDesk) -> None:
        """A window waits for an open transaction until `max_wait` is over.

        Then it ends at the last stable offset, with a warning. The rest is in the next window.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0))
        running = desk.logs.cluster.begin(tp.topic)
        hidden = desk.things(*minutes(1))
        running.send(tp, hidden)
        desk.logs.mirror(tp, hidden, visible=True)
        desk.now = FIRST + timedelta(hours=1, minutes=5)
        pipeline = desk.pipeline(
            {"topic": tp.topic}, {"grid": "hourly", "start": FIRST, "delay": "5m", "max_wait": "3m"}
        )
        (result,) = desk.run(pipeline, 0)
        assert desk.now >= FIRST + timedelta(hours=1, minutes=8)
        assert [m.origin for m in result.committed.receipt.plan.stop.marks] == ["open"]
        assert "transaction" in result.committed.receipt.warnings[0]
        running.end(commit=True)
        desk.logs.log_of(tp).append(None)
        desk.note(tp, 1, hidden)
        desk.send(tp, *minutes(61))
        desk.now = instant_at(24 * HOUR)
        (late,) = desk.run(pipeline, 1)
        assert late.committed.receipt.counts.late == 1
        assert desk.verdict().ok, str(desk.verdict())

    def test_read_uncommitted_by_choice(self, desk: SourceDesk) -> None:
        """At read_uncommitted, every message up to the high watermark is a row.

        Aborted and undecided messages are rows, too.
        """
        tp = desk.logs.partition()
        aborted, undecided = desk.things(*minutes(0, 1)), desk.things(*minutes(2))
        desk.note(tp, 0, aborted)
        desk.logs.transaction(tp, *aborted, commit=False)
        desk.note(tp, 3, undecided)
        with desk.logs.open_transaction(tp, *undecided):
            window = {"grid": "hourly", "start": FIRST}
            desk.run(desk.pipeline({"topic": tp.topic, "isolation": "read_uncommitted"}, window), 0)
        assert desk.verdict().ok, str(desk.verdict())

    def test_compacted_away(self, desk: SourceDesk) -> None:
        """Gaps from compaction, also at both ends of a window, delay nothing and are no loss."""
        tp = desk.logs.compacted()
        for n in range(4):
            desk.send(tp, *minutes(n), key=b"k")
            desk.send(tp, *minutes(n), key=b"%d" % n)
        desk.logs.compact(tp)
        remaining = {m.offset for m in desk.logs.visible_messages(tp, 0, desk.logs.end(tp))}
        removed = {o for o in desk.sent_ids[tp] if o not in remaining}
        desk.run(desk.pipeline({"topic": tp.topic, "split_records": 3}), 0)
        assert removed
        assert desk.verdict({tp: removed}).ok, str(desk.verdict())

    # ----------------------------------------------------------------------------------------------

    def test_an_expired_start(self, desk: SourceDesk) -> None:
        """If retention deleted a window's messages, DataLossError names the offset.

        With `on_loss` "skip", the window counts them, and its receipt is partial.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 2, 61, 62, 121))
        pipeline = desk.pipeline({"topic": tp.topic})
        desk.run(pipeline, 0, 2)
        desk.logs.cluster.delete_before(tp, 4)
        with pytest.raises(DataLossError, match="4"):
            desk.run(pipeline, 1)
        (result,) = desk.run(desk.pipeline({"topic": tp.topic, "on_loss": "skip"}), 1)
        receipt = result.committed.receipt
        assert (receipt.counts.skipped, receipt.counts.read) == (1, 1)
        assert receipt.partial
        assert desk.verdict({tp: {3}}).ok, str(desk.verdict())

    def test_a_log_that_expired_whole(self, desk: SourceDesk) -> None:
        """If a topic-partition's whole log was deleted, the windows of a new pipeline are refused.

        With `on_loss` "skip", they run, and their receipts are partial.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 2))
        desk.logs.cluster.delete_before(tp, 3)
        with pytest.raises(DataLossError):
            desk.run(desk.pipeline({"topic": tp.topic}), 0)
        (result,) = desk.run(desk.pipeline({"topic": tp.topic, "on_loss": "skip"}), 0)
        assert result.committed.receipt.partial
        assert desk.verdict({tp: {0, 1, 2}}).ok, str(desk.verdict())

    # ----------------------------------------------------------------------------------------------

    def test_micro_batches(self, desk: SourceDesk) -> None:
        """A micro-batch reads from the last boundary to the stable end, at most `max_records`.

        It takes a fair share of each topic-partition. Fewer messages than `min_records` make no
        batch. One request always has the same batch.
        """
        topic = desk.logs.topic(2)
        first_tp, second_tp = TopicPartition(topic, 0), TopicPartition(topic, 1)
        desk.send(first_tp, *minutes(*range(10)))
        desk.send(second_tp, *minutes(0, 1))
        pipeline = desk.pipeline(
            {"topic": topic}, {"grid": "batch", "max_records": 6, "min_records": 2}
        )
        first = desk.batch(pipeline, "a")
        assert first is not None
        assert [(s.partition, s.start, s.stop) for s in first.committed.receipt.plan.splits] == [
            (0, 0, 4),
            (1, 0, 2),
        ]
        repeated = desk.batch(pipeline, "a")
        assert repeated is not None
        assert repeated.recovered
        assert desk.batch(pipeline, "b") is not None
        assert desk.batch(pipeline, "c") is None
        desk.send(second_tp, *minutes(2, 3))
        last = desk.batch(pipeline, "d")
        assert last is not None
        assert last.committed.receipt.window == Window("things", 2, 3)
        assert desk.verdict().ok, str(desk.verdict())

    @pytest.mark.parametrize(
        ("start", "joining", "missing"),
        [
            ("earliest", "start", 0),
            ("latest", "start", 0),
            ({"timestamp": instant_at(60_000).isoformat()}, "start", 1),
            ("earliest", "window", 2),
        ],
    )
    def test_a_topic_that_joins_micro_batches(
        self, desk: SourceDesk, start: object, joining: str, missing: int
    ) -> None:
        """With `joining` "start", a new topic is read from `start`; "latest" means its log's
        start.

        With `joining` "window", it is read from its log's end, and the receipt counts earlier
        messages.
        """
        old = desk.logs.topic(1)
        source = {"topic": old, "start": start}
        desk.batch(desk.pipeline(source, {"grid": "batch"}), "a")
        new = desk.logs.topic(1)
        desk.send(TopicPartition(new, 0), *minutes(0, 1))
        both = source | {"topic": [old, new], "joining": joining}
        desk.send(TopicPartition(old, 0), *minutes(2))
        joined = desk.batch(desk.pipeline(both, {"grid": "batch"}), "b")
        assert joined is not None
        assert joined.committed.receipt.passed_over == missing
        desk.send(TopicPartition(new, 0), *minutes(3))
        desk.batch(desk.pipeline(both, {"grid": "batch"}), "c")
        assert desk.verdict({TopicPartition(new, 0): set(range(missing))}).ok, str(desk.verdict())

    @pytest.mark.parametrize(
        ("stop", "end"),
        [
            ("latest", 5),
            ({"timestamp": instant_at(60_000 * 3).isoformat()}, 3),
            ({"timestamp": instant_at(60_000 * 9).isoformat(), "no_match": "latest"}, 5),
            ({"committed": "GROUP"}, 4),
            ({"offsets": "partition:0,offset:2"}, 2),
            ({"offsets": {0: 7}}, 7),
        ],
    )
    def test_where_a_pipeline_ends(self, desk: SourceDesk, stop: Any, end: int) -> None:
        """A pipeline's stop is resolved once, with the first micro-batch.

        Later messages and later commits of the group don't move it. No message at or above the
        stop is read.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 2, 3, 4))
        group = f"until-{tp.topic}"
        desk.broker_at("read_committed").alter_offsets(group, {tp: 4})
        if "committed" in stop:
            stop = {"committed": group}
        window = {"grid": "batch", "max_records": 2, "stop": stop}
        pipeline = desk.pipeline({"topic": tp.topic}, window)
        desk.batch(pipeline, "a")
        desk.send(tp, *minutes(2.5, 3, 10, 11))
        desk.broker_at("read_committed").alter_offsets(group, {tp: 6})
        receipts = [r.committed.receipt for r in run_batches(pipeline, Request("b"))]
        assert is_done(pipeline)
        assert [r.done for r in receipts] == [False] * (len(receipts) - 1) + [True] * bool(receipts)
        assert desk.verdict({tp: set(range(end, 9))}).ok, str(desk.verdict())

    def test_a_micro_batch_ends_before_an_open_transaction(self, desk: SourceDesk) -> None:
        """A micro-batch ends at the last stable offset; the open messages come in a later batch."""
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0))
        pipeline = desk.pipeline({"topic": tp.topic}, {"grid": "batch"})
        with desk.logs.open_transaction(tp, *desk.things(*minutes(1))):
            first = desk.batch(pipeline, "a")
            assert first is not None
            assert first.committed.receipt.counts.read == 1
        desk.send(tp, *minutes(2))
        desk.batch(pipeline, "b")
        assert desk.verdict().ok, str(desk.verdict())

    def test_a_refused_micro_batch_is_in_the_way(self, desk: SourceDesk) -> None:
        """The lowest uncommitted micro-batch runs first: no later batch is made before
        its commit.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0))
        desk.engine = DyingEngine(splits_done=0)
        pipeline = desk.pipeline({"topic": tp.topic}, {"grid": "batch"})
        with pytest.raises(InterruptedRunError):
            desk.batch(pipeline, "a")
        desk.send(tp, *minutes(1))
        batch = desk.batch(pipeline, "b")
        assert batch is not None
        assert batch.committed.receipt.window == Window("things", 0, 1)
        assert batch.committed.receipt.counts.read == 1
        assert desk.batch(pipeline, "c") is not None
        assert desk.verdict().ok, str(desk.verdict())

    def test_a_cron_grid(self, desk: SourceDesk) -> None:
        """Windows between the ticks of a cron expression tile like hours do."""
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 14, 15, 29, 31, 59))
        pipeline = desk.pipeline({"topic": tp.topic}, {"grid": "*/15 * * * *", "start": FIRST})
        quarters = [
            Window(
                "things", FIRST + timedelta(minutes=15 * n), FIRST + timedelta(minutes=15 * n + 15)
            )
            for n in range(4)
        ]
        for n in (2, 0, 3, 1):
            run(pipeline, quarters[n], Request(f"q{n}"))
        assert desk.verdict().ok, str(desk.verdict())

    def test_an_open_window_is_not_yet(self, desk: SourceDesk) -> None:
        """A window is refused before its end and delay are over."""
        tp = desk.logs.partition()
        desk.now = FIRST + timedelta(minutes=61)
        with pytest.raises(NotClosedError):
            desk.run(desk.pipeline({"topic": tp.topic}), 0)

    # ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("start", "missing"),
        [
            ("earliest", 0),
            ("latest", 4),
            ({"timestamp": instant_at(60_000 * 2).isoformat()}, 2),
            ({"offsets": {0: 3}}, 3),
            ({"offsets": "partition:0,offset:1"}, 1),
            ({"committed": "nobody", "reset": "earliest"}, 0),
        ],
    )
    @pytest.mark.parametrize("grid", ["hourly", "batch"])
    def test_where_a_pipeline_begins(
        self, desk: SourceDesk, start: object, missing: int, grid: str
    ) -> None:
        """A pipeline's start is resolved once; no window reads a message before it."""
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 2, 3))
        source = {"topic": tp.topic, "start": start}
        if grid == "batch":
            pipeline = desk.pipeline(source, {"grid": "batch"})
            desk.batch(pipeline, "a")
            desk.send(tp, *minutes(70))
            desk.batch(pipeline, "b")
        else:
            pipeline = desk.pipeline(source)
            desk.run(pipeline, 1)
            desk.send(tp, *minutes(130))
            desk.run(pipeline, 0, 2)
        assert desk.verdict({tp: set(range(missing))}).ok, str(desk.verdict())

    def test_beginning_where_a_group_has_committed(self, desk: SourceDesk) -> None:
        """A consumer group's offsets are read once, for the first boundary.

        Later changes of the group's offsets don't move the pipeline.
        """
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0, 1, 2))
        group = f"readers-of-{tp.topic}"
        desk.broker_at("read_committed").alter_offsets(group, {tp: 2})
        source = {"topic": tp.topic, "start": {"committed": group}, "offsets_group": group}
        pipeline = desk.pipeline(source, {"grid": "batch"})
        first = desk.batch(pipeline, "a")
        assert first is not None
        assert first.group_offsets is not None
        assert (first.group_offsets.succeeded, first.group_offsets.failed) == (1, 0)
        assert desk.broker_at("read_committed").committed_offsets(group, [tp]) == {tp: 3}
        desk.broker_at("read_committed").alter_offsets(group, {tp: 0})
        desk.send(tp, *minutes(3))
        desk.batch(pipeline, "b")
        assert desk.verdict({tp: {0, 1}}).ok, str(desk.verdict())

    def test_a_rebase_may_begin_elsewhere(self, desk: SourceDesk) -> None:
        """A rebase with a position reads the new topic from that position."""
        tp = desk.logs.partition()
        desk.send(tp, *minutes(0))
        pipeline = desk.pipeline({"topic": tp.topic})
        desk.run(pipeline, 0)
        desk.logs.recreate(tp.topic)
        desk.sent_ids.clear()
        desk.send(tp, *minutes(61, 62))
        rebase(pipeline, Earliest())
        (result,) = desk.run(pipeline, 1)
        assert result.committed.receipt.counts.read == 2
