"""Functions that gather all batches of a split, for suites with small splits."""

from __future__ import annotations

import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import Reader, ReadSummary


def gathered(reader: Reader, split: Split) -> tuple[list[pa.RecordBatch], ReadSummary]:
    """Returns all batches, and the summary."""
    batches: list[pa.RecordBatch] = []
    summary = reader.read(split, batches.append)
    return batches, summary


def batches_of(reader: Reader, split: Split) -> list[pa.RecordBatch]:
    """Returns all batches."""
    return gathered(reader, split)[0]
