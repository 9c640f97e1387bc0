"""The checks of `windrow doctor` on executors: a small task on each of them.

Before any task, each worker compares its Python and packages with the driver's
(`ingest.runner.spark.worker_bootstrap`). The tasks here check whether the executor reaches
the brokers and the sink's folders.

Spark doesn't say which executor takes a task, and executors may still be starting. So there
are several rounds. Each has as many tasks as run at the same time, and each task lasts a
moment. The rounds end with the first one that finds no new executor.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from windrow.ingest.call_limits import run_in_time
from windrow.ingest.errors import UnreachableError, WindrowError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import SplitCounts, Staged
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import Reader, read_until
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.put_if_absent import TRIALS
from windrow.ingest.sinks.kit.files.write_check import nearest_folder, remove_trials
from windrow.ingest.source.enumerator.topics import Discovered

STAY_SECONDS = 0.5
"""The seconds that a task lasts, so that no executor takes two tasks while another has none."""

_ROUNDS = 20
LIMIT_SECONDS = 180.0
"""The maximum seconds of a round: enough for the start of an executor and a broker's timeout."""

_READS = 8
"""The number of topic-partitions that each executor tries to read.

They are spread over all topic-partitions, so that different brokers lead them.
"""


class Trouble(msgspec.Struct, frozen=True):
    """A problem of an executor, and what to do about it."""

    message: str = msgspec.field(name="what")
    advice: str = msgspec.field(name="do")


class ExecutorReport(msgspec.Struct, frozen=True):
    """The result of a task.

    Attributes:
        machine: the name of its machine.
        folder: the folder of its executor.
        python: its Python interpreter.
        troubles: the problems that it found.
    """

    machine: str
    folder: str
    python: str
    troubles: tuple[Trouble, ...]

    @property
    def executor(self) -> tuple[str, str]:
        return self.machine, self.folder


class Marker(msgspec.Struct, frozen=True):
    """A file that the driver wrote to a folder of the sink.

    Attributes:
        uri: the URI of the folder.
        name: the name of the file.
    """

    uri: str
    name: str


@dataclass(frozen=True)
class Survey:
    """The task. It is picklable, and returns its report as the committable of an empty split.

    Attributes:
        reader: reads the first batch of each split.
        splits: the splits to read.
        markers: the driver's files in the sink's folders.
    """

    reader: Reader
    splits: tuple[Split, ...]
    markers: tuple[Marker, ...]

    def __call__(self, split: Split) -> Staged:
        # stops at the first problem, because each attempt may take a while
        unread = next(
            (trouble for trouble in map(self._read, self.splits) if trouble is not None), None
        )
        troubles = [t for t in (unread, *map(_try_writing, self.markers)) if t is not None]
        report = ExecutorReport(
            socket.gethostname(), str(Path.cwd()), sys.executable, tuple(troubles)
        )
        time.sleep(STAY_SECONDS)
        document = msgspec.json.encode(report).decode()
        return Staged(split, SplitCounts.of_nothing(split), (document,), ())

    def _read(self, split: Split) -> Trouble | None:
        try:
            read_until(self.reader, split, lambda _: True)
        except WindrowError as error:
            return Trouble(f"{split.tp} can't be read there: {error.message}", error.advice)
        return None


def _try_writing(marker: Marker) -> Trouble | None:
    """Looks for the driver's file, writes another file next to it, and removes that one."""
    folder, probe_name = Place(marker.uri), f"{marker.name}-{socket.gethostname()}-{os.getpid()}"
    advice = (
        "Put the table on a folder that all machines share under one name, or into an object store."
    )
    try:
        if folder.stat_files([marker.name])[marker.name] is None:
            return Trouble(
                f"{marker.uri} is another place there: a file that the driver has just written"
                " doesn't exist",
                advice,
            )
        folder.put(probe_name, b"windrow doctor")
        folder.remove(probe_name)
    except WindrowError as error:
        return Trouble(f"{marker.uri} can't be written there: {error.message}", error.advice)
    except OSError as error:
        return Trouble(
            f"{marker.uri} can't be written there: {type(error).__name__}",
            "Let the workers' user write there.",
        )
    return None


class SurveyReport(msgspec.Struct, frozen=True):
    """The reports of all executors that answered.

    Attributes:
        executors: the reports.
        troubles: the names of the machines that have each problem.
        read: the number of topic-partitions that each executor tried to read.
        written: the number of folders that it tried to write to.
        complete: True if the last round found no new executor.
    """

    executors: Sequence[ExecutorReport]
    troubles: Mapping[Trouble, Sequence[str]]
    read: int
    written: int
    complete: bool = True

    @property
    def machines(self) -> list[str]:
        return sorted({report.machine for report in self.executors})


def look_around(
    pipeline: Pipeline,
    engine: Engine,
    slots: Callable[[], int],
    topics: Discovered,
    *,
    write: bool,
) -> SurveyReport:
    """Checks every executor.

    Args:
        pipeline: the pipeline whose brokers and folders are tried.
        engine: the engine that runs the tasks.
        slots: returns how many tasks run at the same time; called after the first task.
        topics: the pipeline's topics.
        write: whether to write a small file to each of the sink's folders, and remove it.

    Raises:
        UnreachableError: tasks can't be run, or take longer than three minutes; or a worker
            differs from the driver.
        WindrowError: the driver itself can't read or write.
    """
    reader = pipeline.reader(topics.read_plan("fail"))
    splits = tuple(_first_messages(pipeline, topics))
    markers = tuple(
        Marker(nearest_folder(uri), f"{TRIALS}/{uuid.uuid4().hex}")
        for uri in sorted(set(pipeline.sink.places()) if write else ())
    )
    for marker in markers:
        Place(marker.uri).put(marker.name, b"windrow doctor")
    try:
        return survey_executors(engine, Survey(reader, splits, markers), slots)
    finally:
        for marker in markers:
            Place(marker.uri).remove(marker.name)
            remove_trials(marker.uri)


def survey_executors(engine: Engine, task: Survey, slots: Callable[[], int]) -> SurveyReport:
    """Repeats the task in rounds, until a round finds no new executor.

    Args:
        engine: the engine that runs the tasks.
        task: the task.
        slots: returns how many tasks run at the same time.
    """
    executors: dict[tuple[str, str], ExecutorReport] = {}
    troubles: dict[Trouble, set[str]] = defaultdict(set)
    tasks = 1
    for _ in range(_ROUNDS):
        executor_count = len(executors)
        try:  # Spark waits as long as no worker is free
            reports = run_in_time(partial(_answers, engine, task, tasks), LIMIT_SECONDS)
        except TimeoutError:
            raise UnreachableError(
                f"No task has ended within {LIMIT_SECONDS:.0f} s",
                "setup",
                "Does the cluster have workers with free cores and memory, and do they reach the"
                " driver (spark.driver.host)?",
            ) from None
        for report in reports:
            executors[report.executor] = report
            for trouble in report.troubles:
                troubles[trouble].add(report.machine)
        if complete := tasks > 1 and len(executors) == executor_count:
            break
        tasks = max(2, slots())
    machines_of = {trouble: sorted(machines) for trouble, machines in troubles.items()}
    answers = list(executors.values())
    return SurveyReport(answers, machines_of, len(task.splits), len(task.markers), complete)


def _answers(engine: Engine, task: Survey, tasks: int) -> list[ExecutorReport]:
    # not more splits than tasks that run at the same time, so each split is a Spark task
    splits = [Split("windrow-doctor", number, 0, 1) for number in range(tasks)]
    return [
        msgspec.json.decode(staged.rows[0], type=ExecutorReport)
        for staged in engine.run(task, splits)
    ]


def _first_messages(pipeline: Pipeline, topics: Discovered) -> Iterator[Split]:
    """Yields the first message of some topic-partitions that aren't empty, each as a split."""
    starts, ends = pipeline.broker.log_starts(topics.tps), pipeline.broker.stable_ends(topics.tps)
    filled: list[TopicPartition] = sorted(tp for tp in topics.tps if starts[tp] < ends[tp].offset)
    for tp in filled[:: -(-len(filled) // _READS) or 1]:
        yield Split(tp.topic, tp.partition, starts[tp], starts[tp] + 1)
