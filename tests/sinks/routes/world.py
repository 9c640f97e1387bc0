"""Several tables behind one receipt, as the harness of `tests.chaos` has them: two of
Delta and one of SQLite, in a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sinks.routes.things import RoutedBoth, of_two_kinds, pieces
from tests.sinks.things import ROWS
from windrow.ingest.crashpoints import CrashPoint, crash_point
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Done, Outcome
from windrow.ingest.sinks.routes.parts import parts_for, staged_for

__all__ = ["pieces"]

LOCKS_BETWEEN = True
"""Whoever is stopped in the transaction of the SQLite table holds its lock."""

POINTS: tuple[CrashPoint, ...] = ("commit.between",)
BETWEEN: CrashPoint = "commit.between"
ARRIVED: tuple[CrashPoint, ...] = ("report.before",)
"""Who dies right behind a commit has committed to the first table alone."""


def sink_at(place: str) -> Any:
    """The sink at a place."""
    return at(place, RoutedBoth)


def at(place: str, kind: type[RoutedBoth]) -> Any:
    """The same, or a twin of it."""
    return of_two_kinds(Path(place), ROWS, DEFAULT, kind)


class WindowFirst(RoutedBoth):
    """A broken twin: the window's receipt, and then the rows of the other tables."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        held = self._other.look(receipt.window)
        outcome = self._other.commit(
            receipt, staged_for(parts_for(self._other.identity, staged), staged)
        )
        crash_point("commit.between")
        for table in self._tables if isinstance(outcome, Done) else ():
            self._commit_to(table, receipt, staged, held)
        return outcome
