"""Changes of a table's columns (`sink.evolve`), on tables with and without a primary key.

A column changes in the commit of its first rows, also beside other commits. No value changes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.sinks.delta.evolving import Evolving, entries_with, schema_of
from tests.sinks.delta.pieces import staged_paths
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import RefusedError, SchemaChangedError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.kit.files import file_stager, parquet_files
from windrow.ingest.testing.contracts.commit_hooks import run_between
from windrow.ingest.testing.contracts.windows import plan, receipt, window

pytestmark = pytest.mark.some(2)

NARROW = schema_of(n=pa.int32(), x=pa.float32())
MORE = schema_of(n=pa.int32(), x=pa.float32(), note=pa.string())
WIDE = schema_of(n=pa.int64(), x=pa.float64())
CHANGES: list[tuple[pa.Schema, Evolve]] = [(MORE, "add_columns"), (WIDE, "widen")]


def begin_table(folder: Path, *, keyed: bool) -> Evolving:
    """Returns a table with two windows of the narrow schema."""
    table = Evolving(str(folder / "orders"), keyed)
    sink = table.sink(NARROW)
    for number in (0, 1):
        table.commit(sink, number)
    return table


@pytest.fixture(params=["append", "keyed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Evolving:
    """A table of each kind, with two windows."""
    return begin_table(tmp_path, keyed=request.param == "keyed")


@pytest.fixture
def plain(tmp_path: Path) -> Evolving:
    """A table without a primary key, with two windows.

    A table with a primary key merges its files again at each try.
    """
    return begin_table(tmp_path, keyed=False)


changes = pytest.mark.parametrize(("schema", "evolve"), CHANGES, ids=["add", "widen"])


def act_before_send(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[str]:
    """Runs `act` once, after the next commit has written its files and before it is sent."""
    done, write = list[str](), DeltaTable.create_write_transaction

    def writing(*args: Any, **more: Any) -> None:
        if not done:
            done.append("done")
            act()
        write(*args, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", writing)
    return done


@changes
def test_columns_come_with_their_first_rows(
    table: Evolving, schema: pa.Schema, evolve: Evolve
) -> None:
    """Preparing changes nothing.

    The first commit with new columns brings columns, rows and receipt in one log entry.
    """
    sink = table.sink(schema, evolve)
    assert table.columns() == NARROW
    old_version = DeltaTable(table.uri).version()
    table.commit(sink, 2)
    assert table.columns() == schema
    assert (
        entries_with(table.uri, "metaData")
        == [0, old_version + 1]
        == [0, DeltaTable(table.uri).version()]
    )
    table.commit(sink, 3)
    assert entries_with(table.uri, "metaData") == [0, old_version + 1]
    assert table.find_mistakes() == []


@changes
def test_a_window_without_rows_changes_no_column(
    table: Evolving, schema: pa.Schema, evolve: Evolve
) -> None:
    """A window without rows brings only its receipt."""
    sink = table.sink(schema, evolve)
    sink.commit(receipt(plan(sink, 2, offsets=(20, 20)), [], 0, "a"), [])
    assert table.columns() == NARROW


@changes
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_crash(
    table: Evolving, monkeypatch: pytest.MonkeyPatch, point: str, schema: pa.Schema, evolve: Evolve
) -> None:
    """A crash before the commit leaves rows and columns as they were; after it all is there.

    A retry ends with each row once.
    """
    sink = table.sink(schema, evolve)
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
    with pytest.raises(CrashError):
        table.commit(sink, 2)
    monkeypatch.delenv("WINDROW_CRASH")
    arrived = point == "commit.after"
    assert table.columns() == (schema if arrived else NARROW)
    retry_sink = table.sink(schema, evolve)
    assert isinstance(
        retry_sink.commit(*table.stage_window(retry_sink, 2)), AlreadyDone if arrived else Done
    )
    table.note(retry_sink, 2)
    assert table.find_mistakes() == []


@changes
def test_two_bring_the_same_column(table: Evolving, schema: pa.Schema, evolve: Evolve) -> None:
    """Two commits that bring the same column both arrive.

    1. A looks, and will add the column.
    2. B adds it.
    3. A's commit is refused. A looks again, and brings its rows only.
    """
    sink, rival = table.sink(schema, evolve), table.sink(schema, evolve)
    run_between(sink, lambda: table.commit(rival, 2))
    table.commit(sink, 3)
    assert len(entries_with(table.uri, "metaData")) == 2
    assert table.find_mistakes() == []


@changes
def test_an_older_attempt_comes_later(table: Evolving, schema: pa.Schema, evolve: Evolve) -> None:
    """Files that were staged before the columns changed are committed after it: widened, with
    nulls in new columns.

    In a table with a primary key, rows that stay keep their values in the newer columns.
    """
    old = table.sink(NARROW, evolve)
    staged = table.stage_window(old, 3)
    table.commit(table.sink(schema, evolve), 2)
    table.commit(old, 3, staged=staged)
    assert table.columns() == schema
    assert table.find_mistakes() == []


@changes
def test_an_older_attempt_whose_window_was_first(
    table: Evolving, schema: pa.Schema, evolve: Evolve
) -> None:
    """A commit succeeds if the columns change between its look and its write."""
    old = table.sink(NARROW, evolve)
    run_between(old, lambda: table.commit(table.sink(schema, evolve), 3))
    table.commit(old, 2)
    assert table.find_mistakes() == []


@changes
def test_a_replay_brings_them_too(table: Evolving, schema: pa.Schema, evolve: Evolve) -> None:
    """A replay of an old window under the newer schema has the new columns.

    Other windows don't change.
    """
    table.commit(table.sink(schema, evolve), 0, generation=1)
    assert table.columns() == schema
    assert table.find_mistakes() == []


def test_columns_are_added_and_made_wider_at_once(table: Evolving) -> None:
    """`widen` also adds columns. Older staged files are both widened and filled with nulls."""
    both = schema_of(n=pa.int64(), x=pa.float64(), note=pa.string(), at=pa.timestamp("us", "UTC"))
    old = table.sink(NARROW, "widen")
    staged = table.stage_window(old, 3)
    table.commit(table.sink(both, "widen"), 2)
    table.commit(old, 3, staged=staged)
    assert table.columns() == both
    assert table.find_mistakes() == []


def test_a_time_without_a_zone(table: Evolving) -> None:
    """A column of times without a zone is added with its rows.

    Preparing adds the protocol feature that it needs.
    """
    schema = schema_of(n=pa.int32(), x=pa.float32(), at=pa.timestamp("us"))
    sink = table.sink(schema)
    assert table.columns() == NARROW
    table.commit(sink, 2)
    assert table.columns() == schema
    assert table.find_mistakes() == []


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int16()),
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.decimal128(18, 2), pa.decimal128(38, 2)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_what_becomes_wider(tmp_path: Path, narrow: pa.DataType, wide: pa.DataType) -> None:
    """A wider column keeps every value for each reader and for the receipts' checksums.

    Each file gets the table's types.
    """
    table = Evolving(str(tmp_path / "orders"), keyed=False)
    table.commit(table.sink(schema_of(v=narrow)), 0)
    table.commit(table.sink(schema_of(v=wide), "widen"), 1)
    assert table.columns() == schema_of(v=wide)
    assert table.find_mistakes() == []


@pytest.mark.parametrize(
    ("table_type", "schema_type", "says"),
    [
        (pa.int64(), pa.int32(), r"v: long in the table, integer in the schema"),
        (pa.int32(), pa.float64(), r"v: integer in the table, double in the schema"),
        (
            pa.int32(),
            pa.decimal128(12, 0),
            r"v: integer in the table, decimal\(12,0\) in the schema",
        ),
        (
            pa.decimal128(8, 2),
            pa.decimal128(12, 4),
            r"v: decimal\(8,2\) in the table, decimal\(12,4\) in the schema",
        ),
        (pa.date32(), pa.timestamp("us", "UTC"), r"v: date in the table, timestamp in the schema"),
        (
            pa.list_(pa.struct([pa.field("k", pa.int32()), pa.field("gone", pa.string())])),
            pa.list_(pa.struct([pa.field("k", pa.int64()), pa.field("new", pa.string())])),
            (
                r"v: at v\[\]\.k: int32 in the table, int64 in the schema; v\[\]\.gone: string in"
                r" the table, nothing .*; v\[\]\.new: nothing"
            ),
        ),
    ],
    ids=str,
)
def test_what_stays_as_it_is(
    tmp_path: Path, table_type: pa.DataType, schema_type: pa.DataType, says: str
) -> None:
    """A type change that would lose values or change a checksum is refused before messages are
    read, also inside lists, structs and maps.
    """
    table = Evolving(str(tmp_path / "orders"), keyed=False)
    table.sink(schema_of(v=table_type))
    with pytest.raises(SchemaChangedError, match=says):
        table.sink(schema_of(v=schema_type), "widen")


def test_a_column_may_become_nullable(table: Evolving) -> None:
    """`widen` lets a column become nullable without rewriting files. The reverse is refused."""
    strict = pa.schema([*NARROW, pa.field("must", pa.string(), nullable=False)])
    loose = pa.schema([*NARROW, pa.field("must", pa.string())])
    second_table = Evolving(f"{table.uri}2", table.keyed)
    second_table.commit(second_table.sink(strict, "widen"), 3)
    old_files = set(second_table.files())
    with pytest.raises(
        SchemaChangedError,
        match=r"must: string not null in the table, string in the schema.*sink.evolve: widen",
    ):
        second_table.sink(loose)
    old = second_table.sink(strict, "widen")
    staged = second_table.stage_window(old, 5)
    second_table.commit(second_table.sink(loose, "widen"), 4)
    second_table.commit(old, 5, staged=staged)
    assert second_table.columns() == loose
    assert table.keyed or old_files <= set(second_table.files())
    assert second_table.find_mistakes() == []
    with pytest.raises(
        SchemaChangedError, match=r"must: string in the table, string not null in the schema"
    ):
        second_table.sink(strict, "widen")


def test_none_shows_every_difference(table: Evolving) -> None:
    """With `none`, the error names each column that differs, both types, and the setting that
    would accept it.

    Nothing changes.
    """
    schema = schema_of(n=pa.int64(), note=pa.string())
    with pytest.raises(SchemaChangedError) as raised:
        table.sink(schema, "none")
    for says in (
        r"note: new (string), and sink.evolve is none",
        "n: integer in the table, long in the schema",
        "x: in the table (float), not",
    ):
        assert says in raised.value.message
    for evolve, fits in (("add_columns", MORE), ("widen", WIDE)):
        with pytest.raises(
            SchemaChangedError, match=f"With sink.evolve: {evolve} the table would take it"
        ):
            table.sink(fits, "none")
    assert table.columns() == NARROW
    assert table.find_mistakes() == []


def test_none_goes_on_where_nothing_differs(table: Evolving) -> None:
    """`none` accepts a table that fits, and files staged before another run added a column."""
    old = table.sink(NARROW, "none")
    table.commit(old, 2)
    staged = table.stage_window(old, 4)
    table.commit(table.sink(MORE), 3)
    table.commit(old, 4, staged=staged)
    assert table.find_mistakes() == []


@pytest.mark.parametrize("evolve", ["none", "add_columns"])
def test_a_narrow_attempt_that_may_not_widen(table: Evolving, evolve: Evolve) -> None:
    """Files that were staged before the table became wider are refused if the run may not widen."""
    old = table.sink(NARROW, evolve)
    staged = table.stage_window(old, 3)
    table.commit(table.sink(WIDE, "widen"), 2)
    with pytest.raises(SchemaChangedError, match="n: long in the table, integer in the schema"):
        old.commit(*staged)
    assert table.find_mistakes() == []


def test_each_file_is_written_anew_once(plain: Evolving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that loses to another commit keeps its widened files, and widens only the other
    commit's files.
    """
    sink, rival = plain.sink(WIDE, "widen"), plain.sink(NARROW)
    acted = act_before_send(monkeypatch, lambda: plain.commit(rival, 2))
    plain.commit(sink, 3)
    assert acted
    # four narrow files and the rival's two are rewritten once each; two files are wide already
    assert len(staged_paths(plain.uri)) == 2 * (4 + 2) + 2
    assert plain.find_mistakes() == []


def test_the_table_becomes_wider_still_between_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were widened for the first try are widened again if the table has become wider
    by the second try.
    """
    table = Evolving(str(tmp_path / "t"), keyed=False)
    first, second, third = (schema_of(n=kind) for kind in (pa.int8(), pa.int16(), pa.int32()))
    old = table.sink(first, "widen")
    staged = table.stage_window(old, 1)
    table.commit(table.sink(second, "widen"), 0)
    acted = act_before_send(monkeypatch, lambda: table.commit(table.sink(third, "widen"), 2))
    table.commit(old, 1, staged=staged)
    assert acted
    assert table.columns() == third
    assert table.find_mistakes() == []


def test_files_that_hide_rows(table: Evolving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with deletion vectors isn't rewritten: its files hold rows that are deleted."""

    class Vectors:
        reader_features = writer_features = ("deletionVectors",)

    staged = table.stage_window(table.sink(WIDE, "widen"), 2)
    sink = table.sink(WIDE, "widen")
    monkeypatch.setattr(DeltaTable, "protocol", lambda _: Vectors)
    with pytest.raises(SchemaChangedError, match="has the features deletionVectors"):
        sink.commit(*staged)


def test_a_table_that_is_append_only(plain: Evolving) -> None:
    """An append-only table accepts new columns."""
    DeltaTable(plain.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    plain.commit(plain.sink(MORE), 2)
    assert plain.find_mistakes() == []


def test_what_an_append_only_table_does_not_let_go_is_told_before_anything_is_read(
    table: Evolving,
) -> None:
    """`prepare` refuses a primary key, wider columns and a replay for an append-only table,
    with the reason.

    A replay of a window without rows is allowed.
    """
    sink = table.sink(NARROW)
    DeltaTable(table.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    pattern = r"append-only \(delta.appendOnly\).* "
    if table.keyed:
        with pytest.raises(SchemaChangedError, match=f"{pattern}a table with a primary key"):
            sink.prepare()
        return
    with pytest.raises(SchemaChangedError, match=rf"{pattern}wider columns: n \(integer to long\)"):
        table.sink(WIDE, "widen")
    with pytest.raises(SchemaChangedError, match=f"{pattern}a replay of {window(1).key}"):
        sink.prepare(replaced=[window(1).key])
    sink.prepare(replaced=[window(2).key])


@pytest.mark.parametrize("number", [1, 2], ids=["a replay", "a window"])
def test_a_commit_that_an_append_only_table_does_not_let_go(table: Evolving, number: int) -> None:
    """A replay, or a merge, is refused if the table became append-only after the look.

    Its outcome isn't unknown.
    """
    sink = table.sink(WIDE, "widen")
    staged = table.stage_window(sink, number, generation=2 - number)
    DeltaTable(table.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(RefusedError, match="is append-only") as refused:
        sink.commit(*staged)
    assert "Nothing was committed" in refused.value.advice
    assert "windrow replay SPEC --window W" in refused.value.advice
    assert table.find_mistakes() == []


def test_wide_files_that_are_gone(plain: Evolving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose widened files were removed by a vacuum between two tries is refused: its
    rows would be lost.
    """
    sink, rival = plain.sink(WIDE, "widen"), plain.sink(NARROW)

    staged = plain.stage_window(sink, 3)
    own_paths = {
        word.path for part in staged[1] for word in sink.store.staged.decode_committables(part.rows)
    }

    def commit_and_vacuum() -> None:
        plain.commit(rival, 2)
        for path in Path(plain.uri).glob("data/*/a3*.parquet"):
            if str(path.relative_to(plain.uri)) not in own_paths:
                path.unlink()

    act_before_send(monkeypatch, commit_and_vacuum)
    with pytest.raises(RefusedError, match="staged files are gone"):
        plain.commit(sink, 3, staged=staged)
    assert plain.columns() == NARROW
    assert sink.look(window(3)) is None
    assert plain.find_mistakes() == []


def test_wide_files_take_the_memory_of_a_row_group(
    plain: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long file is rewritten batch by batch, and each row group is written as soon as it is
    full.
    """
    sink = plain.sink(WIDE, "widen")
    staged = plain.stage_window(sink, 2)
    monkeypatch.setattr(file_stager, "GROUP_ROWS", 4)
    monkeypatch.setattr(parquet_files, "BATCH_ROWS", 2)
    plain.commit(sink, 2, staged=staged)
    footers = [pq.read_metadata(Path(plain.uri) / path) for path in plain.files()]
    assert sorted(footer.num_row_groups for footer in footers) == [1, 1, 3, 3, 3, 3]
    assert plain.find_mistakes() == []
