"""Metadata columns beside decoded rows, for steps that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.schema.metadata_types import TYPES


def refuse_own_column(
    own: str, before: Columns, metadata: Iterable[tuple[str, str]], setting: str
) -> None:
    """Refuses rows that have a step's own column already, or a metadata column of its name.

    Raises:
        SpecError: they have.
    """
    if own in {c.name for c in before.columns} | {column for _, column in metadata}:
        raise SpecError(
            f"{setting} can't be used: the rows have a column {own}, and so has the step itself",
            "spec",
            "Give the rows' column another name. Nothing was read.",
        )


def beside_rows(
    names: Mapping[str, str], decoded: Decoded, messages: pa.RecordBatch
) -> dict[str, pa.Array]:
    """The columns of some metadata (name -> column), one value for each row."""
    if not names:
        return {}
    arrays = columns(names, for_rows(messages, decoded.row_index), "")
    return {
        column: array.cast(TYPES[name])
        for (name, column), array in zip(names.items(), arrays, strict=True)
    }
