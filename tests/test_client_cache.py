"""What waits for the next split."""

from __future__ import annotations

import threading

import pytest

from windrow.ingest.client_cache import is_keeping, keep, keeping, taken


class Thing:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        """See `Closeable.close`."""
        self.closed += 1


def test_what_is_kept_is_taken_once_and_closed_at_the_end() -> None:
    """Who takes a thing has it alone; what nobody takes is closed when the last split
    is done, and nothing is closed twice.
    """
    one, other = Thing(), Thing()
    with keeping():
        keep("a", one)
        keep("b", other)
        assert taken("a") is one
        assert taken("a") is None
    assert (one.closed, other.closed) == (0, 1)
    assert not is_keeping()


def test_one_waits_under_a_key() -> None:
    """The newer one stays, the older one is closed."""
    one, other = Thing(), Thing()
    with keeping():
        keep("a", one)
        keep("a", other)
        assert (one.closed, other.closed) == (1, 0)
        assert taken("a") is other


def test_without_keeping_nothing_waits() -> None:
    """Outside of a run's splits a thing is closed at once."""
    thing = Thing()
    keep("a", thing)
    assert thing.closed == 1
    assert taken("a") is None


def test_all_are_closed_although_one_can_not_be() -> None:
    """A thing that fails to close keeps no other one open."""

    class Stuck(Thing):
        def close(self) -> None:
            raise OSError("stuck")

    things = [Thing(), Stuck(), Thing()]
    with pytest.raises(OSError, match="stuck"), keeping():  # noqa: PT012
        for number, thing in enumerate(things):
            keep(number, thing)
    assert [thing.closed for thing in things] == [1, 0, 1]


def test_each_thread_keeps_its_own() -> None:
    """Clients belong to the thread that reads."""
    seen: list[object] = []
    with keeping():
        keep("a", Thing())
        other = threading.Thread(target=lambda: seen.extend((is_keeping(), taken("a"))))
        other.start()
        other.join(10)
    assert seen == [False, None]
