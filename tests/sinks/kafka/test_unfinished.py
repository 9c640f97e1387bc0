"""Transactions that dead runs left open, on a real broker: told, ended, and the window
run again exactly once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.produce import OpenTransaction, Put, until_decided
from tests.sinks.kafka.attempts import DONE, ended, started
from tests.sinks.kafka.test_kills import place, report
from tests.sinks.kafka.world import new_place, sink_at
from tests.sinks.things import plan, window
from tests.warm import stops
from windrow.ingest.admin.transactions import end_transactions
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.transactions import Transactional

__all__ = ["place"]

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def abort(sink: Any, *, force: bool = False) -> Any:
    """Runs `transactions abort` for window 0, without its waiting time."""
    return end_transactions(
        sink.transactions(), "orders", [plan(sink, 0)], force=force, sleep=lambda _: None
    )


@pytest.mark.parametrize("atomic", [False, True], ids=["split", "window"])
def test_a_killed_runs_transaction_is_ended(kafka: str, tmp_path: Path, atomic: bool) -> None:
    """1 A run dies in mid-transaction: readers wait.  2 It is ended: they don't.  3 The
    window is run again: all is there once.
    """
    place = new_place(kafka, str(tmp_path / "staging"), atomic_window=atomic)
    sink = sink_at(place)
    sink.prepare()
    assert isinstance(sink, Transactional)
    until_decided(kafka, sink.options.control)  # a commit is answered before it is marked
    assert sink.transactions().held_back() == []
    assert (
        ended(started(place, 0, "first", "commit.before:kill" if atomic else "split.before:kill"))
        == -signal.SIGKILL
    )
    held_back = sink.transactions().held_back()
    assert {held.topic for held in held_back} == {sink.options.topics[0], sink.options.control}
    assert {held.window for held in held_back} == {window(0).key}
    assert all(held.stable < held.end for held in held_back)
    done = abort(sink)
    assert (done.windows, done.left) == ((window(0).key,), ())
    assert sink.transactions().held_back() == []
    assert sink.look(window(0)) is None
    assert ended(started(place, 0, "retry")) == DONE
    assert report(place, range(1)).ok, str(report(place, range(1)))


def test_a_run_that_is_alive_begins_its_part_again(place: str) -> None:
    """What looks dead may be stopped: its transaction is ended, and when it wakes it
    publishes exactly once all the same.
    """
    zombie = started(place, 0, "zombie", "split.before:stop")
    try:
        assert stops(zombie)
        assert abort(sink_at(place), force=True).windows == (window(0).key,)
        os.kill(zombie.pid or 0, signal.SIGCONT)
        assert ended(zombie) == DONE
    finally:
        zombie.kill()
    assert report(place, range(1)).ok, str(report(place, range(1)))


def test_another_programs_transaction_is_told_and_left(kafka: str, place: str) -> None:
    """Nobody knows its id here: it is said where it holds readers back, and nothing is
    taken from anybody.
    """
    sink = sink_at(place)
    until_decided(kafka, sink.options.control)
    other = OpenTransaction(kafka, sink.options.topics[0])
    other.send([Put(b"another's", 0, 1)])
    try:
        (held,) = sink.transactions().held_back()
        assert (held.topic, held.partition, held.stable, held.end, held.window) == (
            sink.options.topics[0],
            1,
            0,
            1,
            None,
        )
        done = abort(sink)
        assert (done.windows, done.ids, done.left) == ((), (), (held,))
    finally:
        other.abort()


def test_without_transactions_there_are_none_to_tell(kafka: str, tmp_path: Path) -> None:
    """A table that is written at least once refuses the command."""
    with pytest.raises(SpecError, match="without transactions"):
        sink_at(
            new_place(kafka, str(tmp_path / "staging"), delivery="at-least-once")
        ).transactions()
