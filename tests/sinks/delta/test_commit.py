"""What a commit does when its answer is lost, another commit comes first, or nothing can be told.

What was found in deltalake 1.6, and a change of which would be noticed here: `create_write_transaction` does not refresh the handle that it
was called on, so a commit is made on exactly the snapshot that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from tests.sinks.beside import DeltaBoth
from tests.sinks.delta.pieces import delta_pieces, staged_paths
from tests.sinks.things import ROWS, staged_receipt, window
from windrow.ingest.errors import DamagedError, OutcomeUnknownError, RefusedError, UnreachableError
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.names import window_app
from windrow.ingest.sinks.delta.newest import State
from windrow.ingest.sinks.place import Place


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaBoth:
    """A prepared sink that doesn't wait between tries."""
    made = DeltaBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    monkeypatch.setattr(tables, "WAITS", (0.0, 0.0))
    return made


def test_generations_share_their_window_id(sink: DeltaBoth) -> None:
    """A window is one application to Delta, whatever its generation: of two stale writers one is refused. Another window is another."""
    for number, generation in ((0, 0), (0, 1), (1, 0)):
        made, staged = staged_receipt(sink, number, generation, f"a{generation}")
        assert isinstance(sink.commit(made, staged), Done)
    table = DeltaTable(sink.uri)
    assert [table.transaction_version(window_app(window(n).key, "orders")) for n in (0, 1, 2)] == [2, 1, None]


class Wire:
    """Stands between the sink and deltalake: runs what the test says around each append."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[Callable[[], None]], None]) -> None:
        self.sent = 0
        self._acts = list(acts)
        self._append = tables.append
        monkeypatch.setattr(tables, "append", self)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.sent += 1
        send = lambda: self._append(*args, **kwargs)  # noqa: E731 - the call itself, to be made or not
        if self._acts:
            self._acts.pop(0)(send)
        else:
            send()


def lands_unanswered(error: Exception) -> Callable[[Callable[[], None]], None]:
    """The commit arrives, and its answer is an error."""

    def act(send: Callable[[], None]) -> None:
        send()
        raise error

    return act


def fails(error: Exception) -> Callable[[Callable[[], None]], None]:
    """The commit never leaves."""

    def act(_: Callable[[], None]) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    "error", [OSError("reset"), DeltaError("checkpoint failed"), CommitFailedError("version exists"), Exception("External")]
)
def test_a_commit_that_arrived_unanswered_is_found(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Whatever the error says, a commit that is in the table is done, and not sent twice."""
    wire = Wire(monkeypatch, lands_unanswered(error))
    made, staged = staged_receipt(sink, 0)
    outcome = sink.commit(made, staged)
    assert isinstance(outcome, Done)
    assert outcome.committed == sink.look(window(0))
    assert wire.sent == 1


@pytest.mark.parametrize("error", [OSError("no route"), DeltaError("generic"), Exception("External")])
def test_a_commit_that_never_left_is_sent_again(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A failure that left nothing behind is tried again with the same files."""
    wire = Wire(monkeypatch, fails(error), fails(error))
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert wire.sent == 3


def test_tries_are_load_nowed(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails every time ends as unknown, saying why; nothing is deleted, and a later attempt goes through."""
    Wire(monkeypatch, *[fails(OSError("no route"))] * 3)
    made, staged = staged_receipt(sink, 0)
    before = staged_paths(sink.uri)
    assert sink.commit(made, staged) == Unknown("OSError: no route")
    assert staged_paths(sink.uri) == before
    assert isinstance(sink.commit(made, staged), Done)


def test_an_outcome_that_cannot_be_looked_at_is_unknown(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table can't be read after the commit was sent, the outcome is unknown, not refused; the next run finds it."""
    made, staged = staged_receipt(sink, 0)
    with monkeypatch.context() as patch:

        def then_gone(send: Callable[[], None]) -> None:
            send()
            _cut_off(patch)
            raise OSError("reset")

        Wire(patch, then_gone)
        assert isinstance(sink.commit(made, staged), Unknown)
    assert isinstance(sink.commit(made, staged), AlreadyDone)


def test_a_table_that_cannot_be_reached_before(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything was sent, an unreachable table is just that."""
    made, staged = staged_receipt(sink, 0)
    _cut_off(monkeypatch)
    with pytest.raises(UnreachableError) as raised:
        sink.commit(made, staged)
    assert not isinstance(raised.value, OutcomeUnknownError)


def test_others_commits_never_use_up_the_tries(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that loses to ten other windows in a row arrives at the eleventh try; the tries of a failure are only two."""
    others = [staged_receipt(sink, n) for n in range(1, 11)]
    plain = tables.append

    def first(other: Any) -> Callable[[Callable[[], None]], None]:
        def act(send: Callable[[], None]) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(tables, "append", plain)
                assert isinstance(DeltaBoth(sink.uri, ROWS).commit(*other), Done)
            send()

        return act

    wire = Wire(monkeypatch, *map(first, others))
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert wire.sent == 11
    assert [c.version for c in sink.receipts()] == [11, *range(1, 11)]


def test_the_window_of_another_generation_in_between(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first attempt that loses to a newer generation of its own window hears of that one."""
    made, staged = staged_receipt(sink, 0)
    plain = tables.append

    def twice_committed(send: Callable[[], None]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(tables, "append", plain)
            other = DeltaBoth(sink.uri, ROWS)
            other.commit(*staged_receipt(other, 0, 0, "b0"))
            other.commit(*staged_receipt(other, 0, 1, "b1"))
        send()

    Wire(monkeypatch, twice_committed)
    outcome = sink.commit(made, staged)
    assert isinstance(outcome, AlreadyDone)
    assert outcome.committed.receipt.attempt == "b1"


def test_a_schema_change_in_between(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign commit that changes properties in between makes the commit look again, and arrive."""

    def property_set(send: Callable[[], None]) -> None:
        DeltaTable(sink.uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
        send()

    wire = Wire(monkeypatch, property_set)
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert wire.sent == 2


def test_a_table_that_was_made_anew_in_between(sink: DeltaBoth) -> None:
    """A table that vanished, or is another one now, takes nothing."""
    import shutil

    made, staged = staged_receipt(sink, 0)
    shutil.rmtree(sink.uri)
    with pytest.raises(RefusedError, match="isn't there any more"):
        sink.commit(made, staged)


def test_a_dead_letter_commit_unanswered(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters that arrived unanswered are not sent twice; ones that can't be told are an unknown outcome."""
    made, staged = staged_receipt(sink, 0)
    wire = Wire(monkeypatch, lands_unanswered(OSError("reset")))
    sink.commit_dead(made.plan, "a1", staged)
    assert wire.sent == 1
    assert sum(p.num_rows for p in delta_pieces(f"{sink.uri}_dead")) == 2
    Wire(monkeypatch, *[fails(OSError("no route"))] * 3)
    with pytest.raises(OutcomeUnknownError, match="no route"):
        sink.commit_dead(made.plan, "a2", staged)


def test_the_history_is_readable_by_people(sink: DeltaBoth) -> None:
    """The commit's own entry says window, generation, counts and ranges."""
    sink.commit(*staged_receipt(sink, 0))
    note = DeltaTable(sink.uri).history(1)[0]["windrow"]
    assert window(0).key in note
    assert '"ranges":[["shop.orders",0,0,10],["shop.orders",1,0,10]]' in note
    assert '"generation":0' in note


def test_conflict_errors_of_deltalake(tmp_path: Path) -> None:
    """The errors that the sink relies on: a stale snapshot is CommitFailedError, and nothing of it arrives."""
    uri = str(tmp_path / "t")
    DeltaTable.create(uri, Schema.from_arrow(ROWS.append(pa.field("_window", pa.string()))), partition_by=["_window"])
    stale = DeltaTable(uri)
    tables.append(DeltaTable(uri), [], tables.once({"a": 1}, {}))
    with pytest.raises(CommitFailedError):
        tables.append(stale, [], tables.once({"b": 1}, {}))
    assert DeltaTable(uri).version() == 1


def _unreachable(*_: object) -> None:
    raise UnreachableError("the table can't be read", "setup", "Wait.")


def _cut_off(patch: pytest.MonkeyPatch) -> None:
    """Nothing of a table can be read, by whomever."""
    patch.setattr(tables, "load", _unreachable)
    patch.setattr(Place, "names", _unreachable)
    patch.setattr(Place, "get", _unreachable)


def test_a_commit_beside_a_missing_receipt_is_refused(sink: DeltaBoth) -> None:
    """Whoever commits first in a process holds all that the table names against the files that are there."""
    sink.commit(*staged_receipt(sink, 0))
    sink.commit(*staged_receipt(sink, 1))
    next((Path(sink.uri) / "_windrow" / "receipts").iterdir()).unlink()
    fresh = DeltaBoth(sink.uri, ROWS)
    made, staged = staged_receipt(fresh, 5)
    with pytest.raises(DamagedError, match="is missing"):
        fresh.commit(made, staged)
    assert fresh.look(window(5)) is None


def test_receipts_are_listed_after_the_snapshot(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour that commits right before the table is loaded has its receipt among those that are looked at."""
    rival, bound = DeltaBoth(sink.uri, ROWS), sink._look_now
    made, staged = staged_receipt(sink, 1)

    def overtaken() -> State:
        monkeypatch.setattr(sink, "_look_now", bound)
        assert isinstance(rival.commit(*staged_receipt(rival, 0)), Done)
        return bound()

    monkeypatch.setattr(sink, "_look_now", overtaken)
    assert isinstance(sink.commit(made, staged), Done)
