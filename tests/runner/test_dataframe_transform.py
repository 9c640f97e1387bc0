"""Staging the rows of a Spark function, and counting them. The tests don't use Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windrow.ingest.errors import BugError, RefusedError, SpecError, UnstorableRowsError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import SplitCounts, Staged, Staging
from windrow.ingest.ports.lookup import Answers, Ask, LookupSource
from windrow.ingest.ports.sink import Stager
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.dataframe_transform import StageTask, refuse_other_key
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.metadata_arrays import columns, messages_of
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.lookup.step import Lookup
from windrow.ingest.transform.sql.step import Sql

SPLIT = Split("t", 0, 10, 30)
OWN = pa.schema([pa.field("id", pa.int64(), nullable=False)])
METADATA = {name: column for name, column in DEFAULT.items() if name != "window"}


class Kept:
    """A stager that keeps offsets and ids."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.ids: list[tuple[int, bool]] = []
        self.discarded = False

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        assert rows.num_rows == messages.num_rows
        self.offsets += messages["offset"].to_pylist()
        if DELETED in rows.schema.names:
            self.ids += zip(rows["id"].to_pylist(), rows[DELETED].to_pylist(), strict=True)

    def finish(self) -> Staging:
        return Staging(len(self.offsets), "0" * 15 + "7", ("file",))

    def discard(self) -> None:
        self.discarded = True


def read_of(valid: int, filtered: int = 0, dead: int = 0) -> Staged:
    """Returns the result of reading a split, with one row per valid message."""
    read = valid + filtered + dead
    counts = SplitCounts(
        "t", 0, 10, 30, 30, read, 0, valid, dead, 0, 0, dead, 0, rows=valid, filtered=filtered
    )
    return Staged(SPLIT, counts, (), ("dead",) * dead)


def batch(offsets: Sequence[int], ids: Sequence[int | None] | None = None) -> pa.RecordBatch:
    """Returns rows of the messages at these offsets."""
    id_column = pa.array(ids if ids is not None else offsets, pa.int64())
    stamps = pa.array([datetime(2026, 1, 5, tzinfo=UTC)] * len(offsets), TYPES["timestamp"])
    places = [
        pa.array(["t"] * len(offsets)),
        pa.array([0] * len(offsets), pa.int32()),
        pa.array(offsets, pa.int64()),
        stamps,
    ]
    return pa.RecordBatch.from_arrays([id_column, *places], ["id", *METADATA.values()])


def stage_rows(read: Staged, batches: Sequence[pa.RecordBatch], stager: Kept) -> Staged:
    def factory(split: Split) -> Stager:
        assert split == SPLIT
        return stager

    return StageTask(factory, Chain(), OWN, METADATA)(read, batches)


@given(
    st.lists(st.integers(10, 29), max_size=40),
    st.integers(1, 7),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_each_message_is_counted_once(
    offsets: list[int], size: int, filtered: int, dead: int
) -> None:
    """Each message that was read is counted once, as valid, filtered or dead, for all rows of
    the function and all batch sizes.
    """
    offsets, stager = sorted(offsets), Kept()
    read = read_of(20, filtered, dead)
    counts = stage_rows(
        read,
        [batch(offsets[start : start + size]) for start in range(0, len(offsets), size)],
        stager,
    ).counts
    assert stager.offsets == offsets
    assert (counts.rows, counts.rows_staged, counts.valid) == (
        len(offsets),
        len(offsets),
        len(set(offsets)),
    )
    assert counts.read == counts.valid + counts.filtered + counts.dead


@pytest.mark.parametrize(
    ("batches", "match"),
    [
        ([[10, 12, 11]], "not in the order of the split's log"),
        ([[12], [11]], "not in the order of the split's log"),
        ([[9]], "not of the split"),
        ([[30]], "not of the split"),
        ([[10, 11, 12, 13]], "4 messages with rows after it, and 3 before"),
    ],
)
def test_rows_that_name_no_message_of_theirs(batches: list[list[int]], match: str) -> None:
    """Rows out of order, outside the split, or of more messages than had rows are refused, and
    the staged rows are discarded.
    """
    stager = Kept()
    with pytest.raises(RefusedError, match=match):
        stage_rows(read_of(3), [batch(offsets) for offsets in batches], stager)
    assert stager.discarded


Change = tuple[int, bool, int]
"""Offset of the message, whether it deletes, and the id."""


def stage_changes(changes: Sequence[Change], size: int, deletes: int, stager: Kept) -> Staged:
    """Stages changes of twenty messages into a table with the primary key id, and returns the
    result.

    Args:
        changes: the changes after the function.
        size: rows per batch.
        deletes: number of deletes before the function.
        stager: the stager.
    """
    batches = []
    for start in range(0, len(changes), size):
        part = changes[start : start + size]
        rows = batch([offset for offset, _, _ in part], [id_ for _, _, id_ in part])
        batches.append(
            rows.append_column(DELETED, pa.array([deleted for _, deleted, _ in part], pa.bool_()))
        )
    read = read_of(20)
    read = replace(read, counts=replace(read.counts, deletes=deletes))
    return StageTask(lambda _: stager, Chain(), OWN, METADATA, ("id",))(read, batches)


@given(
    st.sets(
        st.tuples(st.integers(10, 29), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40
    ),
    st.integers(1, 7),
)
def test_changes_stay_in_their_order(changes: set[Change], size: int) -> None:
    """Rows and deletes are staged in their order, for all batch sizes, and each message is
    counted once.
    """
    in_order = sorted(changes, key=lambda change: (change[0], not change[1]))
    deletes, stager = sum(deleted for _, deleted, _ in in_order), Kept()
    counts = stage_changes(in_order, size, deletes, stager).counts
    assert list(zip(stager.offsets, stager.ids, strict=True)) == [
        (offset, (id_, deleted)) for offset, deleted, id_ in in_order
    ]
    assert (counts.rows, counts.deletes, counts.rows_staged) == (
        len(in_order) - deletes,
        deletes,
        len(in_order),
    )
    assert (counts.valid, counts.filtered) == (
        len(set(stager.offsets)),
        20 - len(set(stager.offsets)),
    )


def make_changes(offsets: Sequence[int], deleted: Sequence[int] = ()) -> pa.RecordBatch:
    """Returns rows of messages whose ids are their offsets; those in `deleted` are deletes."""
    marks = pa.array([offset in deleted for offset in offsets], pa.bool_())
    return batch(offsets).append_column(DELETED, marks)


@given(st.lists(st.integers(10, 29), max_size=20, unique=True), st.integers(1, 7))
def test_what_a_filter_behind_it_leaves_out_is_deleted(offsets: list[int], size: int) -> None:
    """A row that a filter after the function leaves out becomes a delete at its message's
    place.

    Deletes that bypass the function keep their place. Each is counted once, for all batch
    sizes.
    """
    offsets = sorted(offsets)
    deleted_offsets = {offset for offset in offsets if offset % 5 == 0}
    read, stager = read_of(20), Kept()
    read = replace(read, counts=replace(read.counts, deletes=len(deleted_offsets)))
    batches = [
        make_changes(offsets[start : start + size], deleted_offsets)
        for start in range(0, len(offsets), size)
    ]
    step = Sql("SELECT * FROM rows WHERE id % 2 = 0", primary_key=("id",))
    counts = StageTask(lambda _: stager, step, OWN, METADATA, ("id",))(read, batches).counts
    assert stager.ids == [(n, n in deleted_offsets or n % 2 == 1) for n in offsets]
    assert stager.offsets == offsets
    assert counts.deletes == sum(deleted for _, deleted in stager.ids)
    assert (counts.rows, counts.valid) == (len(offsets) - counts.deletes, len(offsets))


class Refusing:
    """A lookup service that refuses all keys."""

    identity, is_repeatable = "https://names", False

    def open(self, _version: str, columns: pa.Schema) -> Ask:
        return lambda keys: Answers(columns.empty_table(), 1, {"it answered 422": keys})


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            Sql("SELECT *, CAST('x' || id AS INT) AS n FROM rows WHERE id > 11"),
            "sql:n: Conversion Error",
        ),
        (
            Chain(
                (
                    Sql("SELECT * FROM rows WHERE id > 11"),
                    Lookup(
                        "names",
                        (("id", "id"),),
                        (("name", "name"),),
                        cast("LookupSource", Refusing()),
                        pin="",
                        types=pa.schema({"id": pa.int64(), "name": pa.string()}),
                    ),
                )
            ),
            "lookup:names:refused: names refuses its key: it answered 422",
        ),
    ],
)
def test_a_row_that_a_step_behind_it_refuses(step: Transform, reason: str) -> None:
    """A row that a step after the function refuses refuses the window.

    The error has its offset and no value.
    """
    stager = Kept()
    with pytest.raises(RefusedError, match=f"is refused: {reason}.*; 1 more near it") as refused:
        StageTask(lambda _: stager, step, OWN, METADATA)(read_of(3), [batch([10, 12, 13])])
    assert (refused.value.log_position, stager.discarded) == ("t[0]@12", True)


@given(
    st.lists(
        st.tuples(st.integers(10, 29), st.just(False), st.integers(0, 3)), min_size=1, max_size=20
    ),
    st.integers(1, 7),
    st.data(),
)
def test_two_rows_of_one_key_and_one_message(
    changes: list[Change], size: int, data: st.DataObject
) -> None:
    """Two rows with the same key and the same message have no order, so the window is refused,
    for all batch sizes.
    """
    doubled = data.draw(st.sampled_from(changes))
    in_order = sorted(
        [*set(changes), doubled], key=lambda change: (change[0], data.draw(st.integers(0, 9)))
    )
    with pytest.raises(RefusedError, match="two rows of one key that name one message") as caught:
        stage_changes(in_order, size, 0, Kept())
    assert caught.value.offset == doubled[0]


def test_a_delete_that_is_lost_on_its_way() -> None:
    """A different number of deletes before and after the function raises BugError."""
    with pytest.raises(BugError, match="1 delete came to be staged, of 2 read"):
        stage_changes([(10, False, 1), (11, True, 1)], 7, 2, Kept())


def test_messages_delete_by_the_tables_key() -> None:
    """A function may not change the type of a column of the primary key, because messages
    delete by it.
    """
    other_schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    refuse_other_key((), OWN, other_schema)
    refuse_other_key(("id",), OWN, pa.schema([*OWN, pa.field("more", pa.string())]))
    with pytest.raises(
        SpecError,
        match=(
            r"The column id of sink.primary_key is string by transform.schema, and the schema of"
            r" decode has int64"
        ),
    ):
        refuse_other_key(("id",), OWN, other_schema)
    with pytest.raises(SpecError, match=r"the schema of decode doesn't have it"):
        refuse_other_key(("id",), pa.schema([]), other_schema)


def test_a_row_that_the_table_has_no_place_for() -> None:
    """A row that the table can't hold refuses the window with its offset, because it may be
    made of several messages.

    The advice is about the function.
    """

    class Choosy(Kept):
        def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
            raise UnstorableRowsError(
                "column id is odd",
                "stage",
                "Add a rule.",
                "t",
                0,
                messages["offset"][1].as_py(),
                [1],
            )

    stager = Choosy()
    with pytest.raises(RefusedError, match=r"doesn't fit the table: column id is odd") as refused:
        stage_rows(read_of(3), [batch([11, 12, 13])], stager)
    assert (
        refused.value.log_position,
        "Have the function change" in refused.value.advice,
        stager.discarded,
    ) == ("t[0]@12", True, True)
    assert not isinstance(refused.value, UnstorableRowsError)


def test_a_null_is_named_by_its_place() -> None:
    """A null in a required column, for example after an outer join, raises RefusedError with
    its offset, not BugError.
    """
    with pytest.raises(RefusedError, match="has null in id") as caught:
        stage_rows(read_of(3), [batch([10, 11], [1, None])], Kept())
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 11)


def test_messages_come_back_from_their_columns() -> None:
    """Messages rebuilt from the metadata columns give the same metadata, headers included."""
    names = [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp-type",
        "headers",
        "leader-epoch",
        "key",
    ]
    headers = [[("a", b"1"), ("a", None), ("b", b"2")], []]
    messages = pa.RecordBatch.from_arrays(
        [
            pa.array(["t", "t"]),
            pa.array([0, 0], pa.int32()),
            pa.array([10, 11]),
            pa.array([None, 5], MESSAGES.field("timestamp").type),
            pa.array(["CreateTime"] * 2).cast(MESSAGES.field("timestamp_type").type),
            pa.array([b"k", None]),
            pa.array([b"v", None]),
            pa.array(
                [[{"key": k, "value": v} for k, v in pairs] for pairs in headers],
                MESSAGES.field("headers").type,
            ),
            pa.array([3, None], pa.int32()),
        ],
        schema=MESSAGES,
    )
    stated = dict(zip(names, columns(names, messages, ""), strict=True))
    columns_again = dict(zip(names, columns(names, messages_of(stated), ""), strict=True))
    assert {name: column.to_pylist() for name, column in columns_again.items()} == {
        name: column.to_pylist() for name, column in stated.items()
    }
    listed = columns(["header-list"], messages, "")[0]
    assert (
        messages_of({**stated, "header-list": listed})["headers"].to_pylist()
        == messages["headers"].to_pylist()
    )
