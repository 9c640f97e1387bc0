"""Columns whose writer's schema has other fields: aliases first, then defaults.

Only formats with a writer's schema support this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, framed
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.contracts.values import dead, messages_with

MODEL = """\
import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    money: pl.String = pa.Field(metadata={"default": "EUR"})
    amount: pl.Int64 = pa.Field(metadata={"aliases": ["amt", "sum"]})
    note: pl.String = pa.Field(nullable=True, metadata={"default": "-"})
"""
NEW, OLD, OLDER, OTHER, BOTH = (
    ("amount", "money", "note"),
    ("amt", "note"),
    ("sum", "amt"),
    ("money",),
    ("amt", "amount"),
)
"""The fields of some versions of a record."""


def avro(fields: tuple[str, ...]) -> str:
    """Returns the Avro schema of a version."""
    kinds: dict[str, Any] = {
        "amount": "int",
        "amt": "int",
        "sum": "long",
        "money": "string",
        "note": ["null", "string"],
    }
    return json.dumps(
        {
            "type": "record",
            "name": "Sale",
            "fields": [{"name": name, "type": kinds[name]} for name in fields],
        }
    )


def proto(fields: tuple[str, ...]) -> str:
    """Returns the Protobuf schema of a version."""
    kinds = {
        "amount": "int64",
        "amt": "int32",
        "sum": "int64",
        "money": "string",
        "note": "optional string",
    }
    field_lines = " ".join(
        f"{kinds[name]} {name} = {number};" for number, name in enumerate(fields, 1)
    )
    return f'syntax = "proto3"; message Sale {{ {field_lines} }}'


def decoded(
    folder: Path, values: list[bytes], /, schemas: tuple[WriterSchema, ...] = (), **decode: Any
) -> Decoded:
    """Returns the decoded values, with a registry of these schemas."""
    (folder / "schema.py").write_text(MODEL)
    section: Any = section_at(FORMATS[decode["format"]])
    decoder = make_decoder(section.model_validate({"schema": "schema.py:Sale", **decode}), folder)
    if isinstance(decoder, ConfluentDecoder):
        decoder = decoder.asking(FixedRegistry(schemas))
    assert decoder.columns.columns[0].name == "money"
    batch: Decoded = decoder.open()(messages_with(values))
    return batch


def row(money: str, amount: int, note: str | None) -> dict[str, Any]:
    """Returns a row of the model."""
    return {"money": money, "amount": amount, "note": note}


def test_versions_side_by_side(tmp_path: Path) -> None:
    """A column comes from the field of its name, else from its first existing alias.

    A default applies only if no such field exists; null in an existing field stays null.
    """
    fields = (NEW, OLD, OLDER, OTHER, BOTH)
    schemas = tuple(WriterSchema(str(i), "AVRO", avro(names)) for i, names in enumerate(fields, 1))
    values = [
        framed(1, varint(1) + text("USD") + varint(1) + text("a")),
        framed(2, varint(2) + varint(0)),
        framed(3, varint(4) + varint(3)),
        framed(4, text("USD")),
        framed(2, varint(2)),
        framed(1, varint(1) + text("USD") + varint(0)),
        framed(5, varint(8) + varint(9)),
    ]
    batch = decoded(tmp_path, values, schemas, format="avro-confluent")
    expected_rows = [
        row("USD", 1, "a"),
        row("EUR", 2, None),
        row("EUR", 3, "-"),
        row("USD", 1, None),
        row("EUR", 9, "-"),
    ]
    assert batch.rows.to_pylist() == expected_rows
    assert dead(batch) == [(3, "schema", "incompatible_schema"), (4, "value", "not_avro")]
    schemas = tuple(
        WriterSchema(str(i), "PROTOBUF", proto(names)) for i, names in enumerate(fields, 1)
    )
    values = [
        framed(1, b"\x00\x08\x01\x12\x03USD\x1a\x01a"),
        framed(2, b"\x00\x08\x02"),
        framed(3, b"\x00\x08\x04\x10\x03"),
        framed(4, b"\x00\x0a\x03USD"),
        framed(2, b"\x00\x08"),
        framed(1, b"\x00\x08\x01\x12\x03USD"),
        framed(5, b"\x00\x08\x08\x10\x09"),
    ]
    batch = decoded(tmp_path, values, schemas, format="protobuf-confluent")
    assert batch.rows.to_pylist() == expected_rows
    assert dead(batch) == [(3, "schema", "incompatible_schema"), (4, "value", "not_protobuf")]


def test_a_schema_that_the_spec_names(tmp_path: Path) -> None:
    """The schema that the spec names may be another version than the model."""
    values = [varint(2) + varint(0), varint(2)]
    assert decoded(tmp_path, values, format="avro", writer_schema=avro(OLD)).rows.to_pylist() == [
        row("EUR", 2, None)
    ]
    (tmp_path / "sale.proto").write_text(proto(OLD))
    batch = decoded(
        tmp_path, [b"\x08\x02", b"\x08"], format="protobuf", descriptor="sale.proto", message="Sale"
    )
    assert batch.rows.to_pylist() == [row("EUR", 2, None)]
    with pytest.raises(SpecError, match="amount: the Avro schema has no such field"):
        decoded(tmp_path, [], format="avro", writer_schema=avro(OTHER))


@pytest.mark.parametrize(
    "decode",
    [
        {"format": "json-schema-confluent"},
        {"format": "csv"},
        {"format": "canal-json"},
        {
            "format": "avro",
            "writer_schema": avro(NEW),
            "key": {"format": "csv", "fields": ["amount"]},
        },
    ],
)
def test_formats_without_a_writers_schema(decode: dict[str, Any], tmp_path: Path) -> None:
    """Aliases, or defaults, are refused for formats without a writer's schema.

    Such formats don't say which fields a message could have.
    """
    with pytest.raises(
        SpecError, match=r"metadata gives (aliases for amount|default for (money|amount))"
    ):
        decoded(tmp_path, [], **decode)


def test_columns_of_headers(tmp_path: Path) -> None:
    """Aliases and defaults are refused for a column of a header."""
    with pytest.raises(
        SpecError,
        match="note: comes from the header x-note, for which metadata path, codecs, aliases and",
    ):
        decoded(tmp_path, [], format="avro", writer_schema=avro(NEW), headers={"note": "x-note"})
