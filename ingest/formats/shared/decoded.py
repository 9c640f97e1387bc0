"""Functions that join verdicts on parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.ports.decoder import Decoded, Deletes


def nothing(schema: pa.Schema) -> Decoded:
    """Returns the verdict on a batch without messages; its rows have the schema's columns."""
    rows = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    none, words = pa.nulls(0, pa.int64()), pa.nulls(0, pa.string())
    return Decoded(rows, none, none, words, words, words)


def refuse_all(schema: pa.Schema, count: int, stage: str, reason: str, detail: str) -> Decoded:
    """Returns the verdict on `count` messages that are refused for one reason."""
    return replace(
        nothing(schema),
        dead_index=pa.array(np.arange(count, dtype=np.int64)),
        dead_stage=pa.repeat(stage, count),
        dead_reason=pa.repeat(reason, count),
        dead_detail=pa.repeat(detail, count),
    )


def together(
    schema: pa.Schema, parts: Sequence[Decoded], key: Sequence[str] | None = None
) -> Decoded:
    """Joins several verdicts into one.

    Each message is in one part only, except that several parts may have it in `cut`. Each
    part's indices ascend, as `Decoded` promises. So if only one part has rows, they aren't
    sorted.

    Args:
        schema: the schema of the rows. Parts with rows have its columns.
        parts: the verdicts.
        key: the columns of the primary key in deletes; None if nothing can be deleted.
    """
    with_rows = [part for part in parts if part.rows.num_rows] or [nothing(schema)]
    parts = [nothing(schema), *parts]
    order, row_index = _in_order([part.row_index for part in with_rows])
    rows = [pa.RecordBatch.from_arrays(part.rows.columns, schema=schema) for part in with_rows]
    dead_order, dead_index = _in_order([part.dead_index for part in parts])
    stages, reasons, details = (
        pa.concat_arrays([getattr(part, name) for part in parts]).take(dead_order)
        for name in ("dead_stage", "dead_reason", "dead_detail")
    )
    deletes = [part.deletes for part in parts if part.deletes is not None]
    return Decoded(
        rows[0] if len(rows) == 1 else pa.concat_batches(rows).take(order),
        row_index,
        dead_index,
        stages,
        reasons,
        details,
        sum(part.dropped for part in parts),
        sum(part.filtered for part in parts),
        None if key is None else _deletes(deletes, schema, key),
        _unavailable(with_rows, order),
        reduce(np.union1d, (part.cut for part in parts if len(part.cut)), np.zeros(0, np.int64)),
        ignored=tuple(ignored for part in parts for ignored in part.ignored),
    )


def _unavailable(parts: Sequence[Decoded], order: pa.Int64Array) -> pa.ListArray | None:
    if all(part.unavailable is None for part in parts):
        return None
    kind = pa.list_(pa.string())
    lists = [
        pa.array([[]] * part.rows.num_rows, kind) if part.unavailable is None else part.unavailable
        for part in parts
    ]
    return pa.concat_arrays(lists).take(order)


def _deletes(parts: Sequence[Deletes], schema: pa.Schema, key: Sequence[str]) -> Deletes:
    none = [pa.array([], schema.field(name).type) for name in key]
    order, index = _in_order([part.index for part in parts])
    keys = [
        pa.concat_arrays([*(part.keys.column(name) for part in parts), n]).take(order)
        for name, n in zip(key, none, strict=True)
    ]
    return Deletes(pa.RecordBatch.from_arrays(keys, list(key)), index)


def _in_order(parts: Sequence[pa.Int64Array]) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Returns the order that sorts the concatenated indices, and the sorted indices."""
    index = np.concatenate([np.zeros(0, np.int64), *(part.to_numpy() for part in parts)])
    order = np.argsort(index, kind="stable")
    return pa.array(order), pa.array(index[order])


class DeadLetters:
    """Messages that are refused one by one."""

    def __init__(self) -> None:
        self._dead: list[tuple[int, str, str, str]] = []

    def add(self, index: int, refusal: RefusedValueError) -> None:
        self._dead.append((index, refusal.stage, refusal.reason, refusal.detail))

    def arrays(self) -> tuple[pa.Int64Array, pa.StringArray, pa.StringArray, pa.StringArray]:
        """Returns index, stage, reason and detail, in the order of the messages."""
        self._dead.sort()
        index, *words = list(zip(*self._dead, strict=True)) or [(), (), (), ()]
        stage, reason, detail = (pa.array(texts, pa.string()) for texts in words)
        return pa.array(index, pa.int64()), stage, reason, detail

    def verdict(self, schema: pa.Schema) -> Decoded:
        """Returns the verdict on these messages, with the schema of the rows of the others."""
        index, stage, reason, detail = self.arrays()
        return replace(
            nothing(schema),
            dead_index=index,
            dead_stage=stage,
            dead_reason=reason,
            dead_detail=detail,
        )
