"""An engine without Spark, for tests and for trying windrow out.

Its tasks run in this process, one after the other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import DeadWorkerError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.pickling import pickle_task

TRIES = 4
"""Number of tries of a task whose worker dies, as on Spark."""


class WorkerDiedError(BaseException):
    """An error by which a test's task simulates the death of its worker.

    It is no Exception, so that no step catches it.
    """


class LocalEngine:
    """A `ports.engine.Engine` in this process.

    Tasks and results are serialized as between processes, and each try gets its own copy of the
    task.
    """

    def start(self) -> None:
        """Does nothing, because the tasks run in this process."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        packed = pickle_task(task) if splits else b""
        with keeping():
            outcomes = [_outcome(packed, split) for split in splits]
        yield from map(result_of, outcomes)


def _outcome(packed: bytes, split: Split) -> str:
    """Returns the outcome of the first try that doesn't raise WorkerDiedError.

    Raises:
        DeadWorkerError: all tries did.
    """
    for _ in range(TRIES):
        try:
            return outcome_of(pickle.loads(packed), split)  # safe: pickled in `run`  # noqa: S301
        except WorkerDiedError:
            continue
    raise DeadWorkerError(
        f"The worker died {TRIES} times",
        "stage",
        "Nothing was committed. Run the window again.",
        split.topic,
        split.partition,
        split.start,
    )
