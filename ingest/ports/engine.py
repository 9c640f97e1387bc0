"""Where tasks run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ingest.model.plan import Split
from ingest.model.staged import Staged


class Engine(Protocol):
    """Runs one task per split somewhere and brings the small results back."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """One call of `task` (picklable, may be tried again) per split; exactly one result per split, in the order of `splits`.

        Raises:
            WindrowError: a task's own error, as it was raised.
            UnreachableError: the engine itself failed.
        """
