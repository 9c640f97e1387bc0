"""What makes rows of messages, and the verdict on each message that decoders and
transforms share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


KEY, HEADER, VALUE, SCHEMA, RULES = STAGES = ("key", "header", "value", "schema", "rules")
"""What refuses a message, which its dead letter says: its key; a header that is a
column; its value, whose bytes aren't of its format; the schema, where the value is of
its format and doesn't fit the columns; or a rule of the schema, or any other transform.
"""


@dataclass(frozen=True)
class Refusal:
    """Rows (by position) that fail for one reason.

    `detail`: the reason in words and where in the message, free of payload.
    """

    rows: npt.NDArray[np.intp]
    reason: str
    detail: str


@dataclass(frozen=True)
class Deletes:
    """Rows that messages take out of a table with a primary key.

    `keys` has the columns of the primary key alone; `index` (int64, ascending) says for
    each of its rows the message that it came from.
    """

    keys: pa.RecordBatch
    index: pa.Int64Array

    def kept(self, mask: npt.NDArray[np.bool_]) -> Deletes:
        """Some of them."""
        chosen = pa.array(mask)
        return Deletes(self.keys.filter(chosen), self.index.filter(chosen))

    def numbered(self, numbers: pa.Int64Array) -> Deletes:
        """The same with other numbers for the messages."""
        return replace(self, index=numbers.take(self.index))

    def with_those(self, other: Deletes) -> Deletes:
        """Both, in the order of the messages; of one message these come first."""
        order = pa.array(
            np.argsort(
                np.concatenate([self.index.to_numpy(), other.index.to_numpy()]), kind="stable"
            )
        )
        keys = [
            pa.concat_arrays([mine, other.keys.column(name)]).take(order)
            for name, mine in zip(self.keys.schema.names, self.keys.columns, strict=True)
        ]
        return Deletes(
            pa.RecordBatch.from_arrays(keys, schema=self.keys.schema),
            pa.concat_arrays([self.index, other.index]).take(order),
        )


@dataclass(frozen=True)
class Decoded:
    """What became of a batch of messages. Each of them is in exactly one place.

    - it has rows: in `row_index` (int64, ascending), which says for each of `rows` the
      message that it came from, once or several times;
    - it takes rows out of the table, in `deletes`, and may have rows besides: in one
      message deletes count before rows;
    - it was refused: in `dead_index` (int64, ascending, each once), with the stage that
      refused it (one of `STAGES`), a short reason to count by, and a detail free of
      payload;
    - it has no value, and the spec says that such messages are only counted: in
      `dropped`;
    - it is fine and stands for no row: in `filtered`.

    `cut`: the messages (ascending, each once) that had a timestamp finer than a
    microsecond, which lost that; some may have been refused.

    `rows` has the Arrow schema of the columns that whoever made this promises.
    `deletes` is None where nobody asked for any (`TellsDeletes`): the table has no
    primary key. `unavailable` says of each row the columns that its message left alone,
    and which are null for that: the row of its key keeps what it has there. None where
    there are none, or nobody asked.
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

    @property
    def truncated(self) -> int:
        """How many messages lost something of a timestamp, without those that are refused."""
        return len(np.setdiff1d(self.cut, self.dead_index.to_numpy(), assume_unique=True))

    @property
    def valid(self) -> int:
        """How many messages have rows or deletes."""
        index = self.row_index.to_numpy()
        if self.deletes is not None and len(self.deletes.index):
            index = np.sort(np.concatenate([index, self.deletes.index.to_numpy()]))
        return int(np.count_nonzero(np.diff(index))) + 1 if len(index) else 0

    def numbered(self, numbers: pa.Int64Array) -> Decoded:
        """The same with other numbers for the messages."""
        deletes = None if self.deletes is None else self.deletes.numbered(numbers)
        rows, dead, cut = (
            numbers.take(index) for index in (self.row_index, self.dead_index, pa.array(self.cut))
        )
        return replace(self, row_index=rows, dead_index=dead, deletes=deletes, cut=cut.to_numpy())

    def with_rows(self, rows: pa.RecordBatch, made_from: npt.NDArray[np.intp]) -> Decoded:
        """The same messages with other rows: `made_from` (ascending) says for each new
        row the old one that it was made from.

        A message that loses all of its rows by that is filtered, unless it has deletes: those stay.
        """
        taken = pa.array(made_from, pa.int64())
        unavailable = None if self.unavailable is None else self.unavailable.take(taken)
        changed = replace(
            self, rows=rows, row_index=self.row_index.take(taken), unavailable=unavailable
        )
        return replace(changed, filtered=self.filtered + self.valid - changed.valid)

    def refused(
        self, stage: str, refusals: Sequence[Refusal], of: pa.Int64Array | None = None
    ) -> Decoded:
        """The same with the messages of some rows refused: whole messages, each for the
        first of its rows that is named, and first why.

        Whole messages: with their other rows, and their deletes. `of`: the message of
        each row, where other ones than `rows` are named.
        """
        positions = np.concatenate([np.zeros(0, np.intp), *(r.rows for r in refusals)])
        if not len(positions):
            return self
        why = np.repeat(np.arange(len(refusals)), [len(r.rows) for r in refusals])
        order = np.argsort(positions, kind="stable")
        index = self.row_index.to_numpy()
        dead, first = np.unique(
            (index if of is None else of.to_numpy())[positions[order]], return_index=True
        )
        kinds = pa.array(why[order][first])
        told = (
            pa.array(dead, pa.int64()),
            pa.repeat(stage, len(dead)),
            pa.array([r.reason for r in refusals], pa.string()).take(kinds),
            pa.array([r.detail for r in refusals], pa.string()).take(kinds),
        )
        before = (self.dead_index, self.dead_stage, self.dead_reason, self.dead_detail)
        by_message = pa.array(
            np.argsort(np.concatenate([self.dead_index.to_numpy(), dead]), kind="stable")
        )
        letters = (
            pa.concat_arrays([old, new]).take(by_message)
            for old, new in zip(before, told, strict=True)
        )
        dead_index, dead_stage, dead_reason, dead_detail = letters
        kept = ~np.isin(index, dead)
        rows, row_index = self.rows.filter(pa.array(kept)), pa.array(index[kept], pa.int64())
        deletes = (
            None
            if self.deletes is None
            else self.deletes.kept(~np.isin(self.deletes.index.to_numpy(), dead))
        )
        unavailable = None if self.unavailable is None else self.unavailable.filter(pa.array(kept))
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


Decode = Callable[[pa.RecordBatch], Decoded]
"""The verdict on each message of a `MESSAGES` batch, of at most some 65,536 messages."""


@runtime_checkable
class TellsDeletes(Protocol):
    """What a decoder has besides whose messages say by themselves that a row is to be
    taken out: change events.
    """

    def with_deletes(self, primary_key: tuple[str, ...], *, keeps: bool) -> Decoder:
        """The same decoder, whose verdicts all have `deletes`: of these columns, in
        this order, all of which its rows have.

        There may be none of them, where the message's key has the others. A decoder
        that isn't asked gives no deletes (None). `keeps`: whether the table keeps what
        a row's message left alone; then verdicts may have `unavailable`.
        """


class Decoder(Protocol):
    """Messages to rows.

    Picklable, and cheap to pickle: a recipe, whose machine is built where it is opened.
    """

    @property
    def columns(self) -> Columns:
        """The columns of the rows that it gives, before any transform.

        Raises:
            SpecError: they can't be made out, because a schema can't be loaded or used.
        """

    def open(self) -> Decode:
        """What decodes, for the thread that asks, and for no longer than a split: what
        it stands on is looked at anew each time.

        The verdict on a message depends on this message alone. No message makes it
        raise: what can't be decoded is a dead letter.

        Raises:
            SpecError: what it stands on can't be loaded or used.
        """
