"""The commit loop, on a table in memory: what answers, races and lost ways come to, and
broken twins of it that lose rows.
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
from windrow.ingest.testing.contracts.commit_hooks import answered, in_between, on_put
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    plan,
    produced,
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
    """A prepared table that is tried three times, and waits for nothing."""
    sink = MemoryBoth("orders", ROWS)
    sink.store.waits = (0.0, 0.0)  # type: ignore[assignment]
    sink.prepare()
    return sink


def open_beside(sink: Any) -> Any:
    """Another process's sink on the same table."""
    beside_sink = MemoryBoth("orders", ROWS)
    beside_sink.store, beside_sink.dead_letters = _Same(sink.store), sink.dead_letters  # type: ignore[assignment]
    return beside_sink


class _Same:
    """The same store, without the hooks that a test has put into the first one's."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with MemoryStore.reading(self._store) as state:
            yield state


def report(sink: Any, *numbers: int) -> Report:
    """The checker's word on windows that should be there, dead letters left out."""
    return check(
        produced(numbers), sink.pieces(), [], [c.receipt for c in sink.receipts()], content="id"
    )


def commit(sink: Any, number: int = 0, attempt: str = "a1") -> Any:
    """A window without dead letters."""
    return sink.commit(*staged_receipt(sink, number, 0, attempt, dead=False))


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_what_arrived_without_its_answer_is_done(sink: Any, put_answer: Answer) -> None:
    """Also where the store's client sent it again by itself, and heard that another one
    came first: nothing is put twice.
    """
    puts = answered(sink, (put_answer, True))
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    assert isinstance(sink.commit(window_receipt, files), Done)
    assert len(puts) == 1
    assert isinstance(sink.commit(window_receipt, files), AlreadyDone)
    assert report(sink, 0).ok


def test_a_lost_way_is_told_at_once_and_once(
    sink: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first wait, not at each of them: nobody takes the silence for a hang."""
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
        f"Waiting for the table {sink.store.place}: the way to the table is lost"
    ]


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_what_did_not_arrive_is_put_again(sink: Any, put_answer: Answer) -> None:
    """As often as there are waits; then it is done."""
    answered(sink, (put_answer, False))
    assert isinstance(commit(sink), Done)
    assert report(sink, 0).ok


@pytest.mark.parametrize("put_answer", BOTH, ids=["unanswered", "conflict"])
def test_in_the_end_nobody_knows(sink: Any, put_answer: Answer) -> None:
    """Where a table doesn't move, tries end: the outcome is unknown, never refused and
    never done.
    """
    puts = answered(sink, *[(put_answer, False)] * 10)
    assert isinstance(commit(sink), Unknown)
    assert 2 <= len(puts) <= 4


def test_a_full_disk_is_no_unknown_outcome(sink: Any) -> None:
    """Once the last look has found nothing, what isn't there can't arrive any more."""
    answered(sink, *[(Unanswered("no space", full=True), False)] * 10)
    with pytest.raises(UnreachableError, match="no room"):
        commit(sink)


def test_a_lost_way_is_tried_again(sink: Any) -> None:
    """Nothing was sent, so in the end it is no unknown outcome; behind a put that may
    have arrived it is one.
    """
    answered(sink, (LOST, False))
    assert isinstance(commit(sink, 0), Done)
    answered(sink, *[(LOST, False)] * 10)
    with pytest.raises(LostConnectionError):
        commit(sink, 1)
    answered(sink, (Unanswered("reset"), False), *[(LOST, False)] * 10)
    assert isinstance(commit(sink, 1), Unknown)


def test_a_look_that_fails_behind_a_put_is_unknown(sink: Any) -> None:
    """Whatever was put may have arrived, so who can't look doesn't say that nothing did."""
    answered(sink, (Unanswered("reset"), False))
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
    """If it was put, and is of the same attempt and generation, whatever the sink added to it."""
    window_receipt, _ = staged_receipt(sink, 0, dead=False)
    written = AlreadyWritten(
        Committed(msgspec.structs.replace(window_receipt, **changed), 1), tries
    )
    assert written.outcome_for(window_receipt) == (Done if is_own else AlreadyDone)(
        written.value, tries
    )


@pytest.mark.parametrize("moved", [False, True])
def test_a_refusal_behind_a_put_that_may_arrive_is_unknown(sink: Any, moved: bool) -> None:
    """Who can't look at a receipt any more doesn't say that nothing became visible,
    unless the table has moved on: then nothing can. It doesn't say that nothing was committed.
    """
    answered(sink, (Unanswered("reset"), False))
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
    """A slow attempt beside busy ones commits in the end, however many came first."""
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


# --------------------------------------------------------------------------------------------------


def race(sink: Any, *, other_plan: bool = False) -> list[Any]:
    """A looks; B runs from beginning to end; A puts.

    What they were told. `other_plan`: B's is another window with A's offsets.
    """
    outcomes, other_sink = list[Any](), open_beside(sink)
    window_receipt, files = staged_receipt(other_sink, 0, 0, "B", dead=False)
    if other_plan:
        planned = plan(other_sink, 5, offsets=(0, PER_WINDOW - 1))
        files = stage(other_sink, planned, 0, "B", dead=False)
        window_receipt = receipt(planned, files, 0, "B")
    in_between(sink, lambda: outcomes.append(other_sink.commit(window_receipt, files)))
    with suppress(OverlapError):
        outcomes.append(commit(sink, 0, "A"))
    return [type(outcome).__name__ for outcome in outcomes]


def test_two_runs_of_one_window(sink: Any) -> None:
    """One commits, and the other one hears of it."""
    assert race(sink) == ["Done", "AlreadyDone"]
    assert report(sink, 0).ok


def test_two_windows_that_share_offsets(sink: Any) -> None:
    """Of two ledgers: one commits and the other one is refused, though both looked
    before either put.
    """
    assert race(sink, other_plan=True) == ["Done"]
    assert len(list(sink.receipts())) == 1


def test_a_loop_that_takes_a_conflict_for_done(sink: Any) -> None:
    """A twin that believes it was itself who came first tells "done" twice, and one of
    them has no rows.
    """

    def put_and_believe(state: Any, change: TableChange) -> Answer:
        put_answer = state.put(change)
        return Written(state.version + 1) if isinstance(put_answer, Conflict) else put_answer

    on_put(sink, put_and_believe)
    assert race(sink) == ["Done", "Done"]


def test_a_loop_that_does_not_judge_again(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that puts on the next state without looking what is in it has every row twice."""
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


# --------------------------------------------------------------------------------------------------


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
    """A damaged one, and those of a later and an earlier form, are each named as what
    they are, by the one place that parses receipts.
    """
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
    assert message in unreadable.what


def test_a_table_that_is_gone(sink: Any) -> None:
    """A commit to a table that was removed meanwhile is refused, and makes none."""
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    sink.store.content = None
    with pytest.raises(WindrowError, match="isn't there any more"):
        sink.commit(window_receipt, files)
    assert sink.owner() is None
