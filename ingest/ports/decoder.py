"""Decoders, and the result that they share with transforms: a verdict on each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import checked_answer
from windrow.ingest.model.lookup import LookedUp

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


KEY, HEADER, VALUE, SCHEMA, RULES = STAGES = ("key", "header", "value", "schema", "rules")
"""The stages that can refuse a message, as its dead letter names them.

- key: its key.
- header: a header that is a column.
- value: its bytes are not of its format.
- schema: its value is of its format, and doesn't fit the columns.
- rules: a rule of the schema, or any other transform.
"""


@dataclass(frozen=True)
class Refusal:
    """Rows, by position, that are refused for one reason.

    `detail`: the reason in words and the place in the message, without payload.
    """

    rows: npt.NDArray[np.intp]
    reason: str
    detail: str


@dataclass(frozen=True)
class Deletes:
    """Rows that messages take out of a table with a primary key.

    `keys` has only the columns of the primary key. `index` (int64, ascending) is the
    number of the message that each of its rows came from.
    """

    keys: pa.RecordBatch
    index: pa.Int64Array

    def kept(self, mask: npt.NDArray[np.bool_]) -> Deletes:
        """The deletes that a mask selects."""
        chosen = pa.array(mask)
        return Deletes(self.keys.filter(chosen), self.index.filter(chosen))

    def numbered(self, numbers: pa.Int64Array) -> Deletes:
        """These deletes with other numbers for the messages."""
        return replace(self, index=numbers.take(self.index))

    def merged(self, other: Deletes) -> Deletes:
        """The deletes of both, in the order of the messages.

        Of one message these deletes come before the other ones.
        """
        order = pa.array(
            np.argsort(
                np.concatenate([self.index.to_numpy(), other.index.to_numpy()]), kind="stable"
            )
        )
        keys = [
            pa.concat_arrays([key_column, other.keys.column(name)]).take(order)
            for name, key_column in zip(self.keys.schema.names, self.keys.columns, strict=True)
        ]
        return Deletes(
            pa.RecordBatch.from_arrays(keys, schema=self.keys.schema),
            pa.concat_arrays([self.index, other.index]).take(order),
        )


@dataclass(frozen=True)
class Ignored:
    """Messages with fields that no column is for.

    `index` (int64, ascending, no duplicates): their numbers. `fields`: gives the paths of
    these fields in one of the messages, by its position in `index`; it reads the message
    once more, slowly.
    """

    index: npt.NDArray[np.int64]
    fields: Callable[[int], Iterable[str]]


@dataclass(frozen=True)
class Decoded:
    """The result of decoding a batch of messages, with a verdict on each message.

    Each message is in exactly one of five places:

    - It has rows: `row_index` (int64, ascending) has the number of the message that
      each of `rows` came from; a message may have several rows.
    - It takes rows out of the table: `deletes` has them. It may have rows too; within a
      message, deletes come before rows.
    - It was refused: `dead_index` (int64, ascending, no duplicates) has its number,
      with the stage that refused it (one of `STAGES`), a short reason to count by, and
      a detail without payload.
    - It has no value, and the spec says that such messages are only counted: `dropped`.
    - It is fine and becomes no row: `filtered`.

    `rows` has the Arrow schema of the columns that the decoder or transform declares.
    `deletes` is None if nobody asked for them (`DecodesDeletes`), because the table has
    no primary key. `unavailable` lists for each row the columns that its message left
    unchanged, and that are null for this reason: the table keeps its values of these
    columns. It is None if no row has any, or nobody asked. `cut`: the messages
    (ascending, no duplicates) that lost the part of a timestamp below a microsecond;
    some of them may have been refused. `lookups`: what the transforms looked up for it.
    `ignored`: the messages with fields that no column is for; a message may be in several
    of them, and may have been refused.
    """

    rows: pa.RecordBatch
    row_index: pa.Int64Array
    dead_index: pa.Int64Array
    dead_stage: pa.StringArray
    dead_reason: pa.StringArray
    dead_detail: pa.StringArray
    dropped: int = 0
    filtered: int = 0
    deletes: Deletes | None = None
    unavailable: pa.ListArray | None = None
    cut: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    lookups: tuple[LookedUp, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def ignoring(self) -> npt.NDArray[np.int64]:
        """The messages with fields that no column is for, without refused ones."""
        index = np.concatenate([np.zeros(0, np.int64), *(part.index for part in self.ignored)])
        return np.setdiff1d(
            np.unique(index) if len(self.ignored) > 1 else index,
            self.dead_index.to_numpy(),
            assume_unique=True,
        )

    @property
    def truncated(self) -> int:
        """The number of messages that lost a part of a timestamp, without refused ones."""
        return len(np.setdiff1d(self.cut, self.dead_index.to_numpy(), assume_unique=True))

    @property
    def valid(self) -> int:
        """The number of messages that have rows or deletes."""
        index = self.row_index.to_numpy()
        if self.deletes is not None and len(self.deletes.index):
            index = np.sort(np.concatenate([index, self.deletes.index.to_numpy()]))
        return int(np.count_nonzero(np.diff(index))) + 1 if len(index) else 0

    def numbered(self, numbers: pa.Int64Array) -> Decoded:
        """This result with other numbers for the messages."""
        deletes = None if self.deletes is None else self.deletes.numbered(numbers)
        rows, dead, cut = (
            numbers.take(index) for index in (self.row_index, self.dead_index, pa.array(self.cut))
        )
        ignored = (
            replace(part, index=numbers.take(pa.array(part.index)).to_numpy())
            for part in self.ignored
        )
        return replace(
            self,
            row_index=rows,
            dead_index=dead,
            deletes=deletes,
            cut=cut.to_numpy(),
            ignored=tuple(ignored),
        )

    def with_rows(self, rows: pa.RecordBatch, made_from: npt.NDArray[np.intp]) -> Decoded:
        """This result with other rows; `made_from` has the old row behind each new one.

        `made_from` ascends. A message that loses all of its rows is filtered, unless it
        has deletes: those stay.
        """
        old_rows = pa.array(made_from, pa.int64())
        unavailable = None if self.unavailable is None else self.unavailable.take(old_rows)
        changed = replace(
            self, rows=rows, row_index=self.row_index.take(old_rows), unavailable=unavailable
        )
        return replace(changed, filtered=self.filtered + self.valid - changed.valid)

    def refused(
        self, stage: str, refusals: Sequence[Refusal], of: pa.Int64Array | None = None
    ) -> Decoded:
        """This result with the messages of some rows refused.

        A message is refused as a whole, with its other rows and its deletes. Its reason
        is the one of the first of its rows that is refused, and of several reasons the
        first. `of`: the message of each row, if the positions are not those of `rows`.
        """
        positions = np.concatenate([np.zeros(0, np.intp), *(r.rows for r in refusals)])
        if not len(positions):
            return self
        refusal_of_position = np.repeat(np.arange(len(refusals)), [len(r.rows) for r in refusals])
        order = np.argsort(positions, kind="stable")
        index = self.row_index.to_numpy()
        dead, first = np.unique(
            (index if of is None else of.to_numpy())[positions[order]], return_index=True
        )
        kinds = pa.array(refusal_of_position[order][first])
        added = (
            pa.array(dead, pa.int64()),
            pa.repeat(stage, len(dead)),
            pa.array([r.reason for r in refusals], pa.string()).take(kinds),
            pa.array([r.detail for r in refusals], pa.string()).take(kinds),
        )
        dead_columns = (self.dead_index, self.dead_stage, self.dead_reason, self.dead_detail)
        by_message = pa.array(
            np.argsort(np.concatenate([self.dead_index.to_numpy(), dead]), kind="stable")
        )
        dead_index, dead_stage, dead_reason, dead_detail = (
            pa.concat_arrays([old, new]).take(by_message)
            for old, new in zip(dead_columns, added, strict=True)
        )

        kept_mask = ~np.isin(index, dead)
        rows, row_index = (
            self.rows.filter(pa.array(kept_mask)),
            pa.array(index[kept_mask], pa.int64()),
        )
        deletes = (
            None
            if self.deletes is None
            else self.deletes.kept(~np.isin(self.deletes.index.to_numpy(), dead))
        )
        unavailable = (
            None if self.unavailable is None else self.unavailable.filter(pa.array(kept_mask))
        )
        return replace(
            self,
            rows=rows,
            row_index=row_index,
            dead_index=dead_index,
            dead_stage=dead_stage,
            dead_reason=dead_reason,
            dead_detail=dead_detail,
            deletes=deletes,
            unavailable=unavailable,
        )


_FORM: dict[str, type] = {
    "rows": pa.RecordBatch,
    **dict.fromkeys(("row_index", "dead_index"), pa.Int64Array),
    **dict.fromkeys(("dead_stage", "dead_reason", "dead_detail"), pa.StringArray),
}


def checked_verdict(maker: object, verdict: Decoded) -> Decoded:
    """Returns the verdict of a decoder or transform, if it has the form of one.

    Raises:
        BugError: it hasn't; says who made it, which may be a plugin.
    """
    checked_answer(maker, verdict, Decoded)
    for name, kind in _FORM.items():
        checked_answer(maker, getattr(verdict, name), kind, name)
    return verdict


Decode = Callable[[pa.RecordBatch], Decoded]
"""Decodes a `MESSAGES` batch: the verdict on each message.

A batch has at most some 65,536 messages.
"""


@runtime_checkable
class DecodesDeletes(Protocol):
    """A decoder whose messages can say themselves that a row is deleted: change events."""

    def with_deletes(self, primary_key: tuple[str, ...], *, keeps: bool) -> Decoder:
        """This decoder, with `deletes` in all of its verdicts.

        They have the columns of the primary key, in this order; the decoder's rows have
        all of them. `primary_key` is empty if all of the table's key comes from the
        message's key. A decoder that isn't asked returns None for deletes. `keeps`: the
        table keeps the values of columns that a message leaves unchanged, so that
        verdicts may have `unavailable`.
        """


class Decoder(Protocol):
    """Makes rows of messages.

    Picklable, and cheap to pickle: it holds settings only, and builds what it needs in
    `open`.
    """

    @property
    def columns(self) -> Columns:
        """The columns of its rows, before any transform.

        Raises:
            SpecError: a schema can't be loaded or used.
        """

    def open(self) -> Decode:
        """Returns a function that decodes, for the calling thread and at most one split.

        Files and schemas that it depends on are read anew each time. The verdict on a
        message depends on this message alone. No message makes the function raise: a
        message that can't be decoded is a dead letter.

        Raises:
            SpecError: something that it depends on can't be loaded or used.
        """
