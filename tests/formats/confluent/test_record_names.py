"""A message of another record than the table's is never a row of nulls.

Records are compared by their names, or by their fields if the spec gives no names.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.kind import JsonSchemaConfluentSection
from windrow.ingest.formats.confluent.payloads import AvroPayloads, ProtobufPayloads
from windrow.ingest.formats.confluent.record_names import messages_in
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import dead, messages_with

AVRO = Path(__file__).parents[1] / "avro"


def record(name: str, /, *aliases: str, **fields: str) -> dict[str, Any]:
    """Returns a record's schema."""
    more = {"aliases": list(aliases)} if aliases else {}
    return {
        "type": "record",
        "name": name,
        **more,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


CREATED, CANCELLED = (
    record("shop.OrderCreated", id="long", name="string"),
    record("shop.OrderCancelled", id="long", why="string"),
)
DELETED = record("UserDeleted", user="string")
UNION = ["null", record("shop.OrderCreated", id="long"), record("OrderNamed", name="string")]
ONE, OTHER = varint(1) + text("a"), varint(1) + text("late")


def decoder(*schemas: Any, **more: Any) -> ConfluentDecoder:
    """Returns a decoder of two nullable columns, with a registry of these schemas."""
    registry = FixedRegistry((*avro(*map(json.dumps, schemas)),))
    return ConfluentDecoder(
        ModelReference("models.py:Named", AVRO),
        AvroPayloads(),
        Subjects(),
        registry=registry,
        **more,
    )


def decoded(confluent_decoder: Any, *values: bytes) -> Decoded:
    batch: Decoded = confluent_decoder.open()(messages_with(values))
    return batch


@pytest.mark.parametrize(
    "records", [("OrderCreated",), ("shop.OrderCreated",), ("Other", "OrderCreated")]
)
def test_records_that_are_rows(records: tuple[str, ...]) -> None:
    """A record is matched by its name, with or without the namespace.

    A message of another record is a dead letter, even if it has a field of that name.
    """
    batch = decoded(
        decoder(CREATED, CANCELLED, records=records),
        framed(1, ONE),
        framed(2, OTHER),
        framed(1, ONE),
    )
    assert batch.rows.to_pylist() == [{"id": 1, "name": "a"}] * 2
    assert dead(batch) == [(1, "schema", "other_record")]
    assert (
        batch.dead_detail[0].as_py()
        == "Schema id 2: Expected a record that is a row, got shop.OrderCancelled"
    )


def test_others_that_are_filtered() -> None:
    """Messages of other records are counted and make no dead letters, if the spec filters them."""
    batch = decoded(
        decoder(CREATED, CANCELLED, records=("OrderCreated",), other_records="filter"),
        framed(2, OTHER),
        framed(1, ONE),
    )
    assert (batch.valid, batch.filtered, dead(batch)) == (1, 1, [])


def test_another_namespace_that_is_named() -> None:
    """The same name with another namespace is another record."""
    assert dead(decoded(decoder(CREATED, records=("store.OrderCreated",)), framed(1, ONE))) == [
        (0, "schema", "other_record")
    ]


def test_an_alias_of_the_writers() -> None:
    """A record is matched by the aliases of its writer's schema too."""
    assert (
        decoded(
            decoder(record("New", "shop.Old", id="long", name="string"), records=("Old",)),
            framed(1, ONE),
        ).valid
        == 1
    )


def test_a_record_that_has_none_of_the_columns() -> None:
    """A record with none of the columns is refused, with and without names in the spec."""
    for records in ((), ("UserDeleted",)):
        assert dead(decoded(decoder(DELETED, records=records), framed(1, text("joe")))) == [
            (0, "schema", "other_record")
        ]


def test_a_union_of_records() -> None:
    """A message of a union of records says first which record it is.

    An invalid branch is no Avro. The branch null is no row.
    """
    values = [
        varint(1) + varint(5),
        varint(2) + text("a"),
        varint(0),
        varint(3),
        varint(-1),
        b"",
        b"\xff",
        b"\x82\x00" + varint(6),
    ]
    messages = [framed(1, value) for value in values]
    all_records = decoded(decoder(UNION), *messages)
    assert all_records.rows.to_pylist() == [
        {"id": 5, "name": None},
        {"id": None, "name": "a"},
        {"id": 6, "name": None},
    ]
    assert [reason for _, _, reason in dead(all_records)] == ["other_record", *["not_avro"] * 4]
    named = decoded(decoder(UNION, records=("OrderCreated",)), *messages)
    assert named.rows.to_pylist() == [{"id": 5, "name": None}, {"id": 6, "name": None}]
    assert dead(named)[0] == (1, "schema", "other_record")


@pytest.mark.parametrize(
    "schemas",
    [
        (CREATED, record("store.OrderCreated", id="long")),
        (record("New", "OrderCreated", id="long"), CREATED),
        (CREATED, DELETED),
    ],
)
def test_the_record_of_the_topics_subject(schemas: tuple[Any, ...]) -> None:
    """If the spec gives no names, the record of the topic's subject is expected.

    All versions of the subject must have the same record, by a namespace or an alias.
    """
    confluent_decoder = decoder(*schemas[:2], {})
    if schemas[1] is DELETED:
        with pytest.raises(
            SpecError, match=r"Subject t-value .* has several records: OrderCreated, UserDeleted"
        ) as refused:
            confluent_decoder.prepared(["t"])
        assert "decode.records: [NAME]" in refused.value.advice
        return
    expecting: Any = confluent_decoder.prepared(["t"]).decoder
    stray = WriterSchema("9", "AVRO", json.dumps(CANCELLED))
    batch = decoded(
        expecting.with_schemas([stray]), framed(2, varint(1) + text("a")), framed(9, OTHER)
    )
    assert dead(batch)[-1] == (1, "schema", "other_record")
    assert 0 not in [index for index, _, reason in dead(batch) if reason == "other_record"]


def test_a_topic_without_a_subject() -> None:
    """A topic without a subject raises SpecError that names the setting for the records.

    Keys have the setting in their own section.
    """
    for part, setting in (("value", "decode.records"), ("key", "decode.key.records")):
        subjects: Any = Subjects(part=part)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match=f"has no subject t-{part}") as refused:
            ConfluentDecoder(
                ModelReference("models.py:Named", AVRO),
                AvroPayloads(),
                subjects,
                registry=FixedRegistry(),
            ).prepared(["t"])
        assert f"{setting}: [NAME]" in refused.value.advice


def test_columns_that_say_the_schema(tmp_path: Path) -> None:
    """Columns can hold the schema's id and the record's name, in the model's order.

    A batch may have several schemas. A column that is no String is refused.
    """
    (tmp_path / "models.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Event(pa.DataFrameModel):\n   "
        " kind: pl.String\n    id: pl.Int64\n    schema_id: pl.String\n"
    )
    options: Any = {
        "written_with": (("schema_id", "schema_id"), ("kind", "record")),
        "records": ("OrderCreated", "OrderCancelled"),
    }
    confluent_decoder = replace(
        decoder(CREATED, CANCELLED, **options), model=ModelReference("models.py:Event", tmp_path)
    )
    batch = decoded(confluent_decoder, framed(2, OTHER), framed(1, ONE), framed(1, b""))
    assert batch.rows.to_pylist() == [
        {"kind": "shop.OrderCancelled", "id": 1, "schema_id": "2"},
        {"kind": "shop.OrderCreated", "id": 1, "schema_id": "1"},
    ]
    with pytest.raises(
        SpecError, match=r"decode\.written_with names id: the schema has no such String column"
    ):
        _ = replace(confluent_decoder, written_with=(("id", "record"),)).columns
    (tmp_path / "models.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Only(pa.DataFrameModel):\n   "
        " kind: pl.String\n"
    )
    with pytest.raises(SpecError, match="names all columns of the value"):
        _ = replace(
            confluent_decoder,
            model=ModelReference("models.py:Only", tmp_path),
            written_with=(("kind", "record"),),
        ).columns


def test_a_column_that_says_the_id_of_a_json_schema(tmp_path: Path) -> None:
    """A document of JSON Schema has no record, but a column can hold its schema's id."""
    (tmp_path / "models.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Event(pa.DataFrameModel):\n   "
        " id: pl.Int64\n    schema_id: pl.String\n"
    )
    section = JsonSchemaConfluentSection.model_validate(
        {"schema": "models.py:Event", "written_with": {"schema_id": "schema_id"}}
    )
    batch = decoded(
        section.decoder(tmp_path), framed(7, b'{"id": 1}'), framed(8, b'{"id": 2}'), b"{}"
    )
    assert batch.rows.to_pylist() == [{"id": 1, "schema_id": "7"}, {"id": 2, "schema_id": "8"}]


PROTO = """\
syntax = "proto3"; package shop; // message Not {}
/* message Neither { */
message Created { message Line { int64 id = 1; } enum E { A = 0; } string name = 2 [json_name = "} message Nor {"]; int64 id = 1; }
message Deleted { int64 id = 1; string message = 5; }
"""  # noqa: E501


def test_protobuf_messages() -> None:
    """A Protobuf message is matched by the full name of the type that its index names."""
    registry = FixedRegistry((WriterSchema("1", "PROTOBUF", PROTO),))
    confluent_decoder = ConfluentDecoder(
        ModelReference("models.py:Named", AVRO),
        ProtobufPayloads(),
        Subjects(),
        records=("shop.Created",),
        registry=registry,
    )
    values = [framed(1, path + b"\x08\x05") for path in (b"\x00", b"\x02\x02", b"\x04\x00\x00")]
    batch = decoded(confluent_decoder, *values)
    assert batch.rows.to_pylist() == [{"id": 5, "name": ""}]
    assert dead(batch) == [(1, "schema", "other_record"), (2, "schema", "other_record")]
    assert batch.dead_detail[1].as_py().endswith("got shop.Created.Line")
    with pytest.raises(SpecError, match="has several records: Created, Deleted"):
        ConfluentDecoder(
            confluent_decoder.model, ProtobufPayloads(), Subjects(), registry=registry
        ).prepared(["t"])


def test_messages_of_a_proto_file() -> None:
    """Only messages outside other messages are found; comments and texts are ignored."""
    assert messages_in(PROTO) == ["Created", "Deleted"]
