"""The texts of the ledger's records of pauses."""

from __future__ import annotations

from datetime import UTC, datetime

from windrow.ingest.model.ledger_records import Pause

AT = datetime(2026, 1, 5, 3, tzinfo=UTC)


def test_who_when_and_why() -> None:
    """A record of a pause says who made it, when, and the reason if there is one."""
    paused, resumed = Pause(0, True, "ann", "look", AT), Pause(1, False, "bob", "", AT)
    assert str(paused) == "is paused by ann since 2026-01-05T03:00:00Z: look"
    assert str(resumed) == "was resumed by bob at 2026-01-05T03:00:00Z"
