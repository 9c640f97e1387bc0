"""What every `ports.reader.Reader` must give.

The module of an implementation's suite supplies the fixtures `broker` and `logs`; the
suite itself, the method `make`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

from tests.contracts.logs import Logs, Seen, Sent
from tests.contracts.reading import batches_of, gathered
from windrow.ingest.errors import DataLossError, IdentityError, UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import OnLoss
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan, ReadSummary, read_until
from windrow.ingest.schema.messages import MESSAGES

MIB = 1024 * 1024


def seen(batches: list[pa.RecordBatch]) -> list[Seen]:
    """The messages of batches as the mirror has them."""
    return [
        Seen(
            row["offset"],
            row["value"],
            row["key"],
            None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            tuple((h["key"], h["value"]) for h in row["headers"]),
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


def size(messages: list[Seen]) -> int:
    """Bytes of keys and values."""
    return sum(len(m.key or b"") + len(m.value or b"") for m in messages)


def offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Where the messages of batches stood."""
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def plan_of(broker: Broker, tp: TopicPartition, on_loss: OnLoss = "fail") -> ReadPlan:
    """A plan for the topic as it is now."""
    return ReadPlan(broker.cluster_id(), {tp.topic: broker.topic(tp.topic).topic_id}, on_loss)


def some(count: int) -> list[Sent]:
    """Messages that differ."""
    return [Sent(b"value %d" % n, b"key %d" % n, n) for n in range(count)]


class ReaderContract:
    """The promises, on topics of their own."""

    def make(self, broker: Broker, plan: ReadPlan, **bounds: int) -> Reader:
        """A reader for a plan; `bounds`: rows_max, bytes_max."""
        raise NotImplementedError

    def impatient(self, broker: Broker, plan: ReadPlan) -> Reader:
        """A reader with a stall limit of a second or so."""
        return self.make(broker, plan)

    def patient(self, broker: Broker, plan: ReadPlan) -> Reader:
        """A reader that a slow cluster doesn't stall, and that soon believes a log's limits."""
        return self.make(broker, plan)

    def dirty(self, broker: Broker, plan: ReadPlan) -> Reader:
        """A reader at read_uncommitted."""
        raise NotImplementedError

    def reader(self, broker: Broker, tp: TopicPartition, **bounds: int) -> Reader:
        """A reader for the topic as it is now."""
        return self.make(broker, plan_of(broker, tp), **bounds)

    def skip(
        self,
        broker: Broker,
        logs: Logs,
        tp: TopicPartition,
        start: int,
        stop: int,
        present: range,
        epoch: int | None = None,
    ) -> None:
        """Read a range of which the log holds only the offsets `present`: what is left is
        given, the rest counted as skipped.
        """
        reader = self.patient(broker, plan_of(broker, tp, "skip"))
        batches, summary = gathered(reader, Split(tp.topic, tp.partition, start, stop, epoch))
        expected = logs.seen(tp, present.start, present.stop)
        assert seen(batches) == expected
        assert (summary.read, summary.bytes, summary.skipped) == (
            len(expected),
            size(expected),
            stop - start - len(present),
        )
        assert summary.next_offset == stop
        assert 0 <= summary.aborted <= logs.aborted_in(tp, present.start, present.stop)

    def read(
        self, broker: Broker, logs: Logs, tp: TopicPartition, start: int, stop: int, **bounds: int
    ) -> ReadSummary:
        """Read a range, compare it with the mirror, and its summary with what was given."""
        reader = self.reader(broker, tp, **bounds)
        batches, summary = gathered(reader, Split(tp.topic, tp.partition, start, stop))
        assert all(batch.schema.equals(MESSAGES) and batch.num_rows > 0 for batch in batches)
        expected = logs.seen(tp, start, stop)
        assert seen(batches) == expected
        assert (summary.read, summary.bytes) == (len(expected), size(expected))
        assert summary.next_offset >= stop
        assert 0 <= summary.aborted <= logs.aborted_in(tp, start, stop)
        assert summary.skipped == 0
        return summary

    # ----------------------------------------------------------------------------------------------

    def test_all_of_a_message(self, broker: Broker, logs: Logs) -> None:
        """Topic, partition, offset, timestamp, its type by Kafka's name, key, value,
        headers and leader epoch arrive as they were sent.
        """
        tp = TopicPartition(logs.topic(2), 1)
        logs.send(tp, Sent(b"value", b"key", 1234, (("h", b"1"),)))
        (batch,) = batches_of(self.reader(broker, tp), Split(tp.topic, 1, 0, 1))
        (row,) = batch.to_pylist()
        assert (row["topic"], row["partition"], row["offset"]) == (tp.topic, 1, 0)
        assert (row["key"], row["value"], row["headers"]) == (
            b"key",
            b"value",
            [{"key": "h", "value": b"1"}],
        )
        assert row["timestamp_type"] == "CreateTime"
        assert row["timestamp"].utcoffset() == timedelta(0)
        assert row["leader_epoch"] == broker.stable_ends([tp])[tp].leader_epoch

    def test_null_is_not_empty(self, broker: Broker, logs: Logs) -> None:
        """Keys and values: null stays null and empty stays empty, in one batch and
        where all are null.
        """
        tp = logs.partition()
        logs.send(
            tp,
            Sent(None, None),
            Sent(b"", b""),
            Sent(None, b""),
            Sent(b"", None),
            Sent(b"v", b"k"),
            Sent(None, None),
        )
        self.read(broker, logs, tp, 0, 6)
        self.read(broker, logs, tp, 5, 6)
        self.read(broker, logs, tp, 2, 4)

    def test_headers_keep_order_and_duplicates(self, broker: Broker, logs: Logs) -> None:
        """Headers in order, duplicates among them, a null value apart from an empty
        one, an empty list where a message has none.
        """
        tp = logs.partition()
        headers = (("b", b"1"), ("a", b"2"), ("b", b"3"), ("", b""), ("a", None), ("ü", b"\xff"))
        logs.send(tp, Sent(), Sent(headers=headers), Sent(), Sent(headers=(("x", None),)), Sent())
        self.read(broker, logs, tp, 0, 5)
        self.read(broker, logs, tp, 2, 3)

    def test_append_time_is_named(self, broker: Broker, logs: Logs) -> None:
        """Where the broker stamps, the type says so."""
        tp = TopicPartition(logs.topic(1, {"message.timestamp.type": "LogAppendTime"}), 0)
        logs.send(tp, Sent())
        (batch,) = batches_of(self.reader(broker, tp), Split(tp.topic, 0, 0, 1))
        assert batch.column("timestamp_type").to_pylist() == ["LogAppendTime"]
        assert batch.column("timestamp").null_count == 0

    def test_timestamps_in_any_order(self, broker: Broker, logs: Logs) -> None:
        """Messages come in offset order whatever their timestamps; none of them is out of range."""
        tp = logs.partition()
        logs.send(
            tp, *[Sent(timestamp=t) for t in (9, 3, 2_350_000_000_000, 3, -1_700_000_000_000)]
        )
        self.read(broker, logs, tp, 0, 5)

    # ----------------------------------------------------------------------------------------------

    def test_any_range_over_markers_and_aborted_runs(self, broker: Broker, logs: Logs) -> None:
        """Every range of a log of messages, markers and aborted runs gives exactly its
        visible messages, wherever it starts and stops.
        """
        tp = logs.partition()
        logs.send(tp, *some(2))
        logs.transaction(tp, *some(2), commit=True)
        logs.transaction(tp, *some(3), commit=False)
        logs.send(tp, *some(1))
        logs.transaction(tp, *some(1), commit=True)
        end = logs.end(tp)
        for start in range(end):
            for stop in range(start + 1, end + 1):
                self.read(broker, logs, tp, start, stop)

    def test_only_markers(self, broker: Broker, logs: Logs) -> None:
        """A range that holds a single marker, or the end of the log on one, is read to
        its end without a batch.
        """
        tp = logs.partition()
        logs.transaction(tp, *some(1), commit=True)
        assert self.read(broker, logs, tp, 1, 2) == ReadSummary(
            next_offset=2, read=0, bytes=0, aborted=0
        )

    def test_aborted_messages_are_counted(self, broker: Broker, logs: Logs) -> None:
        """Runs of aborted messages are looked into and counted: at the start, in the
        middle and at the end of the range.
        """
        tp = logs.partition()
        logs.transaction(tp, *some(3), commit=False)
        logs.send(tp, *some(2))
        logs.transaction(tp, *some(4), commit=False)
        logs.transaction(tp, *some(2), commit=True)
        logs.transaction(tp, *some(5), commit=False)
        assert self.read(broker, logs, tp, 0, logs.end(tp)).aborted == 12
        assert self.read(broker, logs, tp, 1, logs.end(tp) - 2).aborted == 10
        assert self.read(broker, logs, tp, 4, 6).aborted == 0

    def test_only_aborted_messages(self, broker: Broker, logs: Logs) -> None:
        """A range inside one aborted run has nothing to read and says why."""
        tp = logs.partition()
        logs.transaction(tp, *some(9), commit=False)
        assert self.read(broker, logs, tp, 2, 7).aborted == 5

    def test_any_range_over_what_compaction_removed(self, broker: Broker, logs: Logs) -> None:
        """Every range of a compacted log gives exactly the messages that are left, also
        where it starts, stops or lies in a gap.
        """
        tp = logs.compacted()
        for keys in (b"abc", b"ab", b"da", b"abb", b"e"):
            logs.send(
                tp, *[Sent(b"%s %d" % (keys, n), keys[n : n + 1], n) for n in range(len(keys))]
            )
        logs.compact(tp)
        end = logs.end(tp)
        removed = [offset for offset in range(end) if not logs.seen(tp, offset, offset + 1)]
        assert removed == [0, 1, 3, 4, 6, 8]
        for start in range(end):
            for stop in range(start + 1, end + 1):
                self.read(broker, logs, tp, start, stop)

    def test_a_stop_below_the_end_is_kept(self, broker: Broker, logs: Logs) -> None:
        """Nothing at or beyond the stop is given, however much there is."""
        tp = logs.partition()
        logs.send(tp, *some(7000))
        self.read(broker, logs, tp, 0, 1)
        self.read(broker, logs, tp, 1234, 6789)

    def test_cuts_join_up(self, broker: Broker, logs: Logs) -> None:
        """Adjacent splits give each message once."""
        tp = logs.partition()
        logs.send(tp, *some(5))
        logs.transaction(tp, *some(4), commit=False)
        logs.transaction(tp, *some(6), commit=True)
        cuts = [0, 1, 6, 7, 9, 11, 16, logs.end(tp)]
        parts = [
            batches_of(self.reader(broker, tp), Split(tp.topic, 0, a, b)) for a, b in pairwise(cuts)
        ]
        assert [m for part in parts for m in seen(part)] == logs.seen(tp, 0, logs.end(tp))

    # ----------------------------------------------------------------------------------------------

    def test_batches_are_bounded_by_rows(self, broker: Broker, logs: Logs) -> None:
        """No batch has more rows than the bound, and all but the last are full."""
        tp = logs.partition()
        logs.send(tp, *some(2500))
        batches = batches_of(self.reader(broker, tp, rows_max=1000), Split(tp.topic, 0, 0, 2500))
        assert [b.num_rows for b in batches] == [1000, 1000, 500]
        self.read(broker, logs, tp, 0, 2500, rows_max=7)

    def test_batches_are_bounded_by_bytes(self, broker: Broker, logs: Logs) -> None:
        """No batch holds more bytes of keys and values than the bound, whatever the
        sizes around it.
        """
        tp = logs.partition()
        logs.send(tp, *some(500), *[Sent(b"x" * (200_000 + n)) for n in range(40)], *some(500))
        batches = batches_of(self.reader(broker, tp, bytes_max=MIB), Split(tp.topic, 0, 0, 1040))
        assert max(size(seen([b])) for b in batches) <= MIB
        assert seen(batches) == logs.seen(tp, 0, 1040)

    def test_batches_are_bounded_by_the_bytes_of_headers(self, broker: Broker, logs: Logs) -> None:
        """They take memory like values, and a batch can't hold more than 2 GiB of them."""
        tp = logs.partition()
        logs.send(
            tp,
            *[
                Sent(b"v", headers=(("n" * 1000, b"x" * (100_000 + n)), ("none", None)))
                for n in range(40)
            ],
        )
        batches = batches_of(self.reader(broker, tp, bytes_max=MIB), Split(tp.topic, 0, 0, 40))
        assert (
            max(
                sum(
                    len(h["key"]) + len(h["value"] or b"")
                    for r in b.to_pylist()
                    for h in r["headers"]
                )
                for b in batches
            )
            <= MIB
        )
        assert len(batches) == 4
        assert seen(batches) == logs.seen(tp, 0, 40)

    def test_a_message_beyond_the_bounds_passes(self, broker: Broker, logs: Logs) -> None:
        """A single huge message is a batch of its own, between its neighbours."""
        tp = logs.partition()
        logs.send(tp, *some(3))
        logs.send(tp, Sent(b"x" * (10 * MIB)))
        logs.send(tp, *some(3))
        assert [
            b.num_rows
            for b in batches_of(self.reader(broker, tp, bytes_max=MIB), Split(tp.topic, 0, 0, 7))
        ] == [3, 1, 3]
        self.read(broker, logs, tp, 3, 4, bytes_max=MIB)

    # ----------------------------------------------------------------------------------------------

    def test_a_start_that_is_gone(self, broker: Broker, logs: Logs) -> None:
        """Retention removed the start: a data loss that names what was wanted, and what
        is there.
        """
        tp = logs.partition()
        logs.send(tp, *some(10))
        logs.cluster.delete_before(tp, 6)
        with pytest.raises(DataLossError) as error:
            batches_of(self.reader(broker, tp), Split(tp.topic, 0, 4, 10))
        assert (error.value.topic, error.value.partition, error.value.offset) == (tp.topic, 0, 4)
        assert "6 to 10" in error.value.what
        self.read(broker, logs, tp, 6, 10)

    def test_a_start_that_is_gone_is_skipped(self, broker: Broker, logs: Logs) -> None:
        """Retention removed the start, or all of the split: what is left is read, what
        is gone is counted, and no aborted run in it.
        """
        tp = logs.partition()
        logs.send(tp, *some(3))
        logs.transaction(tp, *some(3), commit=False)
        logs.send(tp, *some(3))
        logs.transaction(tp, *some(2), commit=False)
        end = logs.end(tp)
        logs.cluster.delete_before(tp, 6)
        self.skip(broker, logs, tp, 1, end, range(6, end))
        self.skip(broker, logs, tp, 1, 6, range(6, 6))
        self.skip(broker, logs, tp, 0, 4, range(4, 4))
        self.skip(broker, logs, tp, 7, end, range(7, end))

    @pytest.mark.parametrize("on_loss", ["fail", "skip"])
    def test_a_start_that_vanishes_while_reading(
        self, broker: Broker, logs: Logs, on_loss: OnLoss
    ) -> None:
        """Retention overtakes a running read: a data loss, or what was read before,
        what is left, and the number of those in between.
        """
        tp = logs.partition()
        logs.send(tp, *[Sent(b"x" * 100_000)] * 600)
        reader = self.make(broker, plan_of(broker, tp, on_loss), rows_max=9, bytes_max=1_000_000)
        given_offsets: list[int] = []

        def take(batch: pa.RecordBatch) -> None:
            given_offsets.extend(offsets([batch]))
            if len(given_offsets) == batch.num_rows:
                logs.cluster.delete_before(tp, 590)

        if on_loss == "fail":
            with pytest.raises(DataLossError, match="590 to 600"):
                reader.read(Split(tp.topic, 0, 0, 600), take)
            return
        summary = reader.read(Split(tp.topic, 0, 0, 600), take)
        read_count = len(given_offsets) - 10
        assert 9 <= read_count < 590
        assert given_offsets == [*range(read_count), *range(590, 600)]
        assert summary == ReadSummary(
            600, len(given_offsets), len(given_offsets) * 100_000, 0, 590 - read_count
        )

    def test_a_start_beyond_the_end(self, broker: Broker, logs: Logs) -> None:
        """The log ends before the start: it was truncated since the plan was made, and
        waiting would not help.
        """
        tp = logs.partition()
        logs.send(tp, *some(3))
        epoch = broker.stable_ends([tp])[tp].leader_epoch
        for split_epoch in (epoch, None):
            with pytest.raises(DataLossError, match="0 to 3") as error:
                batches_of(
                    self.patient(broker, plan_of(broker, tp)), Split(tp.topic, 0, 5, 9, split_epoch)
                )
            assert error.value.offset == 5
            self.skip(broker, logs, tp, 5, 9, range(5, 5), split_epoch)

    def test_a_stop_beyond_the_end(self, broker: Broker, logs: Logs) -> None:
        """The log ends before the stop: it was truncated; a data loss that names both,
        or what is left is read and the rest counted.
        """
        tp = logs.partition()
        logs.send(tp, *some(4))
        logs.transaction(tp, *some(2), commit=False)
        with pytest.raises(
            DataLossError, match=r"to 9 are wanted, but the log holds 0 to 7"
        ) as error:
            batches_of(self.patient(broker, plan_of(broker, tp)), Split(tp.topic, 0, 0, 9))
        assert (error.value.topic, error.value.partition) == (tp.topic, 0)
        self.skip(broker, logs, tp, 2, 9, range(2, 7))
        self.skip(broker, logs, tp, 7, 9, range(7, 7))
        logs.cluster.delete_before(tp, 3)
        self.skip(broker, logs, tp, 1, 9, range(3, 7))
        logs.cluster.delete_before(tp, 7)
        self.skip(broker, logs, tp, 1, 9, range(7, 7))

    def test_an_uncommitted_read_sees_all_messages(self, broker: Broker, logs: Logs) -> None:
        """At read_uncommitted, aborted and undecided messages are like all others, only
        markers are not, and nothing is waited for.
        """
        tp = logs.partition()
        logs.send(tp, *some(1))
        logs.transaction(tp, *some(2), commit=False)
        logs.transaction(tp, *some(1), commit=True)
        with logs.open_transaction(tp, *some(2)):
            reader = self.dirty(broker, plan_of(broker, tp))
            batches, summary = gathered(reader, Split(tp.topic, 0, 0, 8))
            assert offsets(batches) == [0, 1, 2, 4, 6, 7]
            assert (summary.read, summary.aborted, summary.skipped) == (6, 0, 0)
            assert summary.bytes == size(seen(batches))

    def test_a_recreated_topic_is_refused(self, broker: Broker, logs: Logs) -> None:
        """Another topic of the same name is not read, even where it has the offsets;
        nor is that a loss to skip.
        """
        tp = logs.partition()
        logs.send(tp, *some(3))
        plans = plan_of(broker, tp), plan_of(broker, tp, "skip")
        logs.recreate(tp.topic)
        logs.send(tp, *some(5))
        for plan in plans:
            for start, stop in ((0, 3), (0, 9), (7, 9)):
                with pytest.raises(IdentityError) as refused:
                    batches_of(self.make(broker, plan), Split(tp.topic, 0, start, stop))
                assert refused.value.topic == tp.topic

    def test_a_topic_that_is_gone_is_refused(self, broker: Broker, logs: Logs) -> None:
        """A topic that was deleted since the plan was made is an identity that does not
        hold any more.
        """
        tp = logs.partition()
        logs.send(tp, *some(1))
        readers = self.reader(broker, tp), self.make(broker, plan_of(broker, tp, "skip"))
        logs.cluster.delete(tp.topic)
        for reader in readers:
            with pytest.raises(IdentityError):
                batches_of(reader, Split(tp.topic, 0, 0, 1))

    def test_another_cluster_is_refused(self, broker: Broker, logs: Logs) -> None:
        """A cluster with another id is not read."""
        tp = logs.partition()
        logs.send(tp, *some(1))
        reader = self.make(broker, ReadPlan("another cluster", plan_of(broker, tp).topics, "skip"))
        with pytest.raises(IdentityError, match="another cluster"):
            batches_of(reader, Split(tp.topic, 0, 0, 1))

    def test_an_open_transaction_is_not_waited_for(self, broker: Broker, logs: Logs) -> None:
        """Where the log is not decided up to the stop, the read ends after the stall
        limit, never with a part; it is no loss to skip.
        """
        tp = logs.partition()
        logs.send(tp, *some(2))
        readers = (
            self.impatient(broker, plan_of(broker, tp)),
            self.impatient(broker, plan_of(broker, tp, "skip")),
        )
        with logs.open_transaction(tp, *some(1)):
            for reader in readers:
                with pytest.raises(UnreachableError) as stalled:
                    batches_of(reader, Split(tp.topic, 0, 0, 3))
                assert (stalled.value.topic, stalled.value.partition) == (tp.topic, 0)
        self.read(broker, logs, tp, 0, 3)

    # ----------------------------------------------------------------------------------------------

    def test_a_reader_travels(self, broker: Broker, logs: Logs) -> None:
        """A reader is pickled before it reads, and reads the same."""
        tp = logs.partition()
        logs.send(tp, *some(3))
        first = self.reader(broker, tp)
        reader = pickle.loads(pickle.dumps(first))
        assert seen(batches_of(reader, Split(tp.topic, 0, 0, 3))) == logs.seen(tp, 0, 3)

    def test_a_reader_reads_again(self, broker: Broker, logs: Logs) -> None:
        """One reader reads one split after the other; each summary is of the last."""
        tp = logs.partition()
        logs.send(tp, *some(9))
        reader = self.reader(broker, tp)
        for start, stop in ((0, 9), (2, 5), (0, 9)):
            batches, summary = gathered(reader, Split(tp.topic, 0, start, stop))
            assert seen(batches) == logs.seen(tp, start, stop)
            assert summary.read == stop - start

    def test_who_takes_ends_the_read(self, broker: Broker, logs: Logs) -> None:
        """What `take` raises passes through as it is, at once: nothing more is given,
        and the reader reads the next split as ever.
        """
        tp = logs.partition()
        logs.send(tp, *some(9))
        reader = self.reader(broker, tp, rows_max=2)
        given_offsets: list[int] = []

        def take(batch: pa.RecordBatch) -> None:
            given_offsets.extend(offsets([batch]))
            if len(given_offsets) == 4:
                raise LookupError("enough")

        with pytest.raises(LookupError, match="enough"):
            reader.read(Split(tp.topic, 0, 0, 9), take)
        assert given_offsets == [0, 1, 2, 3]
        self.read(broker, logs, tp, 0, 9, rows_max=2)
        assert seen(batches_of(reader, Split(tp.topic, 0, 4, 9))) == logs.seen(tp, 4, 9)

    def test_read_until_there_is_enough(self, broker: Broker, logs: Logs) -> None:
        """`read_until` gives no batch beyond the one that was enough, and says whether
        the end was reached before.
        """
        tp = logs.partition()
        logs.send(tp, *some(9))
        reader = self.reader(broker, tp, rows_max=2)
        given_offsets: list[int] = []

        def enough(batch: pa.RecordBatch) -> bool:
            given_offsets.extend(offsets([batch]))
            return 5 in given_offsets

        assert read_until(reader, Split(tp.topic, 0, 0, 9), enough) is False
        assert given_offsets == [0, 1, 2, 3, 4, 5]
        assert read_until(reader, Split(tp.topic, 0, 6, 9), lambda _: False) is True
