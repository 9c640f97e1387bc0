"""Extreme values that Kafka or a table can hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import BugError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.testing.contracts.windows import TOPIC, commit_rows, plan

WHEN = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    "first",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(999, 12, 31, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
)
def test_a_filter_finds_its_rows_beside_any_year(tmp_path: Path, first: datetime) -> None:
    """A row of the year 1 (Go's zero time) doesn't hide other rows of its file from a reader
    that filters.
    """
    now = datetime(2026, 1, 5, tzinfo=UTC)
    sink = DeltaBoth(str(tmp_path / "t"), pa.schema([pa.field("when", WHEN)]))
    commit_rows(sink, pa.RecordBatch.from_arrays([pa.array([first, now], WHEN)], ["when"]))
    dataset = DeltaTable(sink.uri).to_pyarrow_dataset()
    for value in (first, now):
        assert dataset.to_table(filter=ds.field("when") == pa.scalar(value, WHEN)).num_rows == 2


@pytest.mark.parametrize("edge", [float("inf"), float("-inf"), float("nan")])
def test_a_filter_finds_numbers_beside_one_without_end(tmp_path: Path, edge: float) -> None:
    """An infinity, which JSON can't hold as a bound, doesn't hide other rows of its file from a
    reader that filters.
    """
    sink = DeltaBoth(str(tmp_path / "t"), pa.schema([pa.field("f", pa.float64())]))
    commit_rows(sink, pa.RecordBatch.from_arrays([pa.array([edge, 1.0])], ["f"]))
    dataset = DeltaTable(sink.uri).to_pyarrow_dataset()
    for condition in (ds.field("f") == 1, ds.field("f") < 5, ds.field("f") > 0):
        assert dataset.to_table(filter=condition & (ds.field("f") == 1)).num_rows == 2


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float32(), pa.array([1e300], pa.float64())),
        (pa.float32(), pa.array([0.1], pa.float64())),
        (pa.decimal128(5, 2), pa.array([12345678], pa.int64())),
        (pa.int8(), pa.array([300], pa.int64())),
    ],
)
def test_rows_of_another_type_are_never_bent(
    tmp_path: Path, kind: pa.DataType, values: pa.Array
) -> None:
    """A transform's value that doesn't fit its column's type raises BugError.

    The error doesn't contain the value.
    """
    sink = DeltaBoth(str(tmp_path / "t"), pa.schema([pa.field("x", kind)]))
    sink.prepare()
    planned = plan(sink, 0, (0, 1))
    with pytest.raises(BugError, match=r"column x is .*; it doesn't fit the table's") as caught:
        sink.stager(planned, 0, "a1")(planned.splits[0]).add(
            pa.RecordBatch.from_arrays([values], ["x"]), _messages(planned.splits[0], [0])
        )
    assert str(values[0].as_py()) not in str(caught.value)


def _messages(split: Split, stamps: list[int]) -> pa.RecordBatch:
    n = len(stamps)
    columns = [
        pa.array([TOPIC.topic] * n),
        pa.array([split.partition] * n, pa.int32()),
        pa.array(range(split.start, split.start + n), pa.int64()),
        pa.array(stamps, pa.int64()).view(pa.timestamp("ms", tz="UTC")),
        pa.array(["CreateTime"] * n)
        .dictionary_encode()
        .cast(MESSAGES.field("timestamp_type").type),
        pa.nulls(n, pa.binary()),
        pa.nulls(n, pa.binary()),
        pa.array([[]] * n, MESSAGES.field("headers").type),
        pa.nulls(n, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def test_a_timestamp_that_no_table_holds_does_not_block_its_window(tmp_path: Path) -> None:
    """A timestamp outside the years 1 to 9999 becomes null in `_timestamp`, for rows and dead
    letters.

    Kafka accepts any 64-bit timestamp.
    """
    sink = DeltaBoth(str(tmp_path / "t"), pa.schema([pa.field("id", pa.int64())]))
    sink.prepare()
    planned = plan(sink, 0, (0, 4))
    split, stamps = planned.splits[0], [10**16, -(2**62), 2**62, 1_767_571_200_000]
    rows, letters = (store.stager(planned, 0, "a1")(split) for store in (sink, sink.dead_letters))
    messages, words = _messages(split, stamps), pa.array(["value"] * 4)
    rows.add(pa.RecordBatch.from_arrays([pa.array([1, 2, 3, 4], pa.int64())], ["id"]), messages)
    letters.add(pa.RecordBatch.from_arrays([words, words, words, words], REASONS.names), messages)
    stagings = [rows.finish(), letters.finish()]
    assert [staging.rows for staging in stagings] == [4, 4]
    for uri, words_of in zip(
        (sink.uri, f"{sink.uri}_dead"), (s.committables for s in stagings), strict=True
    ):
        timestamps = pq.read_table(f"{uri}/{json.loads(words_of[0])['path']}")[
            "_timestamp"
        ].to_pylist()
        assert timestamps[:3] == [None] * 3
        assert timestamps[3] == datetime(2026, 1, 5, tzinfo=UTC)
