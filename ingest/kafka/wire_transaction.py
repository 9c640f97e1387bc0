"""A transaction whose batches are encoded already: Kafka's protocol of transactional
ids, request by request.

    fence     InitProducerId: ends what an earlier producer of the id left open, waits for what it
              had decided, takes its number, next epoch
    send      AddPartitionsToTxn before a topic-partition's first batch, then Produce, each batch
              with its place in the sequence
    commit    EndTxn

Nothing is tried twice but what the coordinator says to ask again. Whatever else a
broker answers ends the transaction; who sent it begins anew, by librdkafka
(`ingest.kafka.transaction`), which repeats with more patience, and names what isn't
taken.

Race of two producers of one id:  1 A takes epoch 1, sends.  2 B takes epoch 2: A's
transaction is ended.  3 A's next request, whichever it is, has epoch 1, and is refused.
Source: Kafka's KIP-98; the requests' versions are those before KIP-890, which any
broker since 2.1 takes.
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
from windrow.ingest.kafka.transaction import Sending, TransactionError, kind_of
from windrow.ingest.kafka.wire import Wire, WireError, answer_of, refuse

Place = tuple[str, int]
"""A topic and a partition."""

_AGAIN = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
    }
)
"""What a coordinator says that is not ready yet, or is elsewhere."""

_NOT_ATTEMPTED = KafkaError.OPERATION_NOT_ATTEMPTED

_UNHEARD = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,  # public
    }
)
"""Where it isn't known what was done."""

_SOON_SECONDS, _LATER_SECONDS = 0.005, 0.1
_LEAST_SECONDS = 1.0
_BESIDE = 4
"""Requests to a broker that wait for their answers; Kafka keeps the order of five."""

_RECORDS_BYTES = 512 * 1024


class BatchPlace(NamedTuple):
    """Where the records of one batch are."""

    place: Place
    first: int
    last: int


class WireTransaction(Sending):
    """`transaction.Sending` by Kafka's own requests. Used by one thread.

    Args:
        properties: an AdminClient's; they are `wire.reachable`.
        name: the transactional id.
        timeout_ms: after which the coordinator ends the transaction by itself.
        patience: for how long a coordinator is asked again that isn't ready, in seconds.
    """

    visible_at_once = False

    def __init__(
        self, properties: Mapping[str, Value], name: str, timeout_ms: int, patience: float
    ) -> None:
        self._properties, self._name, self._timeout_ms, self._patience = (
            properties,
            name,
            timeout_ms,
            patience,
        )
        self._wire = Wire(properties, min(CALL_SECONDS, patience))
        self._coordinator: int | None = None
        self._producer = Producer(-1, -1)
        self._leaders: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._sequence: dict[Place, int] = defaultdict(int)
        self._asked: dict[int, deque[Any]] = defaultdict(deque)
        self._written: list[BatchPlace] = []
        self._open = False

    def fence(self, known: str) -> None:
        from kafka.protocol.producer import InitProducerIdRequest

        del known
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=self._timeout_ms, max_version=1
        )
        found = self._coordinated(request, lambda answer: [answer.error_code])
        self._producer = Producer(int(found.producer_id), int(found.producer_epoch))

    def begin(self) -> None:
        """Kafka has no request for it."""
        self._open = True

    def add(self, places: Sequence[Place]) -> None:
        """Make topic-partitions part of the transaction, before anything is sent to them.

        Raises:
            TransactionError: they can't be.
        """
        from kafka.protocol.producer import AddPartitionsToTxnRequest

        new: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(set(places) - self._added):
            new[topic].append(partition)
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
        self._added |= set(places)  # also if no answer comes: then there may be something to end
        self._coordinated(
            request,
            lambda answer: [
                p.partition_error_code
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ],
        )

    def send(self, place: Place, batch: Batch) -> None:
        """A batch for a topic-partition that was added; it is on its way when this
        returns, behind the ones before.

        Raises:
            TransactionError: an earlier one wasn't taken, or the cluster doesn't answer.
        """
        with self._meant():
            leader = self._leader(place)
            asked = self._asked[leader]
            while len(asked) >= _BESIDE:
                self._taken(asked)
            first = self._sequence[place]
            self._sequence[place] = (first + batch.records) % (1 << 31)
            asked.append(
                (
                    place,
                    batch.records,
                    self._wire.sent(
                        self._produce(place, batch.sealed(self._producer, first)), leader
                    ),
                )
            )

    def sent(self) -> list[BatchPlace]:
        """Where all batches are that were sent since this was asked before, once the brokers have them.

        Raises:
            TransactionError: one wasn't taken, or there is no answer.
        """  # noqa: E501
        with self._meant():
            for asked in self._asked.values():
                while asked:
                    self._taken(asked)
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
        place = (topic, 0)
        self.add([place])
        for batch in Batching(_RECORDS_BYTES, _RECORDS_BYTES).batches(
            Messages(values, keys, (), headers, now), np.arange(len(records))
        ):
            self.send(place, batch)
        self.sent()

    def commit(self) -> None:
        self._open = False
        self._end(committed=True)

    def leave(self) -> None:
        if self._open and self._added:
            self._patience = LEAVE_SECONDS
            with suppress(WireError):  # what is on its way is not to arrive behind the end
                self._wire.wait(
                    [answer for asked in self._asked.values() for _, _, answer in asked],
                    LEAVE_SECONDS,
                )
            with suppress(TransactionError):
                self._end(committed=False)
        self._open = False
        self._wire.close()

    def _end(self, *, committed: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest

        number, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=number,
            producer_epoch=epoch,
            committed=committed,
            max_version=2,
        )
        self._coordinated(request, lambda answer: [answer.error_code], sends=committed)

    def _produce(self, place: Place, octets: memoryview) -> Any:
        from kafka.protocol.producer import ProduceRequest

        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=place[1], records=bytes(octets))
        return ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=int(self._patience * 1000),
            topic_data=[data(name=place[0], partition_data=[partition])],
            max_version=7,
        )

    def _taken(self, asked: deque[Any]) -> None:
        """Wait for the first of a broker's answers.

        Raises:
            WireError: there is none, or it says no.
        """
        place, records, answer = asked.popleft()
        self._wire.wait([answer], CALL_SECONDS)
        [topic] = answer_of(answer).responses
        [told] = topic.partition_responses
        refuse(told.error_code, f"{place[0]}[{place[1]}]")
        self._written.append(
            BatchPlace(place, int(told.base_offset), int(told.base_offset) + records - 1)
        )

    def _leader(self, place: Place) -> int:
        if place not in self._leaders:
            self._leaders |= self._wire.leaders([place[0]])
        if place not in self._leaders:
            raise WireError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no {place[0]}[{place[1]}]")
        return self._leaders[place]

    def _coordinated(self, request: Any, codes: Any, *, sends: bool = False) -> Any:
        """What the coordinator answers, asked again while it isn't ready; `codes`: the
        errors in an answer.

        `sends`: it is the commit.

        Raises:
            TransactionError: it doesn't answer, or says no.
        """
        deadline, unheard, wait = time.monotonic() + self._patience, False, _SOON_SECONDS
        while True:
            try:
                left = max(_LEAST_SECONDS, deadline - time.monotonic())
                if self._coordinator is None:
                    self._coordinator = self._wire.coordinator(self._name, left)
                answer = self._wire.ask(request, self._coordinator, seconds=left)
                # another one says why
                for code in sorted(codes(answer), key=lambda code: code == _NOT_ATTEMPTED):
                    refuse(code, type(request).__name__.removesuffix("Request"))
            except WireError as failed:
                # a coordinator may say so of what it did
                unheard |= failed.code in _AGAIN | _UNHEARD | {KafkaError.UNKNOWN}
                if failed.code not in _AGAIN | _UNHEARD or time.monotonic() > deadline:
                    raise self._error(failed, sent=sends and unheard) from None
                if failed.code != KafkaError.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                time.sleep(wait)
                wait = min(2 * wait, _LATER_SECONDS)
            else:
                return answer

    def _error(self, failed: WireError, *, sent: bool = False) -> TransactionError:
        return TransactionError(
            kind_of(failed.error), scrubbed(str(failed), self._properties), sent=sent
        )

    @contextmanager
    def _meant(self) -> Iterator[None]:
        """What fails in it, fails as a step of the transaction."""
        try:
            yield
        except WireError as failed:
            raise self._error(failed) from None
