"""CSV messages -> rows and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.csv.lines import COMMAS, Dialect
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part


@dataclass(frozen=True)
class CsvDecoder:
    """Lines to the columns of a pandera model, one row a message: the fields are the
    columns, in their order.

    `on_null`: what a message without a value becomes; `part`: which of the model's
    columns the lines hold; `reading`: how timestamps are written.
    """

    model: ModelReference
    on_null: Literal["dead", "drop"] = "dead"
    part: Part = WHOLE
    dialect: Dialect = COMMAS
    reading: Reading = EXACT

    @property
    def columns(self) -> Columns:
        return self._columns(model_now(self.model)[1])

    def open(self) -> Decode:
        """A thread's machine is kept until the schema's file changes."""
        from windrow.ingest.formats.csv.batch_decoder import (
            csv_batch_decoder,
        )  # loaded where messages are decoded

        machine = built_of_model(
            self,
            self.model,
            lambda model: csv_batch_decoder(self._columns(model), self.dialect, self.reading),
        )
        return lambda messages: machine.decode(messages.column("value"), self.on_null)

    def _columns(self, model: type[Any]) -> Columns:
        columns = self.part.of(Columns.of(model))
        wrong = [
            f"{column.name} is {column.type}"
            for column in columns.columns
            if not _fits_a_field(column.type)
        ]
        if wrong:
            what = (
                f"The schema {self.model} can't be used for CSV, whose fields are single values and"
                f" no bytes: {', '.join(wrong)}"
            )
            raise SpecError(
                what, "spec", "Take String, and take it apart after the table; nothing was read."
            )
        return columns


def _fits_a_field(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_binary(kind)
