"""Transforms: they change decoded rows before these are staged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns


Apply = Callable[[Decoded, pa.RecordBatch], Decoded]
"""Transforms a batch: what was decoded of it, and its `MESSAGES`."""


class Transform(Protocol):
    """Changes rows: other columns, fewer rows, several of one, or refusals.

    Picklable, and cheap to pickle, as a decoder is.
    """

    def columns(self, before: Columns) -> Columns:
        """The columns of its result, for rows with the columns `before`.

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
