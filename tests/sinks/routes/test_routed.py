"""A window in several tables: crashes between two tables, and reruns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sinks.routes.world import FIRST, SECOND, RoutedBoth, in_memory, pieces, window_first
from tests.sinks.with_dead_letters import DeltaSink
from windrow.ingest.admin.verify import compare_rows
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import (
    OverlapError,
    OwnerError,
    RefusedError,
    SchemaChangedError,
    SpecError,
)
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Checksums, Staged
from windrow.ingest.ports.sink import AlreadyDone, Committed, Done, Outcome, Stager, Unreadable
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.sinks.routes.sink import RoutedSink
from windrow.ingest.sinks.routes.stage import Router
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    identity,
    messages,
    plan,
    produced_messages,
    receipt,
    split_counts,
    stage,
    staged_dead_replay,
    staged_receipt,
    window,
)
from windrow.ingest.testing.sink import MemoryDeadLetters

HERE = Path(__file__).parent


@pytest.fixture
def sink(tmp_path: Path) -> RoutedBoth:
    """A sink of three prepared tables in memory."""
    sink = in_memory(tmp_path, ROWS, DEFAULT)
    sink.prepare()
    return sink


def open_with_first(sink: RoutedBoth) -> RoutedBoth:
    """Returns a sink of the same tables without the second route."""
    return RoutedBoth([(FIRST, sink.tables[0])], sink.other, sink.dead_letters, ROWS, DEFAULT)


def assert_complete(sink: RoutedBoth, numbers: Sequence[int]) -> None:
    """Asserts that each message of these windows is in one table once.

    The receipts of each table agree with its rows, and with the receipt of all.
    """
    receipts = [c.receipt for c in sink.receipts()]
    report = check(
        produced_messages(numbers),
        pieces(sink),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )
    assert report.ok, str(report)
    assert list(sink.audit().receipts()) == list(sink.receipts())
    for table in sink.tables:
        for committed in table.receipts():
            assert (
                compare_rows(committed.receipt, table.audit().rows_held(committed.receipt.window))
                == []
            )
    for committed in receipts:
        assert compare_rows(committed, sink.audit().rows_held(committed.window)) == []


def attempt(sink: RoutedBoth, number: int, name: str, generation: int = 0) -> Outcome:
    """Runs a window."""
    window_receipt, staged = staged_receipt(sink, number, generation, name)
    sink.commit_dead(window_receipt.plan, name, staged)
    return sink.commit(window_receipt, staged)


def die_between(
    sink: RoutedBoth, number: int, name: str, patch: pytest.MonkeyPatch, generation: int = 0
) -> None:
    """Runs a window that crashes after the first table."""
    with patch.context() as crash:
        crash.setenv("WINDROW_CRASH", "commit.between:raise")
        with pytest.raises(CrashError):
            attempt(sink, number, name, generation)


def test_every_table_hears_which_windows_are_to_be_replaced(tmp_path: Path) -> None:
    """Every table is asked about the windows to be replaced: an append-only Delta table with
    rows of one refuses before anything is read.
    """
    first, last_sink = (DeltaSink(str(tmp_path / name), ROWS) for name in ("first", "other"))
    routed = RoutedBoth([(FIRST, first)], last_sink, MemoryDeadLetters(), ROWS, DEFAULT)
    routed.prepare()
    attempt(routed, 0, "a1")
    DeltaTable(first.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(SchemaChangedError, match=f"first is append-only.* {window(0).key}"):
        routed.prepare(replaced=[window(0).key])
    routed.prepare(replaced=[window(1).key])


def test_rows_lie_where_their_values_lead(sink: RoutedBoth) -> None:
    """A row goes to the table of its value.

    Each table has its own receipt, which counts other tables' messages as filtered.
    """
    assert isinstance(attempt(sink, 0, "a1"), Done)
    counts = [table.look(window(0)).receipt.counts for table in (*sink.tables, sink.other)]
    assert [(c.rows, c.valid, c.filtered) for c in counts] == [(6, 6, 12), (8, 8, 10), (18, 18, 0)]
    assert [(t.rows, t.table) for t in sink.look(window(0)).receipt.routed] == [
        (6, sink.tables[0].identity),
        (8, sink.tables[1].identity),
    ]
    ids = [
        {row for piece in table.pieces() for row in piece["id"].to_pylist()}
        for table in sink.tables
    ]
    assert all(int(row.rpartition("-")[2]) % 4 == 0 for row in ids[0])
    assert all(int(row.rpartition("-")[2]) % 2 == 1 for row in ids[1])
    assert_complete(sink, [0])


@pytest.mark.parametrize("generation", [0, 1])
def test_a_crash_between_two_tables_is_repaired_by_the_rerun(
    sink: RoutedBoth, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash between two tables, the window isn't committed, and verification names the
    table that has it.

    The next run brings the window to all tables, each row once.
    """
    attempt(sink, 1, "a0")
    if generation:
        attempt(sink, 0, "a0")
    die_between(sink, 0, "a1", monkeypatch, generation)
    committed = sink.look(window(0))
    assert (None if committed is None else committed.receipt.attempt) == (
        "a0" if generation else None
    )
    (unreadable,) = [
        unreadable for unreadable in sink.audit().receipts() if isinstance(unreadable, Unreadable)
    ]
    assert unreadable.key == window(0).key
    assert sink.tables[0].identity in unreadable.message
    assert isinstance(attempt(sink, 0, "a2", generation), Done)
    assert sink.look(window(0)).receipt.attempt == "a2"
    assert sink.tables[0].look(window(0)).receipt.attempt == "a1"
    assert_complete(sink, [0, 1])


def test_a_dead_replay_that_died_between_two_tables(
    sink: RoutedBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a dead-letter replay are added to each table once, whichever attempt added them."""
    attempt(sink, 0, "a1")
    old_receipt = sink.look(window(0)).receipt
    with monkeypatch.context() as crash:
        crash.setenv("WINDROW_CRASH", "commit.between:raise")
        with pytest.raises(CrashError):
            sink.commit(*staged_dead_replay(sink, old_receipt, "m1"))
    assert isinstance(sink.commit(*staged_dead_replay(sink, old_receipt, "m2")), Done)
    assert_complete(sink, [0])


def test_other_rows_than_the_attempt_before(
    sink: RoutedBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the routes changed after a crash, the run is refused: it would write rows twice.

    The error names the table and the advice.
    """
    die_between(sink, 0, "a1", monkeypatch)
    changed = RoutedBoth(
        [(SECOND, sink.tables[0]), (FIRST, sink.tables[1])],
        sink.other,
        sink.dead_letters,
        ROWS,
        DEFAULT,
    )
    with pytest.raises(
        RefusedError, match=r"first has rows of window .* by attempt a1 .* Set them back"
    ):
        attempt(changed, 0, "a2")
    assert sink.look(window(0)) is None
    assert isinstance(attempt(sink, 0, "a3"), Done)
    assert_complete(sink, [0])


def test_a_table_that_comes_later(sink: RoutedBoth, tmp_path: Path) -> None:
    """A new table has only later windows.

    A replacement of an older window gives it empty earlier generations.
    """
    older_sink = open_with_first(sink)
    for number in (0, 1):
        attempt(older_sink, number, "a1")
    attempt(sink, 2, "a1")
    assert sink.tables[1].look(window(0)) is None
    attempt(sink, 0, "b1", 1)
    assert sink.tables[1].look(window(0)).receipt.generation == 1
    assert_complete(sink, [0, 1, 2])


def test_a_table_that_comes_later_costs_no_receipts(
    sink: RoutedBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a new table, only one receipt of the older windows is read, however many there are."""
    older_sink = open_with_first(sink)
    for number in range(5):
        attempt(older_sink, number, "a1")
    attempt(sink, 5, "a1")
    looks, read = sink.other.looks, list[Window]()

    def record_looks(windows: Sequence[Window]) -> Iterator[Committed | None]:
        read.extend(windows)
        return looks(windows)

    monkeypatch.setattr(sink.other, "looks", record_looks)
    requested_windows = [window(number) for number in range(7)]
    assert sink.committed(requested_windows) == set(requested_windows[:6])
    assert read == [window(4)]


@pytest.mark.parametrize(
    ("windows_before", "windows_after", "lost_windows"),
    [
        pytest.param([5], [6, 7], {6, 7}, id="the newest"),
        pytest.param([5], [4, 3], {3, 4}, id="a backfill, from before its first one"),
        pytest.param([2, 6], [4, 3], {3, 4}, id="a backfill, from between"),
        pytest.param([], [5, 6], {5, 6}, id="all"),
    ],
)
def test_a_table_that_is_an_older_copy(
    sink: RoutedBoth,
    windows_before: Sequence[int],
    windows_after: Sequence[int],
    lost_windows: set[int],
) -> None:
    """Windows that an older copy of a table lacks aren't committed.

    Windows from before the table was added are.
    """
    for number in (0, 1, 8):
        attempt(open_with_first(sink), number, "a1")
    for number in windows_before:
        attempt(sink, number, "a1")
    store = sink.tables[1].store
    copy = store.content
    for number in windows_after:
        attempt(sink, number, "a1")
    all_windows = {window(number) for number in (0, 1, 8, *windows_before, *windows_after)}
    assert sink.committed(sorted(all_windows)) == all_windows
    store.content = copy
    assert sink.committed(sorted(all_windows)) == all_windows - {
        window(number) for number in lost_windows
    }


def test_a_table_that_no_route_names_any_more(sink: RoutedBoth) -> None:
    """A window with rows in a table without a route can't be replaced: the old rows would stay
    there.

    Other windows go on.
    """
    attempt(sink, 0, "a1")
    fewer = open_with_first(sink)
    with pytest.raises(RefusedError, match=r"has 8 rows in memory:.*second, which no route names"):
        attempt(fewer, 0, "b1", 1)
    attempt(fewer, 1, "a1")
    attempt(sink, 0, "b1", 1)
    assert_complete(sink, [0, 1])


def test_an_overlap_is_refused_before_any_table_has_it(sink: RoutedBoth) -> None:
    """An overlap is refused before any table has the window, also if a new table doesn't know
    the other window.
    """
    older_sink = open_with_first(sink)
    attempt(older_sink, 0, "a1")
    planned = plan(sink, 5, offsets=(PER_WINDOW - 1, PER_WINDOW + 5))
    staged = stage(sink, planned, 0, "a1")
    with pytest.raises(OverlapError):
        sink.commit(receipt(planned, staged, 0, "a1"), staged)
    assert [table.look(window(5)) for table in sink.tables] == [None, None]


def test_an_overlap_that_the_last_table_alone_knows(sink: RoutedBoth) -> None:
    """An overlap that only the last table knows is refused, also if the adjacent windows are
    all there.
    """
    late = RoutedBoth([], sink.other, sink.dead_letters, ROWS, DEFAULT)
    planned = plan(late, 0, offsets=(5 * PER_WINDOW, 5 * PER_WINDOW + 2))
    staged = stage(late, planned, 0, "a1")
    late.commit(receipt(planned, staged, 0, "a1"), staged)
    attempt(late, 4, "a1")
    with pytest.raises(OverlapError):
        attempt(sink, 5, "a1")
    assert [table.look(window(5)) for table in sink.tables] == [None, None]


def test_who_may_not_have_the_last_table_binds_none(tmp_path: Path) -> None:
    """If the last table has another owner, no table is bound.

    Otherwise two pipelines that begin at once would each own some tables, and neither could go
    on.
    """
    routed = in_memory(tmp_path, ROWS, DEFAULT)
    routed.other.prepare(TableOwner("another", "ledger-2", "hourly"))
    with pytest.raises(OwnerError):
        routed.prepare()
    assert [table.owner() for table in routed.tables] == [None, None]


def test_a_table_that_somebody_changed(sink: RoutedBoth) -> None:
    """A table with another generation than the receipt's is reported, with the advice."""
    attempt(sink, 0, "a1")
    first = sink.tables[0]
    first_receipt = first.look(window(0)).receipt
    first.commit(msgspec.structs.replace(first_receipt, generation=1), [])
    (unreadable,) = sink.audit().receipts()
    assert isinstance(unreadable, Unreadable)
    assert "has 6 rows in" in unreadable.message
    assert "replay" in unreadable.advice


def test_tables_that_cannot_go_together(sink: RoutedBoth) -> None:
    """One table under two routes is refused before anything is read."""
    with pytest.raises(SpecError, match="two routes lead to memory"):
        RoutedSink(
            Router("column", "id", (FIRST, SECOND)),
            [sink.tables[0], sink.tables[0], sink.other],
            ROWS,
            DEFAULT,
        )


def test_messages_with_rows_in_two_tables(sink: RoutedBoth) -> None:
    """A message with rows in several tables counts in each table, and once in the audit of all,
    as in the receipt.
    """
    planned = plan(sink, 0)
    stager = sink.stager(planned, 0, "a1")
    staged = [staged_wide(stager(split), split) for split in planned.splits]
    window_receipt = receipt(planned, staged, 0, "a1")
    assert isinstance(sink.commit(window_receipt, staged), Done)
    of_tables = [
        [(h.rows, h.offsets) for h in table.audit().rows_held(window(0))]
        for table in (*sink.tables, sink.other)
    ]
    assert of_tables == [[(3, 3), (3, 3)], [(5, 5), (5, 5)], [(12, 10), (12, 10)]]
    assert [(h.rows, h.offsets) for h in sink.audit().rows_held(window(0))] == [(20, 10), (20, 10)]
    for table in (sink, *sink.tables):
        assert compare_rows(table.look(window(0)).receipt, table.audit().rows_held(window(0))) == []


def staged_wide(stager: Stager, split: Split) -> Staged:
    """Stages two rows of each message: one for the table of its id, and one for the last table."""
    split_messages = messages(split)
    index = pa.array([i for i in range(split_messages.num_rows) for _ in range(2)], pa.int64())
    ids = [
        name
        for offset in split_messages["offset"].to_pylist()
        for name in (identity(split.tp, offset), "none")
    ]
    stager.add(
        pa.record_batch([pa.array(ids), pa.array(range(len(ids)), pa.int64())], schema=ROWS),
        for_rows(split_messages, index),
    )
    done, n = stager.finish(), split_messages.num_rows
    counts = split_counts(
        split,
        read=n,
        bytes=n * 2,
        valid=n,
        rows_staged=done.rows,
        checksums=Checksums(done.checksum),
        rows=2 * n,
    )
    return Staged(split, counts, done.committables, ())


def test_the_receipt_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that writes the receipt first loses the other tables' rows after a crash: the
    rerun trusts the receipt.
    """
    twin = in_memory(tmp_path, ROWS, DEFAULT)
    window_first(twin)
    twin.prepare()
    die_between(twin, 0, "a1", monkeypatch)
    assert isinstance(attempt(twin, 0, "a2"), AlreadyDone)
    with pytest.raises(AssertionError, match="lost"):
        assert_complete(twin, [0])
