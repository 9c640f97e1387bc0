"""Decoded batches that a decoder could return."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import Column, Columns


def decoded(rows: pa.RecordBatch, index: list[int] | None = None, **more: Any) -> Decoded:
    """Returns a decoded batch of these rows.

    Args:
        rows: the rows.
        index: the message of each row; None: each row has its own message.
        more: further fields.
    """
    none = pa.array([], pa.string())
    numbers = pa.array(range(rows.num_rows) if index is None else index, pa.int64())
    return Decoded(rows, numbers, pa.array([], pa.int64()), none, none, none, **more)


def columns_of(rows: pa.RecordBatch) -> Columns:
    return Columns(tuple(Column(f.name, f.type, f.nullable) for f in rows.schema))
