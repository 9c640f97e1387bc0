"""Field whose text or bytes are in codecs: `base64`, `gzip`, a JSON text and others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.buffers import as_text
from windrow.ingest.formats.shared.codecs import open_codecs
from windrow.ingest.formats.shared.json_dialects import EXACT
from windrow.ingest.formats.shared.nesting import path_text
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.ports.decoder import Refusal
from windrow.ingest.schema.columns import Column, Columns, Finer
from windrow.ingest.settings.kinds import section_at

_JSON = "windrow.ingest.formats.json.decoder:json_batch_decoder"
"""Makes the decoder of JSON texts. It is loaded when a column needs it, as formats are."""


@dataclass(frozen=True)
class OpenedField:
    """Values of a column that were in codecs.

    Attributes:
        values: the values; null for those that are refused.
        refusals: the refused rows.
        cut: the rows with a timestamp that was truncated.
    """

    values: pa.Array
    refusals: list[Refusal]
    cut: npt.NDArray[np.int64]


def column_as_sent(column: Column) -> Column:
    """Returns the column of the field as it is sent: a text, or bytes."""
    is_text = column.codecs[0] in {"base64", "json"}
    return replace(column, type=pa.string() if is_text else pa.binary(), epoch=None, zone=None)


class CodedField:
    """Opens the codecs of a field. Only one thread may use it at a time."""

    def __init__(self, column: Column, finer: Finer) -> None:
        self._column = column
        self._path = path_text(column.paths[0])
        self._codecs = tuple(codec for codec in column.codecs if codec != "json")
        # The document is decoded as the only field of an object that may have no other one.
        name = self._path.removeprefix("$.")
        self._head = b"{%s:" % json.dumps(name).encode()
        reading = replace(EXACT, unknown="dead", fields=((name, EXACT),))
        wrapped = Columns((replace(column, name=name, nullable=True),), finer=finer, row_path=None)
        is_json = column.codecs[-1] == "json"
        self._decoder: Any = section_at(_JSON)(wrapped, reading) if is_json else None

    def open(self, field_values: pa.Array) -> OpenedField:
        """Returns the values inside an array of texts or bytes."""
        rows_by_refusal: dict[tuple[str, str], list[int]] = {}
        opened: list[bytes | None] = []
        for row, value in enumerate(field_values.cast(pa.binary()).to_pylist()):
            try:
                opened.append(
                    None if value is None else open_codecs(value, self._codecs, self._path)
                )
            except RefusedValueError as refusal:
                opened.append(None)
                rows_by_refusal.setdefault((refusal.reason, refusal.detail), []).append(row)
        values, cut = self._read(opened, rows_by_refusal)
        refusals = [
            Refusal(np.array(rows, np.intp), reason, detail)
            for (reason, detail), rows in rows_by_refusal.items()
        ]
        return OpenedField(values, refusals, cut)

    def _read(
        self, opened: list[bytes | None], rows_by_refusal: dict[tuple[str, str], list[int]]
    ) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Returns the values of the column, and the rows with a truncated timestamp."""
        nothing_cut = np.zeros(0, np.int64)
        if self._decoder is None:
            values = pa.array(opened, pa.binary())
            if pa.types.is_binary(self._column.type):
                return values, nothing_cut
            texts, invalid_mask = as_text(values)
            rows = np.flatnonzero(invalid_mask).tolist()
            rows_by_refusal["invalid_utf8", f"Expected UTF-8 - at {self._path}"] = rows
            return texts, nothing_cut
        documents = [None if value is None else self._head + value + b"}" for value in opened]
        decoded = self._decoder.decode(pa.array(documents, pa.binary()), "drop")
        for row, reason, detail in zip(
            decoded.dead_index.to_pylist(),
            decoded.dead_reason.to_pylist(),
            decoded.dead_detail.to_pylist(),
            strict=True,
        ):
            rows_by_refusal.setdefault((reason, detail), []).append(row)
        position = np.full(len(opened), -1)
        position[decoded.row_index.to_numpy()] = np.arange(decoded.rows.num_rows)
        indices = pa.array(position, mask=position < 0)
        return decoded.rows.column(0).take(indices), decoded.cut
