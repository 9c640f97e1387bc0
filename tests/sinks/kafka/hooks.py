"""Hooks in a Kafka sink's commit, at which a test runs another attempt of the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from windrow.ingest.sinks.kafka.control_records import ControlState, PublishedSplit
from windrow.ingest.sinks.kafka.store import FencedStore, KafkaState, TransactionContents

Sends = Callable[[KafkaState, TransactionContents], list[PublishedSplit]]


def before_fence(sink: Any, turn: Callable[[], object], *, of_receipt: bool = False) -> None:
    """Calls `turn` once, before the sink fences the id of a part, or of the receipt."""
    fenced_store, turns = sink.fenced_store, [turn]

    def hooked(name: str, target: Any) -> FencedStore:
        store: FencedStore = fenced_store(name, target)
        writing = store.writing

        @contextmanager
        def late() -> Iterator[KafkaState]:
            if name.endswith(".table") is of_receipt and turns:
                turns.pop()()
            with writing() as state:
                yield state

        store.writing = late  # type: ignore[method-assign]
        return store

    sink.fenced_store = hooked


def on_send(sink: Any, sends: Sends) -> None:
    """Makes `sends` send the messages of each part; `state.send` is the sink's own way."""
    fenced_store = sink.fenced_store

    def hooked(name: str, target: Any) -> FencedStore:
        store: FencedStore = fenced_store(name, target)
        open_state = store.state

        def state(transaction: Any, control: ControlState) -> KafkaState:
            kafka_state = open_state(transaction, control)
            send = kafka_state.send

            def send_hooked(change: TransactionContents) -> Sequence[PublishedSplit]:
                kafka_state.send = send  # type: ignore[method-assign]
                return sends(kafka_state, change) if change.splits else send(change)

            kafka_state.send = send_hooked  # type: ignore[method-assign,assignment]
            return kafka_state

        store.state = state  # type: ignore[method-assign]
        return store

    sink.fenced_store = hooked


def behind_messages(sink: Any, turn: Callable[[], object]) -> None:
    """Calls `turn` once, after messages are sent and before their records are."""
    turns = [turn]

    def sends(state: KafkaState, change: TransactionContents) -> list[PublishedSplit]:
        published = state.send(change)
        if turns:
            turns.pop()()
        return published

    on_send(sink, sends)
