"""Decoder of messages whose bytes are the only column of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.shared.buffers import as_text
from windrow.ingest.formats.shared.decoded import nothing
from windrow.ingest.ports.decoder import VALUE, Decode, Decoded, Refusal
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.user_code import ModelReference, load_model

COLUMN = "value"
"""Name of the column if there is no schema."""

_TYPES = {
    "string": (pa.string(), "String"),
    "raw": (pa.binary(), "Binary, or a number: Int16, Int32, Int64, Float32 or Float64"),
}
_NUMBERS = {
    pa.int16(): ">i2",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
}
"""Layouts of numbers that Kafka's serializers write, the highest byte first."""


@dataclass(frozen=True)
class PlainDecoder:
    """Decodes each message to a row of one column.

    The column is the message's text (`string`, refused if it isn't UTF-8) or its bytes
    (`raw`). Bytes may also be a number, in the layout of Kafka's serializers of numbers.

    Attributes:
        format: whether a message is a text or bytes.
        model: the model that has the column; None if the column is called `value`.
        on_null: whether a message without a value is a dead letter, is only counted, or
            (`keep`) is a row with null.
        part: the part of the model that is the column.
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
        columns = self.part.of(Columns.of(load_model(self.model)))
        problems = "; ".join(self._mistakes(columns))
        if problems:
            raise SpecError(
                f"The schema {self.model} can't be used for format {self.format}: {problems}",
                "spec",
                "Fix the schema, or choose another format; columns that the key has go with"
                " fields_include: except_key. Nothing was read.",
            )
        return columns

    def open(self) -> Decode:
        schema = self.columns.arrow_schema
        return lambda messages: self._decode_values(messages.column("value"), schema)

    def _mistakes(self, columns: Columns) -> Iterator[str]:
        kind, name = _TYPES[self.format]
        if len(columns.columns) != 1:
            names = ", ".join(column.name for column in columns.columns)
            yield f"a message is one column, but the schema has {names}"
        elif columns.columns[0].type != kind and (
            self.format == "string" or columns.columns[0].type not in _NUMBERS
        ):
            yield f"{columns.columns[0].name} is {columns.columns[0].type}, and must be {name}"
        elif self.on_null == "keep" and not columns.columns[0].nullable:
            yield f"{columns.columns[0].name} must be nullable for on_null: keep"

    def _decode_values(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        """Returns the verdict on each message.

        Each message that isn't dropped first becomes a row. Then some rows are refused.
        """
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        written = np.dtype(_NUMBERS.get(schema.field(0).type, np.void))
        column, invalid_mask = (
            as_text(values)
            if self.format == "string"
            else _numbers(values, written)
            if written.itemsize
            else (values, np.zeros(len(values), np.bool_))
        )
        kept_rows = np.flatnonzero(
            ~nulls if self.on_null == "drop" else np.ones(len(values), np.bool_)
        ).astype(np.int64)
        rows = pa.RecordBatch.from_arrays(
            [column if len(kept_rows) == len(values) else column.take(pa.array(kept_rows))],
            schema=schema,
        )
        all_rows = replace(
            nothing(schema),
            rows=rows,
            row_index=pa.array(kept_rows),
            dropped=len(values) - len(kept_rows),
        )
        tombstones = np.flatnonzero(nulls if self.on_null == "dead" else np.zeros(0))
        refusals = [
            Refusal(tombstones, "tombstone", "Expected a value, got a tombstone"),
            Refusal(
                np.flatnonzero(invalid_mask[kept_rows]),
                "wrong_format",
                f"Expected {format_count(written.itemsize, 'byte')}",
            )
            if written.itemsize
            else Refusal(np.flatnonzero(invalid_mask[kept_rows]), "invalid_utf8", "Expected UTF-8"),
        ]
        return all_rows.refused(VALUE, refusals)


def _numbers(
    values: pa.BinaryArray, written: np.dtype[Any]
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Returns the values as numbers, and a mask of the values with a wrong length."""
    wrong_length = pc.not_equal(pc.binary_length(values), written.itemsize)
    padded_values = pc.if_else(pc.fill_null(wrong_length, True), bytes(written.itemsize), values)
    numbers = np.frombuffer(b"".join(padded_values.to_pylist()), written)
    return (
        pa.array(numbers.astype(written.newbyteorder("=")), mask=np.asarray(values.is_null())),
        pc.fill_null(wrong_length, False).to_numpy(zero_copy_only=False),
    )
