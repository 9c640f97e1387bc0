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
        """Begins to start what tasks run on, and waits for nothing.

        Called once something is to be run, before it is known whether there are splits.
        Raises nothing: `run` starts what isn't up, and says why that can't be.
        """

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Calls `task` for each split, and yields one result per split, in their order.

        The task is pickled, and each try has a copy of its own. What it puts into
        `ingest.client_cache` is kept for the next tasks of this run on the same worker.
        A task is tried again if its worker dies, so a task must be repeatable; it isn't
        tried again after an error. All splits are tried before an error is raised, and
        the results of the splits before the failed one are yielded first. Without
        splits nothing is started.

        Raises:
            WindrowError: a task's own error, with all its fields; of several, the error
                of the first split. No result follows it. Also an error that the task
                raises when it is pickled, about a file that it can't take along;
                nothing has begun then.
            BugError: a task raised an unexpected exception, or can't be pickled. The
                error names the exception's type and place, never its text.
            UnreachableError: the engine can't be started, a task ran out of memory, or
                its worker died again and again.
        """


class Reads(Protocol):
    """The task before a function of DataFrames. Picklable; called once for each try."""

    def __call__(self, split: Split, give: Take) -> Staged:
        """Passes a split's rows to `give`, batch by batch, and stages its dead letters.

        Returns the counts, with no rows staged yet.
        """


class Stages(Protocol):
    """The task behind a function of DataFrames. Picklable; called once for each try.

    The driver calls it for a split without any rows left.
    """

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stages the rows of a split, in the order of its log, a message's deletes first.

        Returns `read`, completed to the result of the whole task.
        """


@dataclass(frozen=True)
class DataFrameWork:
    """What an engine does with a window whose rows go through a function of DataFrames.

    `columns`: of the batches that `read` gives. `output_schema`: the columns that the
    function's DataFrame must have, in any order. `position`: the names of the columns with
    topic, partition and offset of a row's message, by which the row is assigned to a
    split. `keyed`: `read` gives and `stage` takes changes (`ingest.schema.row_changes`);
    the function sees only those that are rows, and deletes bypass it.
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

        It reads the splits, calls the function with a DataFrame of their rows, and
        stages the rows of its result.

        Raises:
            WindrowError: as `Engine.run`, of either task.
            SpecError: the function fails, or returns other columns than `wanted`;
                nothing was staged.
            RefusedError: a row names no message of the splits.
            UnreachableError: as `Engine.run`; also if rows that were read are lost
                before the function's rows were staged.
        """
