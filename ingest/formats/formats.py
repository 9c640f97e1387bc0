"""The formats that there are: one line each.

What stands behind a line is loaded when a spec names the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.ingest.formats.keys import KEY_FORMATS, KeyKind
from windrow.ingest.formats.kind import FormatKind, FormatSection
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.settings.kinds import OfItsKind, kind_at

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder

FORMATS = {
    "json": "windrow.ingest.formats.json.kind:JSON",
    "avro": "windrow.ingest.formats.avro.kind:AVRO",
    "avro-confluent": "windrow.ingest.formats.confluent.kind:AVRO_CONFLUENT",
    "protobuf": "windrow.ingest.formats.protobuf.kind:PROTOBUF",
    "protobuf-confluent": "windrow.ingest.formats.confluent.kind:PROTOBUF_CONFLUENT",
    "json-schema-confluent": "windrow.ingest.formats.confluent.kind:JSON_SCHEMA_CONFLUENT",
    "csv": "windrow.ingest.formats.csv.kind:CSV",
    "string": "windrow.ingest.formats.plain.kind:STRING",
    "raw": "windrow.ingest.formats.plain.kind:RAW",
    "debezium-json": "windrow.ingest.formats.cdc.kind:DEBEZIUM_JSON",
    "debezium-avro": "windrow.ingest.formats.cdc.kind:DEBEZIUM_AVRO",
    "canal-json": "windrow.ingest.formats.cdc.kind:CANAL_JSON",
    "maxwell-json": "windrow.ingest.formats.cdc.kind:MAXWELL_JSON",
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
    kind: FormatKind[Any] = kind_at(FORMATS[section.format])
    value: Decoder = kind.decoder(section, folder)
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
    if section.key is None:
        return ComposedDecoder(
            model, value, headers=headers, part=section.part, primary_key=primary_key
        )
    of_keys: KeyKind[Any] = kind_at(KEY_FORMATS[section.key.format])
    key = of_keys.decoder(section.key, model)
    return ComposedDecoder(
        model, value, key, section.key.fields, headers, section.part, primary_key
    )
