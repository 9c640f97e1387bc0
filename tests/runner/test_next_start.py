"""The start of the next window: the end of the one before, or a rebase."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.ledger_contract import PIPELINE, boundary, cut, hour_at, receipt, window
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.runner.next_start import next_start, next_start_after, start_of


@pytest.fixture
def ledger(tmp_path: Path) -> SqlLedger:
    """A new ledger."""
    return open_ledger(str(tmp_path / "state.db"))


def test_nothing_frozen_has_no_frontier(ledger: SqlLedger) -> None:
    """Without a frozen boundary the first window's start is unknown.

    Another pipeline's boundaries don't count.
    """
    assert next_start(ledger, PIPELINE) is None
    ledger.freeze("other", [boundary(1, 5)])
    assert next_start(ledger, PIPELINE) is None


def test_the_frontier_is_the_newest_boundary(ledger: SqlLedger) -> None:
    """The next window begins at the boundary with the highest label, in whatever order they
    were frozen.
    """
    ledger.freeze(PIPELINE, [boundary(3, 70)])
    ledger.freeze(PIPELINE, [boundary(1, 50)])
    assert next_start(ledger, PIPELINE) == boundary(3, 70)


def test_a_rebase_moves_the_frontier(ledger: SqlLedger) -> None:
    """After a rebase the next window begins at the rebase, until a later boundary is frozen."""
    ledger.freeze(PIPELINE, [boundary(1, 50), boundary(3, 70)])
    rebased = cut(hour_at(3), 0, topic_id="anew")
    ledger.rebase(PIPELINE, rebased)
    assert next_start(ledger, PIPELINE) == rebased
    later = cut(hour_at(4), 9, topic_id="anew")
    ledger.freeze(PIPELINE, [later])
    assert next_start(ledger, PIPELINE) == later


def test_behind_a_committed_window_comes_its_end_or_a_rebase(ledger: SqlLedger) -> None:
    """The window after a committed one begins where the ledger says; if the ledger is lost, at
    the receipt's end.
    """
    committed = receipt(2)
    assert next_start_after(ledger, committed) == committed.plan.stop
    ledger.freeze(PIPELINE, [boundary(3, 5)])
    rebased = cut(hour_at(3), 0, topic_id="anew")
    ledger.rebase(PIPELINE, rebased)
    assert next_start_after(ledger, committed) == rebased


def test_a_window_begins_at_what_was_recorded_last(ledger: SqlLedger) -> None:
    """A window begins at a rebase that was recorded while the window was frozen; otherwise at
    the frozen boundary.
    """
    frozen = boundary(3, 70)
    assert start_of(ledger, window(3), frozen) == frozen
    ledger.freeze(PIPELINE, [frozen])
    assert start_of(ledger, window(3), frozen) == frozen
    rebased = cut(hour_at(3), 0, topic_id="anew")
    ledger.rebase(PIPELINE, rebased)
    assert start_of(ledger, window(3), frozen) == rebased
