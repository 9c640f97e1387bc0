"""Runs through Dagster on real Kafka and a real Delta table, racing and being killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import dagster as dg
import pytest

from assets.factory import kafka_table
from assets.names import SPARK_KEY, job_name
from assets.partitions import Stretch, key_of
from assets.schedule import range_tags
from tests.assets.world import LocalTasks
from tests.integration.harness import Place, hour, judge, millis, version, visible, wait_until_stopped
from tests.kafka.produce import Put, create_topic, produce

pytestmark = pytest.mark.broker

_SERVER = multiprocessing.get_context("forkserver")


def dagster_run(place: Place, first: int, last: int, crash: str = "") -> BaseProcess:
    """The hours first..last in one Dagster run, in a process of its own."""
    process = _SERVER.Process(target=_run, args=(place, first, last, crash))
    process.start()
    return process


def _run(place: Place, first: int, last: int, crash: str) -> None:
    os.environ["WINDROW_CRASH"] = crash
    spec = place.spec()
    defs = kafka_table(spec, {SPARK_KEY: LocalTasks()})
    tags = range_tags(Stretch(key_of(spec.window, hour(first)), key_of(spec.window, hour(last))))
    with dg.DagsterInstance.local_temp(str(place.folder)) as instance:
        done = defs.resolve_job_def(job_name(spec)).execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    if not done.success:
        raise SystemExit(1)


def receipts_shown(place: Place, n: int) -> list[tuple[str, bool]]:
    """What Dagster shows of the n-th hour: of each materialization the attempt in its receipt, and whether it was recovered."""
    with dg.DagsterInstance.local_temp(str(place.folder)) as instance:
        wanted = dg.AssetRecordsFilter(dg.AssetKey(["things"]), asset_partitions=[key_of(place.spec().window, hour(n))])
        events = [r.asset_materialization for r in instance.fetch_materializations(wanted, limit=10).records]
    shown = [{name: value.value for name, value in event.metadata.items()} for event in events if event is not None]
    return [(_attempt(m["receipt"]), bool(m.get("recovered"))) for m in shown]


def _attempt(receipt: object) -> str:
    said = json.loads(receipt) if isinstance(receipt, str) else receipt
    assert isinstance(said, dict)
    return str(said["attempt"])


@pytest.fixture
def place(kafka: str, tmp_path: Path) -> Place:
    """Five hours of messages in two topic-partitions."""
    topic = create_topic(kafka, partitions=2)
    value = json.dumps({"id": 7, "name": None}).encode()
    produce(kafka, topic, [Put(value, millis(h, i), i % 2) for h in range(1, 6) for i in range(50)])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.get_run_records(
            limit=1
        )  # Dagster's tables: made here, because two processes that make them at once get in each other's way
    return Place(kafka, topic, tmp_path)


def test_two_dagster_runs_of_one_window(place: Place) -> None:
    """1 Both stop right before their commit. 2 Both wake. Both runs succeed, one commits, the other shows the same receipt as recovered."""
    runs = [dagster_run(place, 1, 1, "commit.before:stop") for _ in range(2)]
    for run in runs:
        wait_until_stopped(run)
    for run in runs:
        assert run.pid is not None
        os.kill(run.pid, signal.SIGCONT)
    for run in runs:
        run.join(120)
        assert run.exitcode == 0
    shown = receipts_shown(place, 1)
    assert len({attempt for attempt, _ in shown}) == 1
    assert sorted(recovered for _, recovered in shown) == [False, True]


def test_a_killed_range_leaves_its_finished_windows_green(place: Place) -> None:
    """Killed right after its second window's commit; the rerun of the whole range shows that one as recovered and writes the rest."""
    first = dagster_run(place, 1, 1)
    first.join(120)
    killed = dagster_run(place, 1, 5, "commit.after:kill")
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    assert receipts_shown(place, 1)[0][1], "the first window was there before"
    assert receipts_shown(place, 2) == [], "its commit is in, its report is not"
    before = version(place)
    again = dagster_run(place, 1, 5)
    again.join(240)
    assert again.exitcode == 0
    assert version(place) == before + 3
    assert [receipts_shown(place, n)[0][1] for n in range(1, 6)] == [True, True, False, False, False]
    report = judge(place, visible(place.bootstrap, place.topic))
    assert report.ok, report
