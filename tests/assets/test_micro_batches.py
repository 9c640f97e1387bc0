"""Micro-batches in Dagster: commits and events of a run, and the schedule."""

# No postponed annotations here, because Dagster reads those of the decorated functions.

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

# not among the public names; dagster is pinned to 1.13
from dagster._core.errors import DagsterExecutionInterruptedError
from sqlalchemy.exc import IntegrityError

from tests.assets.conftest import instance_in
from tests.assets.test_window_asset import failure_of
from tests.assets.ticks import ask
from tests.assets.world import World, hour
from windrow.assets.names import batches_name
from windrow.assets.schedule import (
    BATCH_REFUSED,
    BATCHES_DONE,
    DONE_TAG,
    NOTHING_WAITS,
    REFUSED_TAG,
    STILL_GOING,
)
from windrow.ingest.errors import RefusedError
from windrow.ingest.sinks.kit.commit import commit_loop

pytestmark = pytest.mark.some(6, of="tests")

SIX_AT_ONCE = {"grid": "batch", "every": "*/2 * * * *", "max_records": 6}


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance, window=SIX_AT_ONCE)


def put(world: World, count: int) -> None:
    """Writes messages to the partitions in turn."""
    for i in range(count):
        world.send(0, i % 60, b'{"id": 1}', i % 2)


def committed_numbers(world: World) -> list[int]:
    """Returns the numbers of the batches in the table."""
    return [int(str(c.receipt.window.start)) for c in world.sink.receipts()]


def keys(world: World) -> list[str]:
    """Returns the table's partitions in Dagster."""
    return list(world.instance.get_dynamic_partitions(batches_name(world.spec)))


def tick(world: World, moment: datetime) -> dg.RunRequest | str:
    requests = ask(world, "things_waiting", moment)
    return requests if isinstance(requests, str) else requests[0]


def test_a_run_drains_what_is_waiting(world: World) -> None:
    """A run commits all waiting messages in batches, each shown by one event after its commit."""
    put(world, 20)
    result = world.run_batches()
    assert result.success
    assert committed_numbers(world) == [0, 1, 2, 3]
    assert keys(world) == [world.key(n) for n in range(4)] == sorted(world.green_keys())
    assert [world.metadata(n)["batch"].value for n in range(4)] == [0, 1, 2, 3]
    shown = world.plain_events()
    assert [s["batch"] for s in shown] == [0, 1, 2, 3]
    assert [s["window"] for s in shown[:2]] == ["batch-000000000", "batch-000000001"]
    assert [s["messages_read"] for s in shown[:4]] == [6, 6, 6, 2]
    assert [s["lag_records"] for s in shown[:4]] == [14, 8, 2, 0]
    assert "completeness" not in shown[0]
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()} == {
        "receipts": True,
        "loss": True,
        "retention_margin": True,
        "ignored": True,
    }
    assert world.verdict().ok, world.verdict()


def test_nothing_waiting_is_green_and_shows_nothing(world: World) -> None:
    """A run without waiting messages succeeds, and commits and shows nothing."""
    assert world.run_batches().success
    assert world.plain_events() == []
    assert committed_numbers(world) == []


def test_all_of_a_run_has_its_id(world: World) -> None:
    """The request of each batch is the id of the root run and a number.

    So a retry of the run reports its batches and continues.
    """
    put(world, 12)
    result = world.run_batches()
    assert [c.receipt.request for c in world.sink.receipts()] == [
        f"{result.run_id}/0",
        f"{result.run_id}/1",
    ]


def test_a_run_of_partitions_reports_or_replaces_what_is_there(world: World) -> None:
    """A run of partitions reports their batches or replaces them from the same offsets.

    It makes no new batch.
    """
    put(world, 20)
    assert world.run_batches().success
    receipts_before = {c.receipt.window: c.receipt for c in world.sink.receipts()}
    put(world, 3)
    assert world.run(1, 2).success
    assert world.metadata(1)["recovered"].value
    assert {c.receipt.window: c.receipt for c in world.sink.receipts()} == receipts_before
    assert world.run(1, 2, on_committed="replace").success
    receipts_after = {c.receipt.window: c.receipt for c in world.sink.receipts()}
    assert [r.generation for r in receipts_after.values()] == [0, 1, 1, 0]
    assert {w: r.digest for w, r in receipts_after.items()} == {
        w: r.digest for w, r in receipts_before.items()
    }
    assert len(keys(world)) == 4
    assert world.run_batches().success
    assert world.verdict().ok


@pytest.mark.parametrize(
    ("partition", "config", "message"),
    [
        (None, {"on_committed": "replace"}, "on_committed is for partitions"),
        (None, {"accept_fewer": True}, "accept_fewer is for partitions"),
        ("batch-000000009", {}, "was not cut yet"),
        ("batch-9", {}, "The partition 'batch-9' is no micro-batch"),
        ("batch-\u0663", {}, "is no micro-batch"),
        ("things/batch", {"on_committed": "replace"}, "is no micro-batch"),
    ],
)
def test_options_that_say_nothing_are_refused(
    world: World, partition: str | None, config: dict[str, object], message: str
) -> None:
    """An option without an effect is refused without a retry."""
    put(world, 2)
    if partition is None:
        result = world.run_batches(**config)
    else:
        world.instance.add_dynamic_partitions(batches_name(world.spec), [partition])
        result = world.run_range(partition, partition, **config)
    assert message in failure_of(result)
    assert world.connections <= 1
    assert committed_numbers(world) == []


@pytest.mark.parametrize("by_partition", [False, True])
def test_a_refused_batch_waits_for_a_person(world: World, *, by_partition: bool) -> None:
    """After a refused batch, the schedule starts no run until a user runs the job or the partition.

    The partition's event says why the batch was refused.
    """
    put(world, 6)
    for _ in range(20):
        world.send(0, 0, b"poison")
    result = world.run_batches()
    assert not result.success
    assert committed_numbers(world) == [0]
    assert [s["batch"] for s in world.plain_events()] == [0]
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[REFUSED_TAG] == "batch-000000001"
    assert keys(world) == ["batch-000000000", "batch-000000001"]
    records_filter = dg.AssetRecordsFilter(
        dg.AssetKey(["things"]), asset_partitions=["batch-000000001"]
    )
    [observation] = world.instance.fetch_observations(records_filter, limit=9).records
    assert observation.asset_observation is not None
    assert "6 of 6 messages refused" in str(observation.asset_observation.metadata["refused"].value)
    assert tick(world, hour(1)) == BATCH_REFUSED
    world.relax(max_dead_ratio=1.0)
    if by_partition:  # like the UI starts it, with another job than the pipeline's
        job = world.defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(
            instance=world.instance,
            asset_selection=[dg.AssetKey(["things"])],
            partition_key=world.key(1),
        ).success
    else:
        assert world.run_batches().success
    put(world, 6)
    assert isinstance(tick(world, hour(1, 2)), dg.RunRequest)
    assert world.run_batches().success
    assert world.verdict().ok


def test_an_end_that_is_reached(world: World, tmp_path: Path) -> None:
    """A run that reaches `window.stop` is tagged as done, and the schedule starts no more runs.

    That changes when the spec has another stop. A run by hand reads nothing and succeeds.
    """

    def until(stop: object) -> None:
        world.spec = World.spec_of(tmp_path, window=SIX_AT_ONCE | {"stop": stop})
        world.load()

    put(world, 8)
    until("latest")
    assert isinstance(tick(world, hour(1)), dg.RunRequest)
    result = world.run_batches()
    assert result.success
    assert committed_numbers(world) == [0, 1]
    assert [s["lag_records"] for s in world.plain_events()] == [2, 0]
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert DONE_TAG in run.tags
    put(world, 4)
    assert tick(world, hour(1, 2)) == BATCHES_DONE
    assert world.run_batches().success
    assert committed_numbers(world) == [0, 1]
    assert tick(world, hour(1, 4)) == BATCHES_DONE
    until({"offsets": {0: 5, 1: 7}})
    assert isinstance(tick(world, hour(1, 6)), dg.RunRequest)
    assert world.run_batches().success
    assert committed_numbers(world) == [0, 1, 2]
    assert tick(world, hour(1, 8)) == NOTHING_WAITS, "one offset is still to come"


def test_a_refusal_before_the_first_batch_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is refused before its pipeline is open says why, and isn't called a bug."""

    def refuse(*_: object) -> object:
        raise RefusedError("A record of the ledger is damaged", "setup", "Restore it.")

    monkeypatch.setattr("windrow.assets.window_asset.pipeline_of", refuse)
    [failed] = world.run_batches().get_step_failure_events()
    message = failed.step_failure_data.error_display_string
    assert "A record of the ledger is damaged" in message
    assert "NameError" not in message


def test_a_refused_replay_is_in_nobodys_way(world: World) -> None:
    """A refused replay doesn't stop the schedule, because the batch is committed."""
    put(world, 6)
    assert world.run_batches().success
    world.broker.delete_records(next(iter(world.sent_offsets)), 2)
    assert not world.run(0, on_committed="replace").success
    put(world, 1)
    assert isinstance(tick(world, hour(1)), dg.RunRequest)


def test_the_schedule_asks_at_every(world: World) -> None:
    """The schedule ticks at `window.every`, and requests one run per tick.

    It requests none without waiting messages, or while a run is going.
    """
    assert world.defs.resolve_schedule_def("things_waiting").cron_schedule == "*/2 * * * *"
    assert tick(world, hour(0)) == NOTHING_WAITS
    put(world, 1)
    first, second = tick(world, hour(1)), tick(world, hour(1, 2))
    assert isinstance(first, dg.RunRequest)
    assert isinstance(second, dg.RunRequest)
    assert first.run_key != second.run_key
    job = world.defs.resolve_job_def("things_batches")
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert tick(world, hour(1, 4)) == STILL_GOING


def test_six_hours_without_ticks_are_drained_by_one(world: World) -> None:
    """After an outage of the schedule, one run commits all messages of the meantime, once."""
    put(world, 4)
    assert world.run_batches().success
    for n in range(1, 7):
        for i in range(10):
            world.send(n, i * 6, b'{"id": 1}', i % 2)
    assert isinstance(tick(world, hour(7)), dg.RunRequest)
    assert world.run_batches().success
    assert sum(c.receipt.counts.read for c in world.sink.receipts()) == 64
    assert world.verdict().ok, world.verdict()


def test_the_check_sees_what_dagster_shows_of_batches(world: World) -> None:
    """The check `receipts` finds a batch for which Dagster shows another receipt."""
    put(world, 12)
    assert world.run_batches().success
    older = {
        "window": "batch-000000001",
        "receipt": dg.MetadataValue.json({"digest": "x", "generation": 7, "attempt": "y"}),
    }
    shown = dg.AssetMaterialization("things", partition=world.key(1), metadata=older)
    world.instance.report_runless_asset_event(shown)
    put(world, 2)
    [evaluation] = [
        e for e in world.run_batches().get_asset_check_evaluations() if e.check_name == "receipts"
    ]
    assert not evaluation.passed
    assert "batch-000000001: Dagster has generation 7, the table generation 0" in str(
        evaluation.metadata["wrong"].value
    )


def test_a_batch_that_its_run_could_not_show_is_shown_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that a killed run couldn't show is shown by the next run.

    1. A run commits a batch, adds its partition, and is killed.
    2. The next run shows that batch from its receipt, once, and commits the waiting messages.

    The schedule requests the second run even if no messages are waiting.
    """

    def interrupt(*_: object, **__: object) -> None:
        raise DagsterExecutionInterruptedError

    put(world, 9)
    with monkeypatch.context() as patched:
        patched.setattr("windrow.assets.micro_batches.show", interrupt)
        assert not world.run_batches().success
    assert (committed_numbers(world), keys(world), world.green_keys()) == (
        [0],
        [world.key(0)],
        set(),
    )
    for _ in range(2):
        assert world.run_batches().success
    assert [(s["batch"], "recovered" in s) for s in world.plain_events()] == [(0, True), (1, False)]
    assert world.verdict().ok
    put(world, 1)
    with monkeypatch.context() as patched:
        patched.setattr("windrow.assets.micro_batches.show", interrupt)
        assert not world.run_batches().success
    assert isinstance(tick(world, hour(1)), dg.RunRequest)


def test_a_dagster_that_is_new_has_the_partitions_of_the_receipts(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new Dagster instance gets the partitions of all receipts, also of the command's batches.

    A run shows the newest ones; a run of partitions shows the others.
    """
    monkeypatch.setattr("windrow.assets.micro_batches.NEWEST", 2)
    put(world, 20)
    assert world.run_batches().success
    (folder := tmp_path / "new").mkdir()
    with instance_in(folder) as new:
        world.instance = new
        assert world.run_batches().success
        assert keys(world) == [world.key(n) for n in range(4)]
        assert world.green_keys() == {world.key(2), world.key(3)}
        assert world.run(0, 1).success
        assert len(world.green_keys()) == 4
    assert world.verdict().ok


def test_the_newest_batches_are_partitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old batches are removed from Dagster's list of partitions, and their events stay."""
    monkeypatch.setattr("windrow.assets.micro_batches.PARTITIONS", 3)
    put(world, 20)
    assert world.run_batches().success
    assert keys(world) == [world.key(n) for n in range(1, 4)]
    put(world, 1)
    assert world.run_batches().success
    assert keys(world) == [world.key(n) for n in range(2, 5)]
    assert [s["batch"] for s in world.plain_events()] == [0, 1, 2, 3, 4]


def test_two_runs_add_one_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that another run adds at the same moment is no failure."""
    put(world, 8)
    add, look = world.instance.add_dynamic_partitions, world.instance.get_dynamic_partitions

    def add_late(name: str, new_keys: Sequence[str]) -> None:
        """Adds a partition like another run does, after Dagster has looked and before it adds."""
        if new_keys and new_keys[0] not in look(name):
            add(name, new_keys[:1])
            raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))
        add(name, new_keys)

    monkeypatch.setattr(world.instance, "add_dynamic_partitions", add_late)
    assert world.run_batches().success
    assert keys(world) == [world.key(0), world.key(1)]


@pytest.mark.parametrize("second_run", ["drain", "partition"])
def test_two_runs_at_once(world: World, monkeypatch: pytest.MonkeyPatch, second_run: str) -> None:
    """Two simultaneous runs commit each batch once, and each partition is green.

    1. A run has read the first batch.
    2. Another run of all batches, or of that partition, starts and ends.
    3. The first run goes on.
    """
    put(world, 20)
    world.instance.add_dynamic_partitions(batches_name(world.spec), [world.key(0)])
    met = list[str]()

    def meet(point: str) -> None:
        if point == "commit.before" and not met:
            met.append(point)
            assert (world.run_batches() if second_run == "drain" else world.run(0)).success

    monkeypatch.setattr(commit_loop, "crash_point", meet)
    assert world.run_batches().success
    assert met
    assert committed_numbers(world) == [0, 1, 2, 3]
    assert sorted(world.green_keys()) == keys(world) == [world.key(n) for n in range(4)]
    assert world.verdict().ok, world.verdict()


def test_a_history_without_partitions_stays(world: World) -> None:
    """Events from before batches were partitions stay, and the newest batches get an event each."""
    put(world, 12)
    for n in range(2):
        old_event = dg.AssetMaterialization("things", metadata={"batch": n, "of": "before"})
        world.instance.report_runless_asset_event(old_event)
    assert world.run_batches().success
    assert [(s["batch"], s.get("of")) for s in world.plain_events()] == [
        (0, "before"),
        (1, "before"),
        (0, None),
        (1, None),
    ]
    assert sorted(world.green_keys()) == keys(world) == [world.key(0), world.key(1)]


def test_downstream_assets_have_the_batches_as_partitions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asset with the table's partitions is requested once for each committed batch.

    It is requested again if the batch is replaced. An asset without partitions is requested
    once for all batches. The example is from the docs page.
    """
    monkeypatch.setattr("windrow.load_spec", lambda path: world.spec)
    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text(encoding="utf-8")
    [typed] = re.findall(r"```python\n(# batches.py\n.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__file__": "batches.py"}
    exec(compile(typed, "dagster.md", "exec", dont_inherit=True), names)
    sessions, total = names["sessions"], names["total"]
    defs = dg.Definitions.merge(world.defs, dg.Definitions(assets=[sessions, total]))

    def evaluate(cursor: Any = None) -> Any:
        return dg.evaluate_automation_conditions(defs, world.instance, cursor=cursor)

    first = evaluate()
    put(world, 9)
    assert world.run_batches().success
    second = evaluate(first.cursor)
    assert second.get_requested_partitions(sessions.key) == {world.key(0), world.key(1)}
    assert second.get_num_requested(total.key) == 1
    for key in (world.key(0), world.key(1)):
        assert dg.materialize([sessions], instance=world.instance, partition_key=key).success
    third = evaluate(second.cursor)
    assert third.get_num_requested(sessions.key) == 0
    assert world.run(1, on_committed="replace").success
    assert evaluate(third.cursor).get_requested_partitions(sessions.key) == {world.key(1)}
