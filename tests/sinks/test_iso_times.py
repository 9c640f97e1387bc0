"""Dates and times outside the years 1 to 9999, which have no ISO text, and the errors of sinks
that write texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.sinks.kafka.world import encoder_of
from windrow.ingest.errors import UnstorableRowsError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.calendar import OUTSIDE_CALENDAR, find_outside_calendar
from windrow.ingest.sinks.files.stage import FileFormat, FilesStagerFactory
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.sinks.postgres.encode import encode_copy_rows, find_unstorable
from windrow.ingest.testing.contracts.windows import messages, window

DAY, ZONED, LOCAL = pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")
EDGES: list[tuple[pa.DataType, type[Any], list[int], list[int]]] = [
    (DAY, np.int32, [-719_162, 0, 2_932_896], [-719_163, 2_932_897, 2**31 - 1, -(2**31)]),
    (
        ZONED,
        np.int64,
        [-62_135_596_800_000_000, 253_402_300_799_999_999],
        [253_402_300_800_000_000, 2**63 - 1, -(2**63)],
    ),
    (
        LOCAL,
        np.int64,
        [-62_135_596_800_000_000, 253_402_300_799_999_999],
        [-62_135_596_800_000_001, 9_223_372_036_825_200_000],
    ),
    (pa.timestamp("ms"), np.int64, [253_402_300_799_999], [253_402_300_800_000]),
    (pa.timestamp("ns"), np.int64, [2**63 - 1], []),
]
SPLIT = Split("shop.orders", 1, 0, 10)


def _time_array(kind: pa.DataType, width: type[Any], numbers: list[int]) -> pa.Array:
    return pa.array(np.array(numbers, width)).view(kind)


@pytest.mark.parametrize(("kind", "width", "good", "bad"), EDGES)
def test_edges(kind: pa.DataType, width: type[Any], good: list[int], bad: list[int]) -> None:
    """Exactly the times of the years 1 to 9999 have a text."""
    assert find_outside_calendar({"t": _time_array(kind, width, good)}) is None
    for number in bad:
        misfits = find_outside_calendar({"t": _time_array(kind, width, [*good, number, number])})
        assert misfits is not None
        assert (misfits[0].tolist(), misfits[1]) == (
            [len(good), len(good) + 1],
            f"column t {OUTSIDE_CALENDAR}",
        )


ODD = _time_array(DAY, np.int32, [0, 2**31 - 1, 0])
UNDER_NULL = pa.StructArray.from_arrays([ODD], ["d"], mask=pa.array([False, True, False]))
LISTS = pa.ListArray.from_arrays(pa.array([0, 0, None, 1, 3], pa.int32()), ODD)
MAPS = pa.MapArray.from_arrays(pa.array([0, 0, 1, 3], pa.int32()), pa.array(["a", "b", "c"]), ODD)


@pytest.mark.parametrize(
    ("column", "row"),
    [
        (pa.StructArray.from_arrays([pa.array(["x"] * 3), ODD], ["a", "d"]), 1),
        (UNDER_NULL, None),
        (LISTS, 3),
        (LISTS.slice(2), 1),
        (MAPS, 2),
        (MAPS.slice(1), 1),
        (pa.StructArray.from_arrays([MAPS.slice(1)], ["m"]), 1),
        (pa.array(["9", None]), None),
        (pa.array([[], None], pa.list_(DAY)), None),
    ],
)
def test_it_is_found_however_deep(column: pa.Array, row: int | None) -> None:
    """A time outside the calendar is found at any depth, with its row, also in slices.

    A value under a null doesn't count.
    """
    misfits = find_outside_calendar({"ok": pa.array([None] * len(column), DAY), "x": column})
    assert (None if misfits is None else (misfits[0].tolist(), misfits[1])) == (
        None if row is None else ([row], f"column x {OUTSIDE_CALENDAR}")
    )


def _staged(factory: Any, column: pa.Array) -> None:
    stager = factory(SPLIT)
    try:
        stager.add(
            pa.record_batch([pa.nulls(len(column), pa.int64()), column], ["n", "t"]),
            messages(Split("shop.orders", 1, 4, 4 + len(column))),
        )
    finally:
        stager.discard()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "json messages", "texts", "headers"])
@pytest.mark.parametrize(
    "which", [(DAY, np.int32, 2**31 - 1), (LOCAL, np.int64, 2**63 - 1), (LOCAL, np.int64, -(2**63))]
)
def test_what_has_no_text_is_refused_at_its_offset(
    tmp_path: Path, kind: Any, which: tuple[Any, Any, int]
) -> None:
    """A time without a text is refused with topic-partition, offset and column, and without the
    value, in text files and messages.

    Where times are written as numbers, any time is accepted.
    """
    arrow, width, number = which
    column = _time_array(arrow, width, [0, 0, number])
    layout = RowLayout(
        pa.schema([pa.field("n", pa.int64()), pa.field("t", arrow)]),
        {"window": DEFAULT["window"]},
        "a1",
    )
    part = {
        "json messages": PlainSerializer("json", ("t",)),
        "texts": PlainSerializer("string", ("t",)),
    }.get(kind, PlainSerializer("json", ("n",)))
    encoder = encoder_of(
        part, staging=str(tmp_path), headers={"h": "t"} if kind == "headers" else {}
    )
    factory: Any = (
        FilesStagerFactory(str(tmp_path), layout, "w", FileFormat(kind, "none"))
        if kind in {"jsonl", "csv"}
        else KafkaStagerFactory(layout, encoder, window(0))
    )
    if kind in {"texts", "headers"} and pa.types.is_timestamp(arrow):
        assert (
            encoder.find_misfit(pa.record_batch([pa.nulls(3, pa.int64()), column], ["n", "t"]))
            is None
        )
        return
    with pytest.raises(
        UnstorableRowsError, match="column t holds a date or time outside the years"
    ) as refused:
        _staged(factory, column)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        1,
        6,
    )
    assert list(refused.value.row_indices) == [2]
    _staged(factory, column.slice(0, 2))


def test_json_in_a_database() -> None:
    """A date within `jsonb` must be one that the server reads. A column of dates holds any date."""
    misfits = find_unstorable(pa.record_batch([pa.StructArray.from_arrays([ODD], ["d"])], ["s"]))
    assert misfits is not None
    assert (misfits[0].tolist(), misfits[1]) == ([1], f"column s {OUTSIDE_CALENDAR}")
    assert len(encode_copy_rows(pa.record_batch([_time_array(DAY, np.int32, [2_932_897])], ["d"])))
