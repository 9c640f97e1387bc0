"""A window's rows through a function of Spark's DataFrames: read and decoded split by split, changed together, staged split by split again.

Each row keeps the place of a message that it comes from, and by it the split. So everything behind the function is as without it: the
stagers, the counts of each split, the checksums, the commit. A message none of whose rows is left behind the function was filtered.

What the function gives is held to the rules of its schema. A row that breaks one refuses the window: which message would be the dead
letter, where a row is made of several, nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from ingest.crashpoints import crash_point
from ingest.errors import RefusedError
from ingest.model.plan import Split
from ingest.model.receipt import Checksums
from ingest.model.staged import Staged, Staging
from ingest.ports.decoder import Decoded
from ingest.ports.engine import Reshaping
from ingest.ports.reader import Take
from ingest.ports.sink import Stager, StagerFactory
from ingest.ports.transform import Transform
from ingest.run.context import Pipeline, Reshape
from ingest.run.task import SplitTask
from ingest.schema.beside import columns, messages_of, of_message
from ingest.schema.metadata import fields


def reshaping(pipeline: Pipeline, reshape: Reshape, task: SplitTask) -> Reshaping:
    """What an engine needs to know. `task`: that of the window's splits, were there no function."""
    metadata, result = of_message(pipeline.spec.metadata), pipeline.columns().arrow_schema
    before = pipeline.transform().columns(pipeline.decoder().columns).arrow_schema
    return Reshaping(
        ReadTask(task, metadata), pa.schema([*before, *fields(metadata)]), reshape.function, pa.schema([*result, *fields(metadata)]),
        (metadata["topic"], metadata["partition"], metadata["offset"]), StageTask(task.rows, reshape.rules, result, metadata),
    )  # fmt: skip


@dataclass(frozen=True)
class ReadTask:
    """See `ports.engine.Reads`. `task`: as it would stage rows itself; `metadata`: the columns that go beside them, name -> column."""

    task: SplitTask
    metadata: Mapping[str, str]

    def __call__(self, split: Split, give: Take) -> Staged:
        """See `ports.engine.Reads`."""
        return replace(self.task, rows=lambda _: _Given(give, self.metadata))(split)


class _Given:
    """A stager that gives rows away, with their metadata columns."""

    def __init__(self, give: Take, metadata: Mapping[str, str]) -> None:
        self._give, self._metadata, self._rows = give, metadata, 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`."""
        beside = columns(self._metadata, messages, "")
        self._give(pa.RecordBatch.from_arrays([*rows.columns, *beside], [*rows.schema.names, *self._metadata.values()]))
        self._rows += rows.num_rows

    def finish(self) -> Staging:
        """See `ports.sink.Stager.finish`: nothing is to be committed."""
        return Staging(self._rows)

    def discard(self) -> None:
        """See `ports.sink.Stager.discard`."""


@dataclass(frozen=True)
class StageTask:
    """See `ports.engine.Stages`. `rows`: what stages; `rules`: what the rows are held to; `own`: their columns without the metadata's."""

    rows: StagerFactory
    rules: Transform
    own: pa.Schema
    metadata: Mapping[str, str]

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """See `ports.engine.Stages`.

        Raises:
            RefusedError: a row breaks a rule, or more messages have rows than had before.
        """
        stager: Stager | None = None
        held, tally = self.rules.open(), _RowTally(read)
        try:
            for batch in rows:
                stager = stager or self.rows(read.split)
                messages = messages_of({name: batch[column] for name, column in self.metadata.items()})
                own = pa.RecordBatch.from_arrays([batch[f.name] for f in self.own], schema=self.own)
                _refuse_nulls(own, messages, read.split)
                _refuse_unheld(held(_decoded(own)), messages, read.split)
                tally.add(messages)
                stager.add(own, messages)
                crash_point("reshape.middle")
            staging = Staging() if stager is None else stager.finish()
            return tally.counted(staging)
        except BaseException:
            if stager is not None:
                stager.discard()
            raise


def _decoded(rows: pa.RecordBatch) -> Decoded:
    """Rows as a decoder would give them, each of a message of its own."""
    none = pa.array([], pa.string())
    return Decoded(rows, pa.array(np.arange(rows.num_rows)), pa.array([], pa.int64()), none, none, none)


def _refuse_nulls(own: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> None:
    """A DataFrame's own word on what may be null is worth nothing behind an outer join."""
    for column, field in zip(own.columns, own.schema, strict=True):
        if column.null_count and not field.nullable:
            row = int(np.flatnonzero(column.is_null())[0])
            what = f"A row that the function of transform.spark gave has null in {field.name}, which is never null by its schema"
            do = "No row was committed. Mend the function, or make the column nullable; then run the window again."
            raise RefusedError(what, "validate", do, split.topic, split.partition, messages["offset"][row].as_py())


def _refuse_unheld(held: Decoded, messages: pa.RecordBatch, split: Split) -> None:
    if not len(held.dead_index):
        return
    what = f"{held.dead_reason[0].as_py()}: {held.dead_detail[0].as_py()}"
    others = f", and {len(held.dead_index) - 1} rows near it" if len(held.dead_index) > 1 else ""
    raise RefusedError(
        f"A row that the function of transform.spark gave breaks a rule of its schema: {what}{others}", "validate",
        "No row was committed. Mend the function or the schema, then run the window again.",
        split.topic, split.partition, messages["offset"][held.dead_index[0].as_py()].as_py(),
    )  # fmt: skip


class _RowTally:
    """The task's own count of a split's rows, and of their messages."""

    def __init__(self, read: Staged) -> None:
        self._read, self._last, self._rows, self._messages = read, read.split.start - 1, 0, 0

    def add(self, messages: pa.RecordBatch) -> None:
        offsets = messages["offset"].to_numpy()
        ahead = np.diff(offsets, prepend=self._last)
        if (ahead < 0).any() or offsets[0] < self._read.split.start or offsets[-1] >= self._read.split.stop:
            raise self._miscounted("rows came that are not in the order of the split's log, or not of it")
        self._rows += len(offsets)
        self._messages += int(np.count_nonzero(ahead))
        self._last = int(offsets[-1])

    def counted(self, staging: Staging) -> Staged:
        """What was read, with what became of it."""
        read, counts = self._read, self._read.counts
        if self._messages > counts.valid:
            raise self._miscounted(f"{self._messages} messages have rows behind it, and {counts.valid} had any before")
        sums = counts.checksums if isinstance(counts.checksums, Checksums) else Checksums()
        changed = msgspec.structs.replace(
            counts, valid=self._messages, filtered_=counts.filtered + counts.valid - self._messages, rows_=self._rows,
            rows_staged=staging.rows, checksums=Checksums(staging.checksum, sums.dead),
        )  # fmt: skip
        return msgspec.structs.replace(read, counts=changed, rows=staging.committables)

    def _miscounted(self, what: str) -> RefusedError:
        do = "Nothing was committed. A row keeps the metadata columns of the message that it comes from: mend the function."
        what = f"The rows that the function of transform.spark gave don't fit the split's messages: {what}"
        return RefusedError(what, "check", do, self._read.split.topic, self._read.split.partition, self._read.split.start)
