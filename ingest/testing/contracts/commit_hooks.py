"""Hooks into the commit loop of sinks.

They wrap the states that a store opens for writing, because all kinds of sinks use them. A hook
that is added later wraps the earlier hooks.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange

Put = Callable[[Any, TableChange], Answer]


class HookedState:
    """A state whose put goes through a hook."""

    def __init__(self, state: Any, put: Put) -> None:
        self._state, self._put = state, put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def put(self, change: TableChange) -> Answer:
        return self._put(self._state, change)

    def moved_to(self, state: Any) -> Any:
        """Returns another state with the same hooks."""
        inside = self._state
        return HookedState(
            inside.moved_to(state) if isinstance(inside, HookedState) else state, self._put
        )


def moved_to(hooked: Any, state: Any) -> Any:
    """Returns `state` with the hooks of `hooked`, if there are any."""
    return hooked.moved_to(state) if isinstance(hooked, HookedState) else state


def on_put(sink: Any, put: Put) -> None:
    """Replaces each put of a sink by `put`, which is called with the state and the change."""
    writing = sink.store.writing

    @contextmanager
    def hooked() -> Iterator[Any]:
        with writing() as state:
            yield None if state is None else HookedState(state, put)

    sink.store.writing = hooked


def run_between(sink: Any, turn: Callable[[], object]) -> None:
    """Calls `turn` once before the sink's next put, after the commit has read the table.

    `turn` simulates another run.
    """
    turns = [turn]

    def put(state: Any, change: TableChange) -> Answer:
        if turns:
            turns.pop()()
        return state.put(change)  # type: ignore[no-any-return]

    on_put(sink, put)


def answer_puts(sink: Any, *answers: tuple[Answer | Exception, bool]) -> list[int]:
    """Gives the answers of the next puts.

    Args:
        sink: the sink.
        answers: for each put, an answer or an error, and whether the put is done before.

    Returns:
        A list that gets the version of the state at each put.
    """
    remaining, puts = list(answers), list[int]()

    def put(state: Any, change: TableChange) -> Answer:
        puts.append(state.version)
        if not remaining:
            return state.put(change)  # type: ignore[no-any-return]
        reply, arrives = remaining.pop(0)
        if arrives:
            state.put(change)
        if isinstance(reply, Exception):
            raise reply
        return reply

    on_put(sink, put)
    return puts


def before_look(sink: Any, turn: Callable[[], object]) -> None:
    """Calls `turn` once before the sink's next commit reads the table or waits for a lock.

    `turn` simulates another run.
    """
    writing = sink.store.writing

    def hooked() -> Any:
        sink.store.writing = writing
        turn()
        return writing()

    sink.store.writing = hooked


def each_line(sink: Any, note: str, see: Callable[[int], object]) -> None:
    """Calls `see` before each line of the sink's next put, with the line's number.

    Only lines of the module that defines the state's class count. An exception of `see` ends
    the put.

    Args:
        sink: the sink.
        note: the name of a note that the put also writes.
        see: is called with the line's number.
    """
    turns = [1]

    def put(state: Any, change: TableChange) -> Answer:
        def trace(frame: Any, event: str, _: object) -> Any:
            if event == "line" and frame.f_code.co_filename == inspect.getfile(type(state)):
                see(frame.f_lineno)
            return trace

        if turns:
            change = msgspec.structs.replace(change, notes={note: turns.pop()})
            sys.settrace(trace)
        try:
            return state.put(change)  # type: ignore[no-any-return]
        finally:
            sys.settrace(None)

    on_put(sink, put)
