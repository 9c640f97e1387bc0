"""Rows of old windows leave a table together with a receipt that says so."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clock import clock_ahead
from tests.sinks.kit.commit.test_sweep import commit, version
from tests.sinks.world import SinkWorld
from tests.sinks.worlds import world_of
from windrow.ingest.admin.verify import compare_rows
from windrow.ingest.admin.verify_contents import compare_contents
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.grid import BATCH, batch_at
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import AlreadyDone, Done, Maintained, Maintenance
from windrow.ingest.sinks.kit.commit import maintain
from windrow.ingest.sinks.kit.commit.maintain import LEASE_TIME
from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange
from windrow.ingest.testing.contracts.commit_hooks import on_put
from windrow.ingest.testing.contracts.windows import FIRST, plan_of, receipt, stage, window

WINDOWS = range(3)
OLD = [window(0), window(1)]

in_each_kind = pytest.mark.parametrize(
    "kind", ["delta", "delta-partitioned", "files", "iceberg", "sqlite", "postgres"]
)


@pytest.fixture
def world(kind: str) -> SinkWorld:
    return world_of(kind)


@pytest.fixture
def sink(
    request: pytest.FixtureRequest,
    world: SinkWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """A table with three windows, which doesn't wait between tries."""
    server = request.getfixturevalue(world.server) if world.server else None
    sink = world.sink_at(world.new_location(tmp_path, server))
    monkeypatch.setattr(type(sink.store), "waits", (0.0, 0.0))
    sink.prepare()
    for number in WINDOWS:
        commit(sink, number)
    return sink


def limits() -> Maintenance:
    """Returns limits by which the rows of the first two windows are too old."""
    kept_since = FIRST + timedelta(hours=2.5)
    return Maintenance(keep_files=timedelta(days=1), keep_rows=datetime.now(UTC) - kept_since)


def findings(sink: Any) -> list[Any]:
    """Returns what a deep verification finds in the rows and dead letters of the table."""
    audit, receipts = sink.audit(), [c.receipt for c in sink.receipts()]
    counted = [f for r in receipts for f in compare_rows(r, audit.rows_held(r.window))]
    return counted + compare_contents(receipts, audit, sink.dead_letters)


def assert_expired(world: SinkWorld, sink: Any, before: list[Receipt]) -> None:
    """Checks the table as another process sees it, against the receipts of before."""
    fresh = world.reopen(sink)
    receipts = [c.receipt for c in fresh.receipts()]
    assert all(r.expired_at is not None for r in receipts[:2])
    expected = [b.without_rows(r.expired_at) for b, r in zip(before, receipts[:2], strict=False)]
    assert receipts == [*expected, before[2]]
    assert fresh.audit().windows() == {window(2).key}
    assert findings(fresh) == []


@pytest.mark.some(3)
@in_each_kind
def test_rows_of_old_windows_go(world: SinkWorld, sink: Any) -> None:
    """The rows of windows that ended too long ago leave the table. Their receipts keep the counts
    and the dead letters, and no run writes the rows again. A replay does, and the next
    maintenance removes its rows again.
    """
    before, old_version = [c.receipt for c in sink.receipts()], version(sink)
    rows = before[0].counts.rows + before[1].counts.rows
    assert sink.maintain(limits(), dry_run=True) == Maintained(expired_rows=rows)
    assert version(sink) == old_version
    assert sink.maintain(limits()) == Maintained(expired_rows=rows)
    assert_expired(world, sink, before)
    assert [sink.read_dead(w).num_rows for w in OLD] == [r.counts.dead for r in before[:2]]
    expired_version = version(sink)
    assert world.reopen(sink).maintain(limits()) == Maintained()
    assert version(sink) == expired_version
    assert isinstance(commit(world.reopen(sink), 0, 0, "late"), AlreadyDone)
    assert isinstance(commit(world.reopen(sink), 0, 2, "b1"), Done)
    assert sink.look(window(0)).receipt.expired_at is None
    assert findings(sink) == []
    again = Maintained(expired_rows=before[0].counts.rows)
    assert world.reopen(sink).maintain(limits()) == again
    assert sink.look(window(0)).receipt.generation == 3


@pytest.mark.some(3)
@in_each_kind
@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_kill_at_any_step(
    world: SinkWorld, sink: Any, number: int, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """After a kill before or after any commit, each window has its rows or an expired receipt, and
    the next maintenance ends the work.
    """
    monkeypatch.setattr(maintain, "EXPIRED_PER_COMMIT", 1)
    before, puts = [c.receipt for c in sink.receipts()], list[TableChange]()

    def die(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) <= number:
            answer: Answer = state.put(change)
            return answer
        if arrives:
            state.put(change)
        raise KeyboardInterrupt

    on_put(sink, die)
    with suppress(KeyboardInterrupt):
        sink.maintain(limits())
    fresh = world.reopen(sink)
    expired = {c.receipt.window for c in fresh.receipts() if c.receipt.expired_at is not None}
    assert expired == set(OLD[: max(0, number - 1 + arrives)])
    assert findings(fresh) == []
    with clock_ahead(LEASE_TIME):
        world.reopen(sink).maintain(limits())
    assert_expired(world, sink, before)


@pytest.mark.some(3)
@in_each_kind
def test_a_replay_meanwhile(world: SinkWorld, sink: Any) -> None:
    """The rows of a replay that is committed meanwhile go as those of any old window. The replay's
    own receipt is the one that tells of it.
    """
    world.let_overtake(sink, lambda: commit(world.reopen(sink), 1, 1, "b1"))
    sink.maintain(limits())
    newest = world.reopen(sink).look(window(1)).receipt
    assert (newest.generation, newest.attempt) == (2, "b1")
    assert newest.expired_at is not None
    assert findings(world.reopen(sink)) == []


@pytest.mark.some(3)
@in_each_kind
def test_a_micro_batch_that_is_replayed_meanwhile_stays(
    request: pytest.FixtureRequest, world: SinkWorld, tmp_path: Path
) -> None:
    """The rows of a micro-batch age from its last commit on, also if that comes after the
    maintenance has looked for old windows.
    """
    server = request.getfixturevalue(world.server) if world.server else None
    sink = world.sink_at(world.new_location(tmp_path, server))
    sink.prepare(TableOwner("orders", "ledger-1", BATCH))
    planned = plan_of(sink, batch_at("orders", 0), (0, 10))

    def commit_at(staged_at: datetime, generation: int) -> None:
        staged = stage(sink, planned, generation, f"a{generation}", dead=False)
        proposed = receipt(planned, staged, generation, f"a{generation}", grid=BATCH)
        proposed = msgspec.structs.replace(proposed, staged_at=staged_at)
        assert isinstance(world.reopen(sink).commit(proposed, staged), Done)

    commit_at(FIRST, 0)
    world.let_overtake(sink, lambda: commit_at(datetime.now(UTC), 1))
    assert sink.maintain(limits()) == Maintained()
    assert world.reopen(sink).look(planned.window).receipt.expired_at is None
    assert findings(world.reopen(sink)) == []


@pytest.mark.some(3)
@in_each_kind
def test_several_windows_go_by_one_commit(sink: Any) -> None:
    """The first maintenance of a table with years of windows doesn't make a commit for each."""
    puts: list[list[Window]] = []

    def note(state: Any, change: TableChange) -> Answer:
        puts.append([receipt.window for receipt in change.expired])
        answer: Answer = state.put(change)
        return answer

    on_put(sink, note)
    sink.maintain(limits())
    assert puts == [[], OLD, []], "the lease, both windows, the end of the lease"


@pytest.mark.parametrize("kind", ["delta", "files", "iceberg"])
def test_two_do_not_meet(world: SinkWorld, sink: Any) -> None:
    """While rows expire, another maintenance is refused."""
    puts: list[TableChange] = []

    def meet(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if change.expired:
            with pytest.raises(RefusedError, match="another process maintains the table"):
                world.reopen(sink).maintain(limits())
        answer: Answer = state.put(change)
        return answer

    on_put(sink, meet)
    sink.maintain(limits())
    assert [len(change.expired) for change in puts] == [0, len(OLD), 0]
