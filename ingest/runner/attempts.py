"""Attempts at windows, and which of them are read by one job: small ones together, so
that a job's own cost is shared.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from windrow.ingest.errors import BugError
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Committed
from windrow.ingest.model.source import OnLoss
from windrow.ingest.model.staged import Staged
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.task import SplitTask

TOGETHER = 64
"""So many windows are looked at and planned together at most: what is kept of them at once."""

_SPLITS, _OFFSETS = 256, 200_000
"""A job of several windows has at most so many splits and offsets, so that the first of
them needn't wait long for the last.
"""


@dataclass(frozen=True)
class Attempt:
    """One run's try at a window.

    `found`: the committed generation to be replaced. `readable`: the splits that can still be read.
    """

    plan: Plan
    found: Committed | None
    generation: int
    id: str
    on_loss: OnLoss
    readable: tuple[Split, ...]

    @property
    def offsets(self) -> int:
        """How many offsets it reads."""
        return sum(s.stop - s.start for s in self.readable)


@dataclass(frozen=True)
class Read:
    """What an attempt staged, one result per split of its plan.

    `now`: the pipeline at a moment after that.
    """

    now: Pipeline
    attempt: Attempt
    staged: Sequence[Staged]

    @property
    def seconds(self) -> float:
        """From when the first of its tasks began until the last one ended: its own,
        whatever else was read by the same job.
        """
        ran = [one.ran for one in self.staged if one.ran is not None]
        return (
            max(0.0, max(ended for _, ended in ran) - min(began for began, _ in ran))
            if ran
            else 0.0
        )


def jobs(attempts: Sequence[Attempt], *, apart: bool = False) -> Iterator[list[Attempt]]:
    """Attempts in their order, as many to a job as are small together; a large one has
    a job of its own, and so has each if `apart`.

    Two windows that want the very same split (of two ledgers: a commit will refuse one)
    are never in one job, which tells them by that.
    """
    job: list[Attempt] = []
    splits: set[Split] = set()
    offsets = 0
    for attempt in attempts:
        fits = (
            len(splits) + len(attempt.readable) <= _SPLITS and offsets + attempt.offsets <= _OFFSETS
        )
        if job and (apart or not (fits and splits.isdisjoint(attempt.readable))):
            yield job
            job, splits, offsets = [], set(), 0
        job.append(attempt)
        splits.update(attempt.readable)
        offsets += attempt.offsets
    if job:
        yield job


@dataclass(frozen=True)
class SharedTask:
    """The tasks of several windows as one: each split is staged by the task of the
    window that it was planned for.

    Picklable.

    Each task is packed by itself: a worker unpacks the one that it needs, not those of all windows.
    """

    tasks: tuple[bytes, ...]
    owner: dict[Split, int]

    def __call__(self, split: Split) -> Staged:
        task: SplitTask = pickle.loads(self.tasks[self.owner[split]])  # our own, of the driver's  # noqa: S301
        return task(split)


def one_task(tasks: Sequence[SplitTask], job: Sequence[Attempt]) -> SplitTask | SharedTask:
    """What the engine runs for each split of a job; `tasks`: each attempt's.

    Raises:
        BugError: one can't travel.
    """
    if len(tasks) == 1:
        return tasks[0]
    try:
        packed = tuple(map(pickle.dumps, tasks))
    except Exception as error:
        raise BugError.of(error, "setup") from error
    return SharedTask(
        packed, {split: i for i, attempt in enumerate(job) for split in attempt.readable}
    )
