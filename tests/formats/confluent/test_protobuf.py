"""Protobuf with a schema id and a path of message indexes: the contract of every format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from google.protobuf import descriptor_pool

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.confluent.registries import FixedRegistry
from tests.formats.protobuf.wire import number, text, varint
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.frame import Frame
from windrow.ingest.formats.confluent.payloads import ProtobufPayloads
from windrow.ingest.formats.protobuf import descriptors
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import dead, messages_with

AVRO = Path(__file__).parents[1] / "avro"
SCHEMA = """\
syntax = "proto3";
package shop;
import "parts/name.proto";
message Other { string id = 1; }
message Order {
  message Empty {}
  message Line { int64 id = 1; parts.Name name = 2; }
  int64 id = 1;
  string name = 2;
}
"""
NAME = (
    'syntax = "proto3"; package parts; import "google/protobuf/timestamp.proto"; message Name {'
    " google.protobuf.Timestamp at = 1; }"
)
OLD = 'syntax = "proto2"; message Old { required int32 id = 1; }'
NEWER = 'syntax = "proto3"; message Flat { int32 id = 7; string name = 8; bytes more = 9; }'


def chain(count: int) -> str:
    """Returns a schema of nested messages."""
    inner = "".join(f"message R{n} {{ R{n + 1} x = 1; }} " for n in range(count))
    return (
        f'syntax = "proto3"; message Flat {{ int32 id = 7; string name = 8; R0 x = 9; }} {inner}'
        f" message R{count} {{}}"
    )


SCHEMAS = (
    WriterSchema("1", "PROTOBUF", SCHEMA, (("parts/name.proto", NAME),)),
    WriterSchema("2", "PROTOBUF", NEWER),
    WriterSchema("3", "PROTOBUF", OLD),
    WriterSchema("4", "PROTOBUF", "message {"),
    WriterSchema("5", "PROTOBUF", SCHEMA),
    WriterSchema("6", "AVRO", '"string"'),
    WriterSchema("7", "PROTOBUF", NEWER, (("../../evil.proto", NEWER),)),
    WriterSchema("8", "PROTOBUF", NEWER, (("/tmp/evil.proto", NEWER),)),
    WriterSchema("9", "PROTOBUF", NEWER, (("windrow-schema.proto", OLD),)),
    WriterSchema("10", "PROTOBUF", NEWER, (("a/../../../evil.proto", NEWER),)),
    WriterSchema("11", "PROTOBUF", NEWER, (("a", NEWER), ("a/b", NEWER))),
    WriterSchema("12", "PROTOBUF", chain(300)),
    WriterSchema("13", "PROTOBUF", chain(10_000)),
)
DECODER = ConfluentDecoder(
    ModelReference("models.py:Flat", AVRO),
    ProtobufPayloads(),
    Subjects(),
    registry=FixedRegistry(SCHEMAS),
)
FLAT = number(7, 5) + text(8, "a")


def framed(id_: int, payload: bytes, path: bytes = b"\x00") -> bytes:
    """Returns a message with its schema's id and the encoded path."""
    return b"\x00" + id_.to_bytes(4, "big") + path + payload


class TestProtobuf(DecoderContract):
    """Messages of two schemas, with short and long paths."""

    GOOD: ClassVar = [
        framed(1, number(1, 5) + text(2, "a"), b"\x02\x02"),
        framed(2, FLAT),
        framed(2, FLAT + text(9, b"\xff"), b"\x02\x00"),
        framed(1, number(1, 6), b"\x02\x02"),
    ]
    BAD: ClassVar = [
        framed(2, text(8, b"\xffhunter2")),
        framed(1, b"hunter2", b"\x02\x06"),
        framed(9, b"hunter2"),
        framed(3, number(1, 1) + text(2, "hunter2")),
        framed(2, text(7, "hunter2") + text(8, "a")),
    ]

    @pytest.fixture
    def decoder(self) -> ConfluentDecoder:
        return DECODER

    def test_a_decoder_travels(self, decoder: Any) -> None:
        """A decoder with two schemas can be pickled and copied.

        With all schemas of this file it would exceed the contract's limit of 64 KiB.
        """
        super().test_a_decoder_travels(
            ConfluentDecoder(
                ModelReference("models.py:Flat", AVRO),
                decoder.payloads,
                Subjects(),
                registry=FixedRegistry(SCHEMAS[:2]),
            )
        )


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (framed(1, b""), "id: string can't become int64; name: shop.Other has no such field"),
        (framed(1, b"", b"\x02\x06"), "has no message at path [3]"),
        (framed(1, b"", b"\x06\x02\x02\x00"), "has no message at path [1, 1, 0]"),
        (framed(4, b""), "the schema can't be compiled: windrow-schema.proto:1"),
        (framed(5, b""), "parts/name.proto"),
        (framed(6, b""), "it is of kind AVRO, not PROTOBUF"),
        (framed(7, b""), "file called '../../evil.proto'"),
        (framed(8, b""), "file called '/tmp/evil.proto'"),
        (framed(9, b""), "file called 'windrow-schema.proto'"),
        (framed(10, b""), "file called 'a/../../../evil.proto'"),
        (framed(11, b""), "file called 'a/b'"),
        (framed(13, b""), "message type Flat contains too many types nested in each other"),
        (framed(1, b"", b"\x04\x02\x02"), "name: message parts.Name can't become string"),
    ],
)
def test_a_schema_that_will_not_do(message: bytes, detail: str) -> None:
    """Messages of an unusable schema are dead letters with the id and the reason.

    No file is written to a path that the schema names.
    """
    decoded = DECODER.open()(messages_with([message, framed(2, FLAT)]))
    assert dead(decoded) == [(0, "schema", "incompatible_schema")]
    assert detail in decoded.dead_detail[0].as_py()
    assert decoded.dead_detail[0].as_py().startswith(f"Schema id {message[4]}: ")
    assert not Path("/tmp/evil.proto").exists()


@pytest.mark.parametrize(
    ("imported", "field"),
    [
        ("confluent/meta.proto", 'string name = 2 [(confluent.field_meta).doc = "x"];'),
        ("confluent/type/decimal.proto", "confluent.type.Decimal name = 2;"),
        ("confluent/types/decimal.proto", "confluent.type.Decimal name = 2;"),
        ("confluent/type/variant.proto", "confluent.type.Variant name = 2;"),
        ("google/type/date.proto", "google.type.Date name = 2;"),
    ],
)
def test_files_that_serializers_do_not_register(imported: str, field: str) -> None:
    """Imported files that serializers don't register are known.

    If such a file is registered, the registered file counts.
    """
    schema = f'syntax = "proto3"; import "{imported}"; message A {{ int64 id = 1; {field} }}'
    kind = descriptors.message_type(descriptors.compiled_text(schema, (), "a test"), "A", "a test")
    assert [field.name for field in kind.fields] == ["id", "name"]
    references = ((imported, 'syntax = "proto2";'),)
    with pytest.raises(SpecError, match="can't be compiled: windrow-schema"):
        descriptors.compiled_text(schema, references, "a test")


def test_types_in_one_another() -> None:
    """Hundreds of nested types are accepted, because depth is judged for each message."""
    decoded = DECODER.open()(
        messages_with([framed(12, FLAT), framed(12, FLAT + text(9, text(1, b"\x0a\x00")))])
    )
    assert decoded.rows.to_pylist() == [{"id": 5, "name": "a"}] * 2


def test_columns_that_the_type_does_not_have() -> None:
    """A column without a field is null.

    If the column isn't nullable, each message of the type is refused.
    """
    without = 'syntax = "proto3"; message M { string more = 1; %s}'
    schemas = tuple(
        WriterSchema(str(n), "PROTOBUF", without % fields)
        for n, fields in enumerate(("int64 id = 2; ", "string name = 2; "))
    )
    decoder = ConfluentDecoder(
        ModelReference("models.py:Loose", AVRO),
        ProtobufPayloads(),
        Subjects(),
        registry=FixedRegistry(schemas),
    )
    decoded = decoder.open()(
        messages_with([framed(0, number(2, 7)), framed(0, text(1, "x")), framed(1, text(2, "x"))])
    )
    none = {"name": None, "tags": None, "place": None}
    assert decoded.rows.to_pylist() == [{"id": 7, **none}, {"id": 0, **none}]
    assert decoded.dead_detail.to_pylist() == [
        "Schema id 1: The columns can't come from the message type M: id: M has no such field",
    ]


@pytest.mark.parametrize("path", [None, ".", ""])
def test_nothing_that_a_registry_names_is_run(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema's files are never run as Python code.

    They may have the names of Python modules, and PYTHONPATH may include their folder.
    """
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path + ":" + ":".join(sys.path))
    descriptors.compiled_text.cache_clear()
    ran = f"open({str(tmp_path / 'ran')!r}, 'w')"
    files = tuple(
        (name, ran)
        for name in (
            "grpc_tools/__init__.py",
            "grpc_tools/protoc.py",
            "sitecustomize.py",
            "runpy.py",
            "google.py",
        )
    )
    assert descriptors.compiled_text(NEWER, files, "the schema")
    assert not (tmp_path / "ran").exists()


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process compiles each schema once, for all threads and splits."""
    descriptors.compiled_text.cache_clear()
    calls: list[object] = []
    real = descriptors.by_protoc
    monkeypatch.setattr(descriptors, "by_protoc", lambda *args: calls.append(args) or real(*args))
    for model in ("Flat", "Order"):
        decoder = ConfluentDecoder(
            ModelReference(f"models.py:{model}", AVRO),
            ProtobufPayloads(),
            Subjects(),
            registry=FixedRegistry(SCHEMAS[1:2]),
        )
        decoder.open()(messages_with([framed(2, FLAT)]))
    assert len(calls) == 1


def test_many_types_of_one_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is parsed once, for any number of its types, usable or not."""
    calls: list[object] = []
    real = descriptor_pool.DescriptorPool
    monkeypatch.setattr(descriptor_pool, "DescriptorPool", lambda: calls.append(1) or real())
    texts = "".join(f"message M{n} {{ string id = 1; }} " for n in range(60))
    registry = FixedRegistry((WriterSchema("1", "PROTOBUF", f'syntax = "proto3"; {texts}'),))
    decoder = ConfluentDecoder(
        ModelReference("models.py:Flat", AVRO), ProtobufPayloads(), Subjects(), registry=registry
    )
    messages = [framed(1, b"", b"\x02" + varint(2 * n)) for n in range(120)]
    assert dead(decoder.open()(messages_with(messages))) == [
        (n, "schema", "incompatible_schema") for n in range(120)
    ]
    assert len(calls) == 1


def test_a_schema_that_nests_too_deep_never_does() -> None:
    """A schema that nests too deeply is refused each time, by each decoder."""
    for model in ("Flat", "Loose", "Flat"):
        decoder = ConfluentDecoder(
            ModelReference(f"models.py:{model}", AVRO),
            ProtobufPayloads(),
            Subjects(),
            registry=FixedRegistry(SCHEMAS),
        )
        assert dead(decoder.open()(messages_with([framed(13, FLAT), framed(2, FLAT)]))) == [
            (0, "schema", "incompatible_schema")
        ]
    with pytest.raises(SpecError, match="contains too many types"):
        ProtobufPayloads().batch_decoder(SCHEMAS[-1], Frame("13", 6, (0,)), decoder.columns, ())


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing compiler raises SpecError before anything is read. It makes no dead letters."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for ask in (lambda: DECODER.columns, DECODER.open):
        with pytest.raises(SpecError, match=r"pip install 'windrow-ingest\[protobuf\]'"):
            ask()


def test_a_compiler_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes too long raises UnreachableError.

    It is no verdict on the schema, because the machine may have been busy.
    """
    monkeypatch.setattr(descriptors, "LIMIT_SECONDS", 0.001)
    with pytest.raises(UnreachableError, match="took more than"):
        descriptors.compiled_text(NEWER + " ", (), "the schema")
