"""JSON messages -> rows and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ingest.decode.json.strict import Unknown
from ingest.ports.decoder import Decode
from ingest.schema.columns import Columns
from ingest.schema.load import built_of_model, model_now

OnNull = Literal["dead", "drop"]


@dataclass(frozen=True)
class JsonDecoder:
    """JSON documents to the columns of a pandera model, one row a message.

    `on_null`: what a message without a value becomes; `unknown`: what becomes of a message with fields that the schema doesn't name.
    """

    reference: str
    folder: Path
    on_null: OnNull = "dead"
    unknown: Unknown = "ignore"

    @property
    def columns(self) -> Columns:
        """See `ports.decoder.Decoder.columns`."""
        return Columns.of(model_now(self.reference, self.folder)[1])

    def open(self) -> Decode:
        """See `ports.decoder.Decoder.open`. A thread's machine is kept until the schema's file changes."""
        from ingest.decode.json.machine import json_machine  # noqa: PLC0415  # compiled code is loaded where messages are decoded

        machine = built_of_model(self, self.reference, self.folder, lambda model: json_machine(model, self.unknown))
        return lambda messages: machine.decode(messages.column("value"), self.on_null)
