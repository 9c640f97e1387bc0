"""The checksum of receipts never changes, and detects each change of values and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.schema import reference
from windrow.ingest.schema.checksum import checksum, checksum_text, hash_rows, sum_hashes
from windrow.ingest.schema.messages import HEADERS

DEEP = pa.struct(
    [
        pa.field("city", pa.string()),
        pa.field("marks", pa.list_(pa.float64())),
        pa.field("at", pa.struct([("x", pa.int8())])),
    ]
)
COLUMNS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "stamp": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "small": pa.decimal128(12, 2),
    "large": pa.decimal128(38, 4),
    "text": pa.string(),
    "bytes": pa.binary(),
    "struct": DEEP,
    "list": pa.list_(pa.int32()),
    "lists": pa.list_(pa.list_(pa.string())),
    "structs": HEADERS,
    "map": pa.map_(pa.string(), pa.binary()),
    "maps": pa.map_(pa.string(), pa.list_(pa.int64())),
}
"""Every type that a table of windrow can hold."""


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Returns random values of a type, with nulls if they are possible."""
    plain: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.int8(): numbers(8),
        pa.int16(): numbers(16),
        pa.int32(): numbers(32),
        pa.int64(): numbers(64),
        pa.float32(): st.floats(width=32),
        pa.float64(): st.floats(),
        pa.date32(): st.dates(),
        pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=90),
        pa.binary(): st.binary(max_size=90),
    }
    if kind in plain:
        return plain[kind]
    if pa.types.is_timestamp(kind):
        stamps = st.datetimes()
        return stamps if kind.tz is None else stamps.map(lambda v: v.replace(tzinfo=UTC))
    if pa.types.is_decimal(kind):
        unscaled = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1)
        return unscaled.map(lambda n: Decimal(f"{n}E-{kind.scale}"))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries(
            {f.name: nullable(values(f.type)) if f.nullable else values(f.type) for f in kind}
        )
    if pa.types.is_map(kind):
        return st.dictionaries(
            values(kind.key_type), nullable(values(kind.item_type)), max_size=4
        ).map(lambda d: list(d.items()))
    return st.lists(
        nullable(values(kind.value_type)) if kind != HEADERS else values(kind.value_type),
        max_size=12,
    )


def nullable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def batches(max_size: int = 8) -> st.SearchStrategy[pa.RecordBatch]:
    """Returns random rows of some columns, with their offsets."""

    def filled(kinds: dict[str, pa.DataType]) -> st.SearchStrategy[pa.RecordBatch]:
        row = st.fixed_dictionaries(
            {
                "_offset": numbers(64),
                **{name: nullable(values(kind)) for name, kind in kinds.items()},
            }
        )
        schema = pa.schema(
            [pa.field("_offset", pa.int64()), *(pa.field(n, k) for n, k in kinds.items())]
        )
        return st.lists(row, min_size=1, max_size=max_size).map(
            lambda rows: make_batch(schema, rows)
        )

    kinds_by_name = st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, max_size=5).map(
        lambda names: {n: COLUMNS[n] for n in names}
    )
    return kinds_by_name.flatmap(filled)


def make_batch(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([r[f.name] for r in rows], f.type) for f in schema], schema=schema
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist()


# --------------------------------------------------------------------------------------------------

FIXED: list[tuple[str, pa.DataType, Any, str]] = [
    ("bool", pa.bool_(), True, "46c7571005d7e069"),
    ("int8", pa.int8(), -128, "803e69a02960f1cf"),
    ("int16", pa.int16(), -2, "94d9f19e8dd97b84"),
    ("int32", pa.int32(), 2**31 - 1, "96246617cac54df6"),
    ("int64", pa.int64(), -(2**63), "d3647cae5f9f8c27"),
    ("zero", pa.int64(), 0, "4fc52ffdecab5a57"),
    ("float32", pa.float32(), 1.5, "fb27c739c2137335"),
    ("float64", pa.float64(), 0.1, "02deb9df41995047"),
    ("negative zero", pa.float64(), -0.0, "d3647cae5f9f8c27"),
    ("nan", pa.float64(), float("nan"), "3865f2d1555ed706"),
    ("date", pa.date32(), date(1969, 12, 31), "6721c542ac0d02b5"),
    (
        "stamp",
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "679bd5efa5215582",
    ),
    ("local", pa.timestamp("us"), datetime.fromisoformat("0001-01-01"), "e56f52c0034c7eeb"),
    ("small decimal", pa.decimal128(12, 2), Decimal("-12.34"), "f6ba729b6bfb777f"),
    ("large decimal", pa.decimal128(38, 4), Decimal("9" * 34 + ".9999"), "dc5c483e6cef41ae"),
    ("empty text", pa.string(), "", "4fc52ffdecab5a57"),
    ("text", pa.string(), "grün", "31cd6380d3a66c7e"),
    ("eight bytes", pa.string(), "12345678", "120a10407b879f4e"),
    ("long text", pa.string(), "abc" * 100, "5529ee73e0e06948"),
    ("bytes", pa.binary(), bytes(range(20)), "4776a237ef64ce44"),
    ("null", pa.int64(), None, "0000000000000000"),
    ("struct", DEEP, {"city": "Ulm", "marks": [1.0, None], "at": {"x": 7}}, "afa134aef1776884"),
    ("struct of nulls", DEEP, {"city": None, "marks": None, "at": None}, "4fc52ffdecab5a57"),
    ("empty list", pa.list_(pa.int32()), [], "4fc52ffdecab5a57"),
    ("list", pa.list_(pa.int32()), [3, None, -1], "02708278c74fe5fd"),
    (
        "headers",
        HEADERS,
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "02c478111f8c1dd5",
    ),
    ("empty map", pa.map_(pa.string(), pa.binary()), [], "4fc52ffdecab5a57"),
    ("map", pa.map_(pa.string(), pa.binary()), [("k", b"v"), ("n", None)], "ed38807afe032ab3"),
]
"""Checksums that must never be edited, because receipts hold such values."""


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [pytest.param(*case[1:], id=case[0]) for case in FIXED]
)
def test_known_answers(kind: pa.DataType, value: Any, expected: str) -> None:
    """The checksum of one row with one value never changes, for each type."""
    assert checksum_text(checksum(pa.record_batch({"v": pa.array([value], kind)}))) == expected


def test_known_rows() -> None:
    """The hash of each whole row with windrow's columns, and their sum, never change."""
    rows = pa.record_batch(
        {
            "_topic": ["shop.orders"] * 3,
            "_partition": pa.array([0, 0, 1], pa.int32()),
            "_offset": [0, 1, 0],
            "amount": pa.array([Decimal("1.00"), None, Decimal("2.50")], pa.decimal128(12, 2)),
            "note": ["a", None, ""],
        }
    )
    assert [checksum_text(int(h)) for h in hash_rows(rows)] == [
        "8cbbaa5d68639713",
        "557272d66a546230",
        "a666e2b391926fa1",
    ]
    assert checksum_text(checksum(rows)) == "8894ffe7644a68e4"


@settings(max_examples=examples(60))
@given(batches())
def test_it_is_what_its_definition_says(batch: pa.RecordBatch) -> None:
    """The checksum equals the reference implementation's."""
    assert checksum(batch) == reference.checksum(batch.schema, rows_of(batch))


@pytest.mark.parametrize(
    "lengths",
    [
        [0],
        [0, 0],
        [7, 8, 9],
        [16, 16, 16],
        [0, 63, 64, 65, 66],
        [200_000, 0, 1, 70_000],
        [64] * 40,
        [3] * 20_000,
    ],
)
def test_texts_of_all_lengths(lengths: list[int]) -> None:
    """Texts of equal, unequal, empty and long lengths have the reference's hashes."""
    rng = np.random.default_rng(1)
    texts = [rng.bytes(n) for n in lengths]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        batch = pa.record_batch({"v": pa.array(texts, kind)})
        assert hash_rows(batch).tolist() == [
            reference.mix(reference.cell("v", pa.binary(), v)) for v in texts
        ]


def test_lists_of_all_lengths() -> None:
    """Lists of all lengths, with nulls, have the reference's hashes."""
    lists = [[], list(range(30_005)), [1], [], [None, 2], None, [None], list(range(16_375))]
    kind = pa.list_(pa.int64())
    assert hash_rows(pa.record_batch({"v": pa.array(lists, kind)})).tolist() == [
        reference.mix(reference.cell("v", kind, v)) for v in lists
    ]


# --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(batches(), st.data())
def test_order_and_cuts_mean_nothing(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """The checksum doesn't depend on the order of rows and columns, or on the cuts into batches."""
    order = data.draw(st.permutations(range(batch.num_rows)))
    names = data.draw(st.permutations(batch.schema.names))
    cut = data.draw(st.integers(0, batch.num_rows))
    shuffled = batch.take(pa.array(order, pa.int64())).select(names)
    around = pa.concat_batches(
        [batch.select(names), shuffled, batch.select(names)]
    )  # so that the slices don't begin or end where the buffers do
    parts = [
        around.slice(batch.num_rows, cut),
        around.slice(batch.num_rows + cut, batch.num_rows - cut),
    ]
    assert sum(map(checksum, parts)) % 2**64 == checksum(batch)


@settings(max_examples=examples(60))
@given(batches(), st.sampled_from(sorted(COLUMNS)))
def test_a_column_of_nulls_adds_nothing(batch: pa.RecordBatch, name: str) -> None:
    """A nullable column that was added later doesn't change the checksum of old rows."""
    wider = batch.append_column("later", pa.nulls(batch.num_rows, COLUMNS[name]))
    assert checksum(wider) == checksum(batch)


@pytest.mark.parametrize(
    ("kind", "other_kind", "values"),
    [
        (pa.string(), pa.large_string(), ["a", "", None, "b" * 40]),
        (pa.string(), pa.string_view(), ["a", "", None, "b" * 40]),
        (pa.string(), pa.dictionary(pa.int8(), pa.string()), ["a", "a", None, "b"]),
        (pa.string(), pa.binary(), ["a", "ä", None, ""]),
        (pa.binary(), pa.binary(3), [b"abc", None, b"xyz"]),
        (pa.int32(), pa.int64(), [-1, 0, None, 2**31 - 1]),
        (pa.int8(), pa.dictionary(pa.int8(), pa.int64()), [-1, None]),
        (pa.float32(), pa.float64(), [1.5, -0.0, None, float("inf"), float("nan")]),
        (pa.decimal128(5, 2), pa.decimal128(38, 2), [Decimal("1.25"), Decimal("-1.00"), None]),
        (pa.decimal128(5, 2), pa.decimal64(5, 2), [Decimal("1.25"), Decimal("-1.00"), None]),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), [0, -1, None]),
        (pa.timestamp("us"), pa.timestamp("ns"), [0, -1000, None]),
        (pa.list_(pa.int32()), pa.large_list(pa.int64()), [[1, None], [], None]),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.large_string(), pa.int64()),
            [[("a", 1)], [], None],
        ),
    ],
    ids=str,
)
def test_the_same_values_otherwise_laid_out(
    kind: pa.DataType, other_kind: pa.DataType, values: list[Any]
) -> None:
    """The checksum doesn't depend on how values are stored.

    Examples are wider numbers, dictionaries and other offsets.
    """
    array = pa.array(values, kind)
    other_array = (
        pa.array(values, other_kind)
        if not pa.types.is_dictionary(other_kind)
        else pa.array(values, other_kind.value_type).dictionary_encode()
    )
    if other_kind == pa.timestamp("ns"):
        other_array = array.cast(other_kind)
    assert checksum(pa.record_batch({"v": array})) == checksum(pa.record_batch({"v": other_array}))


def test_what_lies_under_a_null_means_nothing() -> None:
    """The buffers' contents under a null don't change the checksum.

    Arrow leaves them undefined.
    """
    valid = pa.py_buffer(bytes([0b101]))
    hidden = pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(np.array([1, 99, 3]))])
    assert checksum(pa.record_batch({"v": hidden})) == checksum(
        pa.record_batch({"v": pa.array([1, None, 3])})
    )
    edges, data = pa.py_buffer(np.array([0, 1, 5, 6], np.int32)), pa.py_buffer(b"ahideb  ")
    for build, kind in (
        (hidden_texts, pa.string()),
        (hidden_list, pa.list_(pa.int64())),
        (hidden_map, pa.map_(pa.string(), pa.int64())),
    ):
        column, clear = build(valid, edges, data)
        assert checksum(pa.record_batch({"v": column})) == checksum(
            pa.record_batch({"v": pa.array(clear, kind)})
        )
        assert checksum(pa.record_batch({"v": column.slice(1)})) == checksum(
            pa.record_batch({"v": pa.array(clear[1:], kind)})
        )


def hidden_texts(valid: pa.Buffer, edges: pa.Buffer, data: pa.Buffer) -> tuple[pa.Array, list[Any]]:
    return pa.StringArray.from_buffers(3, edges, data, valid), ["a", None, "b"]


def hidden_list(valid: pa.Buffer, edges: pa.Buffer, data: pa.Buffer) -> tuple[pa.Array, list[Any]]:
    return pa.Array.from_buffers(
        pa.list_(pa.int64()), 3, [valid, edges], children=[pa.array(range(6))]
    ), [[0], None, [5]]


def hidden_map(valid: pa.Buffer, edges: pa.Buffer, data: pa.Buffer) -> tuple[pa.Array, list[Any]]:
    kind = pa.map_(pa.string(), pa.int64())
    entries = pa.StructArray.from_arrays(
        [pa.array(list("abcdef")), pa.array(range(6))], fields=[kind.key_field, kind.item_field]
    )
    return pa.Array.from_buffers(kind, 3, [valid, edges], children=[entries]), [
        [("a", 0)],
        None,
        [("f", 5)],
    ]


def test_the_order_of_a_maps_entries_means_nothing() -> None:
    """The order of a map's entries doesn't change the checksum; the order of a list does.

    Programs that copy a map may reorder its entries.
    """
    entries, turned = [("a", 1), ("b", None), ("c", 3)], [("c", 3), ("a", 1), ("b", None)]
    kind = pa.map_(pa.string(), pa.int64())
    assert checksum_of(kind, entries) == checksum_of(kind, turned)
    assert checksum_of(pa.list_(pa.int64()), [1, 2]) != checksum_of(pa.list_(pa.int64()), [2, 1])


# --------------------------------------------------------------------------------------------------


def checksum_of(kind: pa.DataType, value: Any) -> int:
    return checksum(pa.record_batch({"v": pa.array([value], kind)}))


@settings(max_examples=examples(80))
@given(batches(max_size=4), st.data())
def test_any_other_value_changes_it(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """Another value or null, in one row, changes the checksum."""
    rows = rows_of(batch)
    row_index = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(st.sampled_from(list(batch.schema)))
    changed_batch = make_batch(
        batch.schema,
        [
            r if i != row_index else r | {field.name: data.draw(nullable(values(field.type)))}
            for i, r in enumerate(rows)
        ],
    )
    assume(not changed_batch.equals(batch))
    if repr(rows_of(changed_batch)) != repr(rows):  # NaN doesn't equal itself.
        assert checksum(changed_batch) != checksum(batch) or unordered(
            rows_of(changed_batch)
        ) == unordered(rows)


def unordered(value: Any) -> Any:
    """Returns the value with the entries of maps sorted."""
    if isinstance(value, dict):
        return {k: unordered(v) for k, v in value.items()}
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return sorted(map(repr, value))
    return [unordered(v) for v in value] if isinstance(value, list) else repr(value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.string(),
            [
                None,
                "",
                "\0",
                "\0\0",
                "a",
                "a\0",
                "\0a",
                "ab",
                "ba",
                "a" * 8,
                "a" * 9,
                "a" * 16,
                "b" + "a" * 7,
                "a" * 7 + "b",
            ],
        ),
        (pa.float64(), [None, 0.0, -0.0, 5e-324, float("nan"), float("inf"), float("-inf")]),
        (pa.bool_(), [None, False, True]),
        (
            pa.decimal128(38, 0),
            [
                None,
                Decimal(0),
                Decimal(-1),
                Decimal(2**63),
                Decimal(-(2**63)),
                Decimal(2**64),
                Decimal(2**64 - 1),
            ],
        ),
        (
            pa.list_(pa.int64()),
            [None, [], [None], [None, None], [0], [0, None], [None, 0], [1], [0, 1], [1, 0]],
        ),
        (
            pa.list_(pa.list_(pa.string())),
            [
                None,
                [],
                [[]],
                [None],
                [[None]],
                [[""]],
                [[], []],
                [["a"], []],
                [[], ["a"]],
                [["a", "b"]],
                [["a"], ["b"]],
            ],
        ),
        (
            pa.map_(pa.string(), pa.string()),
            [
                None,
                [],
                [("a", None)],
                [("a", "")],
                [("", "a")],
                [("a", "b")],
                [("b", "a")],
                [("a", "a"), ("b", "b")],
                [("a", "b"), ("b", "a")],
            ],
        ),
        (
            DEEP,
            [
                None,
                {"city": None, "marks": None, "at": None},
                {"city": "", "marks": None, "at": None},
                {"city": None, "marks": [], "at": None},
                {"city": None, "marks": None, "at": {"x": None}},
                {"city": None, "marks": None, "at": {"x": 0}},
            ],
        ),
    ],
    ids=str,
)
def test_close_values_differ(kind: pa.DataType, values: list[Any]) -> None:
    """Null, empty, zero and similar values have different checksums."""
    assert len({checksum_of(kind, v) for v in values}) == len(values)


def test_what_moves_between_rows_and_columns_is_seen() -> None:
    """An exchange of values between rows or columns changes the checksum.

    So do a renamed column and a repeated row.
    """

    def checksum_of_columns(**columns: list[Any]) -> int:
        return checksum(pa.record_batch({name: pa.array(v) for name, v in columns.items()}))

    sums = [
        checksum_of_columns(o=[1, 2], a=[5, 6], b=[7, 8]),
        checksum_of_columns(o=[1, 2], a=[6, 5], b=[7, 8]),
        checksum_of_columns(o=[1, 2], a=[7, 6], b=[5, 8]),
        checksum_of_columns(o=[1, 2], a=[5, 6], c=[7, 8]),
        checksum_of_columns(o=[1, 2, 2], a=[5, 6, 6], b=[7, 8, 8]),
        checksum_of_columns(o=[2, 1], a=[5, 6], b=[7, 8]),
        checksum_of_columns(o=[], a=[]),
    ]
    assert len(set(sums)) == len(sums)


def test_a_type_without_a_definition_is_refused() -> None:
    """A type without a definition raises TypeError, because its checksum couldn't be reproduced."""
    with pytest.raises(TypeError, match="time64"):
        checksum(pa.record_batch({"v": pa.array([1], pa.time64("us"))}))


def test_the_text_form() -> None:
    """The text of a checksum has sixteen digits, and sums wrap around at 64 bits."""
    assert [checksum_text(0), checksum_text(255), checksum_text(2**64 + 1)] == [
        "0" * 16,
        "00000000000000ff",
        "0000000000000001",
    ]
    assert sum_hashes(np.full(2, 2**63, np.uint64)) == 0
