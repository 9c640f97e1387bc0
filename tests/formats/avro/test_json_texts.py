"""Records that contain themselves, which become JSON texts."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro.test_fit import columns, schema
from tests.formats.avro.wire import items, text, varint
from tests.infer.test_avro import record, writer_schema
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.decoder import avro_batch_decoder
from windrow.ingest.formats.avro.fit import check
from windrow.ingest.infer.avro import avro_candidates
from windrow.ingest.ports.decoder import Decoded

NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "né", "type": ["null", "string", "long", "double", "boolean"]},
        {"name": "octets", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["LEAF", "FORK"]}},
        {"name": "labels", "type": {"type": "map", "values": "int"}},
        {"name": "nothing", "type": "null"},
        {"name": "below", "type": {"type": "array", "items": "Node"}},
    ],
}
NULL = varint(0)


def node(value: bytes, *below: bytes, labels: bytes = NULL, kind: int = 0) -> bytes:
    return value + text(b"\xff") + varint(kind) + labels + items(*below)


def shown(value: Any, *below: Any, labels: dict[str, int] | None = None, kind: str = "LEAF") -> Any:
    return {
        "né": value,
        "octets": "/w==",
        "kind": kind,
        "labels": labels or {},
        "nothing": None,
        "below": [*below],
    }


def decoded(kind: Any, payload: bytes, column: pa.DataType | None = None) -> Decoded:
    decoder = avro_batch_decoder(schema(kind), columns(column or pa.string()))
    return decoder.decode(pa.array([payload], pa.binary()), "dead")


@pytest.mark.parametrize(
    ("kind", "column", "payload", "value"),
    [
        (
            NODE,
            pa.string(),
            node(
                varint(1) + text('"\n'),
                node(varint(2) + varint(-(1 << 63))),
                node(varint(3) + bytes.fromhex("000000000000f83f"), node(varint(4) + b"\1")),
                labels=items(text("a b") + varint(7)),
                kind=1,
            ),
            shown(
                '"\n',
                shown(-(1 << 63)),
                shown(1.5, shown(True)),
                labels={"a b": 7},
                kind="FORK",
            ),
        ),
        (["null", NODE], pa.string(), varint(0), None),
        (["null", NODE], pa.string(), varint(1) + node(NULL), shown(None)),
        (
            {"type": "array", "items": NODE},
            pa.list_(pa.string()),
            items(node(NULL), node(NULL, kind=1)),
            [shown(None), shown(None, kind="FORK")],
        ),
    ],
)
def test_a_record_that_contains_itself_is_a_json_text(
    kind: Any, column: pa.DataType, payload: bytes, value: Any
) -> None:
    """Such a record becomes a text with all its fields; bytes in it are base64."""
    (written,) = decoded(kind, payload, column).rows.column(0).to_pylist()
    texts = written if isinstance(written, list) else [written]
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    expected = value if isinstance(value, list) else [value]
    assert texts == [None if inner is None else json.dumps(inner, **compact) for inner in expected]


@pytest.mark.parametrize(
    ("payload", "reason", "path"),
    [
        (node(varint(3) + bytes.fromhex("000000000000f87f")), "out_of_range", "$.a.né"),
        (node(varint(3) + bytes.fromhex("000000000000f0ff")), "out_of_range", "$.a.né"),
        (node(varint(1) + text(b"\xff")), "invalid_utf8", "$.a.né"),
        (node(NULL, labels=items(*[text("k") + NULL] * 2)), "duplicate_key", "$.a.labels"),
        (node(NULL, node(NULL, kind=2)), "not_avro", "$.a.below[0].kind"),
        (node(NULL) + b"\0", "not_avro", "$"),
    ],
)
def test_what_json_or_the_schema_lacks_is_a_dead_letter(
    payload: bytes, reason: str, path: str
) -> None:
    """A value that isn't the schema's, or that JSON doesn't have, is refused with its path."""
    verdict = decoded(NODE, payload)
    assert verdict.dead_reason.to_pylist() == [reason]
    assert verdict.dead_detail[0].as_py().endswith(f" - at {path}") or path == "$"


def test_texts_are_bounded() -> None:
    """Names of fields and symbols, which no byte of the message is for, count for the budget."""
    long = {
        "type": "record",
        "name": "Long",
        "fields": [
            {"name": "n" * 10_000, "type": "null"},
            {"name": "next", "type": {"type": "array", "items": "Long"}},
        ],
    }
    (fits,) = decoded(long, items(*[items()] * 90)).rows.column(0).to_pylist()
    assert len(fits) > 900_000
    assert decoded(long, items(*[items()] * 120)).dead_reason.to_pylist() == ["too_large"]
    symbols = {"type": "enum", "name": "E", "symbols": ["S" * 10_000]}
    enums = {
        "type": "record",
        "name": "Enums",
        "fields": [
            {"name": "all", "type": {"type": "array", "items": symbols}},
            {"name": "next", "type": ["null", "Enums"]},
        ],
    }
    assert decoded(enums, items(*[NULL] * 90) + NULL).rows.num_rows == 1
    assert decoded(enums, items(*[NULL] * 120) + NULL).dead_reason.to_pylist() == ["too_large"]


def test_only_a_record_that_contains_itself_is_a_text() -> None:
    """Another record is a struct, also if it holds or is held by one that contains itself."""
    around = {**record(tree=NODE), "name": "Around"}
    x = {**record(y="int"), "name": "X"}
    inside = {**record(x=x, again=["null", "Outer"]), "name": "Outer"}
    check(schema(around), columns(pa.struct([("tree", pa.string())])))
    check(schema(inside), columns(pa.struct([("x", pa.struct([("y", pa.int32())]))])))
    check(schema(inside), columns(pa.string()))
    with pytest.raises(SpecError, match="a: record Around can't become string"):
        check(schema(around), columns(pa.string()))
    with pytest.raises(SpecError, match=r"a\.x: record X can't become string"):
        check(schema(inside), columns(pa.struct([("x", pa.string())])))


def test_infer_proposes_the_text() -> None:
    """A record that contains itself is a text, also through others, and no plain text's column."""
    other = {**record(back=["null", "Pair"]), "name": "Other"}
    fields = record(
        tree=NODE,
        trees={"type": "array", "items": "Node"},
        either=["null", "string", "Node"],
        pair={**record(other=["null", other]), "name": "Pair"},
        rows={"type": "map", "values": "Row"},
    )
    written = writer_schema({**fields, "name": "Row"})
    guesses = {c.name: c.guess.type for c in avro_candidates(written, "value")}
    assert guesses == {
        "tree": pa.string(),
        "trees": pa.list_(pa.string()),
        "either": pa.struct([("string", pa.string()), ("Node", pa.string())]),
        "pair": pa.string(),
        "rows": pa.map_(pa.string(), pa.string()),
    }
