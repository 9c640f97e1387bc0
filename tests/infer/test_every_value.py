"""A pipeline that `infer` proposes returns each value of its topic, or names what it leaves out."""

from __future__ import annotations

import io
import json
import math
import random
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.avro import schemas as avro
from tests.formats.avro.wire import varint
from tests.formats.confluent.registries import framed
from tests.formats.protobuf.schemas import message
from tests.infer.test_recognise import messages
from tests.profiles import examples
from tests.registry.server import RegistryServer
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.formats.protobuf.descriptors import compiled_text, message_type
from windrow.ingest.infer.candidates import column_refusal, table_refusal
from windrow.ingest.infer.new_pipeline import Inferred, infer
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.infer.schema_drift import unknown_fields
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.schema_registry import UsesSchemas
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.reader import MemoryReader
from windrow.ingest.transform.validate import Validate

NOW = datetime(2026, 1, 6, 12, 30, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Pair = tuple[bytes | None, bytes | None]


@dataclass
class Run:
    """A topic that was read with the pipeline that was proposed for it.

    Attributes:
        inferred: the result of `infer`.
        rows: the rows of each message; None for a dead letter.
        omitted_paths: the paths of fields that `infer` leaves out.
        reported_paths: the further paths that the check reports.
        key: the columns of the primary key.
        format: the format.
        settings: the spec.
        schema: the text of the schema's file.
    """

    inferred: Inferred
    rows: list[list[dict[str, Any]] | None]
    omitted_paths: set[str]
    reported_paths: set[str]
    key: tuple[str, ...]
    format: str
    settings: Any = field(repr=False)
    schema: str = field(repr=False)

    def lost(self, values: Sequence[Any], *, checked: bool = False) -> set[str]:
        """Returns the paths that documents have and rows lack, and that weren't reported.

        Args:
            values: the messages' documents.
            checked: whether the check's reports count too.
        """
        known_paths = self.omitted_paths | (self.reported_paths if checked else set())
        return {
            path
            for value, rows in zip(values, self.rows, strict=True)
            if rows is not None and value is not None
            for path in lost_paths(value, rows[0] if rows else None)
            if not any(path == name or path.startswith(f"{name}.") for name in known_paths)
        }


def run(pairs: Sequence[Pair], max_messages: int = 1000, **hints: Any) -> Run:
    """Infers a pipeline from the newest messages of a topic, and reads all messages with it."""
    broker, topic = MemoryBroker(), str(hints.pop("topic", "t"))
    broker.create_topic(topic, partitions=1, retention_ms=None)
    for i, (key, value) in enumerate(pairs):
        stamp = EPOCH.replace(year=2026) + timedelta(seconds=i)
        broker.produce(TopicPartition(topic, 0), value, key=key, timestamp=stamp)
    with tempfile.TemporaryDirectory() as name:
        inferred = infer(
            Path(name),
            PipelineRequest(topic, "127.0.0.1:1", **hints),
            max_messages,
            lambda _: (broker, lambda plan: MemoryReader(broker, plan, rows_max=100)),
            NOW,
        )
        spec = load_spec(Path(name) / "defs.yaml")
        key = spec.sink.key
        decoder = make_decoder(
            spec.decode,
            spec.folder,
            () if key is None else key.deletes,
            keeps_unavailable=spec.sink.keeps_unavailable,
        )
        registry = spec.stated_registry
        if registry is not None and isinstance(decoder, UsesSchemas):
            decoder = decoder.asking(registry)
        sampled = messages(pairs).set_column(0, "topic", pa.array([topic] * len(pairs)))
        (batch,) = sampled.combine_chunks().to_batches()
        rules = Validate(ModelReference(str(spec.decode.schema_), spec.folder)).open()
        decoded = rules(decoder.open()(batch), batch)
        refusal = column_refusal(decoder.columns, table_refusal(DEFAULT, delta=True))
        drift = list(unknown_fields(spec.decode, decoder.columns, sampled, refusal))
        schema = (spec.folder / "schema.py").read_text()
    rows: list[list[dict[str, Any]] | None] = [[] for _ in pairs]
    for index, row in zip(decoded.row_index.to_pylist(), decoded.rows.to_pylist(), strict=True):
        rows[index] = [*(rows[index] or []), row]
    for index in decoded.dead_index.to_pylist():
        rows[index] = None
    omitted_paths = {name for name, _ in inferred.omitted}
    reported_paths = {
        finding.message.split("'")[1] for finding in drift if "has no column" in finding.message
    }
    reported_paths |= {
        finding.message.split(" ")[1] for finding in drift if "doesn't keep all" in finding.message
    }
    of_keys = [
        finding.message.split("'")[-2] for finding in drift if finding.message.startswith("Keys ")
    ]
    reported_paths |= {f"key {name}" for name in of_keys}
    return Run(
        inferred,
        rows,
        omitted_paths,
        reported_paths,
        () if key is None else key.columns,
        spec.decode.format,
        spec,
        schema,
    )


def lost_paths(value: Any, got: Any, path: str = "") -> Iterator[str]:
    """Yields the paths at which a value is lost or changed."""
    if value is None:
        return
    if isinstance(value, dict) and isinstance(got, dict):
        for name, inner in value.items():
            yield from lost_paths(inner, got.get(name), f"{path}.{name}" if path else name)
    elif isinstance(value, dict) and isinstance(got, list):
        entries = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in got]
        if sorted(map(str, value)) != sorted(str(key) for key, _ in entries):
            yield path
        for key, inner in value.items():
            yield from lost_paths(inner, dict(entries).get(key), path)
    elif isinstance(value, list) and isinstance(got, list):
        if len(value) != len(got):
            yield path
        for inner, item in zip(value, got, strict=False):
            yield from lost_paths(inner, item, path)
    elif not is_same(value, got):
        yield path


def is_same(value: Any, got: Any) -> bool:
    """Returns whether a column's value equals a plain value. A text may hold a document as JSON."""
    if isinstance(value, Tree):
        return isinstance(got, str) and to_null(
            to_plain(json.loads(got, parse_float=Literal))
        ) == to_null(to_plain(value))
    if isinstance(value, dict | list):
        return isinstance(got, str) and to_plain(json.loads(got, parse_float=Literal)) == to_plain(
            value
        )
    if isinstance(value, bool):
        return got is value or got == json.dumps(value)
    if isinstance(value, Literal | int | float | Decimal):
        return same_number(value, got)
    if isinstance(got, bool):
        return json.dumps(got) == value
    if isinstance(got, datetime) and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return got == (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if isinstance(got, date) and isinstance(value, str):
        return got == date.fromisoformat(value.removesuffix("Z"))
    if isinstance(got, Decimal | float | int) and isinstance(value, str):
        return same_number(Literal(value), got)
    if isinstance(value, date | time | UUID | datetime):
        return got in {value, str(value)} or got in numbers_of(value)
    if isinstance(got, bytes) and isinstance(value, str):
        return got == value.encode()
    return bool(got == value)


def numbers_of(value: Any) -> tuple[int, ...]:
    """Returns a time in microseconds and in milliseconds, as columns of numbers hold it."""
    if not isinstance(value, time):
        return ()
    micros = timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    ) // timedelta(microseconds=1)
    return micros, micros // 1000


def same_number(value: Any, got: Any) -> bool:
    """Returns whether all digits of a number are kept."""
    if isinstance(value, float) and isinstance(got, float):
        return value == got or (math.isnan(value) and math.isnan(got))
    if got is None or isinstance(got, bool):
        return False
    exact = Decimal(str(value))
    if isinstance(got, float):
        digits = len("".join(map(str, exact.as_tuple().digits)).strip("0")) or 1
        return Decimal(f"{got:.{digits - 1}e}") == exact
    return Decimal(got) == exact


class Tree(dict[str, Any]):
    """A record that contains itself. In its JSON text, values whose type has no bytes are null."""


def to_null(value: Any) -> Any:
    """Returns a plain document with null for each value that nothing is in."""
    if isinstance(value, dict):
        value = {name: to_null(inner) for name, inner in value.items()}
        return value if any(inner is not None for inner in value.values()) else None
    if isinstance(value, list):
        value = [to_null(item) for item in value]
        return value if any(item is not None for item in value) else None
    return None if value == "" else value


class Literal(str):
    """A number with the digits of its JSON text."""

    __slots__ = ()


def to_plain(value: Any) -> Any:
    """Returns the document with decimals in place of its numbers, and base64 of its bytes."""
    if isinstance(value, dict):
        return {name: to_plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, Literal) or type(value) in (int, float):
        return Decimal(str(value))
    return b64encode(value).decode() if isinstance(value, bytes) else value


def to_json(value: Any) -> str:
    """Returns the document as JSON, with the digits of its numbers."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(k)}:{to_json(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(to_json, value))}]"
    return str(value) if isinstance(value, Literal) else json.dumps(value)


# --------------------------------------------------------------------------------------------------

DIGITS = ("0.123456789012345678", "1767603600.123456789", "0.1", "12.50", "1e22", "1e-400", "-0.0")
WHOLE = ("0", "-7", "9007199254740993", "18446744073709551615", "123456789012345678901234567890")
TEXTS = ("", "a", "007", "1.5", "true", "x y", "é", '"', "2026-02-30", "2026-01-05T09:00:00")
STAMPS = ("2026-01-05T03:20:00Z", "2026-01-05T03:20:00.123456+01:00", "2026-01-05 03:20:00Z")
DAYS = ("2026-01-05", "1969-12-31")
PLAIN = {
    "whole": [Literal(text) for text in WHOLE[:2]],
    "long": [Literal(text) for text in WHOLE],
    "double": [Literal(text) for text in ("0.5", "-1.25e3", "3", "2.5e300")],
    "digits": [Literal(text) for text in DIGITS],
    "loose": [Literal("0.5"), Literal("1e300"), "0.123456789012345678"],
    "text": list(TEXTS),
    "stamp": list(STAMPS),
    "day": list(DAYS),
    "either": [*STAMPS, *DAYS, "never"],
    "bool": [True, False],
    "mixed": [Literal("1"), "a", True, Literal("0.50"), {"a": Literal("1")}, [Literal("2")]],
    "null": [None],
    "empty": [{}, []],
}
NAMES = ("id", "ID", "a b", "_offset", "class", "x.y", "views", "kind", "op", "n", "at", "to")


@dataclass
class Shape:
    """A random kind of a field's values: plain values, objects, lists or maps.

    Attributes:
        r: the source of randomness.
        depth: the depth of the field.
        kind: the name of the kind.
        inner: the shapes of the inner fields, items or values.
    """

    r: random.Random
    depth: int = 0
    kind: str = ""
    inner: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Chooses the kind and the inner shapes."""
        nested = ["object", "list", "map"] if self.depth < 3 else []
        self.kind = self.kind or self.r.choice([*PLAIN, *nested, *nested])
        size = {"object": self.r.randint(1, 4), "list": 1, "map": 1}.get(self.kind, 0)
        self.inner = self.inner or {
            name: Shape(self.r, self.depth + 1) for name in self.r.sample(NAMES, size)
        }

    def value(self) -> Any:
        """Returns one of the field's values, sometimes None."""
        r = self.r
        if r.random() < 0.1:
            return None
        if self.kind == "object":
            return {name: shape.value() for name, shape in self.inner.items() if r.random() < 0.8}
        if self.kind in {"list", "map"}:
            (shape,) = self.inner.values()
            values = [shape.value() for _ in range(r.randint(0, 3))]
            keys = r.sample(range(40), len(values))
            entries = {f"k{k}": v for k, v in zip(keys, values, strict=True)}
            return values if self.kind == "list" else entries
        return r.choice(PLAIN[self.kind])


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 64))
def test_of_documents(seed: int) -> None:
    """JSON documents of any shape lose nothing that isn't reported.

    Only a part of the messages is sampled. The check reports later fields, except map keys,
    which are data.
    """
    r = random.Random(seed)
    shape = Shape(r, kind="object")
    shape.inner["stock"] = Shape(r, 2, "map", {"": Shape(r, 3, "long")})
    values = [shape.value() or {} for _ in range(r.choice([2, 10, 120]))]
    values.append({"n": Literal("1")})
    done = run([(None, to_json(value).encode()) for value in values], r.choice([2, 40, 40]))
    assert done.lost(values, checked=True) == set(), done.inferred
    late = {path for path in done.lost(values) if path.startswith("stock.")}
    assert not late or done.inferred.sampled < 40
    assert None not in done.rows or done.inferred.sampled < len(values) or len(values) > 100


def test_nan_of_a_column_that_is_never_null() -> None:
    """A column with NaN in the sample is nullable, because rules refuse NaN.

    Other columns aren't.
    """
    done = run([(None, b'{"x": NaN, "y": 0.5}'), (None, b'{"x": 1.5, "y": 2.5}')])
    assert [rows and len(rows) for rows in done.rows] == [1, 1]
    assert "x: pl.Float64 = pa.Field(nullable=True)\n    y: pl.Float64\n" in done.schema


KINDS = ({"x": 1}, {"x": "a"})
DIGITS_IN_A_TEXT = "0.1234567890123456789"


@pytest.mark.parametrize(
    ("sampled", "later"),
    [
        ([{"t": 0.5}] * 2, {"t": DIGITS_IN_A_TEXT}),
        ([{"o": [{"f": 0.5}]}] * 2, {"o": [{"f": "9007199254740993"}]}),
        ([{"t": 1e300}] * 199 + [{"t": DIGITS_IN_A_TEXT}], {}),
        ([{"t": 1e300}] * 199 + [{"t": "9" * 400}, {"t": "no"}], {}),
        ([{"t": [{"f": 1e300}]}] * 199 + [{"t": [{"f": "9007199254740993"}]}], {}),
    ],
)
def test_digits_in_texts(sampled: list[dict[str, Any]], later: dict[str, Any]) -> None:
    """With `coerce: lenient` no float column is proposed that would change the digits of texts.

    A Float64 column then takes numbers in texts too. The check reports texts with more digits
    that come later.
    """
    documents = [document | KINDS[index % 2] for index, document in enumerate([later, *sampled])]
    pairs = [(None, json.dumps(document).encode()) for document in documents]
    done = run(pairs, len(sampled) if later else len(pairs))
    assert done.settings.decode.coerce == "lenient"
    assert done.lost(documents, checked=bool(later)) == set()
    assert bool(done.lost(documents)) == bool(later)


@pytest.mark.parametrize("value", [{"v": 1}, {"id": 3, "v": 1}])
def test_later_keys(value: dict[str, Any]) -> None:
    """The check reports fields of keys that the sample lacks, by the names in the key."""
    text = json.dumps(value).encode()
    done = run([(b'{"id": 2, "region": "eu"}', text), (b'{"id": 1}', text)], 1)
    assert done.settings.decode.key is not None
    assert done.reported_paths == {"region"}


@pytest.mark.parametrize(
    ("later", "expected_paths"), [(b'{"id": 2}', {"key id"}), (b'{"id": 3}', set())]
)
def test_keys_that_said_the_same(later: bytes, expected_paths: set[str]) -> None:
    """The check looks at keys that were left out because they equalled the values."""
    done = run([(later, b'{"id": 3, "v": 1}'), (b'{"id": 1}', b'{"id": 1, "v": 1}')], 1)
    assert done.settings.decode.key is None
    assert done.reported_paths == expected_paths


def test_later_digits_of_lines() -> None:
    """The check reports later numbers in lines that a Float64 column of the sample can't hold."""
    texts = ["0.1234567890123456789", "0.5", "1.5"]
    pairs = [(None, f"{text},x".encode()) for text in texts]
    done = run(pairs, 2, format="csv", columns=("n", "what"))
    documents = [{"n": text, "what": "x"} for text in texts]
    assert done.lost(documents) == {"n"}
    assert done.lost(documents, checked=True) == set()


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 64))
def test_of_lines(seed: int) -> None:
    """CSV lines lose nothing that isn't reported.

    The fields are quoted between commas, or unquoted between tabs. Some topics have a line of
    names.
    """
    r, names = random.Random(seed), ("id", "what", "x")
    kinds = [r.choice([*WHOLE, *DIGITS, *TEXTS, *STAMPS, *DAYS, 'q"', "a,b"]) for _ in range(9)]
    pools = [r.sample(kinds, r.choice([1, 2, 3])) for _ in names]
    lines = [[r.choice(pool) for pool in pools] for _ in range(r.choice([1, 5, 120]))]
    lines = [list(names)] * r.randint(0, 1) + lines
    tabs = r.random() < 0.5
    quoted = [[f'"{text.replace(chr(34), chr(34) * 2)}"' for text in line] for line in lines]
    values = ["\t".join(line) for line in lines] if tabs else [",".join(line) for line in quoted]
    pairs = [(None, value.encode()) for value in values]
    try:
        done = run(pairs, format="csv", columns=names)
    except SpecError as refused:  # Each line has three fields by either delimiter.
        assert "The lines have 3 fields by ',' and" in refused.message  # noqa: PT017
        return
    documents = [
        {name: text or None for name, text in zip(names, line, strict=True)}
        if tabs
        else dict(zip(names, line, strict=True))
        for line in lines
    ]
    assert done.lost(documents) == set(), done.inferred
    assert [rows for rows in done.rows[1:] if rows is None] == [] or len(lines) > 100


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    """A registry for all topics. Each topic has its own subjects."""
    with RegistryServer() as server:
        yield server


def with_written_records(logical: Any, written: Any) -> Any:
    """Returns a document with records that contain themselves as their JSON text has them.

    Args:
        logical: the document with the values of logical types.
        written: the document without logical types.
    """
    if isinstance(logical, dict):
        if "self" in logical:
            return Tree(written)
        return {name: with_written_records(logical[name], written[name]) for name in logical}
    if isinstance(logical, list):
        return list(map(with_written_records, logical, written))
    return logical


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 64))
def test_of_avro(registry: RegistryServer, seed: int) -> None:
    """Avro messages lose nothing that isn't reported; fastavro is the reference.

    The schemas are random, in one or two versions. Keys have their own schema, or there are
    none.
    """
    r, topic = random.Random(seed), f"t.{seed}"
    newest = avro.random_schema(r)
    older = {**newest.avro, "fields": list(newest.avro["fields"])}
    if r.random() < 0.5:
        older["fields"] = [*older["fields"], {"name": "gone", "type": "string"}]
    key = {"type": "record", "name": "K", "fields": [{"name": "f0", "type": "long"}]}
    key_id = registry.register(f"{topic}-key", json.dumps(key)) if r.random() < 0.5 else 0
    pairs: list[Pair] = []
    documents: list[Any] = []
    for schema in (older, newest.avro):
        id_ = registry.register(f"{topic}-value", json.dumps(schema))
        text = json.dumps(schema)
        parsed = fastavro.parse_schema(json.loads(text))
        physical = fastavro.parse_schema(json.loads(text.replace('"logicalType"', '"ignored"')))
        writer = avro.Writer(r, avro.Made(schema, named=newest.named))
        for i in range(r.choice([1, 8])):
            payload = writer.message()
            document = with_written_records(
                fastavro.schemaless_reader(io.BytesIO(payload), parsed),
                fastavro.schemaless_reader(io.BytesIO(payload), physical),
            )
            pairs.append((framed(key_id, varint(i)) if key_id else None, framed(id_, payload)))
            documents.append({**document, **({"key": i} if key_id else {})})
    done = run(pairs, topic=topic, registry=registry.url)
    for rows, document in zip(done.rows, documents, strict=True):
        if rows and key_id:
            rows[0]["key"] = rows[0].get("key_f0", rows[0].get("f0"))
        document.pop("key", None) if not rows else None
    assert done.lost(documents) == set(), done.inferred


PROTO = """\
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Root {
  enum Kind { NONE = 0; A = 1; B = 2; C = 3; }
  message Sub { string a = 1; repeated Sub again = 2; map<int32, string> names = 3; Kind kind = 4; }
  int32 i = 1; uint64 u = 2; double d = 3; float f = 4; bool ok = 5; string s = 6; bytes b = 7;
  optional int64 maybe = 8; repeated sint32 many = 9; map<string, Sub> subs = 10; Sub sub = 11;
  oneof way { string left = 12; Sub right = 13; }
  google.protobuf.Timestamp at = 14; google.protobuf.Int64Value wide = 15; Kind kind = 16;
  repeated Sub all = 17; map<string, bytes> blobs = 18; fixed64 fix = 19; repeated Kind kinds = 20;
}
"""


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 64))
def test_of_protobuf(registry: RegistryServer, seed: int) -> None:
    """Protobuf messages with all kinds of fields lose nothing.

    Protobuf's own library is the reference.
    """
    r, topic = random.Random(seed), f"p.{seed}"
    id_ = registry.register(f"{topic}-value", PROTO, "PROTOBUF")
    kind = message_type(compiled_text(PROTO, (), "a test"), "t.Root", "a test")
    payloads = [message(r, kind, odd=0) for _ in range(r.choice([1, 10]))]
    pairs: list[Pair] = [(None, framed(id_, b"\x00" + payload)) for payload in payloads]
    done = run(pairs, topic=topic, registry=registry.url)
    documents = [document_of(GetMessageClass(kind).FromString(payload)) for payload in payloads]
    assert done.lost(documents) == set(), done.inferred


def document_of(proto_message: Any) -> Any:
    """Returns a message of Protobuf's library as a document."""
    name = proto_message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return EPOCH + timedelta(
            seconds=proto_message.seconds, microseconds=proto_message.nanos // 1000
        )
    if name.startswith("google.protobuf."):
        return proto_message.value
    document = {}
    for descriptor in proto_message.DESCRIPTOR.fields:
        value = getattr(proto_message, descriptor.name)
        inner = descriptor.message_type
        if inner is not None and inner.GetOptions().map_entry:
            document[descriptor.name] = {
                key: plain_of(value[key], inner.fields_by_name["value"]) for key in value
            }
        elif descriptor.is_repeated:
            document[descriptor.name] = [plain_of(item, descriptor) for item in value]
        elif not descriptor.has_presence or proto_message.HasField(descriptor.name):
            document[descriptor.name] = plain_of(value, descriptor)
    return document


def plain_of(value: Any, descriptor: Any) -> Any:
    """Returns a field's value. An enum's value is its name."""
    if descriptor.enum_type is not None:
        return descriptor.enum_type.values_by_number[value].name
    return value if descriptor.message_type is None else document_of(value)


TOOLS = {
    "debezium-json": lambda op, old_row, new_row: {
        "op": {"insert": "c", "update": "u", "delete": "d"}[op],
        "before": old_row,
        "after": new_row,
        "source": {"db": "d", "table": "t"},
    },
    "maxwell-json": lambda op, old_row, new_row: {
        "database": "d",
        "table": "t",
        "ts": 1,
        "type": op,
        "data": new_row or old_row,
    },
    "canal-json": lambda op, old_row, new_row: {
        "database": "d",
        "table": "t",
        "isDdl": False,
        "type": op.upper(),
        "pkNames": ["a"],
        "data": [{k: None if v is None else str(v) for k, v in (new_row or old_row).items()}],
        "old": None,
        "mysqlType": {"a": "int", "b": "int", "n": "decimal"},
    },
}


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 64))
def test_of_changes(seed: int) -> None:
    """Change events give the rows of the table, or each of its changes.

    The messages' key may differ from the table's key.
    """
    r = random.Random(seed)
    tool = r.choice(list(TOOLS))
    key = r.choice([("a",), ("a", "b")]) if tool != "canal-json" else ("a",)
    shape = Shape(r, 1, "object")
    table: dict[tuple[int, int], dict[str, Any]] = {}
    pairs: list[Pair] = []
    changes: list[dict[str, Any]] = []
    for _ in range(r.choice([1, 3, 20])):
        row_key = r.randrange(3), 0 if tool == "canal-json" else r.randrange(2)
        old_row = table.pop(row_key, None)
        new_row = {"a": row_key[0], "b": row_key[1], "n": Literal(r.choice(["1", "2.50", "0"]))}
        if tool != "canal-json":
            new_row["more"] = shape.value()
        if old_row is not None and r.random() < 0.3:
            op, new_row = "delete", None
        else:
            op, table[row_key] = "insert" if old_row is None else "update", new_row
        changes.append(new_row or old_row or {})
        named = {name: row_key["ab".index(name)] for name in key}
        keyed = {"database": "d", "table": "t", **{f"pk.{n}": v for n, v in named.items()}}
        event = TOOLS[tool](op, old_row, new_row)
        text = to_json(keyed if tool == "maxwell-json" else named)
        pairs.append((text.encode(), to_json(event).encode()))
    done = run(pairs)
    assert done.format == tool
    if not done.key:
        assert done.lost(changes) == set(), done.inferred
        return
    row_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change, rows in zip(changes, done.rows, strict=True):
        row_by_key.pop(tuple(change[name] for name in done.key), None)
        for row in rows or []:
            row_by_key[tuple(row[name] for name in done.key)] = row
    ended = {tuple(row[name] for name in done.key): row for row in table.values()}
    assert row_by_key.keys() == ended.keys()
    assert len(row_by_key) == len(table)
    done.rows = [[row_by_key[row_key]] for row_key in ended]
    assert done.lost(list(ended.values())) == set(), done.inferred
