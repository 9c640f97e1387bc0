"""Broken twins of the Kafka sink. Each differs from the real one in one step.

A test suite that passes with a twin proves nothing.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.sinks.kafka.world import KafkaBoth, open_sink
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.kafka.producers import MessageProducer
from windrow.ingest.model.plan import Window
from windrow.ingest.sinks.kafka.control_records import ControlState, PublishedSplit, split_record
from windrow.ingest.sinks.kafka.store import (
    FencedStore,
    KafkaState,
    TransactionContents,
    put_records,
)
from windrow.ingest.sinks.kafka.transactions import Part, TransactionalIds
from windrow.ingest.sinks.kit.commit.table_store import Answer, Written


class _Twin(KafkaBoth):
    """A sink with a broken store; `meanwhile` lets the other run act."""

    store: type[FencedStore] = FencedStore
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def fenced_store(self, name: str, target: Any) -> FencedStore:
        return self.store(self, name, target)


class _LooksBefore(FencedStore):
    @contextmanager
    def writing(self) -> Iterator[KafkaState]:
        old_state = self.table.control.read(to_end=True) or ControlState()
        self.table.meanwhile()  # type: ignore[attr-defined]
        with super().writing() as state:
            yield self.state(state.transaction, old_state)


class LookBeforeFence(_Twin):
    """Looks before it fences: another run may publish in between."""

    store = _LooksBefore


class _RandomIds(TransactionalIds, frozen=True):
    def part(self, window: Window, part: Part) -> str:
        return f"{super().part(window, part)}.{uuid.uuid4().hex}"


class _TurnBehindMessages(KafkaState):
    def send(self, change: TransactionContents) -> list[PublishedSplit]:
        published = super().send(change)
        self.store.table.meanwhile()  # type: ignore[attr-defined]
        return published


class _WithTurn(FencedStore):
    def state(self, transaction: MessageProducer, control: ControlState) -> KafkaState:
        return _TurnBehindMessages(self, transaction, control)


class RandomId(_Twin):
    """Takes a new transactional id for each attempt, so no attempt is fenced."""

    store = _WithTurn

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ids = _RandomIds(self.options.prefix, self.options.control, self.options.pool)


class _RecordsNothing(KafkaState):
    def records(
        self, change: TransactionContents, new: Sequence[PublishedSplit]
    ) -> tuple[Any, Sequence[Any]]:
        work = change.work
        if work is None or not change.receipt:
            return None, change.records
        return super().records(change, [work.published(n, ()) for n in work.files])


class _SeesNothing(FencedStore):
    def state(self, transaction: MessageProducer, control: ControlState) -> KafkaState:
        blind = copy.copy(control)
        blind.splits = {}
        return _RecordsNothing(self, transaction, blind)


class NoRecord(_Twin):
    """Publishes messages without the record of their publication."""

    store = _SeesNothing


class _RecordsBefore(KafkaState):
    def put(self, change: TransactionContents) -> Answer:
        work = change.work
        if work is None or change.receipt:
            return super().put(change)
        records = [split_record(work.published(n, ())) for n in change.splits]
        put_records(self.store.target, self.transaction, records)
        crash_point("split.before")
        self.send(change)
        crash_point("split.after")
        return Written(None)


class _Hasty(FencedStore):
    def state(self, transaction: MessageProducer, control: ControlState) -> KafkaState:
        return _RecordsBefore(self, transaction, control)


class RecordFirst(_Twin):
    """Without transactions, writes the record of a split before its messages."""

    store = _Hasty


TWINS: Mapping[str, Callable[[str], Any]] = {
    twin.__name__: lambda location, twin=twin: open_sink(location, twin)
    for twin in (LookBeforeFence, RandomId, NoRecord)
}
