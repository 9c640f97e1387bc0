"""The decoder of Confluent's formats: many schemas in one topic, and unknown ids."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.errors import BugError, RefusedError, UnreachableError
from windrow.ingest.formats.composed import ComposedDecoder
from windrow.ingest.formats.confluent.decoder import (
    KEPT_DECODERS,
    BatchDecoders,
    ConfluentDecoder,
    Subjects,
)
from windrow.ingest.formats.confluent.frame import Frame
from windrow.ingest.formats.confluent.payloads import AvroPayloads
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import dead, messages_with, verdicts

AVRO = Path(__file__).parents[1] / "avro"
COUNT = KEPT_DECODERS + 8
TEXTS = [
    json.dumps(
        {
            "type": "record",
            "name": f"R{n}",
            "fields": [
                *({"name": f"more{i}", "type": "int"} for i in range(n)),
                {"name": "id", "type": "long"},
                {"name": "name", "type": "string"},
            ],
        }
    )
    for n in range(COUNT)
]


def message(schema: int, number: int) -> bytes:
    """Returns a message of the n-th schema."""
    return framed(schema + 1, varint(9) * schema + varint(number) + text(str(number)))


def decoder(*texts: str, **more: Any) -> ConfluentDecoder:
    """Returns a decoder of the model Flat, with a registry of these schemas."""
    return ConfluentDecoder(
        ModelReference("models.py:Flat", AVRO),
        AvroPayloads(),
        Subjects(),
        **{"registry": FixedRegistry((*avro(*texts),)), **more},
    )


@given(st.lists(st.integers(-1, COUNT - 1), max_size=60))
def test_many_schemas_in_one_batch(schemas: list[int]) -> None:
    """A batch may mix more schemas than the decoder keeps, in any order.

    Each row is its own message's, and an unreadable message is a dead letter.
    """
    values = [b"?" if schema < 0 else message(schema, i) for i, schema in enumerate(schemas)]
    verdict_by_index = verdicts(decoder(*TEXTS).open()(messages_with(values)))
    for i, schema in enumerate(schemas):
        assert [verdict_by_index[i][0]["id"] if schema >= 0 else verdict_by_index[i][0][1]] == [
            i if schema >= 0 else "no_schema_id"
        ]


def test_decoders_are_given_back() -> None:
    """A thread keeps a bounded number of decoders: those that it used last."""
    decoders = BatchDecoders(decoder(), decoder().columns)
    batch_decoders = [decoders.of(schema, Frame(schema.id, 5)) for schema in avro(*TEXTS)]
    assert len(batch_decoders) > KEPT_DECODERS
    assert decoders.of(avro(*TEXTS)[-1], Frame("1", 5)) is batch_decoders[-1]
    assert decoders.of(avro(*TEXTS)[0], Frame("1", 5)) is not batch_decoders[0]


def test_what_is_told_of_schemas() -> None:
    """Each used schema is reported once, with whether the registry was asked for it."""
    first, second = avro(*TEXTS[:2])
    reported: list[tuple[WriterSchema, bool]] = []
    decode = decoder(*TEXTS[:3], known_schemas=(first,)).open_reporting(
        lambda schema, is_requested: reported.append((schema, is_requested))
    )
    for _ in range(2):
        decode(messages_with([message(1, 5), message(0, 5), message(1, 6)]))
    assert sorted(reported, key=lambda report: report[0].id) == [(first, False), (second, True)]


def test_a_refusal_says_the_schema() -> None:
    """A dead letter's detail has the schema's id, whatever the reason is."""
    string_schema = json.dumps(
        {
            "type": "record",
            "name": "U",
            "fields": [{"name": "id", "type": "string"}, {"name": "name", "type": "string"}],
        }
    )
    schemas = [
        *avro(TEXTS[0], string_schema, "{", *[""] * 3),
        WriterSchema("7", "PROTOBUF", "message M {}"),
    ]
    values = [
        framed(1, b"\x02"),
        framed(2, text("1") + text("a")),
        framed(3, b"a"),
        framed(7, b"a"),
        framed(8, b"a"),
        b"a",
        None,
    ]
    decoded = decoder(registry=FixedRegistry((*schemas,))).open()(messages_with(values))
    assert [reason for _, _, reason in dead(decoded)] == [
        "not_avro",
        "incompatible_schema",
        "incompatible_schema",
        "incompatible_schema",
        "unknown_schema",
        "no_schema_id",
        "tombstone",
    ]
    details = decoded.dead_detail.to_pylist()
    assert [detail.partition(":")[0] for detail in details[:5]] == [
        f"Schema id {id_}" for id_ in (1, 2, 3, 7, 8)
    ]
    assert "id: string can't become int64" in details[1]
    assert details[3] == "Schema id 7: it is of kind PROTOBUF, not AVRO"


def test_which_schema_a_dead_letter_named() -> None:
    """A dead letter names the schema's number or GUID.

    It is the key's schema if the key was refused, else the value's. It is null if there is
    none. The registry isn't asked.
    """
    guid = uuid.UUID(int=7)
    both = ComposedDecoder(
        ModelReference("models.py:Flat", AVRO),
        decoder(),
        replace(decoder(), subjects=Subjects(part="key")),
    )
    values = [framed(1, b""), b"\x01" + guid.bytes, b"?", None, framed(2, b"")]
    keys = [framed(9, b""), framed(9, b""), None, framed(8, b""), b"?"]
    stages = ["value", "rules", "value", "key", "key"]
    messages = messages_with(
        values,
        keys,
        [
            [],
            [("__key_schema_id", framed(3, b""))],
            [("__value_schema_id", framed(4, b""))],
            [],
            [],
        ],
    )
    assert both.schema_ids(messages, pa.array(stages)).to_pylist() == [
        "1",
        str(guid),
        "4",
        "8",
        None,
    ]
    assert both.schema_ids(messages, pa.array(["key"] * 5)).to_pylist() == [
        "9",
        "3",
        None,
        "8",
        None,
    ]
    assert (
        replace(both, value=RowDecoder(ModelReference("models.py:Flat", AVRO), JsonEncoding()))
        .schema_ids(messages, pa.array(stages))
        .to_pylist()[:3]
        == [None] * 3
    )


def test_an_id_that_the_registry_does_not_know() -> None:
    """An unknown id makes dead letters, or fails the window if the spec says so.

    The error names the message's offset.
    """
    assert dead(decoder(*TEXTS[:1]).open()(messages_with([message(0, 0), framed(9, b"")]))) == [
        (1, "value", "unknown_schema")
    ]
    with pytest.raises(
        RefusedError,
        match=r"schema id 9, which a message's value names \(decode, \w+\[0\]@1\)",
    ):
        decoder(*TEXTS[:1], unknown_id="fail").open()(
            messages_with([message(0, 0), framed(9, b"")])
        )


def test_ids_that_nobody_knows_without_end() -> None:
    """A split may ask for a limited number of unknown ids, if unknown ids are dead letters."""
    decode = decoder(*TEXTS[:1]).open()
    assert (
        len(decode(messages_with([framed(5000 + n, b"") for n in range(1000)])).dead_index) == 1000
    )
    assert decode(messages_with([framed(5000, b""), message(0, 1)])).valid == 1
    with pytest.raises(RefusedError, match="more than 1000 schema ids"):
        decode(messages_with([framed(7000, b"")]))


@dataclass(frozen=True)
class SickRegistry:
    """A registry that is down."""

    requested_subjects: list[str] = field(default_factory=list, compare=False)

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        self.requested_subjects.append(subject)
        return []

    def schema(self, id_: str) -> WriterSchema | None:
        raise UnreachableError("The registry is down", "decode", "Wait.")


def test_a_registry_that_is_down() -> None:
    """A known schema needs no registry.

    An unknown schema with a registry that is down is an error of the window, not of the
    message.
    """
    decode = decoder(registry=SickRegistry(), known_schemas=(*avro(TEXTS[0]),)).open()
    assert decode(messages_with([message(0, 1)])).valid == 1
    with pytest.raises(UnreachableError):
        decode(messages_with([message(0, 1), message(1, 1)]))


def test_a_decoder_without_a_registry() -> None:
    """A decoder without a registry raises BugError."""
    with pytest.raises(BugError):
        decoder(registry=None).open()(messages_with([message(0, 1)]))


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        (Subjects(), ["a-value", "b-value"]),
        (Subjects(part="key"), ["a-key", "b-key"]),
        (Subjects("record", ("x.R", "x.S")), ["x.R", "x.S"]),
        (Subjects("topic_record", ("x.R",)), ["a-x.R", "b-x.R"]),
    ],
)
def test_which_subjects_are_asked_for(subjects: Subjects, expected: list[str]) -> None:
    """Each subject is asked for once, by the rule of the naming strategy."""
    registry = SickRegistry()
    named = ConfluentDecoder(
        ModelReference("models.py:Flat", AVRO),
        AvroPayloads(),
        subjects,
        records=("x.R",),
        registry=registry,
    )
    named.prepared(["a", "b"])
    assert registry.requested_subjects == expected
