"""The formats that there are: one line each.

What stands behind a line is loaded when a spec names the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.settings.kinds import OfItsKind

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder

FORMATS = {
    "json": "windrow.ingest.formats.json.kind:JsonSection",
    "avro": "windrow.ingest.formats.avro.kind:AvroSection",
    "avro-confluent": "windrow.ingest.formats.confluent.kind:AvroConfluentSection",
    "protobuf": "windrow.ingest.formats.protobuf.kind:ProtobufSection",
    "protobuf-confluent": "windrow.ingest.formats.confluent.kind:ProtobufConfluentSection",
    "json-schema-confluent": "windrow.ingest.formats.confluent.kind:JsonSchemaConfluentSection",
    "csv": "windrow.ingest.formats.csv.kind:CsvSection",
    "string": "windrow.ingest.formats.plain.kind:StringSection",
    "raw": "windrow.ingest.formats.plain.kind:RawSection",
    "debezium-json": "windrow.ingest.formats.cdc.kind:DebeziumJsonSection",
    "debezium-avro": "windrow.ingest.formats.cdc.kind:DebeziumAvroSection",
    "canal-json": "windrow.ingest.formats.cdc.kind:CanalJsonSection",
    "maxwell-json": "windrow.ingest.formats.cdc.kind:MaxwellJsonSection",
}

ASKING = frozenset({"avro-confluent", "protobuf-confluent"})
"""Those that ask a schema registry."""

DecodeSection = Annotated[FormatSection, OfItsKind("format", "json", FORMATS)]
"""A spec's `decode` section."""


def asks_registry(written: Mapping[str, Any]) -> bool:
    """Whether a section, of values or of keys, is of a format that asks a schema registry."""
    name = written.get("format")
    return isinstance(name, str) and name in ASKING


def make_decoder(
    section: FormatSection, folder: Path, primary_key: tuple[str, ...] = (), *, keeps: bool = False
) -> Decoder:
    """The decoder that a `decode` section asks for.

    Args:
        section: what the spec says.
        folder: where it lies.
        primary_key: the columns by which rows are to be taken out of the table; none,
            if it only grows. Change events take rows out, and so does a message without
            a value whose key has all of these columns.
        keeps: whether the row of a key keeps what a change of it leaves alone.

    Raises:
        SpecError: no decoder can be made of it.
    """
    value = section.decoder(folder)
    if primary_key:
        from windrow.ingest.ports.decoder import (
            TellsDeletes,
        )  # Arrow is loaded where there is something to decode

        mine = tuple(name for name in primary_key if name not in section.part.without)
        value = value.with_deletes(mine, keeps=keeps) if isinstance(value, TellsDeletes) else value
    if section.schema_ is None or (section.key is None and not section.headers):
        return value
    from windrow.ingest.formats.composed import ComposedDecoder  # as above

    headers = tuple(section.headers.items())
    model = ModelReference(section.schema_, folder)
    key: Decoder | None = None
    fields: tuple[str, ...] = ()
    if section.key is not None:
        key, fields = section.key.decoder(model), section.key.fields
    return ComposedDecoder(model, value, key, fields, headers, section.part, primary_key)
