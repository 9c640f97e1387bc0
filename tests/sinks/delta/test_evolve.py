"""What becomes of a table's columns (`sink.evolve`): with the first rows, in one
commit, whoever else commits; and never of their values.

On tables that rows are appended to, and on tables with a primary key.
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
from windrow.ingest.testing.contracts.commit_hooks import in_between
from windrow.ingest.testing.contracts.windows import plan, receipt, window

pytestmark = pytest.mark.some(2)

NARROW = schema_of(n=pa.int32(), x=pa.float32())
MORE = schema_of(n=pa.int32(), x=pa.float32(), note=pa.string())
WIDE = schema_of(n=pa.int64(), x=pa.float64())
CHANGES: list[tuple[pa.Schema, Evolve]] = [(MORE, "add_columns"), (WIDE, "widen")]


def begin_table(folder: Path, *, keyed: bool) -> Evolving:
    """A table with two windows of the narrow schema."""
    table = Evolving(str(folder / "orders"), keyed)
    sink = table.sink(NARROW)
    for number in (0, 1):
        table.commit(sink, number)
    return table


@pytest.fixture(params=["append", "keyed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Evolving:
    """Of each kind."""
    return begin_table(tmp_path, keyed=request.param == "keyed")


@pytest.fixture
def plain(tmp_path: Path) -> Evolving:
    """One whose rows are appended; of the other kind, files are merged for each state anew."""
    return begin_table(tmp_path, keyed=False)


changes = pytest.mark.parametrize(("schema", "evolve"), CHANGES, ids=["add", "widen"])


def act_before_send(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[str]:
    """Have something done after the next commit has written what it needs, and before
    it is sent; once.
    """
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
    """To prepare changes nothing; the commit that brings the first such rows brings
    columns, rows and receipt in one entry.
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
    """Its receipt is all that it brings."""
    sink = table.sink(schema, evolve)
    sink.commit(receipt(plan(sink, 2, offsets=(20, 20)), [], 0, "a"), [])
    assert table.columns() == NARROW


@changes
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_crash(
    table: Evolving, monkeypatch: pytest.MonkeyPatch, point: str, schema: pa.Schema, evolve: Evolve
) -> None:
    """Before the commit the table is as it was, columns too; after it everything is there.

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
    """1 A looks, and will bring the column. 2 B brings it. 3 A's commit is refused, it
    looks again, and brings its rows alone.
    """
    sink, rival = table.sink(schema, evolve), table.sink(schema, evolve)
    in_between(sink, lambda: table.commit(rival, 2))
    table.commit(sink, 3)
    assert len(entries_with(table.uri, "metaData")) == 2
    assert table.find_mistakes() == []


@changes
def test_an_older_attempt_comes_later(table: Evolving, schema: pa.Schema, evolve: Evolve) -> None:
    """What was staged before the columns changed is committed after it: null in a
    column that it lacks, and as wide as the table.

    Of a table with a primary key, rows that stay keep what the newer columns hold.
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
    """The columns change between its look and its write."""
    old = table.sink(NARROW, evolve)
    in_between(old, lambda: table.commit(table.sink(schema, evolve), 3))
    table.commit(old, 2)
    assert table.find_mistakes() == []


@changes
def test_a_replay_brings_them_too(table: Evolving, schema: pa.Schema, evolve: Evolve) -> None:
    """An old window replaced under the newer schema has the columns; the others are as
    they were.
    """
    table.commit(table.sink(schema, evolve), 0, generation=1)
    assert table.columns() == schema
    assert table.find_mistakes() == []


def test_columns_are_added_and_made_wider_at_once(table: Evolving) -> None:
    """`widen` adds, too; where a table lacks one column and is wider in another, files
    fit it in both.
    """
    both = schema_of(n=pa.int64(), x=pa.float64(), note=pa.string(), at=pa.timestamp("us", "UTC"))
    old = table.sink(NARROW, "widen")
    staged = table.stage_window(old, 3)
    table.commit(table.sink(both, "widen"), 2)
    table.commit(old, 3, staged=staged)
    assert table.columns() == both
    assert table.find_mistakes() == []


def test_a_time_without_a_zone(table: Evolving) -> None:
    """Such a column asks for a feature of the protocol, which the table gets when it is
    prepared; the column comes with its rows.
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
    ],
    ids=str,
)
def test_what_becomes_wider(tmp_path: Path, narrow: pa.DataType, wide: pa.DataType) -> None:
    """Every value stays what it was, for each reader and for the receipts' checksums;
    no file is narrower than its table.
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
            pa.list_(pa.int32()),
            pa.list_(pa.int64()),
            r"v: at v\[\]: int32 in the table, int64 in the schema",
        ),
        (
            pa.list_(pa.struct([pa.field("k", pa.int32()), pa.field("gone", pa.string())])),
            pa.list_(pa.struct([pa.field("k", pa.int64()), pa.field("new", pa.string())])),
            (
                r"v: at v\[\]\.k: int32 in the table, int64 in the schema; v\[\]\.gone: string in"
                r" the table, nothing .*; v\[\]\.new: nothing"
            ),
        ),
        (
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.int64()),
            r"v: at v\{value\}: int32 in the table, int64 in the schema",
        ),
    ],
    ids=str,
)
def test_what_stays_as_it_is(
    tmp_path: Path, table_type: pa.DataType, schema_type: pa.DataType, says: str
) -> None:
    """What would lose values, or change a checksum, is refused before anything is read;
    also inside lists, structs and maps.
    """
    table = Evolving(str(tmp_path / "orders"), keyed=False)
    table.sink(schema_of(v=table_type))
    with pytest.raises(SchemaChangedError, match=says):
        table.sink(schema_of(v=schema_type), "widen")


def test_a_column_may_become_nullable(table: Evolving) -> None:
    """With `widen`; nothing is written anew for it. The other way round is refused."""
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
    """Each column that differs, with what it is on both sides, and which setting would
    take it; nothing changes.
    """
    schema = schema_of(n=pa.int64(), note=pa.string())
    with pytest.raises(SchemaChangedError) as raised:
        table.sink(schema, "none")
    for says in (
        r"note: new (string), and sink.evolve is none",
        "n: integer in the table, long in the schema",
        "x: in the table (float), not",
    ):
        assert says in raised.value.what
    for evolve, fits in (("add_columns", MORE), ("widen", WIDE)):
        with pytest.raises(
            SchemaChangedError, match=f"With sink.evolve: {evolve} the table would take it"
        ):
            table.sink(fits, "none")
    assert table.columns() == NARROW
    assert table.find_mistakes() == []


def test_none_goes_on_where_nothing_differs(table: Evolving) -> None:
    """It is as good as any for a table that fits, and for what was staged before
    somebody else added a column.
    """
    old = table.sink(NARROW, "none")
    table.commit(old, 2)
    staged = table.stage_window(old, 4)
    table.commit(table.sink(MORE), 3)
    table.commit(old, 4, staged=staged)
    assert table.find_mistakes() == []


@pytest.mark.parametrize("evolve", ["none", "add_columns"])
def test_a_narrow_attempt_that_may_not_widen(table: Evolving, evolve: Evolve) -> None:
    """What was staged before the table became wider, by a run that may not make it so,
    is refused with the difference.
    """
    old = table.sink(NARROW, evolve)
    staged = table.stage_window(old, 3)
    table.commit(table.sink(WIDE, "widen"), 2)
    with pytest.raises(SchemaChangedError, match="n: long in the table, integer in the schema"):
        old.commit(*staged)
    assert table.find_mistakes() == []


def test_each_file_is_written_anew_once(plain: Evolving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that loses to another one keeps the wide files that it has, and makes
    those of what has come: it gets done at last.
    """
    sink, rival = plain.sink(WIDE, "widen"), plain.sink(NARROW)
    acted = act_before_send(monkeypatch, lambda: plain.commit(rival, 2))
    plain.commit(sink, 3)
    assert acted
    # four narrow files and the rival's two, each rewritten once, and the two that are wide
    assert len(staged_paths(plain.uri)) == 2 * (4 + 2) + 2
    assert plain.find_mistakes() == []


def test_the_table_becomes_wider_still_between_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written for the first try is too narrow for the second: it is written once more."""
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
    """A table with deletion vectors isn't written anew: what its files hold isn't what it holds."""

    class Vectors:
        reader_features = writer_features = ("deletionVectors",)

    staged = table.stage_window(table.sink(WIDE, "widen"), 2)
    sink = table.sink(WIDE, "widen")
    monkeypatch.setattr(DeltaTable, "protocol", lambda _: Vectors)
    with pytest.raises(SchemaChangedError, match="has the features deletionVectors"):
        sink.commit(*staged)


def test_a_table_that_is_append_only(plain: Evolving) -> None:
    """Where Delta lets no file go, new columns come all the same."""
    DeltaTable(plain.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    plain.commit(plain.sink(MORE), 2)
    assert plain.find_mistakes() == []


def test_what_an_append_only_table_does_not_let_go_is_told_before_anything_is_read(
    table: Evolving,
) -> None:
    """A window of a table with a primary key, wider columns and a replay are refused by `prepare`,
    with the reason; a replay of a window without rows there is none.
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
    """A replay, a merge, and a table that became append-only after a run had looked:
    refused, and not of unknown outcome.
    """
    sink = table.sink(WIDE, "widen")
    staged = table.stage_window(sink, number, generation=2 - number)
    DeltaTable(table.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(RefusedError, match="is append-only") as refused:
        sink.commit(*staged)
    assert "Nothing was committed" in refused.value.do
    assert "windrow replay SPEC --window W" in refused.value.do
    assert table.find_mistakes() == []


def test_wide_files_that_are_gone(plain: Evolving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum without its grace period, between two tries of a commit: refused, for a
    commit that names them would lose their rows.
    """
    sink, rival = plain.sink(WIDE, "widen"), plain.sink(NARROW)

    staged = plain.stage_window(sink, 3)
    own_paths = {word.path for part in staged[1] for word in sink.store.staged.named(part.rows)}

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
    """However long a file is: it is written batch by batch, and each row group as soon
    as it is full.
    """
    sink = plain.sink(WIDE, "widen")
    staged = plain.stage_window(sink, 2)
    monkeypatch.setattr(file_stager, "GROUP_ROWS", 4)
    monkeypatch.setattr(parquet_files, "BATCH_ROWS", 2)
    plain.commit(sink, 2, staged=staged)
    footers = [pq.read_metadata(Path(plain.uri) / path) for path in plain.files()]
    assert sorted(footer.num_row_groups for footer in footers) == [1, 1, 3, 3, 3, 3]
    assert plain.find_mistakes() == []
