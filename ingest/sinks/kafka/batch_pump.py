"""Sends a split's messages in record batches that are encoded here.

Whole columns are encoded at a time, without a Python object or a call for each message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.kafka.record_batch import Batching, Messages, by_key
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kafka.control import OffsetSpan
from windrow.ingest.sinks.kafka.encoder import HEADER
from windrow.ingest.sinks.kafka.places import BY_CLIENT, PARTITION, partitions
from windrow.ingest.sinks.kafka.publish import PublishTarget

Rows = npt.NDArray[np.int64]


class BatchPump:
    """Sends one split in an open transaction. Used by one thread.

    Args:
        target: where messages go.
        transaction: the open transaction.
        window: the window's key.
        number: the split's number in the plan.
        split: the split.
    """

    def __init__(
        self,
        target: PublishTarget,
        transaction: WireTransaction,
        window: str,
        number: int,
        split: Split,
    ) -> None:
        self._target, self._transaction = target, transaction
        self._number, self._split = number, split
        self._batching = Batching(target.message_bytes, target.unpacked_bytes)
        self._shared_headers = [(target.metadata["window"], window.encode())]
        self._rows_sent = self._batches_sent = 0

    def send(self, staged: Iterable[pa.RecordBatch]) -> None:
        """Sends messages in their order, without waiting for the last confirmations.

        Raises:
            TransactionError: the transaction can't go on.
        """
        for batch in filter(len, staged):
            messages = self._messages(batch)
            placed = list(self._rows_by_partition(batch))
            self._transaction.add([tp for tp, _ in placed])
            for tp, rows in placed:
                for encoded in self._batching.batches(messages, rows):
                    self._transaction.send(tp, encoded)
            self._rows_sent += batch.num_rows
            self._batches_sent += 1

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Waits until all messages are confirmed, and returns where they are.

        Raises:
            TransactionError: the transaction can't go on.
        """
        spans: dict[TopicPartition, OffsetSpan] = {}
        for tp, first, last in self._transaction.sent():
            before = spans.get(tp, OffsetSpan(tp.topic, tp.partition, first, last))
            spans[tp] = OffsetSpan(
                tp.topic, tp.partition, min(before.first, first), max(before.last, last)
            )
        return tuple(spans[tp] for tp in sorted(spans))

    def _messages(self, batch: pa.RecordBatch) -> Messages:
        names = [name for name in batch.schema.names if name.startswith(HEADER)]
        times, now = batch["time"].to_numpy(), time.time_ns() // 1_000_000
        headers = [(name.removeprefix(HEADER), batch[name]) for name in names]
        return Messages(
            batch["value"],
            batch["key"],
            headers,
            self._shared_headers,
            np.where(times < 0, now, times).astype(np.int64),
        )

    def _rows_by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Rows]]:
        """Yields the row numbers of a batch that go to each topic-partition."""
        if self._target.only is not None:
            yield from self._of_topic(batch, self._target.only, np.arange(batch.num_rows))
            return
        encoded = batch["topic"].dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield from self._of_topic(batch, topic, np.flatnonzero(codes == code))

    def _of_topic(
        self, batch: pa.RecordBatch, topic: str, rows: Rows
    ) -> Iterator[tuple[TopicPartition, Rows]]:
        chosen = self._chosen(batch, self._target.topics[topic].partitions)[rows]
        order = np.argsort(chosen, kind="stable")
        found, starts = np.unique(chosen[order], return_index=True)
        for partition, some in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True):
            yield TopicPartition(topic, partition), some

    def _chosen(self, batch: pa.RecordBatch, count: int) -> Rows:
        """Returns the partition of each message of a topic with so many partitions."""
        if PARTITION in batch.schema.names:
            return np.asarray(batch[PARTITION].to_numpy(), np.int64)
        how = self._target.partitioner
        chosen = partitions(
            how, batch.num_rows, self._rows_sent, self._number, self._split.partition, count
        )
        if count == 1 or chosen[:1].tolist() != [BY_CLIENT]:
            return np.maximum(chosen, 0).astype(np.int64)
        if how == "key-hash":
            # As in librdkafka, a missing key counts as an empty one.
            return by_key(batch["key"].fill_null(b""), count, 0)
        # Messages without a key go to one partition for each staged batch: record batches are
        # larger then.
        return by_key(batch["key"], count, (self._number + self._batches_sent) % count)
