"""The Kafka sink with a recorder of its requests to a broker; see `tests.protocols.traces`.

The steps of a run:

    init      a transactional id is fenced
    glance    the control topic is read as far as it is decided
    control   it is read to its end. This step waits for open transactions in it, so the
              recorder first lets other runs go on
    send      messages and their records in one step, because no reader sees them before the
              commit. It is recorded when the records are sent, or if a message fails
    end       a commit
    shown     the run waits until readers see the messages
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.kafka.produce import is_decided
from tests.protocols.fenced import TABLE
from tests.protocols.traces import UNDECIDED, Recorder, splits_text
from tests.sinks.kafka.world import KafkaBoth
from tests.sinks.traced import Recorded
from windrow.ingest.errors import UnreachableError
from windrow.ingest.kafka.producers import MessageProducer, ProducerError, ProducerMessage
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.kafka import store, transactions
from windrow.ingest.sinks.kafka.control_records import ControlState, PublishedSplit
from windrow.ingest.sinks.kafka.send import PublishTarget
from windrow.ingest.sinks.kafka.store import FencedStore, KafkaState, TransactionContents
from windrow.ingest.sinks.kafka.transactions import Part, chains
from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key


class Listening(msgspec.Struct, frozen=True):
    """A recorder for the steps of one run.

    Attributes:
        recorder: the recorder.
        who: name of the run.
        names: the model's names of transactional ids.
    """

    recorder: Recorder
    who: str
    names: Mapping[str, str]

    def listen_to(self, sender: MessageProducer, name: str) -> None:
        """Records all later steps of a producer."""
        fence, commit, label = sender.fence, sender.commit, self.names.get(name, name)

        def fence_recorded(known_topic: str) -> None:
            with self.recorder.step(self.who, "init", label) as reply:
                fence(known_topic)
                reply(None)

        def commit_recorded() -> None:
            with self.recorder.step(self.who, "end", label) as reply:
                try:
                    commit()
                except ProducerError as error:
                    reply("unknown" if error.unanswered else error.kind)
                    raise
                reply("ok")

        def write_recorded(topic: str, messages: Sequence[ProducerMessage]) -> None:
            sends(_content_of(messages), lambda: write(topic, messages))

        write, sends = sender.write, self._sends(label)
        sender.fence, sender.commit, sender.write = fence_recorded, commit_recorded, write_recorded  # type: ignore[method-assign]
        sender.sends = sends  # type: ignore[attr-defined]

    def _sends(self, label: str) -> Callable[[str, Callable[[], None] | ProducerError], None]:
        def sends(content: str, send: Callable[[], None] | ProducerError) -> None:
            with self.recorder.step(self.who, "send", f"{label}: {content}") as reply:
                try:
                    if isinstance(send, ProducerError):
                        raise send
                    send()
                except ProducerError as error:
                    reply("fenced" if error.kind == "fenced" else "not delivered")
                    raise
                reply("delivered")

        return sends


class ListenedTo(PublishTarget, frozen=True, kw_only=True):
    """A target that records its producers' steps."""

    listening: Listening

    def producer(self, name: str) -> MessageProducer:
        producer = super().producer(name)
        self.listening.listen_to(producer, name)
        return producer


class _ListenedState:
    """A state that also records failed messages."""

    def __init__(self, state: KafkaState) -> None:
        self._state, self._send = state, state.send
        state.send = self.send  # type: ignore[method-assign]

    def send(self, change: TransactionContents) -> list[PublishedSplit]:
        try:
            return self._send(change)
        except ProducerError as error:
            self._state.transaction.sends(_splits(change.splits), error)  # type: ignore[attr-defined]
            raise


class _ListenedControl:
    """The control topic, with the reads of one commit recorded."""

    def __init__(self, sink: Any, key: str) -> None:
        self._sink, self._key, self.real = sink, key, sink.control
        self.wait_until_seen = self.real.wait_until_seen

    def read(self, *, to_end: bool = False) -> ControlState | None:
        began, patience, sink = time.monotonic(), self.real.patience, self._sink

        def once() -> bool:
            return (
                not to_end
                or is_decided(sink.connection.servers, sink.options.control)
                or time.monotonic() > began + patience
            )

        name = "control" if to_end else "glance"
        with sink.recorder.step(sink.who, name, once=once) as reply:
            try:
                state: ControlState | None = self.real.read(to_end=to_end)
            except UnreachableError:
                reply(UNDECIDED)
                raise
            assert state is not None
            committed_window = committed_by_key(state, [self._key]).get(self._key)
            attempt = None if committed_window is None else committed_window.receipt.attempt
            if to_end:
                published = state.splits.get(self._key, {})
                reply(attempt or splits_text({n: s.attempt for n, s in published.items()}))
            else:
                reply(attempt, "whole" if state.is_complete else UNDECIDED)
        return state


class _Recorded(Recorded):
    names: Mapping[str, str] = MappingProxyType({})

    def listen(self, recorder: Recorder, who: str) -> Any:
        topics: Any = self.topics  # type: ignore[attr-defined]
        wait_until_seen = topics.wait_until_seen

        def wait_recorded(written: Any) -> None:
            with recorder.step(who, "shown") as reply:
                wait_until_seen(written)
                reply(None)

        topics.wait_until_seen = wait_recorded
        return super().listen(recorder, who)

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        super(Recorded, self).commit_dead(plan, attempt, staged)  # type: ignore[misc]  # they are kept before the model begins

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        ids, parts = self.ids, [part for chain in chains(receipt.plan) for part in chain]  # type: ignore[attr-defined]
        self.names = {ids.table(receipt.window.pipeline): TABLE} | {
            ids.part(receipt.window, p): f"part {p[0]}" for p in parts
        }
        self.control = _ListenedControl(self, receipt.window.key)
        try:
            return super().commit(receipt, staged)
        finally:
            self.control = self.control.real

    def target(self) -> PublishTarget:
        target: PublishTarget = super().target()  # type: ignore[misc]
        return ListenedTo(
            **msgspec.structs.asdict(target),
            listening=Listening(self.recorder, self.who, self.names),
        )

    def fenced_store(self, name: str, target: Any) -> FencedStore:
        store: FencedStore = super().fenced_store(name, target)  # type: ignore[misc]
        open_state = store.state

        def state(transaction: MessageProducer, control: ControlState) -> KafkaState:
            kafka_state = open_state(transaction, control)
            _ListenedState(kafka_state)
            return kafka_state

        store.state = state  # type: ignore[method-assign]
        return store


class RecordedKafka(_Recorded, KafkaBoth):
    """The real sink, recorded."""


def recorded(twin: type[KafkaBoth]) -> type[Any]:
    """Returns a recorded class of a broken twin."""
    return type(twin.__name__, (_Recorded, twin), {})


def _splits(numbers: Sequence[int] | Part) -> str:
    return ", ".join(f"split {n}" for n in numbers)


def _content_of(records: Sequence[ProducerMessage]) -> str:
    keys = [
        msgspec.json.decode(record.key or b"") for record in records if record.value is not None
    ]
    if any(key[0] == "receipt" for key in keys):
        return "receipt"
    return _splits([key[2] for key in keys])


def record_the_wire(patch: pytest.MonkeyPatch, parallel: int = 1) -> None:
    """Gives each split its own transaction, from now on in this process.

    Args:
        patch: the patch to undo this.
        parallel: number of transactions at the same time.
    """
    patch.setattr(store, "PARALLEL", parallel)
    patch.setattr(transactions, "SMALL", 1)
