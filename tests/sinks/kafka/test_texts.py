"""Columns as JSON texts and as headers, and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.sinks.kafka.header_values import from_header, header_texts
from windrow.ingest.sinks.kafka.serializers import json_objects
from windrow.ingest.sinks.kit.columns.json_columns import parse_json

MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
STRUCT = pa.struct(
    [
        ("x", pa.float64()),
        ("b", pa.binary()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(5, 2)),
    ]
)
DEEP = pa.list_(pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.float32())))])))

COLUMNS = {
    "text": pa.array(["x", 'q"\\\n\x00\u2028é', "", None]),
    "select": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "integer": pa.array([2**63 - 1, -(2**63), 0, None], pa.int64()),
    "float": pa.array([1.0, 5e-324, float("-inf"), None]),
    "single": pa.array([0.1, -0.0, 3.4e38, None], pa.float32()),
    "flag": pa.array([True, False, True, None]),
    "decimal": pa.array(
        [Decimal("1.10"), Decimal("1E-8"), Decimal("-99.00000001"), None], pa.decimal128(10, 8)
    ),
    "bytes": pa.array([b"\xff\x00", b"", b"a", None]),
    "instant": pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")),
    "local": pa.array([0, -5, 951_782_400_000_001, None], pa.timestamp("us")),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), date(2000, 2, 29), None]),
    "hour": pa.array([time(0, 0, 0, 1), time(23, 59, 59, 999999), time(1, 2, 3), None]),
    "list": pa.array([[Decimal("1.50")], [], [None], None], pa.list_(pa.decimal128(5, 2))),
    "map": pa.array([[("k", 1)], [], [('"', None)], None], pa.map_(pa.string(), pa.int64())),
    "twice": pa.array(
        [[("k", 1), ("k", 2)], [("k", 1)], [], None], pa.map_(pa.string(), pa.int64())
    ),
    "numbered": pa.array(
        [[(1, ["a", None])], [(2**63 - 1, None), (-1, [])], [], None],
        pa.map_(pa.int64(), pa.list_(pa.string())),
    ),
    "deep": pa.array([[[{"m": [("x", [1.5, None])]}, None], []], [], [None], None], DEEP),
    "fixed": pa.array([[1, None], None, [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
    "struct": pa.array(
        [
            {"x": 1.5, "b": b"z", "t": MOMENTS[1], "d": Decimal("0.10")},
            {"x": float("inf")},
            {},
            None,
        ],
        STRUCT,
    ),
    'a "name"': pa.array(["x", None, "y", "z"]),
}


@pytest.mark.parametrize("cut", [0, 1])
def test_every_type_comes_back(cut: int) -> None:
    """A column of any type becomes JSON that other parsers read, and comes back unchanged, also
    from a slice.
    """
    columns = {name: column.slice(cut) for name, column in COLUMNS.items()}
    texts = json_objects(columns).to_pylist()
    for text in texts:
        assert list(json.loads(text)) == list(COLUMNS)
    for name, column in columns.items():
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        parsed = pa.array(
            [parse_json(text, pa.struct([(name, kind)]))[name] for text in texts], kind
        )
        assert str(parsed.to_pylist()) == str(column.to_pylist()), name


@given(
    st.lists(
        st.none() | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
        min_size=1,
        max_size=50,
    )
)
def test_an_instant_is_the_calendars(moments: list[int | None]) -> None:
    """Timestamps of all years are written as NumPy writes them."""
    column = pa.array(moments, pa.timestamp("us"))
    expected = [None if moment is None else str(np.datetime64(moment, "us")) for moment in moments]
    assert [json.loads(text)["t"] for text in json_objects({"t": column}).to_pylist()] == expected
    zoned = [None if moment is None else f"{moment}Z" for moment in expected]
    assert [
        json.loads(text)["t"]
        for text in json_objects({"t": column.cast(pa.timestamp("us", "UTC"))}).to_pylist()
    ] == zoned


def test_what_is_not_a_number_is_a_text() -> None:
    """NaN is written as a text, because JSON has none, and read back."""
    (text,) = json_objects({"f": pa.array([float("nan")])}).to_pylist()
    assert text == '{"f":"NaN"}'
    assert str(parse_json(text, pa.struct([("f", pa.float64())]))["f"]) == "nan"


def test_headers_have_texts_and_bytes_as_they_are() -> None:
    """A header has texts and bytes unchanged, timestamps in epoch milliseconds, and other
    values as in JSON.

    Null is null.
    """
    assert header_texts(pa.array(["é", None])).to_pylist() == ["é".encode(), None]
    assert header_texts(pa.array([b"\xff"])).to_pylist() == [b"\xff"]
    assert header_texts(pa.array([MOMENTS[1]], pa.timestamp("us", "UTC"))).to_pylist() == [
        b"1767225600000"
    ]
    assert from_header(b"1767225600000", pa.timestamp("us", "UTC")) == datetime(
        2026, 1, 1, tzinfo=UTC
    )
    assert header_texts(pa.array([7])).to_pylist() == [b"7"]
