"""The receipts of a pipeline's committed windows, as its sink holds them."""

from __future__ import annotations

from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.context import Pipeline


def read_receipts(pipeline: Pipeline) -> list[Committed]:
    """Every committed window of the pipeline, the oldest first; none for a table that isn't there yet.

    Raises:
        DamagedError: a receipt is missing or can't be read.
        UnreachableError: the table can't be reached.
    """  # noqa: E501
    return sorted(pipeline.sink.receipts(), key=lambda committed: committed.receipt.window)
