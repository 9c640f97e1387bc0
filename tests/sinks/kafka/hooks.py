"""Where another run of a window gets its turn in the middle of a Kafka sink's commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from windrow.ingest.sinks.kafka.commit import FencedStore, KafkaState, Publication
from windrow.ingest.sinks.kafka.control import Held, PublishedSplit

Sends = Callable[[KafkaState, Publication], list[PublishedSplit]]


def before_fence(sink: Any, turn: Callable[[], object], *, of_receipt: bool = False) -> None:
    """Once, before the sink fences the id of a part, or of the window's receipt."""
    behind, turns = sink.behind, [turn]

    def hooked(name: str, target: Any) -> FencedStore:
        store: FencedStore = behind(name, target)
        writing = store.writing

        @contextmanager
        def late() -> Iterator[KafkaState]:
            if name.endswith(".table") is of_receipt and turns:
                turns.pop()()
            with writing() as state:
                yield state

        store.writing = late  # type: ignore[method-assign]
        return store

    sink.behind = hooked


def on_send(sink: Any, sends: Sends) -> None:
    """Have the messages of each part be sent by a function; `state.send` sends them."""
    behind = sink.behind

    def hooked(name: str, target: Any) -> FencedStore:
        store: FencedStore = behind(name, target)
        made = store.state

        def state(transaction: Any, held: Held) -> KafkaState:
            found = made(transaction, held)
            send = found.send

            def sent(change: Publication) -> Sequence[PublishedSplit]:
                found.send = send  # type: ignore[method-assign]
                return sends(found, change) if change.splits else send(change)

            found.send = sent  # type: ignore[method-assign,assignment]
            return found

        store.state = state  # type: ignore[method-assign]
        return store

    sink.behind = hooked


def behind_messages(sink: Any, turn: Callable[[], object]) -> None:
    """Once, when messages are sent and nothing says so yet."""
    turns = [turn]

    def sends(state: KafkaState, change: Publication) -> list[PublishedSplit]:
        published = state.send(change)
        if turns:
            turns.pop()()
        return published

    on_send(sink, sends)
