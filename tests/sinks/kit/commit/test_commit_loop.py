"""The commit loop on a table in memory: answers, races and lost connections, and broken twins
that lose rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from tests.sinks.with_dead_letters import MemoryBoth
from windrow.ingest.errors import (
    DamagedError,
    LostConnectionError,
    OverlapError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.kit.commit import window_table
from windrow.ingest.sinks.kit.commit.commit_loop import AlreadyWritten
from windrow.ingest.sinks.kit.commit.table_store import (
    Answer,
    Conflict,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.commit_hooks import answer_puts, on_put, run_between
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    plan,
    produced_messages,
    receipt,
    stage,
    staged_receipt,
    window,
)
from windrow.ingest.testing.sink import MemoryStore

LOST = LostConnectionError("the way to the table is lost", "commit", "Look again.")
BOTH = [Unanswered("reset"), Conflict("another one came first")]


@pytest.fixture
def sink() -> Any:
    """A prepared table with three tries and no waits."""
    sink = MemoryBoth("orders", ROWS)
    sink.store.waits = (0.0, 0.0)  # type: ignore[assignment]
    sink.prepare()
    return sink


def open_beside(sink: Any) -> Any:
    """Returns another process's sink on the same table."""
    beside_sink = MemoryBoth("orders", ROWS)
    beside_sink.store, beside_sink.dead_letters = _Same(sink.store), sink.dead_letters  # type: ignore[assignment]
    return beside_sink


class _Same:
    """The same store, without the hooks of the first sink's store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with MemoryStore.reading(self._store) as state:
            yield state


def report(sink: Any, *numbers: int) -> Report:
    """Returns the checker's report on these windows, without dead letters."""
    return check(
        produced_messages(numbers),
        sink.pieces(),
        [],
        [c.receipt for c in sink.receipts()],
        content="id",
    )


def commit(sink: Any, number: int = 0, attempt: str = "a1") -> Any:
    """Commits a window without dead letters."""
    return sink.commit(*staged_receipt(sink, number, 0, attempt, dead=False))


# --- answers to a put


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_what_arrived_without_its_answer_is_done(sink: Any, put_answer: Answer) -> None:
    """A commit that arrived without its answer is done, and isn't put twice.

    This holds if the store's client sent it again by itself, and got a conflict.
    """
    puts = answer_puts(sink, (put_answer, True))
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    assert isinstance(sink.commit(window_receipt, files), Done)
    assert len(puts) == 1
    assert isinstance(sink.commit(window_receipt, files), AlreadyDone)
    assert report(sink, 0).ok


def test_a_lost_way_is_told_at_once_and_once(
    sink: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost connection is logged once, before the first wait, so that the silence doesn't look
    like a hang.
    """
    said_before_waits = list[int]()
    monkeypatch.setattr("time.sleep", lambda _: said_before_waits.append(len(caplog.records)))

    @contextmanager
    def lose_answer() -> Iterator[Any]:
        raise LOST
        yield

    monkeypatch.setattr(sink.store, "writing", lose_answer)
    with pytest.raises(LostConnectionError):
        commit(sink)
    assert said_before_waits == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"Waiting for the table {sink.store.location}: the way to the table is lost"
    ]


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_what_did_not_arrive_is_put_again(sink: Any, put_answer: Answer) -> None:
    """A put that didn't arrive is put again, at most as often as there are waits."""
    answer_puts(sink, (put_answer, False))
    assert isinstance(commit(sink), Done)
    assert report(sink, 0).ok


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_in_the_end_nobody_knows(sink: Any, put_answer: Answer) -> None:
    """If the tries end and the table hasn't changed, the outcome is unknown, neither refused
    nor done.
    """
    puts = answer_puts(sink, *[(put_answer, False)] * 10)
    assert isinstance(commit(sink), Unknown)
    assert 2 <= len(puts) <= 4


def test_a_full_disk_is_no_unknown_outcome(sink: Any) -> None:
    """A full disk raises UnreachableError once the last look finds nothing, because the put
    can't arrive later.
    """
    answer_puts(sink, *[(Unanswered("no space", full=True), False)] * 10)
    with pytest.raises(UnreachableError, match="no room"):
        commit(sink)


def test_a_lost_way_is_tried_again(sink: Any) -> None:
    """A lost connection before a put raises an error after all tries; after a put that may have
    arrived, the outcome is unknown.
    """
    answer_puts(sink, (LOST, False))
    assert isinstance(commit(sink, 0), Done)
    answer_puts(sink, *[(LOST, False)] * 10)
    with pytest.raises(LostConnectionError):
        commit(sink, 1)
    answer_puts(sink, (Unanswered("reset"), False), *[(LOST, False)] * 10)
    assert isinstance(commit(sink, 1), Unknown)


def test_a_look_that_fails_behind_a_put_is_unknown(sink: Any) -> None:
    """A look that fails after a put gives an unknown outcome, because the put may have arrived."""
    answer_puts(sink, (Unanswered("reset"), False))
    writing, looks = sink.store.writing, list[int]()

    @contextmanager
    def fail_second_look() -> Iterator[Any]:
        looks.append(1)
        if len(looks) > 1:
            raise UnreachableError("no answer", "setup", "Wait.")
        with writing() as state:
            yield state

    sink.store.writing = fail_second_look
    assert isinstance(commit(sink), Unknown)


@pytest.mark.parametrize(
    ("changed", "tries", "is_own"),
    [
        ({"seconds": 9.0}, 2, True),
        ({}, 0, False),
        ({"attempt": "another"}, 1, False),
        ({"generation": 1}, 1, False),
    ],
)
def test_a_receipt_that_is_found_is_this_calls_own(
    sink: Any, changed: dict[str, Any], tries: int, is_own: bool
) -> None:
    """A receipt that a look finds counts as this call's own if the call has put one, and
    attempt and generation match.
    """
    window_receipt, _ = staged_receipt(sink, 0, dead=False)
    written = AlreadyWritten(
        Committed(msgspec.structs.replace(window_receipt, **changed), 1), tries
    )
    assert written.outcome_for(window_receipt) == (Done if is_own else AlreadyDone)(
        written.value, tries
    )


@pytest.mark.parametrize("moved", [False, True])
def test_a_refusal_behind_a_put_that_may_arrive_is_unknown(sink: Any, moved: bool) -> None:
    """A put without an answer, and then a look that raises an error, give an unknown outcome:
    the put may still arrive.

    If another commit has changed the table, the put can't arrive, and the error is raised.
    """
    answer_puts(sink, (Unanswered("reset"), False))
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    writing, looks = sink.store.writing, list[int]()

    @contextmanager
    def refuse_second_look() -> Iterator[Any]:
        looks.append(1)
        if len(looks) > 1 and moved:
            commit(open_beside(sink), 5)
        with writing() as state:
            yield _Refusing(state) if len(looks) > 1 else state

    sink.store.writing = refuse_second_look
    if moved:
        with pytest.raises(DamagedError):
            sink.commit(window_receipt, files)
    else:
        assert sink.commit(window_receipt, files) == Unknown("a receipt is missing")


class _Refusing:
    """A state whose receipts can't be read."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def receipts(self, keys: Any = None) -> Iterator[Any]:
        raise DamagedError("a receipt is missing", "commit", "Nothing was committed. Restore it.")


def test_others_commits_never_use_up_tries(sink: Any) -> None:
    """Commits of other runs don't use up tries: a slow attempt commits in the end."""
    other_sink = open_beside(sink)
    ready = [staged_receipt(other_sink, n, dead=False) for n in range(1, 9)]
    sink.store.waits = ()

    def put(state: Any, change: TableChange) -> Answer:
        if ready:
            other_sink.commit(*ready.pop(0))
        return state.put(change)  # type: ignore[no-any-return]

    on_put(sink, put)
    assert isinstance(commit(sink), Done)
    assert report(sink, *range(9)).ok


# --- races


def race(sink: Any, *, other_plan: bool = False) -> list[Any]:
    """Returns the outcomes of a race: A looks, B runs from beginning to end, A puts.

    Args:
        sink: A's sink.
        other_plan: True if B's is another window with A's offsets.
    """
    outcomes, other_sink = list[Any](), open_beside(sink)
    window_receipt, files = staged_receipt(other_sink, 0, 0, "B", dead=False)
    if other_plan:
        planned = plan(other_sink, 5, offsets=(0, PER_WINDOW - 1))
        files = stage(other_sink, planned, 0, "B", dead=False)
        window_receipt = receipt(planned, files, 0, "B")
    run_between(sink, lambda: outcomes.append(other_sink.commit(window_receipt, files)))
    with suppress(OverlapError):
        outcomes.append(commit(sink, 0, "A"))
    return [type(outcome).__name__ for outcome in outcomes]


def test_two_runs_of_one_window(sink: Any) -> None:
    """Of two runs of one window one commits, and the other finds the commit."""
    assert race(sink) == ["Done", "AlreadyDone"]
    assert report(sink, 0).ok


def test_two_windows_that_share_offsets(sink: Any) -> None:
    """Of two windows that share offsets one commits and the other is refused, though both
    looked before either put.
    """
    assert race(sink, other_plan=True) == ["Done"]
    assert len(list(sink.receipts())) == 1


def test_a_loop_that_takes_a_conflict_for_done(sink: Any) -> None:
    """A twin that takes a conflict for its own commit reports "done" twice, and one of the runs
    has no rows.
    """

    def put_and_believe(state: Any, change: TableChange) -> Answer:
        put_answer = state.put(change)
        return Written(state.version + 1) if isinstance(put_answer, Conflict) else put_answer

    on_put(sink, put_and_believe)
    assert race(sink) == ["Done", "Done"]


def test_a_loop_that_does_not_judge_again(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that puts on the new state without judging it again has every row twice."""
    judged: set[int] = set()
    judge = window_table.WindowTable.committed_in

    def once(table: Any, state: Any, window_receipt: Any) -> Any:
        first = id(table) not in judged
        judged.add(id(table))
        return judge(table, state, window_receipt) if first else None

    monkeypatch.setattr(window_table.WindowTable, "committed_in", once)
    monkeypatch.setattr(window_table.WindowTable, "refuse_foreign_rows", lambda *_: None)
    assert race(sink) == ["Done", "Done"]
    assert not report(sink, 0).ok


# --- receipts and tables that are damaged or gone


def _damaged(text: str) -> str:
    return text[:-40]


def _later(text: str) -> str:
    return text.replace('"version":5', '"version":99')


def _earlier(text: str) -> str:
    return text.replace('"version":5', '"version":4')


@pytest.mark.parametrize(
    ("change", "message"),
    [(_damaged, "is damaged"), (_later, "later windrow"), (_earlier, "form 4, from before")],
)
def test_a_receipt_that_cannot_be_read(
    sink: Any, change: Callable[[str], str], message: str
) -> None:
    """A damaged receipt, and receipts of a later and an earlier form, each have their own error."""
    commit(sink)
    reading = sink.store.reading

    class Changed:
        def __init__(self, state: Any) -> None:
            self._state = state

        def __getattr__(self, name: str) -> Any:
            return getattr(self._state, name)

        def receipts(self, keys: Any = None) -> Iterator[Any]:
            return (
                msgspec.structs.replace(window_receipt, text=change(window_receipt.text))
                for window_receipt in self._state.receipts(keys)
            )

    @contextmanager
    def read_changed() -> Iterator[Any]:
        with reading() as state:
            yield Changed(state)

    sink.store.reading = read_changed
    with pytest.raises(DamagedError, match=message):
        sink.look(window(0))
    (unreadable,) = sink.audit().receipts()
    assert message in unreadable.message


def test_a_table_that_is_gone(sink: Any) -> None:
    """A commit to a table that was removed meanwhile is refused, and doesn't make the table."""
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    sink.store.content = None
    with pytest.raises(WindrowError, match="isn't there any more"):
        sink.commit(window_receipt, files)
    assert sink.owner() is None
