"""Sends splits' messages in batches that are encoded here, whole columns at a time:
without a Python object, or a call, for each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.kafka.record_batch import Batching, Messages, by_key
from windrow.ingest.kafka.wire_transaction import Place, WireTransaction
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
        transaction: which they are in.
        window: its key.
        number: the split's, in the plan.
        split: it.
    """

    def __init__(
        self,
        target: PublishTarget,
        transaction: WireTransaction,
        window: str,
        number: int,
        split: Split,
    ) -> None:
        self._target, self._transaction, self._number, self._split = (
            target,
            transaction,
            number,
            split,
        )
        self._batching = Batching(target.message_bytes, target.unpacked_bytes)
        self._same = [(target.metadata["window"], window.encode())]
        self._sent = self._turn = 0

    def send(self, staged: Iterable[pa.RecordBatch]) -> None:
        """Messages, in their order; the last of them are on their way when this returns.

        Raises:
            TransactionError: the transaction can't go on.
        """
        for batch in filter(len, staged):
            messages = self._messages(batch)
            placed = list(self._placed(batch))
            self._transaction.add([place for place, _ in placed])
            for place, rows in placed:
                for encoded in self._batching.batches(messages, rows):
                    self._transaction.send(place, encoded)
            self._sent += batch.num_rows
            self._turn += 1

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Between which offsets the messages are, once the brokers have all of them.

        Raises:
            TransactionError: the transaction can't go on.
        """
        spans: dict[Place, OffsetSpan] = {}
        for place, first, last in self._transaction.sent():
            before = spans.get(place, OffsetSpan(*place, first, last))
            spans[place] = OffsetSpan(*place, min(before.first, first), max(before.last, last))
        return tuple(spans[place] for place in sorted(spans))

    def _messages(self, batch: pa.RecordBatch) -> Messages:
        names = [name for name in batch.schema.names if name.startswith(HEADER)]
        told, now = batch["time"].to_numpy(), time.time_ns() // 1_000_000
        headers = [(name.removeprefix(HEADER), batch[name]) for name in names]
        return Messages(
            batch["value"],
            batch["key"],
            headers,
            self._same,
            np.where(told < 0, now, told).astype(np.int64),
        )

    def _placed(self, batch: pa.RecordBatch) -> Iterator[tuple[Place, Rows]]:
        """For each topic-partition the rows that it is to have."""
        if self._target.only is not None:
            yield from self._of_topic(batch, self._target.only, np.arange(batch.num_rows))
            return
        encoded = batch["topic"].dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield from self._of_topic(batch, topic, np.flatnonzero(codes == code))

    def _of_topic(
        self, batch: pa.RecordBatch, topic: str, rows: Rows
    ) -> Iterator[tuple[Place, Rows]]:
        chosen = self._chosen(batch, self._target.topics[topic].partitions)[rows]
        order = np.argsort(chosen, kind="stable")
        found, starts = np.unique(chosen[order], return_index=True)
        for partition, some in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True):
            yield (topic, partition), some

    def _chosen(self, batch: pa.RecordBatch, count: int) -> Rows:
        """Of each message its partition, among so many."""
        if PARTITION in batch.schema.names:
            return np.asarray(batch[PARTITION].to_numpy(), np.int64)
        how = self._target.partitioner
        chosen = partitions(
            how, batch.num_rows, self._sent, self._number, self._split.partition, count
        )
        if count == 1 or chosen[:1].tolist() != [BY_CLIENT]:
            return np.maximum(chosen, 0).astype(np.int64)
        if how == "key-hash":  # as librdkafka has it: a key that is missing is an empty one
            return by_key(batch["key"].fill_null(b""), count, 0)
        # some messages for each, so that batches are large
        return by_key(batch["key"], count, (self._number + self._turn) % count)
