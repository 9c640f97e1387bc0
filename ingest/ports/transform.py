"""Transforms: they change decoded rows before these are staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


Apply = Callable[[Decoded, pa.RecordBatch], Decoded]
"""Transforms a batch: the verdicts on its messages so far, and the messages.

The messages have the columns `ingest.schema.messages.MESSAGES`.
"""


ColumnSource: TypeAlias = str | tuple[str, str]
"""A column of the rows before a transform, or a lookup's name and a column of its source."""


class Transform(Protocol):
    """A change of rows: other columns, fewer rows, several rows for a row, or refusals.

    It is picklable, and cheap to pickle, as a decoder is. A transform that adds columns may
    have an attribute `reads`: the columns that each new column depends on (see
    `column_sources`).
    """

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the columns of its result, for rows with the columns `input_columns`.

        Raises:
            SpecError: it can't use such columns; the error says which, and what to do.
        """

    def open(self) -> Apply:
        """Returns a function that transforms, for the calling thread and at most one split.

        The function passes on dead letters and the counts of dropped and filtered messages.
        `Decoded.with_rows` and `Decoded.refused` keep the account of each message. The stage of
        a refusal is `RULES`. The result for a row may depend on the rows of its own message
        alone, because users can't see batches.

        Raises:
            SpecError: a file or schema that it depends on can't be loaded or used. The function
                raises it too, if it fails as a whole.
        """


@runtime_checkable
class TellsColumnSources(Protocol):
    """A transform that says itself which columns each of its columns depends on.

    Other transforms keep the columns before them and add those of `reads`.
    """

    def column_sources(self, names: Sequence[str]) -> Mapping[str, frozenset[ColumnSource]]:
        """Returns the columns that each result column depends on, as `column_sources` does."""


def column_sources(
    transform: Transform, names: Sequence[str]
) -> Mapping[str, frozenset[ColumnSource]]:
    """Returns the columns that each column of a transform's result depends on.

    Metadata columns that a SELECT reads are among them. Unless the transform says otherwise, a
    column depends on the input column of the same name. No source of a lookup is asked.

    Args:
        transform: the transform.
        names: the columns of the rows before it.

    Raises:
        SpecError: it can't use such columns.
    """
    if isinstance(transform, TellsColumnSources):
        return transform.column_sources(names)
    reads: Mapping[str, frozenset[ColumnSource]] = getattr(transform, "reads", {})
    return {**{name: frozenset({name}) for name in names}, **reads}
