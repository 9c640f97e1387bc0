"""Where tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ingest.model.plan import Split
from ingest.model.staged import Staged


class Engine(Protocol):
    """Runs one task per split somewhere and brings the small results back."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Call `task` for each split; exactly one result per split, in the order of `splits`, an error in the place of its split's.

        The task is pickled, and each try has one of its own; what it keeps (`ingest.keeping`) waits for those of this run that its worker
        takes after it. A try whose worker dies is followed by another one, so a task must be one that may be repeated; a try that ends in
        an error is the last. All splits are tried before an error is raised; the results of the splits before it have come by then.
        Without splits nothing is started.

        Raises:
            WindrowError: a task's own error, with all its fields as it was raised; of several the first split's. Nothing comes after it.
                Also what the task itself says where it is pickled, of a file that it can't take along; nothing has begun then.
            BugError: a task raised what nobody foresaw, or can't be pickled. Its type and place are told, never its text.
            UnreachableError: the engine can't be started, a task ran out of memory, or its worker died again and again.
        """
