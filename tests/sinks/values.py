"""Values of every type that a column may have: extreme ones, and any."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
DAYS = (-719_162, 2_932_896)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Microseconds from the year 1 to 9999: the range of a timestamp in every format."""


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def raw(kind: pa.DataType, low: int, high: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Returns a strategy for a type that is stored as a number: its extremes, and numbers
    between.
    """
    width = pa.int32() if kind == pa.date32() else pa.int64()
    return kind, (st.integers(low, high) | st.sampled_from([low, high])).map(
        lambda n: pa.scalar(n, width).cast(kind).as_py()
    )


PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, integers(bits)) for bits, kind in INTEGERS.items()),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=40)),
    raw(pa.date32(), *DAYS),
    raw(pa.timestamp("us"), *MICROS),
    raw(pa.timestamp("us", tz="UTC"), *MICROS),
    *(
        (
            pa.decimal128(p, s),
            st.integers(-(10**p - 1), 10**p - 1).map(lambda n, s=s: Decimal(n).scaleb(-s)),
        )
        for p, s in ((1, 0), (18, 2))
    ),
    (
        pa.decimal128(38, 38),
        st.integers(-(2**110), 2**110).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -38))
        ),
    ),
]


def nested(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Returns a strategy for lists, structs and maps of a type."""
    kind, values = inner
    lists = st.lists(st.none() | values, max_size=3)
    entries = st.dictionaries(st.text(max_size=4), st.none() | values, max_size=3).map(
        lambda d: list(d.items())
    )
    return st.sampled_from(
        [
            (pa.list_(kind), lists),
            (
                pa.struct([pa.field("a", kind), pa.field("b", pa.string())]),
                st.fixed_dictionaries({"a": st.none() | values, "b": st.none()}),
            ),
            # Delta tables have no such maps
            *([] if "timestamp[us]" in str(kind) else [(pa.map_(pa.string(), kind), entries)]),
        ]
    )


COLUMNS = st.recursive(st.sampled_from(PLAIN), lambda below: below.flatmap(nested), max_leaves=3)


_ZONED = pa.timestamp("us", tz="UTC")
_INSIDE = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("float", pa.float64()),
        pa.field("small", pa.float32()),
        pa.field("decimal", pa.decimal128(38, 10)),
        pa.field("at", _ZONED),
        pa.field("day", pa.date32()),
        pa.field("list", pa.list_(pa.list_(pa.int64()))),
        pa.field("map", pa.map_(pa.string(), pa.string())),
        pa.field("yes", pa.bool_()),
    ]
)
_MOST = Decimal("9" * 28 + "." + "9" * 10)
_MAP = pa.map_(pa.string(), pa.binary())
_EMPTY = dict.fromkeys(f.name for f in _INSIDE)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127, 0, None]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (
        pa.float32(),
        [0.1, -0.0, float("nan"), float("inf"), float("-inf"), 1e-45, 3.4028235e38],
    ),
    "double": (
        pa.float64(),
        [
            0.1,
            -0.0,
            float("nan"),
            float("inf"),
            float("-inf"),
            5e-324,
            1.7976931348623157e308,
            None,
        ],
    ),
    "bool": (pa.bool_(), [True, False, None]),
    "text": (
        pa.string(),
        [
            "",
            "a",
            "\x01\x1f\"'\\\n\t",
            "é€\U0001f600",
            "x" * 100_000,
            None,
            "\\N",
            "null",
            "\t\r\n,;'",
            "\ufeff\u2028\ufffe",
        ],
    ),
    "bytes": (pa.binary(), [b"", b"\0", bytes(range(256)), b"\\x41", None]),
    "date": (pa.date32(), [date.min, date.max, date(1970, 1, 1), date(1999, 12, 31), None]),
    "zoned": (
        _ZONED,
        [
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            None,
        ],
    ),
    "local": (pa.timestamp("us"), [datetime.min, datetime.max, None]),  # noqa: DTZ901
    "decimal38": (
        pa.decimal128(38, 10),
        [_MOST, _MOST.copy_negate(), Decimal("1E-10"), Decimal(0), None],
    ),
    "decimal0": (
        pa.decimal128(38, 0),
        [*map(Decimal, (10**38 - 1, -(10**38) + 1, 10000, 9999, 2**64, -(2**63)))],
    ),
    "decimal_all": (
        pa.decimal128(38, 38),
        [Decimal("0." + "9" * 38), Decimal("1E-38"), Decimal("-1E-38"), Decimal("0.0001")],
    ),
    "decimal5": (
        pa.decimal128(5, 3),
        [Decimal("99.999"), Decimal("-0.001"), Decimal("10.000"), Decimal("0.100")],
    ),
    "texts": (pa.list_(pa.string()), [[], ["a", None, "", "NULL", "{}", '"', ","], None, [None]]),
    "numbers": (
        pa.list_(pa.decimal128(10, 2)),
        [[Decimal("1.10"), None], [], None, [Decimal("-99999999.99")]],
    ),
    "times": (
        pa.list_(_ZONED),
        [[datetime.min.replace(tzinfo=UTC)], [None, datetime.max.replace(tzinfo=UTC)], None],
    ),
    "days": (pa.list_(pa.date32()), [[date.min, date.max, None]]),
    "flags": (pa.list_(pa.bool_()), [[True, None, False], []]),
    "blobs": (pa.list_(pa.binary()), [[b"\0", b"", None]]),
    "floats": (pa.list_(pa.float64()), [[float("nan"), -0.0, None, float("inf")]]),
    "smalls": (pa.list_(pa.int8()), [[-128, None, 127]]),
    "map": (
        _MAP,
        [
            [],
            [("a", b"\0"), ("b", None)],
            None,
            [("", b"")],
            [("a", b"1"), ("a", b"2")],
            [("\0", b"")],
        ],
    ),
    "by_number": (pa.map_(pa.int64(), pa.string()), [[(2**63 - 1, "a"), (-1, None)], [], None]),
    "struct": (
        _INSIDE,
        [
            None,
            _EMPTY,
            {
                "text": "nul \0 in it",
                "bytes": bytes(range(256)),
                "float": -0.0,
                "small": 0.1,
                "decimal": Decimal("9" * 28 + "." + "9" * 10),
                "at": datetime.max.replace(tzinfo=UTC),
                "day": date.min,
                "list": [[1, None], None, [], [2**63 - 1]],
                "map": [("k", '"\\\n\x01'), ("", None)],
                "yes": False,
            },
            {
                **_EMPTY,
                "float": float("nan"),
                "small": float("-inf"),
                "decimal": Decimal("-1E-10"),
                "at": datetime.min.replace(tzinfo=UTC),
                "map": [("twice", "1"), ("twice", "2")],
            },
            {
                **_EMPTY,
                "text": '{"bytea": "\\\\x00"}',
                "float": 1.7976931348623157e308,
                "small": 1e-45,
                "day": date.max,
                "list": [],
            },
            {**_EMPTY, "float": 5e-324, "map": []},
        ],
    ),
    "structs": (
        pa.list_(pa.struct([pa.field("a", pa.int64())])),
        [[{"a": 1}, None, {"a": None}], [], None],
    ),
}


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Returns an array.

    Structs are built by field, because Arrow takes the digits of decimals from the first value.
    """
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    inner = [pa.array([None if v is None else v[f.name] for v in values], f.type) for f in kind]
    return pa.StructArray.from_arrays(
        inner, fields=list(kind), mask=pa.array([v is None for v in values])
    )
