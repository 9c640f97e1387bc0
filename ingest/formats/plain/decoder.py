"""Decoder of messages whose bytes are the one column of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.buffers import as_text
from windrow.ingest.formats.shared.decoded import nothing
from windrow.ingest.ports.decoder import VALUE, Decode, Decoded, Refusal
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.load import ModelReference, model_now
from windrow.ingest.schema.part import WHOLE, Part

COLUMN = "value"
"""Name of the column without a schema."""

_TYPES = {"string": (pa.string(), "String"), "raw": (pa.binary(), "Binary")}


@dataclass(frozen=True)
class PlainDecoder:
    """Decodes each message to a row of one column.

    The column is the message's text (`string`, refused if it isn't UTF-8) or its bytes
    (`raw`).

    - `model`: the schema that has the column; None: the column is called `value`.
    - `on_null`: what becomes of a message without a value; `keep`: a row with null.
    - `part`: the column of the schema that it is.
    """

    format: Literal["string", "raw"]
    model: ModelReference | None
    on_null: Literal["dead", "drop", "keep"] = "dead"
    part: Part = WHOLE

    @property
    def columns(self) -> Columns:
        if self.model is None:
            return Columns(
                (Column(COLUMN, _TYPES[self.format][0], nullable=self.on_null == "keep"),)
            )
        columns = self.part.of(Columns.of(model_now(self.model)[1]))
        wrong = "; ".join(self._mistakes(columns))
        if wrong:
            do = (
                "Fix the schema, or choose another format; columns that the key has go with"
                " fields_include: except_key. Nothing was read."
            )
            raise SpecError(
                f"The schema {self.model} can't be used for format {self.format}: {wrong}",
                "spec",
                do,
            )
        return columns

    def open(self) -> Decode:
        schema = self.columns.arrow_schema
        return lambda messages: self._decoded(messages.column("value"), schema)

    def _mistakes(self, columns: Columns) -> Iterator[str]:
        kind, name = _TYPES[self.format]
        if len(columns.columns) != 1:
            names = ", ".join(column.name for column in columns.columns)
            yield f"a message is one column, but the schema has {names}"
        elif columns.columns[0].type != kind:
            yield f"{columns.columns[0].name} is {columns.columns[0].type}, and must be {name}"
        elif self.on_null == "keep" and not columns.columns[0].nullable:
            yield f"{columns.columns[0].name} must be nullable for on_null: keep"

    def _decoded(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        """The verdict on each message.

        First each message becomes a row, but for the dropped ones; then rows are
        refused.
        """
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        column, wrong = (
            as_text(values)
            if self.format == "string"
            else (values, np.zeros(len(values), np.bool_))
        )
        kept = np.flatnonzero(
            ~nulls if self.on_null == "drop" else np.ones(len(values), np.bool_)
        ).astype(np.int64)
        rows = pa.RecordBatch.from_arrays(
            [column if len(kept) == len(values) else column.take(pa.array(kept))], schema=schema
        )
        every = replace(
            nothing(schema), rows=rows, row_index=pa.array(kept), dropped=len(values) - len(kept)
        )
        tombstones = np.flatnonzero(nulls if self.on_null == "dead" else np.zeros(0))
        refusals = [
            Refusal(tombstones, "tombstone", "Expected a value, got none"),
            Refusal(np.flatnonzero(wrong[kept]), "invalid_utf8", "Expected UTF-8"),
        ]
        return every.refused(VALUE, refusals)
