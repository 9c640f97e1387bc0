"""Table of all formats, one line each.

A format's modules are loaded when a spec names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.ingest.errors import check_output
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.kinds import OfItsKind, Plugins

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
    "debezium-avro-confluent": "windrow.ingest.formats.cdc.kind:DebeziumAvroConfluentSection",
    "debezium-json-schema-confluent": (
        "windrow.ingest.formats.cdc.kind:DebeziumJsonSchemaConfluentSection"
    ),
    "canal-json": "windrow.ingest.formats.cdc.kind:CanalJsonSection",
    "maxwell-json": "windrow.ingest.formats.cdc.kind:MaxwellJsonSection",
    "dms-json": "windrow.ingest.formats.cdc.kind:DmsJsonSection",
}

ASKING = frozenset({"avro-confluent", "protobuf-confluent", "debezium-avro-confluent"})
"""Formats that ask a schema registry."""

DecodeSection = Annotated[
    FormatSection,
    OfItsKind(
        option="format",
        default="json",
        kinds=FORMATS,
        plugins=Plugins("windrow.formats", FORMATS, FormatSection, ("decoder",)),
    ),
]
"""A spec's `decode` section."""


def asks_registry(written: Mapping[str, Any]) -> bool:
    """Returns whether a section, of values or of keys, asks a schema registry."""
    name = written.get("format")
    return isinstance(name, str) and name in ASKING


def make_decoder(
    section: FormatSection,
    folder: Path,
    primary_key: tuple[str, ...] = (),
    *,
    keeps_unavailable: bool = False,
) -> Decoder:
    """Makes the decoder that a `decode` section describes.

    Args:
        section: the section of the spec.
        folder: the spec's folder.
        primary_key: the columns by which rows are deleted from the table; empty if no rows
            are deleted. Change events delete rows. A message without a value deletes a row
            if its key has all of these columns.
        keeps_unavailable: whether the table can keep the old values of columns that a change event
            leaves out.

    Raises:
        SpecError: no decoder can be made for the section.
    """
    value = check_output(section, section.decoder(folder), "open")
    if primary_key:
        # loads Arrow, which only decoding needs
        from windrow.ingest.ports.decoder import DecodesDeletes

        value_keys = tuple(name for name in primary_key if name not in section.part.without)
        value = (
            value.with_deletes(value_keys, keeps_unavailable=keeps_unavailable)
            if isinstance(value, DecodesDeletes)
            else value
        )
    if section.codecs:
        from windrow.ingest.formats.codec_decoder import CodecDecoder  # loads Arrow

        value = CodecDecoder(value, section.codecs)
    if section.schema_ is None or (section.key is None and not section.headers):
        return value
    from windrow.ingest.formats.composed import ComposedDecoder  # loads Arrow, too

    headers = tuple(section.headers.items())
    model = ModelReference(section.schema_, folder)
    key: Decoder | None = None
    fields: tuple[str, ...] = ()
    if section.key is not None:
        key, fields = section.key.decoder(model), section.key.fields
    return ComposedDecoder(model, value, key, fields, headers, section.part, primary_key)
