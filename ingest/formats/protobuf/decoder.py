"""Protobuf messages -> rows and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from windrow.ingest.formats.protobuf.descriptors import TypesFile, message_type
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part

OnNull = Literal["dead", "drop"]


@dataclass(frozen=True)
class ProtobufDecoder:
    """Messages of one Protobuf type to the columns of a pandera model, one row a message.

    `types`: the descriptor set or the .proto file that has the type, whose name is
    `message`; `on_null`: what a message without a value becomes; `part`: which of the
    model's columns the messages hold.
    """

    model: ModelReference
    types: TypesFile
    message: str
    on_null: OnNull = "dead"
    part: Part = WHOLE

    @property
    def columns(self) -> Columns:
        from windrow.ingest.formats.protobuf.fields import (
            readers,
        )  # Arrow is loaded where there is something to decode

        columns = self.part.of(Columns.of(model_now(self.model)[1]))
        kind = self._type(self.types.octets())
        readers(kind, columns.as_written(kind.fields_by_name).columns)
        return columns

    def open(self) -> Decode:
        """A thread's machine is kept until the model's or the type's file changes."""
        from windrow.ingest.formats.protobuf.batch_decoder import (
            protobuf_batch_decoder,
        )  # as above

        types = self.types.octets()
        machine = built_of_model(
            (self, types),
            self.model,
            lambda model: protobuf_batch_decoder(
                self._type(types), self.part.of(Columns.of(model))
            ),
        )
        return lambda messages: machine.decode(messages.column("value"), self.on_null)

    def _type(self, types: bytes) -> Any:
        return message_type(types, self.message, self.types.name)
