"""Decoders, and the result that they share with transforms: a verdict on each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import check_output
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
    """Rows that are refused for one reason.

    Attributes:
        rows: positions of the rows.
        reason: a short reason, to count by.
        detail: the reason in words and the place in the message, without payload.
    """

    rows: npt.NDArray[np.intp]
    reason: str
    detail: str


@dataclass(frozen=True)
class Deletes:
    """Rows that messages delete from a table with a primary key.

    Attributes:
        keys: the keys of the deleted rows; it has only the columns of the primary key.
        index: for each row of `keys`, the number of its message (int64, ascending).
    """

    keys: pa.RecordBatch
    index: pa.Int64Array

    def filter(self, mask: npt.NDArray[np.bool_]) -> Deletes:
        """Returns the deletes that a mask selects."""
        chosen = pa.array(mask)
        return Deletes(self.keys.filter(chosen), self.index.filter(chosen))

    def renumber(self, numbers: pa.Int64Array) -> Deletes:
        """Returns these deletes with `numbers[i]` as the number of message i."""
        return replace(self, index=numbers.take(self.index))

    def merge(self, later: Deletes) -> Deletes:
        """Returns the deletes of both, in the order of the messages.

        If both have deletes of one message, those of `self` come first.
        """
        order = pa.array(
            np.argsort(
                np.concatenate([self.index.to_numpy(), later.index.to_numpy()]), kind="stable"
            )
        )
        keys = [
            pa.concat_arrays([key_column, later.keys.column(name)]).take(order)
            for name, key_column in zip(self.keys.schema.names, self.keys.columns, strict=True)
        ]
        return Deletes(
            pa.RecordBatch.from_arrays(keys, schema=self.keys.schema),
            pa.concat_arrays([self.index, later.index]).take(order),
        )


@dataclass(frozen=True)
class Ignored:
    """Messages with fields that have no column.

    Attributes:
        index: numbers of the messages (int64, ascending, no duplicates).
        fields: returns the paths of these fields in one message, by the message's position in
            `index`. It reads the message once more, slowly.
    """

    index: npt.NDArray[np.int64]
    fields: Callable[[int], Iterable[str]]

    def filter(self, mask: npt.NDArray[np.bool_]) -> Ignored:
        """Returns the messages that a mask selects."""
        if mask.all():
            return self
        positions = np.flatnonzero(mask)
        return Ignored(self.index[mask], lambda position: self.fields(int(positions[position])))


@dataclass(frozen=True)
class Decoded:
    """The result of decoding a batch of messages, with a verdict on each message.

    Each message has exactly one of five verdicts:

    - It has rows, with its number in `row_index`. A message may have several rows.
    - It deletes rows of the table: `deletes` has them. It may have rows too; the deletes of a
      message come before its rows.
    - It was refused, with its number in `dead_index`.
    - It has no value, and the spec says that such messages are only counted: `dropped`.
    - It is valid, but it becomes no row: `filtered`.

    Attributes:
        rows: rows with the Arrow schema of the columns that the decoder or transform declares.
        row_index: for each row, the number of its message (int64, ascending).
        dead_index: numbers of the refused messages (int64, ascending, no duplicates).
        dead_stage: for each of them, the stage that refused it (one of `STAGES`).
        dead_reason: for each of them, a short reason to count by.
        dead_detail: for each of them, a detail without payload.
        dropped: number of messages that have no value and are only counted.
        filtered: number of messages that become no row.
        deletes: the deleted rows. None if the decoder wasn't asked for deletes
            (`DecodesDeletes`), because the table has no primary key.
        unavailable: for each row, the columns that its message left unchanged. They are null in
            `rows`, and the table keeps its values of them. None if no row has such columns, or
            the decoder wasn't asked for them.
        cut: messages that lost the part of a timestamp below a microsecond (ascending, no
            duplicates). Some of them may have been refused.
        lookups: counts of the transforms' lookups for these messages.
        ignored: messages with fields that have no column. A message may be in several of these
            parts, and may have been refused.
        rest: for each row, the fields of its message that have no column, as a text. Only
            transforms get it. None if the spec doesn't keep these fields.
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
    rest: pa.StringArray | None = None

    @property
    def ignoring(self) -> npt.NDArray[np.int64]:
        """The messages with fields that have no column, without refused messages."""
        index = np.concatenate([np.zeros(0, np.int64), *(part.index for part in self.ignored)])
        return np.setdiff1d(
            np.unique(index) if len(self.ignored) > 1 else index,
            self.dead_index.to_numpy(),
            assume_unique=True,
        )

    @property
    def truncated(self) -> int:
        """The number of messages that lost a part of a timestamp, without refused messages."""
        return len(np.setdiff1d(self.cut, self.dead_index.to_numpy(), assume_unique=True))

    @property
    def valid(self) -> int:
        """The number of messages that have rows or deletes."""
        index = self.row_index.to_numpy()
        if self.deletes is not None and len(self.deletes.index):
            index = np.sort(np.concatenate([index, self.deletes.index.to_numpy()]))
        return int(np.count_nonzero(np.diff(index))) + 1 if len(index) else 0

    def renumber(self, numbers: pa.Int64Array) -> Decoded:
        """Returns this result with `numbers[i]` as the number of message i."""
        deletes = None if self.deletes is None else self.deletes.renumber(numbers)
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

    def without(self, index: npt.NDArray[np.int64]) -> Decoded:
        """Returns this result without what it says of some messages.

        Args:
            index: the numbers of the messages, which have neither rows nor deletes.
        """
        kept = pa.array(~np.isin(self.dead_index.to_numpy(), index))
        return replace(
            self,
            dead_index=self.dead_index.filter(kept),
            dead_stage=self.dead_stage.filter(kept),
            dead_reason=self.dead_reason.filter(kept),
            dead_detail=self.dead_detail.filter(kept),
            cut=np.setdiff1d(self.cut, index),
            ignored=tuple(part.filter(~np.isin(part.index, index)) for part in self.ignored),
        )

    def with_rows(self, rows: pa.RecordBatch, made_from: npt.NDArray[np.intp]) -> Decoded:
        """Returns this result with other rows.

        A message that loses all of its rows is filtered, unless it has deletes: its deletes
        stay.

        Args:
            rows: the new rows.
            made_from: for each new row, the position of the old row that it is made from,
                ascending.
        """
        old_rows = pa.array(made_from, pa.int64())
        unavailable, rest = (
            None if beside_rows is None else beside_rows.take(old_rows)
            for beside_rows in (self.unavailable, self.rest)
        )
        changed = replace(
            self,
            rows=rows,
            row_index=self.row_index.take(old_rows),
            unavailable=unavailable,
            rest=rest,
        )
        return replace(changed, filtered=self.filtered + self.valid - changed.valid)

    def refused(
        self, stage: str, refusals: Sequence[Refusal], message_of_row: pa.Int64Array | None = None
    ) -> Decoded:
        """Returns this result with the messages of some rows refused.

        A message is refused as a whole, with its other rows and its deletes. Its reason is that
        of its first refused row. If that row has several refusals, the first of them counts.

        Args:
            stage: the stage that refuses.
            refusals: the refused rows, with their reasons.
            message_of_row: the message of each row. It is needed if the positions in `refusals`
                are not positions in `rows`.
        """
        positions = np.concatenate([np.zeros(0, np.intp), *(r.rows for r in refusals)])
        if not len(positions):
            return self
        refusal_of_position = np.repeat(np.arange(len(refusals)), [len(r.rows) for r in refusals])
        order = np.argsort(positions, kind="stable")
        index = self.row_index.to_numpy()
        dead, first = np.unique(
            (index if message_of_row is None else message_of_row.to_numpy())[positions[order]],
            return_index=True,
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
            else self.deletes.filter(~np.isin(self.deletes.index.to_numpy(), dead))
        )
        unavailable, rest = (
            None if beside_rows is None else beside_rows.filter(pa.array(kept_mask))
            for beside_rows in (self.unavailable, self.rest)
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
            rest=rest,
        )


_FORM: dict[str, type] = {
    "rows": pa.RecordBatch,
    **dict.fromkeys(("row_index", "dead_index"), pa.Int64Array),
    **dict.fromkeys(("dead_stage", "dead_reason", "dead_detail"), pa.StringArray),
}


def checked_verdict(maker: object, verdict: Decoded) -> Decoded:
    """Returns the verdict of a decoder or transform, if its fields have the right types.

    Raises:
        BugError: a field has another type. The error names the decoder or transform, which may
            be a plugin.
    """
    check_output(maker, verdict, Decoded)
    for name, kind in _FORM.items():
        check_output(maker, getattr(verdict, name), kind, name)
    return verdict


Decode = Callable[[pa.RecordBatch], Decoded]
"""Decodes a batch of messages (`ingest.schema.messages.MESSAGES`), with a verdict on each.

A batch has at most some 65,536 messages.
"""


@runtime_checkable
class DecodesDeletes(Protocol):
    """A decoder of change events: a message can say that a row is deleted."""

    def with_deletes(self, primary_key: tuple[str, ...], *, keeps_unavailable: bool) -> Decoder:
        """Returns this decoder, with `deletes` in all of its verdicts.

        They have the columns of the primary key, in this order. The decoder's rows have all of
        these columns too. A decoder without this call returns None for deletes.

        Args:
            primary_key: the columns of the primary key that come from the message's value.
                Empty if the whole key of the table comes from the message's key.
            keeps_unavailable: whether the table keeps the values of columns that a message leaves
                unchanged. If so, verdicts may have `unavailable`.
        """


class Decoder(Protocol):
    """A decoder of messages to rows.

    It is picklable, and cheap to pickle: it holds settings only, and builds the rest in `open`.
    """

    @property
    def columns(self) -> Columns:
        """The columns of its rows, before any transform.

        Raises:
            SpecError: a schema can't be loaded or used.
        """

    def open(self) -> Decode:
        """Returns a function that decodes, for the calling thread and at most one split.

        Each call reads the decoder's files and schemas again. The verdict on a message depends
        on this message alone. The function never raises because of a message: a message that
        can't be decoded becomes a dead letter.

        Raises:
            SpecError: a file or schema can't be loaded or used.
        """
