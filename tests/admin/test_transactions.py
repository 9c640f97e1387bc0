"""Which transactions are ended, and which are left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.sinks.things import plan, window
from windrow.ingest.admin import transactions as module
from windrow.ingest.admin.transactions import end_transactions, plans_of, unfinished
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.transactions import HeldBack

PLANS = [plan(type("Nowhere", (), {"identity": "kafka:nowhere"})(), number) for number in range(3)]
KEYS = [made.window.key for made in PLANS]


class Transactions:
    """Logs in memory.

    `opened`: by topic the windows of its open transactions, the oldest first; `grows`:
    where somebody writes.
    """

    def __init__(self, opened: dict[str, list[str | None]], grows: str = "") -> None:
        self.open, self.grows, self.asked, self.ended = opened, grows, 0, list[str]()

    def ids(self, pipeline_id: str, plans: Sequence[Plan]) -> list[str]:
        """One for the table, one for each window."""
        return [f"{pipeline_id}.table", *(made.window.key for made in plans)]

    def held_back(self) -> list[HeldBack]:
        """The oldest of each."""
        self.asked += 1
        return [
            HeldBack(t, 0, 10 - len(o), 10 + self.asked * (t == self.grows), o[0])
            for t, o in sorted(self.open.items())
            if o
        ]

    def end(self, ids: Sequence[str]) -> None:
        """Those with these ids go."""
        self.ended += ids
        self.open = {
            topic: [key for key in keys if key not in ids] for topic, keys in self.open.items()
        }


def ended(transactions: Transactions, plans: Sequence[Plan] = PLANS, *, force: bool = False) -> Any:
    """What is done, without waiting."""
    return end_transactions(transactions, "orders", plans, force=force, sleep=lambda _: None)


def test_what_lies_behind_another_is_ended_too() -> None:
    """Only the oldest open transaction of a log is seen: it is looked again until none
    of these windows is in the way.
    """
    transactions = Transactions({"a": [KEYS[0], KEYS[2]], "b": [KEYS[0], None, KEYS[1]]})
    done = ended(transactions)
    assert (done.windows, [held.window for held in done.left]) == ((KEYS[0], KEYS[2]), [None])
    assert KEYS[1] not in transactions.ended, "what can't be seen is not known to be open"


def test_other_windows_and_other_programs_stay() -> None:
    """Of the windows that were asked for alone; where nothing of them is in the way, no
    id is taken from anybody.
    """
    transactions = Transactions({"a": [KEYS[1]], "b": [None]})
    done = ended(transactions, PLANS[:1])
    assert (done.windows, done.ids, transactions.ended, len(done.left)) == ((), (), [], 2)


def test_a_live_run_is_left_alone() -> None:
    """Where messages come while it is watched, nothing is ended, and the place is
    named; --force ends it all the same.
    """
    transactions = Transactions({"a": [KEYS[0]], "b": [None]}, grows="a")
    with pytest.raises(RefusedError, match="may be alive") as refused:
        ended(transactions)
    assert (refused.value.topic, transactions.ended) == ("a", [])
    assert ended(transactions, force=True).windows == (KEYS[0],)


def test_another_programs_writing_is_no_live_run() -> None:
    """Only what comes behind these windows' transactions counts."""
    assert ended(Transactions({"a": [KEYS[0]], "b": [None]}, grows="b")).windows == (KEYS[0],)


def test_a_transaction_that_cannot_be_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One under other ids, of a pipeline whose windows have the same names, stays:
    after a while that is said.
    """
    monkeypatch.setattr(module, "SEEN_SECONDS", 0.0)
    transactions = Transactions({"a": [KEYS[0]]})
    monkeypatch.setattr(transactions, "end", lambda _: None)
    done = ended(transactions)
    assert (done.windows, [held.window for held in done.left]) == ((KEYS[0],), [KEYS[0]])


class Ledger:
    """Boundaries and plans of the first windows, the second without a plan."""

    def newest(self, pipeline_id: str, count: int) -> list[Boundary]:
        """All of them."""
        assert (pipeline_id, count) == ("orders", module.NEWEST)
        return [PLANS[0].start, *(made.stop for made in PLANS)]

    def plan(self, asked: Any) -> Plan | None:
        """Those of the first and the third."""
        return next((made for made in (PLANS[0], PLANS[2]) if made.window == asked), None)


class Sink:
    """A table with the first window."""

    def looks(self, windows: Sequence[Any]) -> list[Any]:
        """The first is there."""
        return ["committed" if asked == window(0) else None for asked in windows]


def test_what_was_begun_and_is_not_committed() -> None:
    """By the ledger's plans and the table's receipts; a window without a plan was never begun."""
    assert unfinished("orders", Sink(), Ledger()) == [PLANS[2]]  # type: ignore[arg-type]
    assert plans_of([window(2)], Ledger()) == [PLANS[2]]  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=KEYS[1]):
        plans_of([window(1), window(2)], Ledger())  # type: ignore[arg-type]
