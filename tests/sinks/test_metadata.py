"""Metadata columns of a Delta table: chosen, renamed, added later, and how they are built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.delta.pieces import staged_paths
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import SchemaChangedError
from windrow.ingest.model.metadata_columns import ALWAYS, DEFAULT
from windrow.ingest.ports.sink import Done, RowsHeld
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.schema.metadata_arrays import columns, last_headers
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.testing.contracts.sink_metadata import RENAMED
from windrow.ingest.testing.contracts.windows import ROWS, TOPIC, staged_receipt, window

pytestmark = pytest.mark.slow  # tables on disk

HEADER = st.tuples(st.sampled_from(["", "a", "b", "ä"]), st.none() | st.binary(max_size=2))
LATER = [name for name in TYPES if name not in ALWAYS]


def make_sink(tmp_path: Path, metadata: Mapping[str, str]) -> DeltaBoth:
    """Returns a prepared sink."""
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS, metadata)
    sink.prepare()
    return sink


def commit(sink: DeltaBoth, number: int, generation: int = 0) -> None:
    """Commits a window and its dead letters."""
    receipt, staged = staged_receipt(sink, number, generation)
    sink.commit_dead(receipt.plan, receipt.attempt, staged)
    assert isinstance(sink.commit(receipt, staged), Done)


@given(st.lists(st.lists(HEADER, max_size=5), max_size=8), st.data())
def test_headers_as_a_map(
    messages: list[list[tuple[str, bytes | None]]], data: st.DataObject
) -> None:
    """Headers become one map per message with the last value of each key, also for a slice of a
    batch.
    """
    first = data.draw(st.integers(0, len(messages)))
    count = data.draw(st.integers(0, len(messages) - first))
    headers = last_headers(pa.array(messages, HEADERS).slice(first, count))
    headers.validate(full=True)
    assert [dict(m) for m in headers.to_pylist()] == [
        dict(m) for m in messages[first : first + count]
    ]
    assert [len(m) for m in headers.to_pylist()] == [
        len(dict(m)) for m in messages[first : first + count]
    ]


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(0, 2**40), st.data())
def test_ordinals_number_the_rows_of_each_message(
    rows: list[int], first: int, data: st.DataObject
) -> None:
    """Ordinals number each message's rows from 0, also in a slice that begins with a message's
    first row.
    """
    offsets = [first + 3 * i for i, count in enumerate(rows) for _ in range(count)]
    skipped = sum(rows[: data.draw(st.integers(0, len(rows)))])
    messages = pa.record_batch({"offset": pa.array(offsets, pa.int64())}).slice(skipped)
    (ordinals,) = columns(["ordinal"], messages, "a1")
    assert ordinals.type == pa.int32()
    assert ordinals.to_pylist() == [n for count in rows for n in range(count)][skipped:]


def test_headers_without_equal_keys_keep_their_order() -> None:
    """Headers without equal keys are taken over unchanged."""
    messages = [[("b", b"1"), ("a", None)], [], [("a", b"2")]]
    assert last_headers(pa.array(messages, HEADERS)).to_pylist() == messages


def test_the_columns_of_a_table(tmp_path: Path) -> None:
    """Metadata columns have one order, the window's last.

    Only the required ones are not null, so all others can be added later.
    """
    fields = DeltaTable(make_sink(tmp_path, RENAMED).uri).schema().fields
    assert [f.name for f in fields] == [*ROWS.names, *RENAMED.values()]
    assert {f.name for f in fields if not f.nullable} == {"id", *(RENAMED[name] for name in ALWAYS)}


@pytest.mark.parametrize("name", LATER)
def test_a_metadata_column_can_be_added_later(tmp_path: Path, name: str) -> None:
    """Any optional metadata column can be added later: older rows have nulls, new rows values.

    Files staged before are accepted.
    """
    base = {n: c for n, c in DEFAULT.items() if n in ALWAYS}
    old = make_sink(tmp_path, base)
    commit(old, 0)
    early = staged_receipt(old, 1)
    new = make_sink(tmp_path, base | {name: "extra"})
    assert isinstance(old.commit(*early), Done)
    commit(new, 2)
    rows = DeltaTable(new.uri).to_pyarrow_table()
    assert pa.types.is_nested(rows["extra"].type) == pa.types.is_nested(TYPES[name])
    by_window = {k: rows.filter(ds.field("_window") == window(k).key)["extra"] for k in range(3)}
    assert [by_window[k].null_count for k in (0, 1)] == [18, 18]
    assert by_window[2].null_count < 18 or name == "key"  # these messages have no key


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (
            {n: c for n, c in DEFAULT.items() if n != "timestamp"},
            r"_timestamp: in the table \(timestamp\), not in the schema",
        ),
        (DEFAULT | {"offset": "position"}, "position: new, but not nullable"),
        (DEFAULT | {"timestamp": "_stamp"}, "_timestamp: in the table"),
        (DEFAULT | {"window": "hour"}, "partitioned by _window, not by hour"),
    ],
)
def test_any_other_change_of_an_existing_table_is_refused(
    tmp_path: Path, metadata: Mapping[str, str], says: str
) -> None:
    """Leaving out or renaming a metadata column is refused as a changed schema, and nothing
    changes.
    """
    commit(make_sink(tmp_path, DEFAULT), 0)
    version = DeltaTable(str(tmp_path / "orders")).version()
    with pytest.raises(SchemaChangedError, match=says):
        make_sink(tmp_path, metadata)
    assert DeltaTable(str(tmp_path / "orders")).version() == version


def test_a_look_with_another_window_column_is_refused(tmp_path: Path) -> None:
    """A sink with another window column is refused by each call, because a replacement would
    delete other windows' rows.
    """
    commit(make_sink(tmp_path, RENAMED), 0)
    other_sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    for ask in (
        lambda: other_sink.look(window(0)),
        lambda: list(other_sink.receipts()),
        lambda: other_sink.commit(*staged_receipt(other_sink, 1)),
    ):
        with pytest.raises(SchemaChangedError, match="partitioned by kafka-window"):
            ask()


def test_filters_find_their_rows(tmp_path: Path) -> None:
    """A filter finds its rows beside maps, lists and bytes, on columns with and without bounds."""
    sink = make_sink(tmp_path, RENAMED)
    for number in range(3):
        commit(sink, number)
    data = DeltaTable(sink.uri).to_pyarrow_dataset()
    predicates: list[tuple[Any, int]] = [
        (ds.field("kafka-offset") == 11, 2),
        (ds.field("id") == "1-21", 1),
        (ds.field("kafka-window") == window(1).key, 18),
        (ds.field("kafka-leader-epoch") == 7, 54),
        (ds.field("kafka-value-size") == 3, 36),
        (ds.field("kafka-key").is_null(), 54),
        (ds.field("kafka-attempt") == "a1", 54),
        (ds.field("kafka-timestamp-type") == "LogAppendTime", 0),
    ]
    for filter_, expected in predicates:
        assert data.to_table(filter=filter_).num_rows == expected, str(filter_)
    query = """select count(*) from t where "kafka-offset" = 11 and "kafka-attempt" = 'a1'"""
    assert (
        pa.table(QueryBuilder().register("t", DeltaTable(sink.uri)).execute(query))
        .column(0)[0]
        .as_py()
        == 2
    )


def test_the_janitor_knows_what_counts(tmp_path: Path) -> None:
    """With a renamed window column, a sweep removes only files that no commit names."""
    sink = make_sink(tmp_path, RENAMED)
    commit(sink, 0)
    committed = staged_paths(sink.uri)
    staged_receipt(sink, 1)
    for path in staged_paths(sink.uri):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert len(sink.sweep_both(timedelta(hours=2))) == 2
    assert staged_paths(sink.uri) == committed


def test_rows_are_counted_under_any_name(tmp_path: Path) -> None:
    """Verification uses the renamed metadata columns."""
    sink = make_sink(tmp_path, RENAMED | {"topic": 'the-"topic"'})
    commit(sink, 0)
    rows = sink.audit()
    assert rows.windows() == {window(0).key}
    assert rows.rows_held(window(0)) == [
        RowsHeld(TOPIC.topic, p, rows=9, offsets=9, lowest=0, highest=9) for p in range(2)
    ]
    assert sink.dead_letters.count(window(0), "a1") == 2
