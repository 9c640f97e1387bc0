"""Values of partition fields are those of Iceberg, and their texts are those of Hive."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.partition_fields import PartitionField, PartitionTransform
from windrow.ingest.schema.partition_values import divide_by_partition

DAY = 86_400_000_000
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the calendar of most readers."""

INSTANTS = [0, -1, DAY - 1, 31 * DAY, FIRST, LAST, None]
DATES = [0, -1, 59, FIRST // DAY, LAST // DAY, None]
NUMBERS = [0, -1, 34, 2**31 - 1, -(2**31), None]
TEXTS = ["", "a", "abcd", "iceberg", "日本 x", "z" * 1001, None]
INSTANT = pa.timestamp("us", "UTC")

CASES: list[tuple[str, pa.DataType, IcebergType, list[Any]]] = [
    *((t, INSTANT, TimestamptzType(), INSTANTS) for t in ("year", "month", "day", "hour")),
    *((t, pa.date32(), DateType(), DATES) for t in ("year", "month", "day")),
    ("bucket", INSTANT, TimestamptzType(), INSTANTS),
    ("bucket", pa.date32(), DateType(), DATES),
    ("bucket", pa.int32(), IntegerType(), NUMBERS),
    ("bucket", pa.int64(), LongType(), [*NUMBERS, 2**62, -(2**63)]),
    ("bucket", pa.string(), StringType(), TEXTS),
    ("bucket", pa.binary(), BinaryType(), [None if t is None else t.encode() for t in TEXTS]),
    ("identity", pa.string(), StringType(), TEXTS),
    ("identity", pa.int64(), LongType(), NUMBERS),
    ("identity", pa.bool_(), BooleanType(), [True, False, None]),
    ("identity", pa.date32(), DateType(), DATES),
]


def field_of(transform: Any, **more: Any) -> PartitionField:
    """Returns a field of the column `c`."""
    return PartitionField(transform, "c", "p", 7 if transform == "bucket" else 0, **more)


def values_of(field: PartitionField, column: pa.Array, *, as_texts: bool = False) -> list[Any]:
    """Returns the value of each row, or its text."""
    numbered = pa.record_batch([column, pa.array(range(len(column)))], ["c", "row"])
    values: dict[int, Any] = {}
    for (value,), rows in divide_by_partition([field], numbered, as_texts=as_texts):
        assert rows["row"].to_pylist() == sorted(rows["row"].to_pylist())
        values |= dict.fromkeys(rows["row"].to_pylist(), value)
    return [values[row] for row in range(len(column))]


@pytest.mark.parametrize(("transform", "kind", "iceberg", "values"), CASES)
def test_a_value_is_that_of_iceberg(
    transform: PartitionTransform, kind: pa.DataType, iceberg: IcebergType, values: list[Any]
) -> None:
    """PyIceberg's transforms give the same values, also of slices of columns."""
    field = field_of(transform)
    name = f"bucket[{field.buckets}]" if field.buckets else transform
    same = parse_transform(name).transform(iceberg)
    assert values_of(field, pa.array(values, kind)[1:]) == [same(value) for value in values[1:]]


def test_instants_outside_the_calendar_have_values_and_no_texts() -> None:
    """The years 0 and 10000 have days; Delta and folders put them beside null."""
    column = pa.array([FIRST, FIRST - 1, LAST, LAST + 1, -(2**60), None], INSTANT)
    transforms = ("year", "month", "day", "hour")
    texts = {t: values_of(field_of(t), column, as_texts=True) for t in transforms}
    assert texts == {
        "year": ["1", None, "9999", None, None, None],
        "month": ["0001-01", None, "9999-12", None, None, None],
        "day": ["0001-01-01", None, "9999-12-31", None, None, None],
        "hour": ["0001-01-01-00", None, "9999-12-31-23", None, None, None],
    }
    assert values_of(field_of("day"), column)[:4] == [-719162, -719163, 2932896, 2932897]


def test_folders_are_those_of_hive() -> None:
    """A text is escaped. Null, a text that is too long for a folder, and the empty text have Hive's
    name of null: Spark can't read an empty text in a folder's name, and in Delta's log it is null.
    """
    column = pa.array(["a/ü", None, "x" * 200, ""])
    texts = values_of(PartitionField("identity", "c", "p"), column, as_texts=True)
    (flag,) = values_of(PartitionField("identity", "c", "q"), pa.array([True]), as_texts=True)
    folders = [PartitionField.folder({"p": text, "q": flag}) for text in texts]
    null = "p=__HIVE_DEFAULT_PARTITION__/q=true"
    assert folders == ["p=a%2F%C3%BC/q=true", null, null, null]


def test_values_of_times_have_the_32_bits_of_iceberg() -> None:
    """Times so far away that their hours have more bits have the last hour that Iceberg can write;
    a manifest with a greater one can't be read by Java.
    """
    column = pa.array([2**63 - 1, -(2**63)], INSTANT)
    values = {t: values_of(field_of(t), column) for t in ("year", "month", "day", "hour")}
    assert values == {
        "year": [292_277, -292_278],
        "month": [3_507_324, -3_507_325],
        "day": [106_751_991, -106_751_992],
        "hour": [2**31 - 1, -(2**31)],
    }


def test_fields_that_do_not_fit_the_schema_are_refused_together() -> None:
    """The error names each of them, with what is wrong."""
    rows = pa.schema([("id", pa.string()), ("at", INSTANT), ("tags", pa.list_(pa.string()))])
    fields = [
        PartitionField("day", "at", "at_day"),
        PartitionField("hour", "at", "at_hour"),
        PartitionField("day", "gone", "a-b"),
        PartitionField("bucket", "id", "ID", 4),
        PartitionField("identity", "tags", "_window"),
    ]
    with pytest.raises(SpecError) as caught:
        PartitionField.refuse_unusable(fields, rows, ["_window"])
    for words in (
        "at: one transform of this kind is enough",
        "gone: the schema doesn't have this column",
        "a-b: take a name of letters",
        "ID: the table has a column of this name",
        "_window: the table has a column of this name",
        "tags: identity doesn't take list<item: string>",
    ):
        assert words in str(caught.value)
