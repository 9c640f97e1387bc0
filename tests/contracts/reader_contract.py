"""The contract that every `ports.reader.Reader` keeps.

The module of an implementation's suite supplies the fixtures `broker` and `logs`. The suite
itself supplies the method `make`.
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


def messages_in(batches: list[pa.RecordBatch]) -> list[Seen]:
    """Returns the messages of batches in the form in which `Logs` remembers them."""
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
    """Returns the bytes of all keys and values."""
    return sum(len(m.key or b"") + len(m.value or b"") for m in messages)


def offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Returns the offsets of the messages in batches."""
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def plan_of(broker: Broker, tp: TopicPartition, on_loss: OnLoss = "fail") -> ReadPlan:
    """Returns a plan for the topic as it is now."""
    return ReadPlan(broker.cluster_id(), {tp.topic: broker.topic(tp.topic).topic_id}, on_loss)


def make_messages(count: int) -> list[Sent]:
    """Returns messages with different keys and values."""
    return [Sent(b"value %d" % n, b"key %d" % n, n) for n in range(count)]


class ReaderContract:
    """The promises of a reader; each test uses topics of its own."""

    def make(self, broker: Broker, plan: ReadPlan, **bounds: int) -> Reader:
        """Returns a reader for a plan.

        Args:
            broker: the broker that is read.
            plan: the plan.
            **bounds: the limits `rows_max` and `bytes_max` of a batch.
        """
        raise NotImplementedError

    def impatient(self, broker: Broker, plan: ReadPlan) -> Reader:
        """Returns a reader with a stall limit of about a second."""
        return self.make(broker, plan)

    def patient(self, broker: Broker, plan: ReadPlan) -> Reader:
        """Returns a reader with a long stall limit that quickly believes the limits of a log."""
        return self.make(broker, plan)

    def dirty(self, broker: Broker, plan: ReadPlan) -> Reader:
        """Returns a reader at read_uncommitted."""
        raise NotImplementedError

    def reader(self, broker: Broker, tp: TopicPartition, **bounds: int) -> Reader:
        """Returns a reader for the topic as it is now."""
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
        """Reads a range of a log that holds only the offsets `present`.

        Asserts that the present messages are given, and that the other offsets are counted as
        skipped.
        """
        reader = self.patient(broker, plan_of(broker, tp, "skip"))
        batches, summary = gathered(reader, Split(tp.topic, tp.partition, start, stop, epoch))
        expected = logs.visible_messages(tp, present.start, present.stop)
        assert messages_in(batches) == expected
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
        """Reads a range, and compares its messages and its summary with the expected ones."""
        reader = self.reader(broker, tp, **bounds)
        batches, summary = gathered(reader, Split(tp.topic, tp.partition, start, stop))
        assert all(batch.schema.equals(MESSAGES) and batch.num_rows > 0 for batch in batches)
        expected = logs.visible_messages(tp, start, stop)
        assert messages_in(batches) == expected
        assert (summary.read, summary.bytes) == (len(expected), size(expected))
        assert summary.next_offset >= stop
        assert 0 <= summary.aborted <= logs.aborted_in(tp, start, stop)
        assert summary.skipped == 0
        return summary

    # ----------------------------------------------------------------------------------------------

    def test_all_of_a_message(self, broker: Broker, logs: Logs) -> None:
        """A message arrives as it was sent, with all its fields.

        These are topic, partition, offset, timestamp, the type of the timestamp by Kafka's
        name, key, value, headers and leader epoch.
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
        """A null key or value stays null, and an empty one stays empty.

        Both may be in one batch, and all of a batch may be null.
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
        """Headers keep their order and duplicates; null values and empty values stay different.

        A message without headers has an empty list.
        """
        tp = logs.partition()
        headers = (("b", b"1"), ("a", b"2"), ("b", b"3"), ("", b""), ("a", None), ("ü", b"\xff"))
        logs.send(tp, Sent(), Sent(headers=headers), Sent(), Sent(headers=(("x", None),)), Sent())
        self.read(broker, logs, tp, 0, 5)
        self.read(broker, logs, tp, 2, 3)

    def test_append_time_is_named(self, broker: Broker, logs: Logs) -> None:
        """If the broker stamps the messages, the type of the timestamp is LogAppendTime."""
        tp = TopicPartition(logs.topic(1, {"message.timestamp.type": "LogAppendTime"}), 0)
        logs.send(tp, Sent())
        (batch,) = batches_of(self.reader(broker, tp), Split(tp.topic, 0, 0, 1))
        assert batch.column("timestamp_type").to_pylist() == ["LogAppendTime"]
        assert batch.column("timestamp").null_count == 0

    def test_timestamps_in_any_order(self, broker: Broker, logs: Logs) -> None:
        """Messages come in offset order, whatever their timestamps, and no timestamp is out of
        range.
        """
        tp = logs.partition()
        logs.send(
            tp, *[Sent(timestamp=t) for t in (9, 3, 2_350_000_000_000, 3, -1_700_000_000_000)]
        )
        self.read(broker, logs, tp, 0, 5)

    # ----------------------------------------------------------------------------------------------

    def test_any_range_over_markers_and_aborted_runs(self, broker: Broker, logs: Logs) -> None:
        """Every range of a log with markers and aborted transactions gives exactly its visible
        messages.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(2))
        logs.transaction(tp, *make_messages(2), commit=True)
        logs.transaction(tp, *make_messages(3), commit=False)
        logs.send(tp, *make_messages(1))
        logs.transaction(tp, *make_messages(1), commit=True)
        end = logs.end(tp)
        for start in range(end):
            for stop in range(start + 1, end + 1):
                self.read(broker, logs, tp, start, stop)

    def test_only_markers(self, broker: Broker, logs: Logs) -> None:
        """A range that holds only a marker is read to its end without a batch."""
        tp = logs.partition()
        logs.transaction(tp, *make_messages(1), commit=True)
        assert self.read(broker, logs, tp, 1, 2) == ReadSummary(
            next_offset=2, read=0, bytes=0, aborted=0
        )

    def test_aborted_messages_are_counted(self, broker: Broker, logs: Logs) -> None:
        """Aborted messages are counted at the start, in the middle and at the end of the range."""
        tp = logs.partition()
        logs.transaction(tp, *make_messages(3), commit=False)
        logs.send(tp, *make_messages(2))
        logs.transaction(tp, *make_messages(4), commit=False)
        logs.transaction(tp, *make_messages(2), commit=True)
        logs.transaction(tp, *make_messages(5), commit=False)
        assert self.read(broker, logs, tp, 0, logs.end(tp)).aborted == 12
        assert self.read(broker, logs, tp, 1, logs.end(tp) - 2).aborted == 10
        assert self.read(broker, logs, tp, 4, 6).aborted == 0

    def test_only_aborted_messages(self, broker: Broker, logs: Logs) -> None:
        """A range inside an aborted transaction gives no message, and counts the aborted ones."""
        tp = logs.partition()
        logs.transaction(tp, *make_messages(9), commit=False)
        assert self.read(broker, logs, tp, 2, 7).aborted == 5

    def test_any_range_over_what_compaction_removed(self, broker: Broker, logs: Logs) -> None:
        """Every range of a compacted log gives exactly the remaining messages.

        The range may start, stop or be as a whole in a gap.
        """
        tp = logs.compacted()
        for keys in (b"abc", b"ab", b"da", b"abb", b"e"):
            logs.send(
                tp, *[Sent(b"%s %d" % (keys, n), keys[n : n + 1], n) for n in range(len(keys))]
            )
        logs.compact(tp)
        end = logs.end(tp)
        removed = [
            offset for offset in range(end) if not logs.visible_messages(tp, offset, offset + 1)
        ]
        assert removed == [0, 1, 3, 4, 6, 8]
        for start in range(end):
            for stop in range(start + 1, end + 1):
                self.read(broker, logs, tp, start, stop)

    def test_a_stop_below_the_end_is_kept(self, broker: Broker, logs: Logs) -> None:
        """No message at or above the stop is given."""
        tp = logs.partition()
        logs.send(tp, *make_messages(7000))
        self.read(broker, logs, tp, 0, 1)
        self.read(broker, logs, tp, 1234, 6789)

    def test_cuts_join_up(self, broker: Broker, logs: Logs) -> None:
        """Adjacent splits give each message once."""
        tp = logs.partition()
        logs.send(tp, *make_messages(5))
        logs.transaction(tp, *make_messages(4), commit=False)
        logs.transaction(tp, *make_messages(6), commit=True)
        cuts = [0, 1, 6, 7, 9, 11, 16, logs.end(tp)]
        parts = [
            batches_of(self.reader(broker, tp), Split(tp.topic, 0, a, b)) for a, b in pairwise(cuts)
        ]
        assert [m for part in parts for m in messages_in(part)] == logs.visible_messages(
            tp, 0, logs.end(tp)
        )

    # ----------------------------------------------------------------------------------------------

    def test_batches_are_bounded_by_rows(self, broker: Broker, logs: Logs) -> None:
        """No batch has more rows than the limit, and all but the last are full."""
        tp = logs.partition()
        logs.send(tp, *make_messages(2500))
        batches = batches_of(self.reader(broker, tp, rows_max=1000), Split(tp.topic, 0, 0, 2500))
        assert [b.num_rows for b in batches] == [1000, 1000, 500]
        self.read(broker, logs, tp, 0, 2500, rows_max=7)

    def test_batches_are_bounded_by_bytes(self, broker: Broker, logs: Logs) -> None:
        """No batch holds more bytes of keys and values than the limit, whatever the messages'
        sizes.
        """
        tp = logs.partition()
        logs.send(
            tp,
            *make_messages(500),
            *[Sent(b"x" * (200_000 + n)) for n in range(40)],
            *make_messages(500),
        )
        batches = batches_of(self.reader(broker, tp, bytes_max=MIB), Split(tp.topic, 0, 0, 1040))
        assert max(size(messages_in([b])) for b in batches) <= MIB
        assert messages_in(batches) == logs.visible_messages(tp, 0, 1040)

    def test_batches_are_bounded_by_the_bytes_of_headers(self, broker: Broker, logs: Logs) -> None:
        """The bytes of headers count towards the limit, too.

        They take memory like values, and a batch can't hold more than 2 GiB of them.
        """
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
        assert messages_in(batches) == logs.visible_messages(tp, 0, 40)

    def test_a_message_beyond_the_bounds_passes(self, broker: Broker, logs: Logs) -> None:
        """A message above the limit of bytes is a batch of its own."""
        tp = logs.partition()
        logs.send(tp, *make_messages(3))
        logs.send(tp, Sent(b"x" * (10 * MIB)))
        logs.send(tp, *make_messages(3))
        assert [
            b.num_rows
            for b in batches_of(self.reader(broker, tp, bytes_max=MIB), Split(tp.topic, 0, 0, 7))
        ] == [3, 1, 3]
        self.read(broker, logs, tp, 3, 4, bytes_max=MIB)

    # ----------------------------------------------------------------------------------------------

    def test_a_start_that_is_gone(self, broker: Broker, logs: Logs) -> None:
        """If retention deleted the start, DataLossError names the wanted offset and the log's
        range.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(10))
        logs.cluster.delete_before(tp, 6)
        with pytest.raises(DataLossError) as error:
            batches_of(self.reader(broker, tp), Split(tp.topic, 0, 4, 10))
        assert (error.value.topic, error.value.partition, error.value.offset) == (tp.topic, 0, 4)
        assert "6 to 10" in error.value.message
        self.read(broker, logs, tp, 6, 10)

    def test_a_start_that_is_gone_is_skipped(self, broker: Broker, logs: Logs) -> None:
        """With `on_loss` "skip", the reader counts what retention deleted, and reads the rest.

        Retention may have deleted all of the split. Aborted messages that were deleted don't
        count as aborted.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(3))
        logs.transaction(tp, *make_messages(3), commit=False)
        logs.send(tp, *make_messages(3))
        logs.transaction(tp, *make_messages(2), commit=False)
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
        """If retention deletes messages during a read, the reader raises DataLossError.

        With `on_loss` "skip", it gives the messages before and after the deleted ones, and
        counts those.
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
        """A log that ends below the start was truncated: the reader raises DataLossError.

        It doesn't wait for the log to grow.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(3))
        epoch = broker.stable_ends([tp])[tp].leader_epoch
        for split_epoch in (epoch, None):
            with pytest.raises(DataLossError, match="0 to 3") as error:
                batches_of(
                    self.patient(broker, plan_of(broker, tp)), Split(tp.topic, 0, 5, 9, split_epoch)
                )
            assert error.value.offset == 5
            self.skip(broker, logs, tp, 5, 9, range(5, 5), split_epoch)

    def test_a_stop_beyond_the_end(self, broker: Broker, logs: Logs) -> None:
        """A log that ends below the stop was truncated: DataLossError names both offsets.

        With `on_loss` "skip", the reader gives the remaining messages, and counts the rest.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(4))
        logs.transaction(tp, *make_messages(2), commit=False)
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
        """At read_uncommitted, the reader gives aborted and undecided messages like all others.

        It gives no markers, and waits for no transaction.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(1))
        logs.transaction(tp, *make_messages(2), commit=False)
        logs.transaction(tp, *make_messages(1), commit=True)
        with logs.open_transaction(tp, *make_messages(2)):
            reader = self.dirty(broker, plan_of(broker, tp))
            batches, summary = gathered(reader, Split(tp.topic, 0, 0, 8))
            assert offsets(batches) == [0, 1, 2, 4, 6, 7]
            assert (summary.read, summary.aborted, summary.skipped) == (6, 0, 0)
            assert summary.bytes == size(messages_in(batches))

    def test_a_recreated_topic_is_refused(self, broker: Broker, logs: Logs) -> None:
        """Another topic of the same name is refused, even if it has the offsets.

        With `on_loss` "skip", it is refused, too.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(3))
        plans = plan_of(broker, tp), plan_of(broker, tp, "skip")
        logs.recreate(tp.topic)
        logs.send(tp, *make_messages(5))
        for plan in plans:
            for start, stop in ((0, 3), (0, 9), (7, 9)):
                with pytest.raises(IdentityError) as refused:
                    batches_of(self.make(broker, plan), Split(tp.topic, 0, start, stop))
                assert refused.value.topic == tp.topic

    def test_a_topic_that_is_gone_is_refused(self, broker: Broker, logs: Logs) -> None:
        """A topic that was deleted since the plan was made raises IdentityError."""
        tp = logs.partition()
        logs.send(tp, *make_messages(1))
        readers = self.reader(broker, tp), self.make(broker, plan_of(broker, tp, "skip"))
        logs.cluster.delete(tp.topic)
        for reader in readers:
            with pytest.raises(IdentityError):
                batches_of(reader, Split(tp.topic, 0, 0, 1))

    def test_another_cluster_is_refused(self, broker: Broker, logs: Logs) -> None:
        """A cluster with another id is refused."""
        tp = logs.partition()
        logs.send(tp, *make_messages(1))
        reader = self.make(broker, ReadPlan("another cluster", plan_of(broker, tp).topics, "skip"))
        with pytest.raises(IdentityError, match="another cluster"):
            batches_of(reader, Split(tp.topic, 0, 0, 1))

    def test_an_open_transaction_is_not_waited_for(self, broker: Broker, logs: Logs) -> None:
        """If a transaction is open below the stop, the read fails after the stall limit.

        It never ends with a part of the split. With `on_loss` "skip", it fails, too.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(2))
        readers = (
            self.impatient(broker, plan_of(broker, tp)),
            self.impatient(broker, plan_of(broker, tp, "skip")),
        )
        with logs.open_transaction(tp, *make_messages(1)):
            for reader in readers:
                with pytest.raises(UnreachableError) as stalled:
                    batches_of(reader, Split(tp.topic, 0, 0, 3))
                assert (stalled.value.topic, stalled.value.partition) == (tp.topic, 0)
        self.read(broker, logs, tp, 0, 3)

    # ----------------------------------------------------------------------------------------------

    def test_a_reader_travels(self, broker: Broker, logs: Logs) -> None:
        """A reader can be pickled before it reads, and then reads the same."""
        tp = logs.partition()
        logs.send(tp, *make_messages(3))
        first = self.reader(broker, tp)
        reader = pickle.loads(pickle.dumps(first))
        assert messages_in(batches_of(reader, Split(tp.topic, 0, 0, 3))) == logs.visible_messages(
            tp, 0, 3
        )

    def test_a_reader_reads_again(self, broker: Broker, logs: Logs) -> None:
        """A reader can read several splits one after the other; each summary is of the
        last split.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(9))
        reader = self.reader(broker, tp)
        for start, stop in ((0, 9), (2, 5), (0, 9)):
            batches, summary = gathered(reader, Split(tp.topic, 0, start, stop))
            assert messages_in(batches) == logs.visible_messages(tp, start, stop)
            assert summary.read == stop - start

    def test_who_takes_ends_the_read(self, broker: Broker, logs: Logs) -> None:
        """An error that `take` raises reaches the caller at once and unchanged.

        No further batch is given, and the reader can read the next split.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(9))
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
        assert messages_in(batches_of(reader, Split(tp.topic, 0, 4, 9))) == logs.visible_messages(
            tp, 4, 9
        )

    def test_read_until_there_is_enough(self, broker: Broker, logs: Logs) -> None:
        """`read_until` stops after the batch that was enough, and returns whether it reached
        the end.
        """
        tp = logs.partition()
        logs.send(tp, *make_messages(9))
        reader = self.reader(broker, tp, rows_max=2)
        given_offsets: list[int] = []

        def enough(batch: pa.RecordBatch) -> bool:
            given_offsets.extend(offsets([batch]))
            return 5 in given_offsets

        assert read_until(reader, Split(tp.topic, 0, 0, 9), enough) is False
        assert given_offsets == [0, 1, 2, 3, 4, 5]
        assert read_until(reader, Split(tp.topic, 0, 6, 9), lambda _: False) is True
