"""Broken commits, each one step from the loop, on a store of any kind that puts under numbers.

A suite that can't tell them from the real one proves nothing. What breaks a store itself is in
the kind's own `twins`.
"""

from __future__ import annotations

from typing import Any

from windrow.ingest.sinks.kit.commit.table_store import Answer, Conflict, TableChange, Written
from windrow.ingest.testing.contracts.commit_hooks import moved_to, on_put


def _newest(sink: Any) -> Any:
    """The store's states as no hook sees them."""
    return type(sink.store).writing(sink.store)


def retries_blindly(sink: Any) -> None:
    """Finds that another commit came first, and puts its rows behind that one without a look."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        while isinstance(put_answer, Conflict):
            with _newest(sink) as newest:
                put_answer = moved_to(state, newest).put(change)
        return put_answer

    on_put(sink, put)


def writes_on_the_newest(sink: Any) -> None:
    """Loads the newest state right before it puts, as a writer by path does."""

    def put(state: Any, change: TableChange) -> Answer:
        with _newest(sink) as newest:
            return moved_to(state, newest).put(change)  # type: ignore[no-any-return]

    on_put(sink, put)


def takes_a_conflict_for_its_own(sink: Any) -> None:
    """Believes that it was itself who came first."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        return Written(state.version + 1) if isinstance(put_answer, Conflict) else put_answer

    on_put(sink, put)


def sends_again(sink: Any) -> None:
    """Takes its answer for lost, and sends the same rows again."""

    def put(state: Any, change: TableChange) -> Answer:
        put_answer: Answer = state.put(change)
        with _newest(sink) as newest:
            moved_to(state, newest).put(change)
        return put_answer

    on_put(sink, put)
