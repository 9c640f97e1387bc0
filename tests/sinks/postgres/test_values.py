"""Every value of every type comes back from the table as it was staged, or is refused
before anything is there.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from tests.sinks.postgres.world import PostgresBoth, place_of
from tests.sinks.things import messages, plan, receipt
from windrow.ingest.admin.verify_contents import summed
from windrow.ingest.errors import SpecError, UnstorableRowsError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, SplitCounts
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.postgres.names import TableName, table_name
from windrow.ingest.sinks.sql_names import quoted

pytestmark = pytest.mark.slow  # starts a server

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


def committed(sink: Any, rows: pa.RecordBatch) -> Staged:
    """Rows staged from the first messages of a window, and committed."""
    sink.prepare()
    planned = plan(sink, 0, offsets=(0, rows.num_rows))
    split = planned.splits[0]
    stager = sink.stager(planned, 0, "a1")(split)
    stager.add(rows.slice(0, 1), messages(split).slice(0, 1))
    stager.add(rows.slice(1), messages(split).slice(1))
    staging = stager.finish()
    counts = [
        SplitCounts(
            s.topic,
            s.partition,
            s.start,
            s.stop,
            s.stop,
            n,
            0,
            n,
            0,
            0,
            n,
            0,
            0,
            checksums=Checksums(checksum),
            rows=n,
        )
        for s, n, checksum in zip(
            planned.splits, (rows.num_rows, 0), (staging.checksum, "0" * 16), strict=True
        )
    ]
    staged = [
        Staged(s, c, words, ())
        for s, c, words in zip(planned.splits, counts, (staging.committables, ()), strict=True)
    ]
    assert isinstance(sink.commit(receipt(planned, staged, 0, "a1"), staged), Done)
    return staged[0]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow tells the digits of decimals in structs by the first one."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    inner = [pa.array([None if v is None else v[f.name] for v in values], f.type) for f in kind]
    return pa.StructArray.from_arrays(
        inner, fields=list(kind), mask=pa.array([v is None for v in values])
    )


@pytest.fixture
def sink_of(database: str) -> Any:
    return lambda schema, table="orders", **more: PostgresBoth(
        place_of(f"{database}#{table}"), schema, **more
    )


def test_every_value_comes_back(sink_of: Any) -> None:
    """All types at once, with their extremes, nulls and odd ones: what is read back has
    the checksum of what was staged, and is equal.
    """
    longest = max(len(values) for _, values in VALUES.values())
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in VALUES.items()])
    arrays = [
        _array(values + [values[0]] * (longest - len(values)), kind)
        for kind, values in VALUES.values()
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    sink = sink_of(schema)
    staged = committed(sink, rows)
    window = plan(sink, 0).window
    back = summed([staged.counts], sink.audit().contents(window), DEFAULT)
    assert (back.checksums, back.outside) == ((staged.counts.checksums.rows,), 0)
    (batch,) = sink.audit().contents(window)
    for field in schema:
        if not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type):
            assert batch.column(field.name).equals(rows.column(field.name)), field.name


def test_sql_reads_what_was_meant(sink_of: Any, database: str) -> None:
    """What lies in the table is what SQL understands by it: numbers, arrays, bytes and
    times inside of JSON.
    """
    kind = pa.struct(
        [pa.field("b", pa.binary()), pa.field("at", _ZONED), pa.field("n", pa.decimal128(10, 2))]
    )
    schema = pa.schema(
        [
            pa.field("amount", pa.decimal128(12, 4)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("more", kind),
        ]
    )
    row = {
        "amount": Decimal("-1234567.8900"),
        "tags": ["a", "b"],
        "more": {"b": b"hi", "at": datetime(2026, 1, 2, tzinfo=UTC), "n": 1},
    }
    committed(sink_of(schema), pa.RecordBatch.from_pylist([row, row], schema=schema))
    asked = """SELECT amount, tags[2], (more->>'b')::bytea, (more->>'at')::timestamptz, (more->>'n')::numeric FROM orders LIMIT 1"""  # noqa: E501
    with psycopg.connect(database) as connection:
        seen = connection.execute(asked).fetchone()
    assert seen == (
        Decimal("-1234567.8900"),
        "b",
        b"hi",
        datetime(2026, 1, 2, tzinfo=UTC),
        Decimal("1.00"),
    )


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.string(), "a\0b", "NUL"),
        (pa.list_(pa.string()), ["a", "\0"], "NUL"),
        (pa.date32(), np.int32(-(2**31)), "calendar"),
        (_ZONED, np.int64(-(2**63)), "calendar"),
    ],
)
def test_what_no_column_can_hold_is_refused_at_its_offset(
    sink_of: Any, kind: pa.DataType, value: object, says: str
) -> None:
    """The error names topic-partition, offset and column, and repeats nothing of the
    value; nothing is left behind.
    """
    sink = sink_of(pa.schema([pa.field("odd", kind)]))
    sink.prepare()
    values = [None, None, value, None, value]
    odd = (
        pa.array(values, kind)
        if not isinstance(value, np.generic)
        else pa.array([v or 0 for v in values], value.dtype.name).view(kind)
    )
    stager = sink.stager(plan(sink, 0), 0, "a1")(Split("shop.orders", 1, 0, 10))
    with pytest.raises(UnstorableRowsError, match=says) as refused:
        stager.add(pa.record_batch([odd], names=["odd"]), messages(Split("shop.orders", 1, 4, 9)))
    assert list(refused.value.rows) == [2, 4]
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        1,
        6,
    )
    assert "column odd" in refused.value.what
    assert "\0" not in str(refused.value)


NAMES = [
    "select",
    'quo"te',
    "it's",
    "Ünïcödé",
    "with space",
    "semi;colon",
    "%s",
    "{table}",
    "a.b",
    "UPPER",
    "x" * 63,
    "\U0001f600",
]


def test_names_of_any_kind(sink_of: Any) -> None:
    """Columns and tables may be called anything that PostgreSQL takes, quotes, keywords
    and templates among it.
    """
    schema = pa.schema([pa.field(name, pa.int64()) for name in NAMES])
    sink = sink_of(schema, table='"; DROP {} %s.Ta"ble \'x')
    with psycopg.connect(sink.place.url.text) as connection:
        connection.execute(f"CREATE SCHEMA {quoted(sink.place.name.schema)}")
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2])] * len(NAMES), schema=schema)
    staged = committed(sink, rows)
    back = summed([staged.counts], sink.audit().contents(plan(sink, 0).window), DEFAULT)
    assert back.checksums == (staged.counts.checksums.rows,)
    assert sink.audit().rows_held(plan(sink, 0).window)[0].rows == 2


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (pa.field("x" * 64, pa.int64()), "longer than 63 bytes"),
        (pa.field("é" * 32, pa.int64()), "longer than 63 bytes"),
        (pa.field("n", pa.uint64()), "uint64"),
        (pa.field("t", pa.timestamp("ns")), "timestamp"),
        (pa.field("t", pa.time64("us")), "time64"),
        (pa.field("s", pa.struct([])), "struct"),
        (pa.field("l", pa.list_(pa.uint8())), "uint8"),
    ],
)
def test_columns_that_cannot_be(sink_of: Any, field: pa.Field, says: str) -> None:
    """A name or type that PostgreSQL would cut, or hold as something else, is refused
    before anything is made.
    """
    with pytest.raises(SpecError, match=says):
        sink_of(pa.schema([field]))


def test_table_names() -> None:
    """A name is split at its point; what can't be one is refused."""
    assert table_name("a.b") == TableName("a", "b")
    assert table_name("B") == TableName("public", "B")
    for wrong in ("", ".", "a.", ".b", "a.b.c", "a\nb", "x" * 59):
        with pytest.raises(ValueError, match=r"must be|control|longer"):
            table_name(wrong)
