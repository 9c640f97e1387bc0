"""Broken twins at a place, of kinds whose worlds have none, with the crash point
between the look and the write.

Each does without faults all that the real one does. What a twin stands on is loaded
when it is made.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from tests.sinks.things import ROWS
from windrow.ingest.crashpoints import crash_point

WAITING = partial(crash_point, "commit.before")


def append_by_path(place: str) -> Any:
    """Delta: the write loads a snapshot of its own."""
    from tests.sinks.delta.twins import AppendByPath

    return AppendByPath(place, ROWS)


def look_then_write(place: str) -> Any:
    """PostgreSQL: no lock, and a receipt that takes the place of one that is there."""
    from tests.sinks.postgres.twins import LookThenWrite
    from tests.sinks.postgres.world import place_of

    return LookThenWrite(place_of(place), WAITING)


def receipt_first(place: str) -> Any:
    """SQLite: the receipt and its rows in a transaction each."""
    from tests.sinks.sqlite.world import ReceiptFirst

    return ReceiptFirst(place)


def random_id(place: str) -> Any:
    """Kafka: transactional ids that fence nobody, so that what a dead run left open
    ends by the broker's clock alone.
    """
    from tests.sinks.kafka.twins import RandomId
    from tests.sinks.kafka.world import at

    class Stopping(RandomId):
        """Another run gets its turn while this one is stopped."""

        def meanwhile(self) -> None:
            crash_point("split.before")

    return at(place, Stopping, timeout=timedelta(seconds=10))


def record_first(place: str) -> Any:
    """Kafka, at least once: what is published is recorded before it is sent, so that a
    run that dies in between has lost it.
    """
    from tests.sinks.kafka.twins import RecordFirst
    from tests.sinks.kafka.world import at

    return at(place, RecordFirst)


def window_first(place: str) -> Any:
    """Several tables: the one with the receipts is first."""
    from tests.sinks.routes.world import WindowFirst, at

    return at(place, WindowFirst)
