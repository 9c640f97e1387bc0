"""Engines: they run the tasks of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.reader import Take
from windrow.ingest.schema.user_code import FunctionReference


class Engine(Protocol):
    """Runs one task for each split and returns the small results."""

    def start(self) -> None:
        """Begins to start the engine's processes, and waits for nothing.

        It is called as soon as a run has work, before it is known whether there are splits. It
        raises nothing. `run` starts the processes that aren't up, and raises if it can't.
        """

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Calls `task` for each split, and yields one result per split, in their order.

        The task is pickled, and each try gets its own copy. Objects that it puts into
        `ingest.client_cache` are kept for the next tasks of this run on the same worker. A task
        is tried again if its worker dies, so it must be repeatable. It isn't tried again after
        an error. All splits are tried before an error is raised, and the results of the splits
        before the failed split are yielded first. Without splits nothing is started.

        Raises:
            WindrowError: a task's own error, with all its fields. If several tasks fail, it is
                the error of the first split. No result follows it. It may also be an error
                about a file that the task can't include when it is pickled; then no task has
                begun.
            BugError: a task raised an unexpected exception, or can't be pickled. The error
                names the exception's type and place, never its text.
            DeadWorkerError: a task ran out of memory, or its worker died again and again.
            UnreachableError: the engine can't be started.
        """


@runtime_checkable
class LimitsMemory(Protocol):
    """An engine that may limit the memory of its workers."""

    def worker_memory(self) -> int | None:
        """Returns the bytes of memory that a worker may have; None if it has no limit."""


class Reads(Protocol):
    """The task before a function of DataFrames. Picklable; called once for each try."""

    def __call__(self, split: Split, give: Take) -> Staged:
        """Passes a split's rows to `give`, batch by batch, and stages its dead letters.

        Returns:
            The counts, with no rows staged yet.
        """


class Stages(Protocol):
    """The task after a function of DataFrames. Picklable; called once for each try.

    If the function leaves no rows of a split, the driver calls the task for it.
    """

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stages the rows of a split, in the order of its log. A message's deletes come first.

        Returns:
            `read`, completed to the result of the whole task.
        """


@dataclass(frozen=True)
class DataFrameWork:
    """The work on a window whose rows pass through a function of DataFrames.

    Attributes:
        read: the task that reads a split.
        columns: columns of the batches that `read` gives.
        function: the function of DataFrames.
        output_schema: columns that the function's DataFrame must have, in any order.
        position: names of the columns with topic, partition and offset of a row's message. They
            assign the row to a split.
        stage: the task that stages the function's rows.
        keyed: whether `read` gives and `stage` takes changes (`ingest.schema.row_changes`). The
            function sees only the changes that are rows; deletes bypass it.
    """

    read: Reads
    columns: pa.Schema
    function: FunctionReference
    output_schema: pa.Schema
    position: tuple[str, str, str]
    stage: Stages
    keyed: bool = False


@runtime_checkable
class DataFrameEngine(Protocol):
    """An engine that can also call a function of DataFrames."""

    def transform(self, work: DataFrameWork, splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs `work` on all splits, and yields one result per split, in order.

        It reads the splits, calls the function with a DataFrame of their rows, and stages the
        rows of its result.

        Raises:
            WindrowError: as `Engine.run`, of either task.
            SpecError: the function fails, or returns other columns than `output_schema`.
                Nothing was staged.
            RefusedError: a row names no message of the splits.
            UnreachableError: as `Engine.run`; also if rows that were read are lost before the
                function's rows were staged.
        """
