"""The checks of `windrow doctor` on executors: a small task on every one of them.

Each worker compares its Python and packages with the driver's before any task begins
(`ingest.runner.spark.worker_bootstrap`). The tasks here check the rest: whether the
brokers and the sink's places can be reached.

Spark doesn't say which executor takes a task, and executors may still be starting. So
there are rounds of as many tasks as run at once, each of which takes a moment, and the
last round is the first one that finds no new executor.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread

import msgspec

from windrow.ingest.errors import UnreachableError, WindrowError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import SplitCounts, Staged
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import Reader, read_until
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.source.enumerator.topics import Discovered

STAY_SECONDS = 0.5
"""The time that a task takes, so that no executor takes two while another has none."""

_ROUNDS = 20
LIMIT_SECONDS = 180.0
"""Most seconds of a round: for the start of an executor and a broker's timeout."""

_READS = 8
"""From so many topic-partitions each executor tries to read.

They are spread over all topic-partitions, so that different brokers lead them.
"""


class Trouble(msgspec.Struct, frozen=True):
    """A problem of an executor, and what to do about it."""

    what: str
    do: str


class Answer(msgspec.Struct, frozen=True):
    """The result of a task.

    Its machine, the folder of its executor, its Python interpreter, and the problems.
    """

    machine: str
    folder: str
    python: str
    troubles: tuple[Trouble, ...]

    @property
    def executor(self) -> tuple[str, str]:
        return self.machine, self.folder


class Marker(msgspec.Struct, frozen=True):
    """A file that the driver has written to a place of the sink. `place`: its URI."""

    place: str
    name: str


@dataclass(frozen=True)
class Survey:
    """The task. It returns its answer as the committable of an empty split. Picklable.

    `reader` reads the first batch of each of the `splits`; `markers` are the driver's
    files in the sink's places.
    """

    reader: Reader
    splits: tuple[Split, ...]
    markers: tuple[Marker, ...]

    def __call__(self, split: Split) -> Staged:
        # only the first one, because each may take a while
        unread = next(
            (trouble for trouble in map(self._read, self.splits) if trouble is not None), None
        )
        troubles = [t for t in (unread, *map(_try_writing, self.markers)) if t is not None]
        report = Answer(socket.gethostname(), str(Path.cwd()), sys.executable, tuple(troubles))
        time.sleep(STAY_SECONDS)
        document = msgspec.json.encode(report).decode()
        return Staged(split, SplitCounts.of_nothing(split), (document,), ())

    def _read(self, split: Split) -> Trouble | None:
        try:
            read_until(self.reader, split, lambda _: True)
        except WindrowError as error:
            return Trouble(f"{split.tp} can't be read there: {error.what}", error.do)
        return None


def _try_writing(marker: Marker) -> Trouble | None:
    """Looks for the driver's file, writes another one next to it, and removes that."""
    folder, probe_name = Place(marker.place), f"{marker.name}-{socket.gethostname()}-{os.getpid()}"
    advice = (
        "Put the table on a folder that all machines share under one name, or into an object store."
    )
    try:
        if folder.seen([marker.name])[marker.name] is None:
            return Trouble(
                f"{marker.place} is another place there: a file that the driver has just written"
                " doesn't exist",
                advice,
            )
        folder.put(probe_name, b"windrow doctor")
        folder.remove(probe_name)
    except WindrowError as error:
        return Trouble(f"{marker.place} can't be written there: {error.what}", error.do)
    except OSError as error:
        return Trouble(
            f"{marker.place} can't be written there: {type(error).__name__}",
            "Let the workers' user write there.",
        )
    return None


class Surveyed(msgspec.Struct, frozen=True):
    """All executors that answered, and the machines that have each trouble, by name.

    `read` and `written`: from how many topic-partitions each executor had to read, and
    to how many places it had to write. `complete`: True if the last round found no new
    executor.
    """

    executors: Sequence[Answer]
    troubles: Mapping[Trouble, Sequence[str]]
    read: int
    written: int
    complete: bool = True

    @property
    def machines(self) -> list[str]:
        return sorted({report.machine for report in self.executors})


def look_around(
    pipeline: Pipeline, engine: Engine, slots: Callable[[], int], topics: Discovered
) -> Surveyed:
    """Runs the checks on every executor.

    Writes a small file to each of the sink's places, and removes it.

    Args:
        pipeline: the pipeline whose brokers and places are tried.
        engine: runs the tasks.
        slots: returns how many tasks run at once; called after the first task.
        topics: the pipeline's topics.

    Raises:
        UnreachableError: tasks can't be run, or take longer than three minutes; or a
            worker differs from the driver.
        WindrowError: the driver itself can't read or write.
    """
    reader = pipeline.reader(topics.read_plan("fail"))
    splits = tuple(_first_messages(pipeline, topics))
    markers = tuple(
        Marker(_nearest_folder(uri), f".windrow-doctor-{uuid.uuid4().hex}")
        for uri in sorted(set(pipeline.sink.places()))
    )
    for marker in markers:
        Place(marker.place).put(marker.name, b"windrow doctor")
    try:
        return surveyed(engine, Survey(reader, splits, markers), slots)
    finally:
        for marker in markers:
            Place(marker.place).remove(marker.name)


def surveyed(engine: Engine, task: Survey, slots: Callable[[], int]) -> Surveyed:
    """Runs the task in more and more places, until no executor answers that hasn't before.

    `slots` tells how many tasks run side by side.
    """
    executors: dict[tuple[str, str], Answer] = {}
    troubles: dict[Trouble, set[str]] = defaultdict(set)
    tasks = 1
    for _ in range(_ROUNDS):
        executor_count = len(executors)
        for report in _call_within(LIMIT_SECONDS, partial(_answers, engine, task, tasks)):
            executors[report.executor] = report
            for trouble in report.troubles:
                troubles[trouble].add(report.machine)
        if complete := tasks > 1 and len(executors) == executor_count:
            break
        tasks = max(2, slots())
    machines_of = {trouble: sorted(machines) for trouble, machines in troubles.items()}
    answers = list(executors.values())
    return Surveyed(answers, machines_of, len(task.splits), len(task.markers), complete)


def _call_within(seconds: float, call: Callable[[], list[Answer]]) -> list[Answer]:
    """Calls a function with a limit: Spark waits as long as a cluster has no free worker.

    Raises:
        UnreachableError: it takes longer. Its thread goes on, and ends with the process.
        WindrowError: raised by the function.
    """
    future: Future[list[Answer]] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as failed:  # raised again by the waiting thread  # noqa: BLE001
            future.set_exception(failed)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        raise UnreachableError(
            f"No task has ended within {seconds:.0f} s",
            "setup",
            "Does the cluster have workers with free cores and memory, and do they reach the driver"
            " (spark.driver.host)?",
        ) from None


def _answers(engine: Engine, task: Survey, tasks: int) -> list[Answer]:
    # no more splits than tasks that run at once, so each is a Spark task of its own
    splits = [Split("windrow-doctor", number, 0, 1) for number in range(tasks)]
    return [msgspec.json.decode(staged.rows[0], type=Answer) for staged in engine.run(task, splits)]


def _first_messages(pipeline: Pipeline, topics: Discovered) -> Iterator[Split]:
    """The first messages of some topic-partitions that have any, each as a split."""
    starts, ends = pipeline.broker.log_starts(topics.tps), pipeline.broker.stable_ends(topics.tps)
    filled: list[TopicPartition] = sorted(tp for tp in topics.tps if starts[tp] < ends[tp].offset)
    for tp in filled[:: -(-len(filled) // _READS) or 1]:
        yield Split(tp.topic, tp.partition, starts[tp], starts[tp] + 1)


def _nearest_folder(location: str) -> str:
    """A place that exists, without making one: the nearest folder at or above a local path."""
    if "://" in location and not location.startswith("file://"):
        return location
    folder = Path(location.removeprefix("file://")).absolute()
    nearest = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    if nearest is None:
        raise UnreachableError(
            f"No folder above {location} exists",
            "setup",
            "Set the sink's path to an existing folder.",
        )
    return str(nearest)
