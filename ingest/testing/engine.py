"""An engine without Spark, for tests and for trying windrow out: the tasks run in this
process, one after the other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import BugError, UnreachableError, WindrowError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.runner.spark.outcome import brought_back, tried

TRIES = 4
"""Tries of a task whose worker dies, as on Spark."""


class WorkerDiedError(BaseException):
    """Raised by a task of a test: its worker is gone, as one that was killed.

    No Exception, so that no step catches it.
    """


class LocalEngine:
    """`ports.engine.Engine` in this process.

    Tasks and results travel as they would between processes, each try with a task of its own.
    """

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        try:
            packed = pickle.dumps(task) if splits else b""
        except WindrowError:
            raise
        except Exception as error:
            raise BugError.of(error, "setup") from error
        with keeping():
            outcomes = [_outcome(packed, split) for split in splits]
        yield from map(brought_back, outcomes)


def _outcome(packed: bytes, split: Split) -> str:
    """The result of the first try that survived."""
    for _ in range(TRIES):
        try:
            return tried(pickle.loads(packed), split)  # our own, of a moment ago  # noqa: S301
        except WorkerDiedError:
            continue
    do = "Nothing was committed. Run the window again."
    raise UnreachableError(
        f"The worker died {TRIES} times", "stage", do, split.topic, split.partition, split.start
    )
