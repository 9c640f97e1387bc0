"""Clients that a thread keeps for its next split."""

from __future__ import annotations

import threading

import pytest

from windrow.ingest.client_cache import is_keeping, keep, keeping, take_client


class Thing:
    """A client that counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        """See `Closeable.close`."""
        self.closed += 1


def test_what_is_kept_is_taken_once_and_closed_at_the_end() -> None:
    """A kept client is given to one taker only.

    Clients that are not taken are closed once, when the last split is done.
    """
    taken_client, unused_client = Thing(), Thing()
    with keeping():
        keep("a", taken_client)
        keep("b", unused_client)
        assert take_client("a") is taken_client
        assert take_client("a") is None
    assert (taken_client.closed, unused_client.closed) == (0, 1)
    assert not is_keeping()


def test_a_key_has_one_kept_client() -> None:
    """A newer client under the same key replaces the older one, which is closed."""
    older, newer = Thing(), Thing()
    with keeping():
        keep("a", older)
        keep("a", newer)
        assert (older.closed, newer.closed) == (1, 0)
        assert take_client("a") is newer


def test_without_keeping_no_client_is_kept() -> None:
    """Outside of a run's splits, a client is closed immediately."""
    client = Thing()
    keep("a", client)
    assert client.closed == 1
    assert take_client("a") is None


def test_all_are_closed_although_one_can_not_be() -> None:
    """A client that fails to close doesn't keep other clients open."""

    class Stuck(Thing):
        def close(self) -> None:
            raise OSError("stuck")

    things = [Thing(), Stuck(), Thing()]
    with pytest.raises(OSError, match="stuck"), keeping():  # noqa: PT012
        for number, client in enumerate(things):
            keep(number, client)
    assert [client.closed for client in things] == [1, 0, 1]


def test_each_thread_keeps_its_own() -> None:
    """Kept clients belong to one thread; another thread doesn't see them."""
    thread_view: list[object] = []
    with keeping():
        keep("a", Thing())
        thread = threading.Thread(
            target=lambda: thread_view.extend((is_keeping(), take_client("a")))
        )
        thread.start()
        thread.join(10)
    assert thread_view == [False, None]
