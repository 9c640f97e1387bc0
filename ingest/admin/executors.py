"""The checks of `windrow doctor` where tasks run: a small task on every executor.

Python and packages are compared before any task begins
(`ingest.runner.spark.worker_bootstrap`), so here is the rest: the brokers, the places
that tasks write to.

Nothing tells a task from outside which executor takes it, and executors may still be
coming up. So there are rounds of as many tasks as run at once, each of which stays a
moment, and they end with the first round that meets nobody new.
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
from functools import partial
from pathlib import Path
from threading import Thread

import msgspec

from windrow.ingest.errors import UnreachableError, WindrowError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import SplitCounts
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import Reader, ReadPlan, read_until
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.place import Place
from windrow.ingest.source.enumerator.topics import Discovered

STAY_SECONDS = 0.5
"""How long a task stays, so that no executor takes two while another has none."""

_ROUNDS = 20
LIMIT_SECONDS = 180.0
"""Of a round: an executor has to begin, and to give up a broker that doesn't answer."""

_READ_OF = 8
"""At so many topic-partitions, spread over all, each executor tries to read: their
leaders are different brokers.
"""


class Trouble(msgspec.Struct, frozen=True):
    """A problem of an executor, and what to do about it."""

    what: str
    do: str


class Answer(msgspec.Struct, frozen=True):
    """What a task saw: its machine, the folder that its executor works in, the
    interpreter, what is wrong.
    """

    machine: str
    folder: str
    python: str
    troubles: tuple[Trouble, ...]

    @property
    def executor(self) -> tuple[str, str]:
        """By which two executors differ."""
        return self.machine, self.folder


class Marker(msgspec.Struct, frozen=True):
    """A file that the driver has put at a place that tasks write to; `place` is a URI."""

    place: str
    name: str


class Survey(msgspec.Struct, frozen=True):
    """The task: what it finds travels as the committable of a split that holds nothing. Picklable.

    `reader` and `splits`: what to read, and by what, of each split the first batch.
    `markers`: what the driver has put where tasks write.
    """

    reader: Reader
    splits: tuple[Split, ...]
    markers: tuple[Marker, ...]

    def __call__(self, split: Split) -> Staged:
        # each may take a while
        unread = next(
            (trouble for trouble in map(self._read, self.splits) if trouble is not None), None
        )
        troubles = [t for t in (unread, *map(_written, self.markers)) if t is not None]
        seen = Answer(socket.gethostname(), str(Path.cwd()), sys.executable, tuple(troubles))
        time.sleep(STAY_SECONDS)
        nothing = SplitCounts(
            split.topic,
            split.partition,
            split.start,
            split.stop,
            split.stop,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            rows=0,
        )
        return Staged(split, nothing, (msgspec.json.encode(seen).decode(),), ())

    def _read(self, split: Split) -> Trouble | None:
        try:
            read_until(self.reader, split, lambda _: True)
        except WindrowError as error:
            return Trouble(
                f"{split.topic}/{split.partition} can't be read there: {error.what}", error.do
            )
        return None


def _written(marker: Marker) -> Trouble | None:
    """Whether the driver's file is seen, and another can be written next to it and removed."""
    place, other = Place(marker.place), f"{marker.name}-{socket.gethostname()}-{os.getpid()}"
    do = (
        "Put the table on a folder that all machines share under one name, or into an object store."
    )
    try:
        if place.seen([marker.name])[marker.name] is None:
            return Trouble(
                f"{marker.place} isn't there what it is here: a file that was just written is not"
                " seen",
                do,
            )
        place.put(other, b"windrow doctor")
        place.remove(other)
    except WindrowError as error:
        return Trouble(f"{marker.place} can't be written there: {error.what}", error.do)
    except OSError as error:
        return Trouble(
            f"{marker.place} can't be written there: {type(error).__name__}",
            "Let the workers' user write there.",
        )
    return None


class Surveyed(msgspec.Struct, frozen=True):
    """All executors that answered, and of each trouble the machines that have it, in
    the order of their names.

    `read`: from how many topic-partitions each of them was to read; `written`: to how
    many places it was to write. `complete`: whether the last round met nobody new.
    """

    executors: Sequence[Answer]
    troubles: Mapping[Trouble, Sequence[str]]
    read: int
    written: int
    complete: bool = True

    @property
    def machines(self) -> list[str]:
        """Their names."""
        return sorted({seen.machine for seen in self.executors})


def look_around(
    pipeline: Pipeline, engine: Engine, slots: Callable[[], int], topics: Discovered
) -> Surveyed:
    """Look around on every executor.

    Writes a small file to each place that tasks write to, and removes it.

    Args:
        pipeline: whose brokers and places are tried.
        engine: where tasks run.
        slots: how many it runs at once; asked behind the first task.
        topics: the pipeline's.

    Raises:
        UnreachableError: tasks can't be run, or don't come back within three minutes;
            or a worker is not as the driver is: says which.
        WindrowError: besides, the driver itself can't read or write.
    """
    reader = pipeline.reader(
        ReadPlan(
            pipeline.broker.cluster_id(),
            {name: t.topic_id for name, t in topics.topics.items()},
            "fail",
        )
    )
    splits = tuple(_first_messages(pipeline, topics))
    markers = tuple(
        Marker(_there(place), f".windrow-doctor-{uuid.uuid4().hex}")
        for place in sorted(set(pipeline.sink.places()))
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
    met: dict[tuple[str, str], Answer] = {}
    troubles: dict[Trouble, set[str]] = defaultdict(set)
    tasks = 1
    for _ in range(_ROUNDS):
        known = len(met)
        for seen in _within(LIMIT_SECONDS, partial(_answers, engine, task, tasks)):
            met[seen.executor] = seen
            for trouble in seen.troubles:
                troubles[trouble].add(seen.machine)
        if complete := tasks > 1 and len(met) == known:
            break
        tasks = max(2, slots())
    machines_of = {trouble: sorted(machines) for trouble, machines in troubles.items()}
    return Surveyed(list(met.values()), machines_of, len(task.splits), len(task.markers), complete)


def _within(seconds: float, call: Callable[[], list[Answer]]) -> list[Answer]:
    """What a call gives, which Spark lets wait for as long as a cluster has no worker to spare.

    Raises:
        UnreachableError: it takes longer. It is left to itself then, and goes with the process.
        WindrowError: its own.
    """
    answer: Future[list[Answer]] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as failed:  # handed over, not swallowed  # noqa: BLE001
            answer.set_exception(failed)

    Thread(target=run, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        what = f"No task has come back within {seconds:.0f} s"
        do = (
            "Has the cluster workers with cores and memory to spare, and do they reach the driver"
            " (spark.driver.host)?"
        )
        raise UnreachableError(what, "setup", do) from None


def _answers(engine: Engine, task: Survey, tasks: int) -> list[Answer]:
    # no more than run at once, so each is a Spark task
    nothing = [Split("windrow-doctor", number, 0, 1) for number in range(tasks)]
    return [
        msgspec.json.decode(staged.rows[0], type=Answer) for staged in engine.run(task, nothing)
    ]


def _first_messages(pipeline: Pipeline, topics: Discovered) -> Iterator[Split]:
    """Of some topic-partitions that have any the first message, each a split."""
    starts, ends = pipeline.broker.log_starts(topics.tps), pipeline.broker.stable_ends(topics.tps)
    filled: list[TopicPartition] = sorted(tp for tp in topics.tps if starts[tp] < ends[tp].offset)
    for tp in filled[:: -(-len(filled) // _READ_OF) or 1]:
        yield Split(tp.topic, tp.partition, starts[tp], starts[tp] + 1)


def _there(place: str) -> str:
    """A place that is there: of a local one that isn't yet, the nearest folder above it.

    Nothing is made that stays.
    """
    if "://" in place and not place.startswith("file://"):
        return place
    folder = Path(place.removeprefix("file://")).absolute()
    nearest = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    if nearest is None:
        raise UnreachableError(
            f"{place} has no folder above it", "setup", "Set the sink's place to one that is there."
        )
    return str(nearest)
