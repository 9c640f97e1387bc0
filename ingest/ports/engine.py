"""Where tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.reader import Take
from windrow.ingest.schema.load import FunctionReference


class Engine(Protocol):
    """Runs one task per split somewhere and brings the small results back."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Call `task` for each split; exactly one result per split, in the order of
        `splits`, an error in the place of its split's.

        The task is pickled, and each try has one of its own; what it keeps
        (`ingest.client_cache`) waits for those of this run that its worker takes after it. A
        try whose worker dies is followed by another one, so a task must be one that may
        be repeated; a try that ends in an error is the last. All splits are tried
        before an error is raised; the results of the splits before it have come by
        then. Without splits nothing is started.

        Raises:
            WindrowError: a task's own error, with all its fields as it was raised; of
                several the first split's. Nothing comes after it. Also what the task
                itself says where it is pickled, of a file that it can't take along;
                nothing has begun then.
            BugError: a task raised what nobody foresaw, or can't be pickled. Its type
                and place are told, never its text.
            UnreachableError: the engine can't be started, a task ran out of memory, or
                its worker died again and again.
        """


class Reads(Protocol):
    """Picklable; called once per task attempt."""

    def __call__(self, split: Split, give: Take) -> Staged:
        """Give a split's rows away, batch by batch, and stage its dead letters; what
        was counted, with no rows staged yet.
        """


class Stages(Protocol):
    """Picklable; called once per task attempt, and by the driver for a split of which
    no row is left.
    """

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage the rows of a split, in the order of its log, a message's deletes
        first; what was read of it becomes the whole result.
        """


@dataclass(frozen=True)
class Reshaping:
    """A window's rows on their way through a function of DataFrames.

    `columns`: of the batches that `read` gives; `wanted`: those that the function's
    DataFrame must have, in any order. `place`: which of these say topic, partition and
    offset of the message that a row comes from: by it a row belongs to a split.
    `keyed`: whether `read` gives changes (`ingest.schema.changes`), and `stage` is
    given such. Then the function sees those that are rows; deletes go around it.
    """

    read: Reads
    columns: pa.Schema
    function: FunctionReference
    wanted: pa.Schema
    place: tuple[str, str, str]
    stage: Stages
    keyed: bool = False


@runtime_checkable
class ReshapingEngine(Protocol):
    """What an engine has besides that has DataFrames."""

    def reshape(self, work: Reshaping, splits: Sequence[Split]) -> Iterator[Staged]:
        """Read all splits, call the function with one DataFrame of their rows, and
        stage what it gives; one result per split, in order.

        Raises:
            WindrowError: as `Engine.run`, of either task.
            SpecError: the function fails, or gives other columns than are wanted;
                nothing was staged.
            RefusedError: a row names no message of the splits.
            UnreachableError: besides, what was read was lost before the function's rows
                were staged.
        """
