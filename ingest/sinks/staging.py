"""Makes staged batches of rows and their messages, for every sink. Picklable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from windrow.ingest.errors import BugError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.schema.metadata_arrays import columns, dead_columns, in_files
from windrow.ingest.sinks.columns import DEAD_FILE, file_schema
from windrow.ingest.sinks.place import is_busy


class RowLayout(msgspec.Struct, frozen=True):
    """Rows with their metadata columns, except the window's.

    `attempt`: the one that stages them. `only_staged`: a column that only staged rows have.
    """

    rows: pa.Schema
    metadata: dict[str, str]
    attempt: str
    only_staged: pa.Field | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a staged batch."""
        return file_schema(self._whole, self.metadata)

    @property
    def _whole(self) -> pa.Schema:
        return self.rows if self.only_staged is None else self.rows.append(self.only_staged)

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """Adds the metadata columns, from the rows' messages.

        Raises:
            BugError: the rows have other columns than the table, their number isn't that of the
                messages, or the table can't hold a value; quotes none.
        """
        if self.only_staged is not None and self.only_staged.name not in rows.schema.names:
            rows = rows.append_column(
                self.only_staged, pa.nulls(rows.num_rows, self.only_staged.type)
            )
        _refuse_unlike(rows, messages, self._whole, split)
        return _fitted(
            [*rows.columns, *columns(in_files(self.metadata), messages, self.attempt)],
            self.schema,
            split,
        )


class DeadLetterLayout(msgspec.Struct, frozen=True):
    """Dead letters: whole messages, with the reasons why they were refused (`REASONS`)."""

    attempt: str
    generation: int
    pipeline: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of a staged batch."""
        return DEAD_FILE

    @property
    def metadata(self) -> dict[str, str]:
        """The names of the metadata columns, whatever the table of rows calls them."""
        return dict(DEFAULT)

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """Puts messages and reasons together.

        Raises:
            BugError: the reasons are not those of the messages.
        """
        _refuse_unlike(rows, messages, REASONS, split)
        return _fitted(
            dead_columns(messages, rows.columns, self.attempt, self.generation, self.pipeline),
            DEAD_FILE,
            split,
        )


Layout = RowLayout | DeadLetterLayout


@contextmanager
def writable(place: str, split: Split, *, done: str = "committed") -> Iterator[None]:
    """Turns errors of the disk into windrow's while a split is staged.

    Args:
        place: of the staged files.
        split: the one that is staged.
        done: the word for what surely didn't happen to the split.

    Raises:
        UnreachableError: in place of the system's error.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error).strip().partition("\n")[0][:300] or type(error).__name__
        what = f"a staged file below {place} can't be written: {why}"
        wait = (
            "Wait, for the store has too much to do"
            if is_busy(str(error))
            else "Make room or fix the storage"
        )
        do = f"Nothing was {done}. {wait}, then run the window again."
        raise UnreachableError(
            what, "stage", do, split.topic, split.partition, split.start
        ) from error


def _refuse_unlike(
    rows: pa.RecordBatch, messages: pa.RecordBatch, wanted: pa.Schema, split: Split
) -> None:
    if rows.schema.names != wanted.names or rows.num_rows != messages.num_rows:
        what = (
            f"{rows.num_rows} rows of {rows.schema.names} were to be staged for {messages.num_rows}"
            " messages"
        )
        raise _misfit(f"{what}; the table has {wanted.names}", split)


def _fitted(arrays: Sequence[pa.Array], schema: pa.Schema, split: Split) -> pa.RecordBatch:
    fitted = []
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise _misfit(
                f"column {field.name} holds {array.null_count} nulls, but the table allows none",
                split,
            )
        fitted.append(_cast(array, field, split))
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def _cast(array: pa.Array, field: pa.Field, split: Split) -> pa.Array:
    if array.type == field.type:
        return array
    misfit = _misfit(
        f"column {field.name} is {array.type}; it doesn't fit the table's {field.type}", split
    )
    # Arrow would round it, even to infinity, without an error
    if pa.types.is_floating(array.type) and array.type != pa.float32():
        raise misfit
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # the error's own text may quote a value
        raise misfit from None


def _misfit(what: str, split: Split) -> BugError:
    do = (
        "Nothing was committed. Report a bug in the format or the transform: the rows must be"
        " exactly the table's columns."
    )
    return BugError(what, "stage", do, split.topic, split.partition, split.start)
