"""JSON messages -> rows and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.json.strict import Unknown
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import holds_bytes
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part

OnNull = Literal["dead", "drop"]


@dataclass(frozen=True)
class JsonDecoder:
    """JSON documents to the columns of a pandera model, one row a message.

    `on_null`: what a message without a value becomes; `unknown`: what becomes of a
    message with fields that the schema doesn't name; `part`: which of the model's
    columns the documents hold; `reading`: how their values are written.
    """

    model: ModelReference
    on_null: OnNull = "dead"
    unknown: Unknown = "ignore"
    part: Part = WHOLE
    reading: Reading = EXACT

    @property
    def columns(self) -> Columns:
        return self._columns(model_now(self.model)[1])

    def open(self) -> Decode:
        """A thread's machine is kept until the schema's file changes."""
        from windrow.ingest.formats.json.batch_decoder import (
            json_batch_decoder,
        )  # compiled code is loaded where messages are decoded

        machine = built_of_model(
            self,
            self.model,
            lambda model: json_batch_decoder(self._columns(model), self.unknown, self.reading),
        )
        return lambda messages: machine.decode(messages.column("value"), self.on_null)

    def _columns(self, model: type[Any]) -> Columns:
        columns = self.part.of(Columns.of(model))
        wrong = [column.name for column in columns.columns if holds_bytes(column.type)]
        if wrong:
            what = (
                f"The schema {self.model} can't be used for JSON, which has no bytes:"
                f" {', '.join(wrong)}"
            )
            raise SpecError(
                what, "spec", "Take String, and decode it after the table; nothing was read."
            )
        return columns
