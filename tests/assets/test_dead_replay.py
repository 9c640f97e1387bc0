"""Dead-letter replay in Dagster, by partition of hours or of micro-batches.

Each window's event shows what is in the table after the replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.test_window_asset import failure_of
from tests.assets.world import TOPIC, World, of_table
from windrow.assets.dagster_internals import range_tags
from windrow.assets.names import dead_replay_job_name
from windrow.ingest.config.limits import LimitsSpec
from windrow.ingest.model.boundary import TopicPartition

pytestmark = pytest.mark.some(6, of="tests")

LENIENT = {"schema": "things.py:Thing", "coerce": "lenient"}
EDIT = """\
from dataclasses import replace


def edit(message):
    return replace(message, value=b'{"id": 7}')
"""


def replay_dead_letters(
    world: World, first: int, last: int, **config: Any
) -> dg.ExecuteInProcessResult:
    """Runs the job for the hours from `first` to `last`, like a user starts it."""
    job = world.defs.resolve_job_def(dead_replay_job_name(world.spec))
    ops = {"ops": {"things": {"config": config}}} if config else None
    tags = range_tags(dg.PartitionKeyRange(world.key(first), world.key(last)))
    return job.execute_in_process(
        instance=world.instance, tags=tags, raise_on_error=False, run_config=ops
    )


def loosen(world: World) -> None:
    """Makes the pipeline accept whole numbers that are written as text."""
    decode = type(world.spec.decode).model_validate(LENIENT | {"format": "json"})
    world.spec = world.spec.model_copy(update={"decode": decode})
    world.load()


@pytest.fixture
def torn(world: World) -> World:
    """A pipeline with three hours, two of them committed.

    Each hour has a message with its number as text, and a message that is not JSON.
    """
    for n in range(3):
        world.fill(1, n)
        world.send(n, 59, b'{"id": "5"}')
        world.send(n, 59, b"poison")
    world.fill(1, 3)
    assert world.run(0, 1).success
    return world


def test_dead_letters_of_partitions_are_replayed(torn: World) -> None:
    """Each window's event shows the table's content after the replay, with a new data version.

    A window that wasn't committed is run.
    """
    loosen(torn)
    tags_before = [e.asset_materialization.tags for e in _events(torn)]
    result = replay_dead_letters(torn, 0, 3)
    assert result.success
    assert [event.partition for event in of_table(result)] == [torn.key(n) for n in range(4)]
    for n in range(3):
        shown = {name: value.value for name, value in torn.metadata(n).items()}
        assert (shown["rows_written"], shown["dead_letters"], shown["dead_reasons"]) == (
            61,
            1,
            {"not_json": 1},
        )
        assert (shown.get("dead_replayed"), shown.get("generation")) == (
            (1, 1) if n < 2 else (None, 0)
        )
        assert "recovered" not in shown
    tags_after = [e.asset_materialization.tags for e in _events(torn)]
    assert not {t["dagster/data_version"] for t in tags_before} & {
        t["dagster/data_version"] for t in tags_after[:4]
    }
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()}["receipts"]
    assert torn.verdict().ok, str(torn.verdict())


def test_the_asset_of_the_dead_letters(torn: World, tmp_path: Path) -> None:
    """The asset of the dead letters has an event for each window, made by the table's runs.

    The event shows their number, ratio and reasons. The asset's check warns while there are
    dead letters, names its event, and can run alone. A replay leaves the letters that it can't
    decode.
    """
    dead = dg.AssetKey(["things_dead"])
    check = dg.AssetCheckKey(dead, "dead_letters")

    def metadata_of(n: int) -> dict[str, Any]:
        records_filter = dg.AssetRecordsFilter(dead, asset_partitions=[torn.key(n)])
        [record] = torn.instance.fetch_materializations(records_filter, limit=1).records
        assert record.asset_materialization is not None
        return {name: v.value for name, v in record.asset_materialization.metadata.items()}

    def verdict() -> dg.AssetCheckEvaluation:
        record = torn.instance.get_latest_asset_check_evaluation_record(check)
        assert record is not None
        assert record.event is not None
        assert record.event.dagster_event is not None
        evaluation = record.event.dagster_event.event_specific_data
        assert isinstance(evaluation, dg.AssetCheckEvaluation)
        return evaluation

    assert torn.instance.get_materialized_partitions(dead) == {torn.key(0), torn.key(1)}
    assert metadata_of(0) == {
        "dead_letters": 2,
        "dead_ratio": 0.032258,
        "dead_reasons": {"not_json": 1, "wrong_type": 1},
        "window": "2026-01-05T00:00:00Z/2026-01-05T01:00:00Z",
        "generation": 0,
    }
    assert (verdict().passed, verdict().severity) == (False, dg.AssetCheckSeverity.WARN)
    checked, newest = (
        verdict().target_materialization_data,
        torn.instance.fetch_materializations(dead, limit=1),
    )
    assert checked is not None
    assert checked.storage_id == newest.records[0].storage_id
    assert "4 of 124 messages of the newest 2 windows became dead letters, 2 of them for" in str(
        verdict().description
    )
    definition = torn.defs.resolve_asset_graph().get(dead)
    assert definition.metadata["path"].value == f"{torn.spec.sink_path()}_dead"
    loosen(torn)
    assert replay_dead_letters(torn, 0, 1).success
    for n in (0, 1):
        assert (metadata_of(n)["dead_reasons"], metadata_of(n)["generation"]) == (
            {"not_json": 1},
            1,
        )
    (tmp_path / "fix.py").write_text(EDIT)
    assert replay_dead_letters(torn, 0, 1, edit=str(tmp_path / "fix.py")).success
    assert [metadata_of(n)["dead_letters"] for n in (0, 1)] == [0, 0]
    assert verdict().passed
    job = dg.define_asset_job("alone", dg.AssetSelection.checks(check))
    check_job = dg.Definitions.merge(torn.defs, dg.Definitions(jobs=[job])).resolve_job_def("alone")
    [evaluated] = check_job.execute_in_process(instance=torn.instance).get_asset_check_evaluations()
    assert (evaluated.asset_check_key, evaluated.passed) == (check, True)


def test_some_dead_letters_may_be_expected(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The check doesn't warn up to `limits.warn_dead_ratio` of the newest windows' messages.

    It shows their number in any case.
    """
    world = World(tmp_path, instance, limits={"warn_dead_ratio": 0.05})
    check = dg.AssetCheckKey(dg.AssetKey(["things_dead"]), "dead_letters")

    def passes() -> bool:
        record = instance.get_latest_asset_check_evaluation_record(check)
        assert record is not None
        assert record.event is not None
        assert record.event.dagster_event is not None
        evaluation = record.event.dagster_event.event_specific_data
        assert isinstance(evaluation, dg.AssetCheckEvaluation)
        assert "messages of the newest" in str(evaluation.description)
        return evaluation.passed

    world.fill(1)
    world.send(0, 59, b"poison")
    world.fill(1, first=1)
    assert world.run(0).success
    assert passes()
    for _ in range(9):
        world.send(1, 59, b"poison")
    world.fill(1, first=2)
    world.spec = world.spec.model_copy(
        update={"limits": LimitsSpec(max_dead_ratio=None, warn_dead_ratio=0.05)}
    )
    world.load()
    assert world.run(1).success
    assert not passes()


def _events(world: World) -> list[Any]:
    return list(world.instance.fetch_materializations(dg.AssetKey(["things"]), limit=100).records)


def test_a_refused_window_is_passed_over(world: World) -> None:
    """A replay continues after a refused window, and fails at its end with that window's name."""
    world.fill(1)
    world.send(0, 59, b'{"id": "5"}')
    for _ in range(200):
        world.send(1, 59, b"poison")
    world.fill(1, first=2)
    assert world.run(0).success
    loosen(world)
    result = replay_dead_letters(world, 0, 2)
    assert world.green_keys() == {world.key(0), world.key(2)}
    assert world.receipt_of(0).counts.dead == 0
    assert f"Window {world.key(1)}: 1 of 3 windows refused: 2026-01-05T01:00:00Z" in failure_of(
        result
    )


def test_nothing_to_replay_is_green(torn: World) -> None:
    """If today's schema accepts none of the dead letters, the window is reported as it is."""
    receipt_before = torn.receipt_of(0)
    assert replay_dead_letters(torn, 0, 0).success
    assert torn.receipt_of(0) == receipt_before
    assert torn.metadata(0)["recovered"].value is True


def test_a_script_and_a_reason(torn: World, tmp_path: Path) -> None:
    """The run's config chooses dead letters by reason, and names a script that edits them."""
    (tmp_path / "fix.py").write_text(EDIT)
    assert replay_dead_letters(torn, 0, 1, reason="not_json", edit=str(tmp_path / "fix.py")).success
    for n in range(2):
        shown = {name: value.value for name, value in torn.metadata(n).items()}
        assert (shown["dead_replayed"], shown["edited"], shown["dead_reasons"]) == (
            1,
            1,
            {"wrong_type": 1},
        )
    failed = torn.run(0, on_committed="replace")
    assert "holds 1 message edited for a dead-letter replay" in failure_of(failed)
    assert torn.run(0, on_committed="replace", accept_fewer=True).success
    assert torn.receipt_of(0).counts.dead == 2


def test_what_goes_with_dead_replay_alone(torn: World) -> None:
    """A reason, stage or script without a replay is refused."""
    assert "reason is for a dead-letter replay" in failure_of(torn.run(0, reason="not_json"))
    assert "stage is for a dead-letter replay" in failure_of(
        torn.run(0, on_committed="replace", stage="value")
    )


def test_a_script_that_is_not_there(torn: World) -> None:
    """A missing script fails the run with windrow's own message."""
    assert "There is no script" in failure_of(replay_dead_letters(torn, 0, 0, edit="none.py"))


def test_a_run_of_the_table_replays_dead_letters(torn: World) -> None:
    """The run config of the table's own job can replay dead letters, too.

    The replay job's config can't replace windows.
    """
    loosen(torn)
    assert torn.run(0, on_committed="replay_dead_letters").success
    assert torn.receipt_of(0).counts.dead == 1
    assert "replays dead letters, and replaces nothing" in failure_of(
        replay_dead_letters(torn, 1, 1, on_committed="replace")
    )


def test_micro_batches(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The job replays the dead letters of the batches for which it is started.

    Without partitions it fails.
    """
    world = World(tmp_path, instance, window={"grid": "batch", "max_records": 6})
    for i in range(12):
        world.send(0, i, b'{"id": "5"}' if i % 6 == 0 else b'{"id": 1}', i % 2)
    assert world.run_batches().success
    loosen(world)
    assert replay_dead_letters(world, 0, 1).success
    receipts = [c.receipt for c in world.sink.receipts()]
    assert [(r.generation, r.counts.dead, r.counts.rows) for r in receipts] == [
        (1, 0, 6),
        (1, 0, 6),
    ]
    assert world.verdict().ok
    world.broker.delete_records(TopicPartition(TOPIC, 0), 1)
    replaced = world.run(0, 1, on_committed="replace")
    assert "1 of 2 windows refused: batch-000000000" in failure_of(replaced)
    assert [c.receipt.generation for c in world.sink.receipts()] == [1, 2]
    job = world.defs.resolve_job_def(dead_replay_job_name(world.spec))
    without = job.execute_in_process(instance=instance, raise_on_error=False)
    assert "the job things_replay_dead_letters is for partitions" in failure_of(without)
    assert "stage, on_committed is for partitions" in failure_of(
        world.run_batches(on_committed="replay_dead_letters", stage="value")
    )
