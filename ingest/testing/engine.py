"""An engine without Spark, for tests and for trying windrow out.

The tasks run in this process, one after the other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.pickling import pickle_task

TRIES = 4
"""The number of tries of a task whose worker dies, as on Spark."""


class WorkerDiedError(BaseException):
    """Raised by a test's task to act as if its worker had been killed.

    It is no Exception, so that no step catches it.
    """


class LocalEngine:
    """A `ports.engine.Engine` in this process.

    Tasks and results are pickled as between processes, and each try has a copy of the
    task.
    """

    def start(self) -> None:
        """Starts nothing: the tasks run in this process."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        packed = pickle_task(task) if splits else b""
        with keeping():
            outcomes = [_outcome(packed, split) for split in splits]
        yield from map(result_of, outcomes)


def _outcome(packed: bytes, split: Split) -> str:
    """The result of the first try that survives."""
    for _ in range(TRIES):
        try:
            return outcome_of(pickle.loads(packed), split)  # pickled above  # noqa: S301
        except WorkerDiedError:
            continue
    raise UnreachableError(
        f"The worker died {TRIES} times",
        "stage",
        "Nothing was committed. Run the window again.",
        split.topic,
        split.partition,
        split.start,
    )
