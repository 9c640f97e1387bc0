"""A Kafka transaction of batches that are encoded already, request by request.

    fence     InitProducerId: aborts the transaction that an earlier producer of the id left open,
              waits for one that is being committed, takes the id's number and its next epoch
    send      AddPartitionsToTxn before a topic-partition's first batch, then Produce, each batch
              with its sequence number
    commit    EndTxn

A request is repeated only where the coordinator isn't ready. Any other error ends the
transaction. The caller then begins again with librdkafka (`ingest.kafka.transaction`),
which repeats requests for longer and names the message that the topic doesn't accept.

Race of two producers of one id:  1 A takes epoch 1 and sends.  2 B takes epoch 2; A's
transaction is aborted.  3 A's next request has epoch 1 and is refused.

Source: Kafka's KIP-98. The requests have their versions before KIP-890, which any
broker since 2.1 accepts.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from windrow.ingest.kafka.client import scrubbed
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.record_batch import Batch, Batching, Messages, Producer
from windrow.ingest.kafka.retry import CALL_SECONDS, LEAVE_SECONDS
from windrow.ingest.kafka.transaction import MessageProducer, TransactionError, kind_of
from windrow.ingest.kafka.wire import Wire, WireError, answer_of, raise_error
from windrow.ingest.model.boundary import TopicPartition

_NOT_READY = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors of a coordinator that isn't ready, or is another broker by now."""

_NOT_ATTEMPTED = KafkaError.OPERATION_NOT_ATTEMPTED

_OUTCOME_UNKNOWN = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
    }
)
"""Errors after which it is unknown whether the broker did what it was asked."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1
_LEAST_WAIT_SECONDS = 1.0
_IN_FLIGHT = 4
"""Most requests to a broker without an answer yet; Kafka keeps the order of five."""

_BATCH_BYTES = 512 * 1024


class SentBatch(NamedTuple):
    """The topic-partition and the offsets of one batch, both inclusive."""

    tp: TopicPartition
    first: int
    last: int


class WireTransaction(MessageProducer):
    """A transaction by Kafka's own requests. Used by one thread.

    Args:
        properties: an AdminClient's properties, for which `wire.reachable` is true.
        name: the transactional id.
        timeout_ms: after that the coordinator aborts the transaction by itself.
        patience: how long a coordinator that isn't ready is asked again, in seconds.
    """

    visible_at_once = False

    def __init__(
        self, properties: Mapping[str, Value], name: str, timeout_ms: int, patience: float
    ) -> None:
        self._properties, self._name, self._timeout_ms, self.patience = (
            properties,
            name,
            timeout_ms,
            patience,
        )
        self.wire = Wire(properties, min(CALL_SECONDS, patience))
        self._coordinator: int | None = None
        self._producer = Producer(-1, -1)
        self._leaders: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._sequence: dict[TopicPartition, int] = defaultdict(int)
        self._in_flight: dict[int, deque[Any]] = defaultdict(deque)
        self._written: list[SentBatch] = []
        self._open = False

    def fence(self, known: str) -> None:
        from kafka.protocol.producer import InitProducerIdRequest

        del known
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=self._timeout_ms, max_version=1
        )
        found = self._ask_coordinator(request, lambda answer: [answer.error_code])
        self._producer = Producer(int(found.producer_id), int(found.producer_epoch))

    def begin(self) -> None:
        """Kafka has no request for it."""
        self._open = True

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Adds topic-partitions to the transaction, before anything is sent to them.

        Raises:
            TransactionError: they can't be added.
        """
        from kafka.protocol.producer import AddPartitionsToTxnRequest

        new: dict[str, list[int]] = defaultdict(list)
        for tp in sorted(set(partitions) - self._added):
            new[tp.topic].append(tp.partition)
        if not new:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer.number,
            v3_and_below_producer_epoch=self._producer.epoch,
            max_version=2,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=t, partitions=p)
                for t, p in new.items()
            ],
        )
        self._added |= set(partitions)  # before the answer: without one they may be added as well
        self._ask_coordinator(
            request,
            lambda answer: [
                p.partition_error_code
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ],
        )

    def send(self, tp: TopicPartition, batch: Batch) -> None:
        """Sends a batch to a topic-partition that was added; doesn't wait for the answer.

        Batches of a topic-partition arrive in the order of these calls.

        Raises:
            TransactionError: an earlier batch was refused, or the cluster doesn't answer.
        """
        with self._as_transaction_error():
            leader = self._leader(tp)
            in_flight = self._in_flight[leader]
            while len(in_flight) >= _IN_FLIGHT:
                self._take_answer(in_flight)
            first = self._sequence[tp]
            self._sequence[tp] = (first + batch.records) % (1 << 31)
            request = self._produce(tp, batch.sealed(self._producer, first))
            in_flight.append((tp, batch.records, self.wire.send(request, leader)))

    def sent(self) -> list[SentBatch]:
        """Waits for all answers; returns the batches since the last call.

        Raises:
            TransactionError: a batch was refused, or had no answer.
        """
        with self._as_transaction_error():
            for in_flight in self._in_flight.values():
                while in_flight:
                    self._take_answer(in_flight)
        written, self._written = self._written, []
        return written

    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes, bytes | None]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        if not records:
            return
        keys, values = (pa.array(column, pa.binary()) for column in zip(*records, strict=True))
        now = np.full(len(records), time.time_ns() // 1_000_000, np.int64)
        tp = TopicPartition(topic, 0)
        self.add([tp])
        for batch in Batching(_BATCH_BYTES, _BATCH_BYTES).batches(
            Messages(values, keys, (), headers, now), np.arange(len(records))
        ):
            self.send(tp, batch)
        self.sent()

    def commit(self) -> None:
        self._open = False
        self.end(committed=True)

    def leave(self) -> None:
        if self._open and self._added:
            self.patience = LEAVE_SECONDS
            with suppress(WireError):  # no batch shall arrive after the transaction's end
                in_flight = [future for q in self._in_flight.values() for _, _, future in q]
                self.wire.wait(in_flight, LEAVE_SECONDS)
            with suppress(TransactionError):
                self.end(committed=False)
        self._open = False
        self.wire.close()

    def end(self, *, committed: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest

        number, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=number,
            producer_epoch=epoch,
            committed=committed,
            max_version=2,
        )
        self._ask_coordinator(request, lambda answer: [answer.error_code], commits=committed)

    def _produce(self, tp: TopicPartition, octets: memoryview) -> Any:
        from kafka.protocol.producer import ProduceRequest

        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=tp.partition, records=bytes(octets))
        return ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=int(self.patience * 1000),
            topic_data=[data(name=tp.topic, partition_data=[partition])],
            max_version=7,
        )

    def _take_answer(self, in_flight: deque[Any]) -> None:
        """Waits for the first of a broker's answers, and notes where its batch is.

        Raises:
            WireError: no answer, or the batch was refused.
        """
        tp, records, future = in_flight.popleft()
        self.wire.wait([future], CALL_SECONDS)
        [topic] = answer_of(future).responses
        [partition] = topic.partition_responses
        raise_error(partition.error_code, str(tp))
        first = int(partition.base_offset)
        self._written.append(SentBatch(tp, first, first + records - 1))

    def _leader(self, tp: TopicPartition) -> int:
        if tp not in self._leaders:
            self._leaders |= self.wire.leaders([tp.topic])
        if tp not in self._leaders:
            raise WireError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no {tp}")
        return self._leaders[tp]

    def _ask_coordinator(self, request: Any, codes: Any, *, commits: bool = False) -> Any:
        """Sends a request to the coordinator, again while that isn't ready.

        Args:
            request: kafka-python's request.
            codes: gives the error codes in an answer.
            commits: True for the commit.

        Raises:
            TransactionError: the coordinator refuses the request, or doesn't answer.
        """
        deadline, unknown, wait = time.monotonic() + self.patience, False, _FIRST_PAUSE_SECONDS
        while True:
            try:
                left = max(_LEAST_WAIT_SECONDS, deadline - time.monotonic())
                if self._coordinator is None:
                    self._coordinator = self.wire.coordinator(self._name, left)
                answer = self.wire.ask(request, self._coordinator, seconds=left)
                # the reason is another partition's error
                for code in sorted(codes(answer), key=lambda code: code == _NOT_ATTEMPTED):
                    raise_error(code, type(request).__name__.removesuffix("Request"))
            except WireError as failed:
                # also a coordinator that isn't ready may have done what it was asked
                unknown |= failed.code in _NOT_READY | _OUTCOME_UNKNOWN | {KafkaError.UNKNOWN}
                if failed.code not in _NOT_READY | _OUTCOME_UNKNOWN or time.monotonic() > deadline:
                    raise self._error(failed, unanswered=commits and unknown) from None
                if failed.code != KafkaError.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_PAUSE_SECONDS)
            else:
                return answer

    def _error(self, failed: WireError, *, unanswered: bool = False) -> TransactionError:
        return TransactionError(
            kind_of(failed.error), scrubbed(str(failed), self._properties), unanswered=unanswered
        )

    @contextmanager
    def _as_transaction_error(self) -> Iterator[None]:
        """Raises an error of a request as an error of the transaction."""
        try:
            yield
        except WireError as failed:
            raise self._error(failed) from None
