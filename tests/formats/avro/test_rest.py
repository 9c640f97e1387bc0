"""Rows keep the fields of the writer's schema that no column is for (`unknown: keep`)."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.avro.schemas import Made, Writer, random_schema
from tests.formats.avro.wire import items, text, varint
from tests.profiles import examples
from windrow.ingest.formats.avro.decoder import avro_batch_decoder
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.shared.onepass import OnePass
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import REST, Column, Columns

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "vip", "type": "boolean"},
        {"name": "nothing", "type": "null"},
    ],
}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "counts", "type": {"type": "array", "items": "int"}},
    ],
}
NAMED = pa.struct([("name", pa.string())])
EVE, TRUE, NULL = text("Eve"), b"\1", varint(0)


def decoded(
    fields: dict[str, Any], columns: dict[str, pa.DataType], *messages: bytes, **of_row: Any
) -> Decoded:
    """Returns the verdict on records of some fields, for some columns."""
    record = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    wanted = Columns(tuple(Column(n, kind, nullable=True) for n, kind in columns.items()), **of_row)
    schema = parse_schema(json.dumps(record), "a test")
    decoder = avro_batch_decoder(schema, wanted.with_rest(), keeps_unknown=True)
    return decoder.decode(pa.array(messages, pa.binary()), "dead")


@pytest.mark.parametrize(
    ("kind", "column", "value", "rest"),
    [
        (["null", "double"], None, varint(1) + struct.pack("<d", 12.5), '{"a":12.5}'),
        (["null", "double"], None, NULL, '{"a":null}'),
        ("null", None, b"", '{"a":null}'),
        ("bytes", None, text(b"\xff"), '{"a":"/w=="}'),
        ({"type": "int", "logicalType": "date"}, None, varint(20_000), '{"a":20000}'),
        (CUSTOMER, None, EVE + TRUE, '{"a":{"name":"Eve","vip":true,"nothing":null}}'),
        (CUSTOMER, NAMED, EVE + TRUE, '{"/a/vip":true,"/a/nothing":null}'),
        (["null", CUSTOMER], NAMED, NULL, None),
        (
            {"type": "array", "items": ["null", LINE]},
            pa.list_(pa.struct([("sku", pa.string())])),
            items(varint(1) + text("a") + items(), NULL, varint(1) + text("b") + items(varint(7))),
            '{"/a/0/counts":[],"/a/2/counts":[7]}',
        ),
        (
            {"type": "map", "values": CUSTOMER},
            pa.map_(pa.string(), NAMED),
            items(text('"a/b~') + EVE + TRUE),
            r'{"/a/\"a~1b~0/vip":true,"/a/\"a~1b~0/nothing":null}',
        ),
        (
            {"type": "map", "values": CUSTOMER},
            pa.list_(pa.struct([("key", pa.string()), ("value", NAMED)])),
            items(text("ü") + EVE + TRUE),
            '{"/a/ü/vip":true,"/a/ü/nothing":null}',
        ),
        (
            {"type": "map", "values": CUSTOMER},
            pa.list_(pa.struct([("value", NAMED), ("key", pa.string())])),
            items(text("k") + EVE + TRUE),
            '{"/a/k/vip":true,"/a/k/nothing":null}',
        ),
        (
            ["string", "long", CUSTOMER],
            pa.struct([("string", pa.string())]),
            varint(1) + varint(9),
            '{"/a/long":9}',
        ),
        (
            ["string", "long", CUSTOMER],
            pa.struct([("string", pa.string()), ("Customer", NAMED)]),
            varint(2) + EVE + TRUE,
            '{"/a/Customer/vip":true,"/a/Customer/nothing":null}',
        ),
        (["string", "long"], pa.struct([("string", pa.string())]), varint(0) + EVE, None),
    ],
)
def test_a_row_has_the_fields_that_no_column_is_for(
    kind: Any, column: pa.DataType | None, value: bytes, rest: str | None
) -> None:
    """A field is kept under its name, and one that is further inside under a JSON pointer."""
    columns = {"id": pa.int64()} | ({} if column is None else {"a": column})
    verdict = decoded({"a": kind, "id": "long"}, columns, value + varint(7))
    assert not len(verdict.dead_index), verdict.dead_detail
    assert verdict.rows.column("id").to_pylist() == [7]
    assert verdict.rows.column(REST).to_pylist() == [rest]


def test_only_the_row_is_kept() -> None:
    """Fields beside a row, which is inside its message, aren't kept, whatever is in them."""
    fields = {"before": ["null", CUSTOMER], "after": ["null", "Customer"], "at": "double"}
    message = NULL + varint(1) + EVE + TRUE + struct.pack("<d", math.nan)
    verdict = decoded(fields, {"after": NAMED}, message, row_path=("after",))
    assert verdict.rows.column(REST).to_pylist() == ['{"vip":true,"nothing":null}']


def test_a_field_of_the_column_s_name_is_kept() -> None:
    """A field that is called like the column of these texts is in it."""
    verdict = decoded({"id": "long", REST: "int"}, {"id": pa.int64()}, varint(1) + varint(2))
    assert verdict.rows.to_pylist() == [{"id": 1, REST: '{"_rest":2}'}]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("double", struct.pack("<d", math.nan), "out_of_range"),
        ({"type": "map", "values": "int"}, items(*[text("k") + NULL] * 2), "duplicate_key"),
        ("string", text("x" * ((1 << 20) - 7)), "too_large"),
        ({"type": "array", "items": {**CUSTOMER, "name": "n" * 9}}, b"\xff", "not_avro"),
    ],
)
def test_what_can_not_be_kept_is_a_dead_letter(kind: Any, value: bytes, reason: str) -> None:
    """A field that JSON doesn't have, or whose text is too large, refuses its message."""
    verdict = decoded({"a": kind, "id": "long"}, {"id": pa.int64()}, value + varint(7))
    assert verdict.dead_reason.to_pylist() == [reason]


def test_a_small_message_keeps_its_nulls_and_no_large_text() -> None:
    """Names, which no message has, are kept within 64 bytes for each byte of the message."""
    wide = {f"a_name_as_long_as_they_usually_are_{n:04}": ["null", "int"] for n in range(2_000)}
    verdict = decoded({"id": "long", **wide}, {"id": pa.int64()}, varint(1) + NULL * 2_000)
    assert len(json.loads(verdict.rows.column(REST)[0].as_py())) == 2_000
    fields = {"id": "long", "n" * 10_000: "int"}
    verdict = decoded(fields, {"id": pa.int64()}, varint(1) + NULL)
    assert verdict.dead_reason.to_pylist() == ["too_large"]
    assert "64 bytes for each byte" in verdict.dead_detail[0].as_py()
    fits = decoded({"a": "string"} | fields, {"id": pa.int64()}, text("x" * 200) + varint(1) + NULL)
    assert fits.rows.num_rows == 1


def test_schemas_without_such_fields_are_read_by_the_compiled_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiled pass decodes what has nothing to keep, and only the strict decoder the rest."""
    monkeypatch.setattr(OnePass, "ready", lambda _: True)
    columns = Columns((Column("id", pa.int64(), nullable=False),)).with_rest()
    for more, is_compiled in (([], True), ([{"name": "a", "type": "int"}], False)):
        fields = [{"name": "id", "type": "long"}, *more]
        record = json.dumps({"type": "record", "name": "Top", "fields": fields})
        decoder = avro_batch_decoder(parse_schema(record, "a test"), columns, keeps_unknown=True)
        assert decoder.fast.ready() == is_compiled
        message = pa.array([varint(1) + NULL * len(more)], pa.binary())
        rest = decoder.decode(message, "dead").rows.column(REST).to_pylist()
        assert rest == [None if is_compiled else '{"a":0}']


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 64))
def test_fields_are_kept_as_fastavro_reads_them(seed: int) -> None:
    """A row keeps each field that no column is for, with fastavro's value and in its order. A
    message is refused for it only if JSON hasn't such a number.
    """
    dice = random.Random(seed)
    schema = random_schema(dice)
    writer, reference = Writer(dice, schema), _Reference(schema)
    parsed = parse_schema(json.dumps(schema.avro), "a test")
    columns = schema.columns
    keeping = avro_batch_decoder(parsed, columns.with_rest(), keeps_unknown=True)
    messages = [writer.message() for _ in range(20)]
    values = pa.array(messages, pa.binary())
    verdict = keeping.decode(values, "dead")
    plain = avro_batch_decoder(parsed, columns).decode(values, "dead")
    taken = verdict.row_index.to_pylist()
    texts = verdict.rows.column(REST).to_pylist()
    assert texts == [reference.rest(messages[i]) for i in taken]
    for i in set(plain.row_index.to_pylist()) - {*taken}:
        assert {"NaN", "Infinity"} & {*_numbers(reference.rest(messages[i]))}
    same = plain.rows.filter(pa.array([i in taken for i in plain.row_index.to_pylist()]))
    assert repr(same.to_pylist()) == repr(verdict.rows.drop_columns([REST]).to_pylist())
    assert len(verdict.ignoring) == (len(taken) if any(texts) else 0)


def _numbers(rest: str | None) -> Iterator[str]:
    """Yields the numbers of a text that JSON doesn't have."""
    found = list[str]()
    json.loads(rest or "{}", parse_constant=lambda name: found.append(name.removeprefix("-")))
    yield from found


class _Reference:
    """What a row keeps, by fastavro, which reads the values without logical types."""

    def __init__(self, schema: Made) -> None:
        self._named, self._fields = schema.named, schema.avro["fields"]
        self._parsed = fastavro.parse_schema(_bare(schema.avro))
        self._columns = {column.name: column.type for column in schema.columns.columns}

    def rest(self, message: bytes) -> str | None:
        record = fastavro.schemaless_reader(io.BytesIO(message), self._parsed)
        members = [
            f"{_json('/'.join(['', *path]) if len(path) > 1 else path[0])}:{_json(value)}"
            for path, value in self._of_fields(record, self._fields, self._columns, ())
        ]
        return f"{{{','.join(members)}}}" if members else None

    def _of_fields(
        self, record: Any, fields: Any, kinds: dict[str, pa.DataType], path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        for field in fields:
            name, value = field["name"], record[field["name"]]
            if name not in kinds:
                yield (*path, name), self._shown(value, field["type"])
            else:
                yield from self._inside(value, field["type"], kinds[name], (*path, name))

    def _inside(
        self, value: Any, avro: Any, kind: pa.DataType, path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        avro = self._whole(avro)
        if isinstance(avro, list):  # unions of several types have primitive ones only
            avro = self._whole(next(branch for branch in avro if branch != "null"))
        if value is None or isinstance(avro, str):
            return
        if avro["type"] == "record":
            kinds = {f.name: f.type for f in kind}
            yield from self._of_fields(value, avro["fields"], kinds, path)
        elif avro["type"] == "array":
            for i, item in enumerate(value):
                yield from self._inside(item, avro["items"], kind.value_type, (*path, str(i)))
        elif avro["type"] == "map":
            items_kind = (
                kind.item_type if pa.types.is_map(kind) else kind.value_type.field("value").type
            )
            for key, item in value.items():
                yield from self._inside(item, avro["values"], items_kind, (*path, key))

    def _shown(self, value: Any, avro: Any) -> Any:
        avro = self._whole(avro)
        if isinstance(avro, list):
            branches = [b for b in avro if b != "null"]
            if value is None or len(branches) > 1:
                return self._shown(value, "bytes")
            avro = self._whole(branches[0])
        if value is None or self._is_empty(avro):
            return None
        if isinstance(avro, dict) and avro["type"] == "record":
            return {f["name"]: self._shown(value[f["name"]], f["type"]) for f in avro["fields"]}
        if isinstance(avro, dict) and avro["type"] == "array":
            items = avro["items"]
            return None if self._is_empty(items) else [self._shown(item, items) for item in value]
        if isinstance(avro, dict) and avro["type"] == "map":
            return {key: self._shown(item, avro["values"]) for key, item in value.items()}
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    def _is_empty(self, avro: Any) -> bool:
        avro = self._whole(avro)
        if not isinstance(avro, dict):
            return bool(avro == "null")
        if avro["type"] == "record":
            return all(self._is_empty(field["type"]) for field in avro["fields"])
        return avro["type"] == "fixed" and avro["size"] == 0

    def _whole(self, avro: Any) -> Any:
        return self._named.get(avro, avro) if isinstance(avro, str) else avro


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bare(avro: Any) -> Any:
    """Returns a schema without logical types."""
    if isinstance(avro, list):
        return [_bare(inner) for inner in avro]
    if isinstance(avro, dict):
        return {key: _bare(inner) for key, inner in avro.items() if key != "logicalType"}
    return avro
