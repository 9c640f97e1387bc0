"""Broken commits for any store with numbered puts.

Each differs from the real commit loop in one step. A test suite that passes with a twin proves
nothing. Broken stores are in the `twins` module of each kind.
"""

from __future__ import annotations

from typing import Any

from windrow.ingest.sinks.kit.commit.table_store import Answer, Conflict, TableChange, Written
from windrow.ingest.testing.contracts.commit_hooks import moved_to, on_put


def _newest(sink: Any) -> Any:
    """Opens the store's newest state without hooks."""
    return type(sink.store).writing(sink.store)


def retries_blindly(sink: Any) -> None:
    """Makes a sink that puts after a conflict without a new look."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        while isinstance(put_answer, Conflict):
            with _newest(sink) as newest:
                put_answer = moved_to(state, newest).put(change)
        return put_answer

    on_put(sink, put)


def writes_on_the_newest(sink: Any) -> None:
    """Makes a sink that loads the newest state right before it puts, as a writer by path does."""

    def put(state: Any, change: TableChange) -> Answer:
        with _newest(sink) as newest:
            return moved_to(state, newest).put(change)  # type: ignore[no-any-return]

    on_put(sink, put)


def takes_a_conflict_for_its_own(sink: Any) -> None:
    """Makes a sink that takes a conflict as its own commit."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        return Written(state.version + 1) if isinstance(put_answer, Conflict) else put_answer

    on_put(sink, put)


def sends_again(sink: Any) -> None:
    """Makes a sink that sends the same rows again, as if the answer was lost."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        with _newest(sink) as newest:
            moved_to(state, newest).put(change)
        return put_answer

    on_put(sink, put)
