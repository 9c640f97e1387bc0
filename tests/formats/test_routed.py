"""Several routes as one decoder: the contract of every format, and which way a message goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from tests.formats.protobuf import wire as protobuf
from windrow.ingest.formats.composed import ComposedDecoder
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.payloads import AvroPayloads, JsonPayloads, ProtobufPayloads
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.routed import Route, RoutedDecoder
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.schema.message_part import Part
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.sinks.routes.stage import By, Router, Rule
from windrow.ingest.testing.contracts.values import dead, messages_with
from windrow.ingest.transform.chain import Chain

HERE = Path(__file__).parent
ORDER, VISIT, REFUND = (
    f'{{"type": "record", "name": "{name}", "namespace": "shop", "fields": [{{"name": "id", "type":'
    f' "{kind}"}}{more}]}}'
    for name, kind, more in (
        ("Order", "long", ', {"name": "total", "type": "int"}'),
        ("Visit", "string", ', {"name": "page", "type": "string"}'),
        ("Refund", "long", ""),
    )
)
PROTO = """\
syntax = "proto3";
package shop;
message Order { int64 id = 1; int64 total = 2; }
message Visit { string id = 1; string page = 2; }
message Refund { int64 id = 1; }
"""
REGISTRY = FixedRegistry((*avro(ORDER, VISIT, REFUND), WriterSchema("4", "PROTOBUF", PROTO)))
ORDER_ROW = ("tables.0", {"id": 1, "total": 7})
VISIT_ROW = ("tables.1", {"id": "a", "page": "/"})


def routed(by: By, decoders: Sequence[Decoder], *, refuses_others: bool = False) -> RoutedDecoder:
    """Returns the decoder of orders, visits and others, without transforms."""
    names = ("tables.0", "tables.1", "other")
    routes = [Route(name, decoder, Chain()) for name, decoder in zip(names, decoders, strict=True)]
    rules = (Rule(values=("order", "1")), Rule(pattern="visit|2"))
    name = {"header": "type", "column": "kind"}.get(by, by)
    return RoutedDecoder(tuple(routes), Router(by, name, rules, refuses_others, (False,) * 3))


def models() -> list[ModelReference]:
    """Returns the models of orders, visits and others."""
    names = ("Order", "Visit", "Other")
    return [ModelReference(f"routed_models.py:{name}", HERE) for name in names]


def of_json() -> list[Decoder]:
    """Returns decoders of JSON."""
    return [RowDecoder(model, JsonEncoding()) for model in models()]


def of_records(payloads: Any, records: Sequence[str] = ("Refund",)) -> list[Decoder]:
    """Returns decoders of a record each, the last one of those of no route."""
    of_route = [("shop.Order",), ("Visit",), tuple(records)]
    return [
        ConfluentDecoder(model, payloads, Subjects(), records=names, registry=REGISTRY)
        for model, names in zip(models(), of_route, strict=True)
    ]


def outcomes(decoder: RoutedDecoder, messages: pa.RecordBatch) -> list[Any]:
    """Returns each message's table and row, or its reason."""
    decoded = decoder.open()(messages)
    rows: dict[int, Any] = {
        index: next((name, value) for name, value in row.items() if value is not None)
        for index, row in zip(decoded.row_index.to_pylist(), decoded.rows.to_pylist(), strict=True)
    }
    rows |= {index: reason for index, _, reason in dead(decoded)}
    assert decoded.valid + len(decoded.dead_index) + decoded.dropped == messages.num_rows
    return [rows.get(index) for index in range(messages.num_rows)]


AVRO_VALUES = [
    framed(2, text("a") + text("/")),
    framed(1, varint(1) + varint(7)),
    framed(3, varint(5)),
    None,
    framed(1, b""),
    framed(2, text("a") + text("/")),
    b"hunter2",
]


class TestRecords(DecoderContract):
    """Avro of two records, each with a model of its own; other records are refused."""

    GOOD: ClassVar = [value for value in AVRO_VALUES[:2] if value is not None]
    BAD: ClassVar = [
        framed(1, b"\xffhunter2"),
        framed(3, b"hunter2"),
        framed(9, b"hunter2"),
        b"hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> RoutedDecoder:
        return routed("record", of_records(AvroPayloads()), refuses_others=True)


@pytest.mark.parametrize("refuses_others", [False, True])
def test_a_record_leads_to_its_table(refuses_others: bool) -> None:
    """An Avro message goes by its record's name; what has no record goes with the others, and is a
    dead letter if they are refused.
    """
    decoder = routed("record", of_records(AvroPayloads()), refuses_others=refuses_others)
    others = (
        ["unrouted", "unrouted"]
        if refuses_others
        else [("other", {"id": 5, "kind": None}), "tombstone"]
    )
    expected = [VISIT_ROW, ORDER_ROW, *others, "not_avro", VISIT_ROW, "no_schema_id"]
    assert outcomes(decoder, messages_with(AVRO_VALUES)) == expected


def test_a_record_of_no_route_and_of_no_other() -> None:
    """A record that is of no table is refused as by any decoder of named records."""
    decoder = routed("record", of_records(AvroPayloads(), ["Elsewhere"]))
    assert outcomes(decoder, messages_with([framed(3, varint(5))])) == ["other_record"]


def test_a_message_type_of_protobuf_leads_to_its_table() -> None:
    """A Protobuf message goes by the full name of its type."""
    values = [
        framed(4, b"\x00" + protobuf.number(1, 1) + protobuf.number(2, 7)),
        framed(4, b"\x02\x02" + protobuf.text(1, "a") + protobuf.text(2, "/")),
        framed(4, b"\x02\x04" + protobuf.number(1, 5)),
    ]
    decoder = routed("record", of_records(ProtobufPayloads()))
    expected = [ORDER_ROW, VISIT_ROW, ("other", {"id": 5, "kind": None})]
    assert outcomes(decoder, messages_with(values)) == expected


def test_the_id_of_a_schema_leads_to_its_table() -> None:
    """A message in JSON goes by the id of its JSON Schema, which the registry isn't asked for."""
    values = [
        framed(2, b'{"id": "a", "page": "/"}'),
        framed(1, b'{"id": 1, "total": 7}'),
        framed(3, b'{"id": 5}'),
        None,
    ]
    payloads = JsonPayloads(JsonEncoding())
    decoders = [ConfluentDecoder(model, payloads, Subjects()) for model in models()]
    expected = [VISIT_ROW, ORDER_ROW, "unrouted", "unrouted"]
    decoder = routed("schema_id", decoders, refuses_others=True)
    assert outcomes(decoder, messages_with(values)) == expected
    ids = decoder.schema_ids(messages_with(values), pa.array(["value"] * 4))
    assert ids.to_pylist() == ["2", "1", "3", None]


def test_a_header_leads_to_its_table() -> None:
    """A message goes by its last header of the name; one without it goes with the others."""
    values = [b'{"id": "a", "page": "/"}', b'{"id": 1, "total": 7}', b'{"id": 5, "kind": "x"}']
    headers = [[("type", b"order"), ("type", b"visit")], [("type", b"order")], []]
    expected = [VISIT_ROW, ORDER_ROW, ("other", {"id": 5, "kind": "x"})]
    assert outcomes(routed("header", of_json()), messages_with(values, headers=headers)) == expected


@pytest.mark.parametrize("refuses_others", [False, True])
def test_a_column_leads_to_its_table(refuses_others: bool) -> None:
    """A value is read for its column first, and then by its table's decoder; what can't be read has
    its verdict once.
    """
    order, visit, other = of_json()
    values = [
        b'{"id": 1, "total": 7, "kind": "order"}',
        b'{"id": 2, "kind": "visit"}',
        b'{"id": 3}',
        b"{",
    ]
    expected: list[Any] = [
        ORDER_ROW,
        "wrong_type",
        "unrouted" if refuses_others else ("other", {"id": 3, "kind": None}),
        "not_json",
    ]
    decoder = routed("column", [order, visit, other], refuses_others=refuses_others)
    assert outcomes(decoder, messages_with(values)) == expected
    # A table with the pipeline's own decoder takes the rows that were read for the column.
    expected[1] = ("tables.1", {"id": 2, "kind": "visit"})
    decoder = routed("column", [order, other, other], refuses_others=refuses_others)
    assert outcomes(decoder, messages_with(values)) == expected


def test_a_key_is_that_of_its_table_alone() -> None:
    """A message of another record goes to its own table, whatever its key is for the tables before
    it, and the fields of its key aren't ignored there.
    """
    order, visit, other = of_records(AvroPayloads())
    key = RowDecoder(
        models()[0], JsonEncoding(), part=Part(only=("id",), setting="decode.key.fields")
    )
    keyed = ComposedDecoder(models()[0], order, key, ("id",))
    decoder = routed("record", [keyed, visit, other])
    values = [*AVRO_VALUES[:3], AVRO_VALUES[0], AVRO_VALUES[1]]
    messages = messages_with(values, keys=[None, b'{"id": 1}', b"x", b'{"id": 1, "y": 2}', None])
    expected = [VISIT_ROW, ORDER_ROW, ("other", {"id": 5, "kind": None}), VISIT_ROW, "key:null"]
    assert outcomes(decoder, messages) == expected
    assert not len(decoder.open()(messages).ignoring)


def test_fields_are_ignored_by_the_decoder_of_the_table_alone() -> None:
    """If a column leads to the table, fields that its schema has aren't ignored."""
    order, visit, other = of_json()
    values = [b'{"id": 1, "total": 7, "kind": "order"}', b'{"id": 2, "x": 1}']
    decoded = routed("column", [order, visit, other]).open()(messages_with(values))
    ignored = [
        (index, *part.fields(position))
        for part in decoded.ignored
        for position, index in enumerate(part.index.tolist())
    ]
    assert sorted(ignored) == [(0, "kind"), (1, "x")]
