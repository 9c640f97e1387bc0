"""The checks that warn, and the metadata of a run besides its receipt."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

# not among the public names; dagster is pinned to 1.13
from dagster._core.errors import DagsterExecutionInterruptedError

from tests.assets.world import START, TOPIC, World, hour
from windrow.ingest.admin.lag import Uncommitted, uncommitted_between
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.kit.commit import commit_loop

pytestmark = pytest.mark.some(6, of="tests")

SKIP = {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC, "on_loss": "skip"}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in result.get_asset_check_evaluations()}


def entries_of(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def test_loss_is_told(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A window that skipped lost messages is committed with a warning, and the run succeeds.

    The check warns for a week.
    """
    world = World(tmp_path, instance, source=SKIP)
    world.fill(2)
    world.broker.delete_records(TopicPartition(TOPIC, 0), 10)
    result = world.run(0)
    assert result.success
    metadata = world.metadata(0)
    assert "shop.things[0]" in str(metadata["partial"].value)
    evaluation = checks(result)["loss"]
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert "2026-01-05-00:00: shop.things[0]" in entries_of(evaluation)["lost"]
    description = str(evaluation.description)
    assert "Of the newest window, messages perhaps lost; first: 2026-01-05-00:00: " in description
    world.now += timedelta(days=8)
    assert checks(world.run(1))["loss"].passed, "nobody can do anything about it any more"


def test_a_whole_window_says_nothing_of_loss(world: World) -> None:
    """A window without loss has no metadata entry `partial`."""
    world.fill(2)
    assert world.run(0).success
    assert "partial" not in world.metadata(0)
    assert world.metadata(0)["skipped"].value == 0


def test_completeness_of_a_window(world: World) -> None:
    """A window is complete when every topic-partition was read beyond its end.

    The run shows this state, and the number of late messages.
    """
    world.fill(2)
    world.send(1, 30, b'{"id": 1}')
    world.send(0, 30, b'{"id": 1}')
    world.fill(1, first=2)
    assert world.run(0, 1).success
    assert [world.metadata(n)["completeness"].value for n in (0, 1)] == ["complete", "complete"]
    assert world.metadata(1)["late"].value == 1
    assert world.metadata(1)["watermark"].value == hour(2).timestamp()
    evaluation = checks(world.run(0))["completeness"]
    assert not evaluation.passed
    assert "2026-01-05-00:00: 1 message of its hours came in later windows. Nothing is lost" in str(
        evaluation.description
    )
    assert entries_of(evaluation)["states"] == {
        "2026-01-05-00:00": "late",
        "2026-01-05-01:00": "complete",
    }
    assert world.metadata(0)["completeness"].value == "late"


def test_few_late_messages_are_no_warning(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The check `completeness` warns only if the share of late messages exceeds the tolerance.

    The share is of the window's own and its late messages: 1 of 61 here.
    """
    window = {"grid": "hourly", "start": hour(0), "delay": "5m"}
    for tolerance, passes in ((0.0165, True), (0.0163, False)):
        (tmp_path / str(tolerance)).mkdir()
        world = World(
            tmp_path / str(tolerance),
            instance,
            window={**window, "completeness": {"tolerance": tolerance}},
        )
        world.fill(1)
        world.send(1, 30, b'{"id": 1}')
        world.send(0, 30, b'{"id": 1}')
        world.fill(1, first=2)
        evaluation = checks(world.run(0, 1))["completeness"]
        assert evaluation.passed == passes
        assert ("1 late message within" in str(evaluation.description)) == passes
        assert (
            "more than `window.completeness.tolerance`, 0.0163" in evaluation.description
        ) != passes
        assert entries_of(evaluation)["states"]["2026-01-05-00:00"] == "late"


def test_who_holds_the_watermark_back(world: World) -> None:
    """An idle topic-partition keeps the window open; after delay and max_wait the check
    names it.
    """
    for i in range(60):
        world.send(0, i, b'{"id": 1}', 0)
        world.send(1, i, b'{"id": 1}', 0)
    world.send(0, 0, b'{"id": 1}', 1)
    world.now = hour(1, 6)
    early = world.run(0)
    assert world.metadata(0)["completeness"].value == "open"
    assert checks(early)["completeness"].passed, "its time is not over: max_wait is"
    world.now = hour(1, 30)
    evaluation = checks(world.run(0))["completeness"]
    assert not evaluation.passed
    assert entries_of(evaluation)["holding"] == "shop.things[1]"
    assert entries_of(evaluation)["overdue"] == "2026-01-05-00:00"
    description = str(evaluation.description)
    assert description.startswith(
        "Not complete, though delay and max_wait are over: 2026-01-05-00:00. `shop.things[1]`"
        " holds the watermark "
    )
    assert "no message from after that window" in description
    assert "window.idle: exempt" in description
    assert description not in entries_of(evaluation).values()


def test_retention_margin_of_windows(world: World) -> None:
    """The margin warns when the oldest window without a commit approaches the retention."""
    world.fill(8)
    world.now = hour(7, 10)
    assert checks(world.run(0, 5))["retention_margin"].passed
    world.now = START + timedelta(days=7, hours=5)
    evaluation = checks(world.run(0))["retention_margin"]
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert "2026-01-05T06:00:00Z" in str(evaluation.description)
    assert entries_of(evaluation)["seconds_left"] == 3600


def test_retention_margin_of_batches(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The margin warns when the first unread message approaches the retention."""
    world = World(tmp_path, instance, window={"grid": "batch"})
    world.fill(1)
    world.now = hour(2)
    assert checks(world.run_batches())["retention_margin"].passed
    unread = world.send(0, 30, b'{"id": 1}')
    world.now = START + timedelta(days=6)
    evaluation = checks(world.run(0, on_committed="replace"))["retention_margin"]
    assert not evaluation.passed
    assert f"@{unread}, begins to expire in shop.things in 24." in str(evaluation.description)


def test_a_cluster_that_does_not_answer_is_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that gets no answer warns, and the run succeeds without a lag."""
    world.fill(2)
    assert world.run(0).success

    def away(*_: object) -> object:
        raise UnreachableError("The broker is away", "plan", "Wait.")

    for question in ("topics", "log_starts", "names"):
        monkeypatch.setattr(world.broker, question, away)
    result = world.run(0)
    assert result.success
    assert "lag_records" not in world.metadata(0)
    assert not checks(result)["retention_margin"].passed
    assert "The broker is away" in str(checks(result)["retention_margin"].description)


def test_group_offsets_are_shown(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The result of publishing the group's offsets is shown, and a refusal doesn't fail the run."""
    world = World(
        tmp_path,
        instance,
        source={"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC, "offsets_group": "readers"},
    )
    world.fill(3)
    assert world.run(0).success
    assert world.metadata(0)["group_offsets"].value == {
        "group": "readers",
        "succeeded": 2,
        "failed": 0,
        "why": [],
    }
    world.broker.refuse_offsets("readers", "somebody is at work in it")
    assert world.run(1).success
    assert world.metadata(1)["group_offsets"].value["failed"] == 2
    assert (
        "group_offsets" not in world.metadata(0)
        or world.metadata(0)["group_offsets"].value["failed"] == 0
    )


def test_lag_by_topic_partition(world: World) -> None:
    """The lag is shown in total and for each topic-partition, in messages and seconds."""
    world.fill(3)
    world.now = hour(3)
    assert world.run(0).success
    metadata = world.metadata(0)
    rows = [r.data for r in metadata["lag"].value.records]
    assert [(r["topic"], r["partition"], r["start"], r["end"], r["records"]) for r in rows] == [
        (TOPIC, 0, 30, 90, 60),
        (TOPIC, 1, 30, 90, 60),
    ]
    assert metadata["lag_records"].value == 120
    assert metadata["lag_seconds"].value == 7200


def test_an_open_transaction_is_named(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A transaction that stays open keeps the window open.

    The check says where it is and since when.
    """
    world = World(
        tmp_path,
        instance,
        window={"grid": "hourly", "start": START, "delay": "5m", "max_wait": "0s"},
    )
    world.fill(3)
    world.now = hour(2, 5)
    assert world.run(0, 1).success
    world.broker.produce(
        TopicPartition(TOPIC, 1),
        b"{}",
        timestamp=hour(2, 59),
        transaction=world.broker.transaction(),
    )
    world.send(3, 10, b'{"id": 1}', 0)
    world.now = hour(3, 20)
    evaluation = checks(world.run(2))["completeness"]
    assert not evaluation.passed
    assert (
        "`shop.things[1]` holds the watermark at 2026-01-05T02:00:00Z: a transaction was open there"
        in str(evaluation.description)
    )
    assert "End the transaction of its producer" in str(evaluation.description)


def test_what_passes_says_so_in_a_sentence(world: World) -> None:
    """Every check has a sentence as its description, also if it passes."""
    world.fill(3)
    evaluation_by_check = checks(world.run(0, 1))
    assert {
        name: bool(evaluation.passed and evaluation.description)
        for name, evaluation in evaluation_by_check.items()
    } == dict.fromkeys(("receipts", "loss", "retention_margin", "completeness", "ignored"), True)
    assert evaluation_by_check["completeness"].description == "Complete: 2 windows."


def test_a_window_that_was_left_out_is_seen(world: World) -> None:
    """A window without a commit between committed ones makes `receipts` and `completeness` warn.

    Both name the window. After it is run, they pass.
    """
    world.fill(4)
    for n in (0, 2):
        result = world.run(n)
    evaluation_by_check = checks(result)
    failed_checks = [name for name, check in evaluation_by_check.items() if not check.passed]
    assert sorted(failed_checks) == ["completeness", "receipts"]
    for name in failed_checks:
        assert evaluation_by_check[name].severity == dg.AssetCheckSeverity.WARN
        assert (
            entries_of(evaluation_by_check[name])["uncommitted"]
            == "2026-01-05T01:00:00Z/2026-01-05T02:00:00Z"
        )
        assert "1 window not committed, though later ones are: 2026-01-05T01" in str(
            evaluation_by_check[name].description
        )
    assert all(check.passed for check in checks(world.run(1)).values())


def executions(world: World) -> dict[str, str]:
    """Returns the newest status of each check in Dagster.

    SUCCEEDED and FAILED are results. PLANNED, after the run's end, is shown as failed to
    execute.
    """
    names = ("receipts", "loss", "retention_margin", "completeness", "ignored")
    keys = {name: dg.AssetCheckKey(dg.AssetKey(["things"]), name) for name in names}
    record_by_key = world.instance.event_log_storage.get_asset_check_summary_records(
        list(keys.values())
    )
    newest = {name: record_by_key[key].last_check_execution_record for name, key in keys.items()}
    return {name: record.status.value for name, record in newest.items() if record is not None}


def test_a_window_that_was_committed_and_not_reported_is_not_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window whose run died right after its commit is not reported as missing."""
    world.fill(4)
    assert world.run(0).success

    def die(point: str) -> None:
        if point == "commit.after":
            raise DagsterExecutionInterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(commit_loop, "crash_point", die)
        assert not world.run(1).success
    result = world.run(2)
    assert world.green_keys() == {world.key(0), world.key(2)}
    assert all(check.passed for check in checks(result).values())


@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 2)])
def test_checks_of_a_refused_run_are_made(
    world: World, monkeypatch: pytest.MonkeyPatch, first: int, last: int
) -> None:
    """All checks of a run with a refused window have a result.

    Without it, Dagster would show them as failed to execute after the failed step. The windows
    without a commit are looked up once for all checks.
    """
    looked = list[Pipeline]()

    def note_uncommitted(pipeline: Pipeline, newest: int) -> list[Uncommitted]:
        looked.append(pipeline)
        return uncommitted_between(pipeline, newest)

    monkeypatch.setattr("windrow.assets.checks.uncommitted_between", note_uncommitted)
    world.fill(2)
    for _ in range(200):
        world.send(2, 59, b"poison")
    world.fill(1, first=3)
    assert world.run(0, 1).success
    looked.clear()
    assert not world.run(first, last).success
    assert len(looked) == 1
    between_them = "FAILED" if last == 3 else "SUCCEEDED"
    assert executions(world) == {
        "receipts": between_them,
        "loss": "SUCCEEDED",
        "retention_margin": "SUCCEEDED",
        "completeness": between_them,
        "ignored": "SUCCEEDED",
    }


def test_checks_of_a_refused_batch_are_made(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """All checks of a run with a refused micro-batch have a result."""
    world = World(tmp_path, instance, window={"grid": "batch", "max_records": 6})
    for value in (b'{"id": 1}', b"poison"):
        for i in range(6):
            world.send(0, i, value)
    assert not world.run_batches().success
    names = ("receipts", "loss", "retention_margin", "ignored")
    assert executions(world) == dict.fromkeys(names, "SUCCEEDED")


def test_checks_that_can_not_be_made_hide_no_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused run fails with the refusal, even if the table can't be read for its checks."""
    world.fill(1)
    for _ in range(200):
        world.send(0, 59, b"poison")

    def away(*_: object) -> object:
        raise UnreachableError("The disk is away", "commit", "Wait.")

    monkeypatch.setattr("windrow.assets.checks._newest", away)
    [failed] = world.run(0).get_step_failure_events()
    assert "max_dead_ratio" in failed.step_failure_data.error_display_string
    assert executions(world)["receipts"] == "PLANNED"


@pytest.mark.parametrize("unknown", ["ignore", "keep"])
def test_fields_that_no_column_is_for_are_told(
    tmp_path: Path, instance: dg.DagsterInstance, unknown: str
) -> None:
    """The check `ignored` warns of fields that were passed over, and says how to get columns."""
    world = World(tmp_path, instance, decode={"schema": "things.py:Thing", "unknown": unknown})
    world.fill(1)
    assert checks(world.run(0))["ignored"].passed
    for _ in range(3):
        world.send(1, 5, b'{"id": 1, "vip": true}')
    evaluation = checks(world.run(1))["ignored"]
    assert evaluation.passed == (unknown == "keep")
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert entries_of(evaluation)["ignored"] == 3
    assert "3 messages of the newest 2 windows" in str(evaluation.description)
    assert "(most: `vip`)" in str(evaluation.description)
    assert "`windrow infer --update " in str(evaluation.description)


def test_new_topics_of_a_files_pattern_are_told(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A topic that matches `for_each.topic_pattern` and has no pipeline warns, and fails no run."""
    world = World(
        tmp_path,
        instance,
        for_each={"topics": [TOPIC], "topic_pattern": "shop[.].*"},
        source={"bootstrap_servers": "127.0.0.1:9"},
    )
    world.fill(1)
    assert checks(world.run(0))["new_topics"].passed
    world.broker.create_topic("shop.new", partitions=1)
    result = world.run(0)
    evaluation = checks(result)["new_topics"]
    assert (result.success, evaluation.passed) == (True, False)
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert entries_of(evaluation)["new_topics"] == "shop.new"
