"""Attempts at windows, the jobs that read several small windows together, and their tasks.

The ledger records which version of its source each lookup of a window asks, before anything is
read. The versions are:

a first run           the current versions
a retry, or a second  the recorded versions
run at the same time
a replay              the versions in the receipt of the generation that it replaces
a changed spec        for a lookup that is new or has another source, the current version
`fresh_lookups`       the current versions; they replace the recorded versions
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec

from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model import grid as grids
from windrow.ingest.model.boundary import label_text
from windrow.ingest.model.ledger_records import PoisonPill
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Committed, Staged
from windrow.ingest.model.source import OnLoss
from windrow.ingest.ports.engine import DataFrameEngine
from windrow.ingest.ports.lookup import (
    PIN_ANEW,
    KeepsVersions,
    LookupSource,
    pinned,
    version_of,
)
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.dataframe_transform import dataframe_work
from windrow.ingest.runner.message_times import LateBins
from windrow.ingest.runner.pickling import pickle_task
from windrow.ingest.runner.progress import ReadProgress
from windrow.ingest.runner.task import SplitTask

TOGETHER = 64
"""Largest number of windows that are looked up, planned and kept in memory together."""

SPLITS_A_JOB = 256
OFFSETS_A_JOB = 200_000
"""Limits of a job of several windows, in splits and in offsets.

The windows of a job are committed after the whole job. The limits keep this wait short.
"""


class Attempt(msgspec.Struct, frozen=True):
    """One run's try at a window.

    Attributes:
        plan: the window's plan.
        replaced: the committed generation that is replaced; None for a first reading.
        generation: the number of the generation that the attempt writes.
        id: the attempt's id.
        on_loss: what becomes of offsets that are gone from the log.
        readable: the splits that can still be read.
        pins: the version that each lookup asks.
        poison_pills: the messages that are left out.
    """

    plan: Plan
    replaced: Committed | None
    generation: int
    id: str
    on_loss: OnLoss
    readable: tuple[Split, ...]
    pins: tuple[Pin, ...] = ()
    poison_pills: tuple[PoisonPill, ...] = ()

    @property
    def offsets(self) -> int:
        return sum(s.stop - s.start for s in self.readable)


@dataclass(frozen=True)
class ReadAttempt:
    """An attempt that was read and staged.

    Attributes:
        pipeline: the pipeline, with a snapshot of the cluster after the reading.
        attempt: the attempt.
        staged: the staged results, one per split of the plan.
    """

    pipeline: Pipeline
    attempt: Attempt
    staged: Sequence[Staged]

    @property
    def seconds(self) -> float:
        """Seconds from the begin of its first task to the end of its last task.

        Other windows of the same job don't count.
        """
        ran = [staged_split.ran for staged_split in self.staged if staged_split.ran is not None]
        return (
            max(0.0, max(ended for _, ended in ran) - min(began for began, _ in ran))
            if ran
            else 0.0
        )


def jobs(attempts: Sequence[Attempt], *, apart: bool = False) -> Iterator[list[Attempt]]:
    """Yields jobs of attempts, in the order of the attempts.

    Small attempts share a job; a large attempt has its own job. Two attempts with the same
    split never share a job, because a job finds an attempt by its splits. Such attempts come
    from two ledgers, and the commit refuses one of them.

    Args:
        attempts: the attempts.
        apart: each attempt has its own job.
    """
    job: list[Attempt] = []
    splits: set[Split] = set()
    offsets = 0
    for attempt in attempts:
        fits = (
            len(splits) + len(attempt.readable) <= SPLITS_A_JOB
            and offsets + attempt.offsets <= OFFSETS_A_JOB
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
    """The tasks of several windows as one task, picklable.

    A split is staged by the task of its window. Each task is pickled alone, so that a worker
    unpickles only the task that it needs.

    Attributes:
        tasks: the pickled `SplitTask` of each window.
        owner: the index in `tasks` for each split.
    """

    tasks: tuple[bytes, ...]
    owner: dict[Split, int]

    def __call__(self, split: Split) -> Staged:
        # safe: the driver pickled these bytes itself
        task: SplitTask = pickle.loads(self.tasks[self.owner[split]])  # noqa: S301
        return task(split)


def one_task(tasks: Sequence[SplitTask], job: Sequence[Attempt]) -> SplitTask | SharedTask:
    """Returns the task that the engine runs for each split of a job.

    Args:
        tasks: the task of each attempt.
        job: the attempts.

    Raises:
        WindrowError: see `pickling.pickle_task`.
    """
    if len(tasks) == 1:
        return tasks[0]
    return SharedTask(
        tuple(map(pickle_task, tasks)),
        {split: i for i, attempt in enumerate(job) for split in attempt.readable},
    )


LATE_WINDOWS = 200
"""Number of earlier windows for which a window counts late messages.

Older messages count for the first of these windows.
"""


def results_of(
    pipeline: Pipeline, job: Sequence[Attempt], splits: Sequence[Split], progress: ReadProgress
) -> Iterator[Staged]:
    """Yields the staged results of a job's splits, in their order, until the first error.

    See `ports.engine.Engine.run`.
    """
    with ExitStack() as open_lookups:
        engine, function = pipeline.engine, pipeline.dataframe_transform
        versions = _open_lookups(pipeline, job, open_lookups, len(splits))
        tasks = [
            _task(pipeline, attempt, attempt_versions, progress)
            for attempt, attempt_versions in zip(job, versions, strict=True)
        ]
        if function is None:
            # `yield from` keeps the tasks' objects alive until the last task has ended
            yield from engine.run(one_task(tasks, job), splits)
            return
        assert isinstance(engine, DataFrameEngine), "assemble refuses any other engine"
        # with a DataFrame function, `jobs(apart=True)` gives each window its own job
        (task,), (task_versions,) = tasks, versions
        later_transform = pinned(function.later_transform(), task_versions)
        yield from engine.transform(
            dataframe_work(pipeline, function, later_transform, task), splits
        )


@contextmanager
def open_task(pipeline: Pipeline, attempt: Attempt) -> Iterator[SplitTask]:
    """Holds the lookups' versions, and yields a task of the window that runs on this machine.

    Its reader fetches single batches.
    """
    with ExitStack() as open_lookups:
        (versions,) = _open_lookups(pipeline, [attempt], open_lookups, 1)
        yield _task(pipeline, attempt, versions, ReadProgress(attempt.id), single_batches=True)


def _open_lookups(
    pipeline: Pipeline, job: Sequence[Attempt], open_lookups: ExitStack, splits: int
) -> list[dict[str, str]]:
    """Holds the versions of the lookups' sources until `open_lookups` is closed.

    Each version is held once for all tasks of the job.

    Args:
        pipeline: the pipeline.
        job: the attempts.
        open_lookups: closes what is held.
        splits: the number of splits of the job.

    Returns:
        For each attempt, the version that its tasks open, by the lookup's name.
    """
    sources = pipeline.lookups()

    @cache
    def hold(pin: Pin) -> str:
        return open_lookups.enter_context(sources[pin.lookup].hold(pin.version, splits))

    return [{pin.lookup: hold(pin) for pin in attempt.pins} for attempt in job]


def _task(
    pipeline: Pipeline,
    attempt: Attempt,
    versions: Mapping[str, str],
    progress: ReadProgress,
    *,
    single_batches: bool = False,
) -> SplitTask:
    plan, named = attempt.plan, (attempt.plan, attempt.generation, attempt.id)
    reading = ReadPlan(
        plan.stop.cluster_id,
        {t.topic: t.topic_id for t in plan.stop.topics},
        attempt.on_loss,
        single_batches,
    )
    rows, dead = pipeline.sink.stager(*named), pipeline.dead_letters.stager(*named)
    bins = make_late_bins(pipeline, plan.window)
    keyed = pipeline.sink.capabilities.mode != "append"
    return SplitTask(
        pipeline.reader(reading),
        pinned(pipeline.decoder(), versions),
        pinned(pipeline.transform(), versions),
        rows,
        dead,
        bins,
        keyed,
        progress,
        attempt.poison_pills,
    )


def make_late_bins(pipeline: Pipeline, window: Window) -> LateBins | None:
    """Returns the bounds in time that a window's messages are compared with."""
    grid = pipeline.spec.window
    if window.span is None or not isinstance(grid, TimeWindows):
        return None
    start, end = window.span
    labels = [
        label
        for label in grids.labels_back(grid.grid, start, LATE_WINDOWS)
        if grid.start <= label < start
    ]
    edges = [*labels, start, end]
    keys = tuple(label_text(edge) for edge in edges[:-1])
    return LateBins(tuple(_millis(edge) for edge in edges), keys, grid.event_time)


def _millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def with_pins(
    pipeline: Pipeline, attempts: Sequence[Attempt], *, fresh: bool = False
) -> list[Attempt]:
    """Returns the attempts with `pins`, the version that each lookup asks.

    Args:
        pipeline: the pipeline.
        attempts: the attempts without pins.
        fresh: pins the current versions, even if other versions are recorded.

    Raises:
        SpecError: a source doesn't exist; or with `fresh` the table may have shown a part of
            the window already.
        RefusedError: a recorded version is gone.
        UnreachableError: a source doesn't answer.
    """
    sources = pipeline.lookups() if attempts else {}
    if not sources:
        return list(attempts)

    @cache
    def pin_now(lookup: str) -> Pin:
        return Pin(lookup, sources[lookup].identity, version_of(sources[lookup]))

    pinned_attempts = []
    for attempt in attempts:
        window, generation, replaced = attempt.plan.window, attempt.generation, attempt.replaced
        recorded = pipeline.ledger.pins(window, generation)
        if fresh and recorded and pipeline.sink.capabilities.atomic != "window":
            raise _shown_in_part(pipeline, window.key)
        known_pins = [*(() if replaced is None else replaced.receipt.pins), *recorded]
        pin_by_source = {} if fresh else {(pin.lookup, pin.source): pin for pin in known_pins}
        pins = [
            pin_by_source.get((lookup, source.identity)) or pin_now(lookup)
            for lookup, source in sources.items()
        ]
        for pin in [pin for pin in pins if pin in known_pins]:
            find_pin_end(pipeline, window, pin, sources[pin.lookup])  # refuses one that is gone
        frozen = pipeline.ledger.freeze_pins(window, generation, pins, anew=fresh)
        pinned_attempts.append(msgspec.structs.replace(attempt, pins=frozen))
    return pinned_attempts


def find_pin_end(
    pipeline: Pipeline, window: Window, pin: Pin, source: LookupSource
) -> datetime | None:
    """Returns when a newer version replaced the one of a pin; None if that isn't known.

    Raises:
        RefusedError: the version can't be read any more.
        SpecError, UnreachableError: as `ports.lookup.KeepsVersions.replaced_at`.
    """
    try:
        return source.replaced_at(pin.version) if isinstance(source, KeepsVersions) else None
    except RefusedError as error:
        raise RefusedError(
            f"window {window.key} of {pipeline.sink.identity} is pinned to a version of"
            f" {pin.source} that is gone: {error.message}",
            "setup",
            f"Nothing was read. {error.advice}{PIN_ANEW}",
        ) from None


def pins_now(sources: Mapping[str, LookupSource]) -> tuple[Pin, ...]:
    """Returns the current version of the source of each lookup.

    Raises:
        SpecError: a source doesn't exist.
        UnreachableError: a source doesn't answer.
    """
    return tuple(Pin(name, source.identity, version_of(source)) for name, source in sources.items())


def _shown_in_part(pipeline: Pipeline, key: str) -> SpecError:
    return SpecError(
        f"The lookups of window {key} can't be made anew: {pipeline.sink.identity} shows a window"
        " piece by piece, and a run that died may have shown some of it with the answers of before",
        "plan",
        "Nothing was read. Bring back the version that the window is pinned to.",
    )
