"""Avro messages -> rows and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.ingest.formats.avro.fit import check
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part

OnNull = Literal["dead", "drop"]


@dataclass(frozen=True)
class AvroDecoder:
    """Records in Avro's binary encoding to the columns of a pandera model, one row a message.

    `writer_schema`: the schema that they were written with; `on_null`: what a message
    without a value becomes; `part`: which of the model's columns the records hold.
    """

    model: ModelReference
    writer_schema: GivenSchema
    on_null: OnNull = "dead"
    part: Part = WHOLE

    @property
    def columns(self) -> Columns:
        columns = self.part.of(Columns.of(model_now(self.model)[1]))
        schema = self.writer_schema.parsed()
        check(schema, columns.as_written(schema.fields).columns)
        return columns

    def open(self) -> Decode:
        """A thread's machine is kept until the model's or the schema's file changes."""
        from windrow.ingest.formats.avro.batch_decoder import (
            avro_batch_decoder,
        )  # compiled code is loaded where messages are decoded

        given = self.writer_schema.now()
        machine = built_of_model(
            (self, given),
            self.model,
            lambda model: avro_batch_decoder(given.parsed(), self.part.of(Columns.of(model))),
        )
        return lambda messages: machine.decode(messages.column("value"), self.on_null)
