"""Transforms: they change decoded rows before these are staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


Apply = Callable[[Decoded, pa.RecordBatch], Decoded]
"""Transforms a batch: what was decoded of it, and its `MESSAGES`."""


ColumnSource: TypeAlias = str | tuple[str, str]
"""A column of the rows before a transform; or a lookup's name, and a column of its source."""


class Transform(Protocol):
    """Changes rows: other columns, fewer rows, several of one, or refusals.

    Picklable, and cheap to pickle, as a decoder is. One that adds columns may have `reads`: the
    columns that each of them depends on (see `column_sources`).
    """

    def columns(self, input_columns: Columns) -> Columns:
        """The columns of its result, for rows with the columns `input_columns`.

        Raises:
            SpecError: it can't use such columns; says which, and what to do.
        """

    def open(self) -> Apply:
        """Returns a function that transforms, for the calling thread.

        It is used for one split at most. Dead letters and the counts of dropped and
        filtered messages pass through it. `Decoded.with_rows` and `Decoded.refused`
        keep the account of each message; the stage of a refusal is `RULES`. The result
        for a row may depend on the rows of its own message alone, because users can't
        see batches.

        Raises:
            SpecError: something that it depends on can't be loaded or used; also raised
                by the function, if it fails as a whole.
        """


@runtime_checkable
class TellsColumnSources(Protocol):
    """A transform whose columns aren't those before it and the ones of its `reads`."""

    def column_sources(self, names: Sequence[str]) -> Mapping[str, frozenset[ColumnSource]]:
        """What each column of its result depends on, as the function of this name returns it."""


def column_sources(
    transform: Transform, names: Sequence[str]
) -> Mapping[str, frozenset[ColumnSource]]:
    """Returns the columns that each column of a transform's result depends on.

    Metadata columns that a SELECT reads are among them. Unless the transform says otherwise, a
    column depends on the one of the same name. Asks no source of a lookup.

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
