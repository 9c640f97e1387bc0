"""Metadata columns beside decoded rows, for steps that read them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.schema.metadata_types import TYPES


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
