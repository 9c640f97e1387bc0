"""Runs of a real pipeline by Dagster, each in its own process, and the events that
Dagster shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import dagster as dg

from tests.assets.world import LocalTasks
from tests.integration.harness import PipelineSetup, hour, millis
from tests.kafka.produce import Put, create_topic, produce
from tests.warm import SERVER
from windrow.assets.dagster_internals import range_tags
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY, job_name
from windrow.assets.partitions import key_of

_NOTHING: Mapping[str, str] = {}


def dagster_run(
    setup: PipelineSetup,
    home: Path,
    first: int,
    last: int,
    crash: str = "",
    *,
    tags: Mapping[str, str] = _NOTHING,
    env: Mapping[str, str] = _NOTHING,
) -> BaseProcess:
    """Starts one Dagster run of the hours from `first` to `last`.

    Args:
        setup: the pipeline.
        home: the folder for DAGSTER_HOME. It may have a dagster.yaml.
        first: the first hour.
        last: the last hour.
        crash: the crash point at which the run is killed or stopped, if any.
        tags: the run's tags.
        env: further environment variables for the run.
    """
    process = SERVER.Process(
        target=_run, args=(setup, home, first, last, crash, dict(tags), dict(env))
    )
    process.start()
    return process


def _run(
    setup: PipelineSetup,
    home: Path,
    first: int,
    last: int,
    crash: str,
    tags: dict[str, str],
    env: dict[str, str],
) -> None:
    os.environ.update(env, WINDROW_CRASH=crash, DAGSTER_HOME=str(home))
    spec = setup.spec()
    defs = kafka_table(spec, {SPARK_KEY: LocalTasks()})
    tags |= range_tags(
        dg.PartitionKeyRange(key_of(spec.window, hour(first)), key_of(spec.window, hour(last)))
    )
    with dg.DagsterInstance.from_config(str(home)) as instance:
        done = defs.resolve_job_def(job_name(spec)).execute_in_process(
            instance=instance, tags=tags, raise_on_error=False
        )
    if not done.success:
        raise SystemExit(1)


def receipts_shown(setup: PipelineSetup, home: Path, n: int) -> list[tuple[str, bool]]:
    """Returns what Dagster shows of the n-th hour, for each materialization.

    That is the attempt in its receipt, and whether the window was recovered.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        records_filter = dg.AssetRecordsFilter(
            dg.AssetKey(["things"]), asset_partitions=[key_of(setup.spec().window, hour(n))]
        )
        events = [
            r.asset_materialization
            for r in instance.fetch_materializations(records_filter, limit=10).records
        ]
    shown = [
        {name: value.value for name, value in event.metadata.items()}
        for event in events
        if event is not None
    ]
    return [(_attempt(m["receipt"]), bool(m.get("recovered"))) for m in shown]


def _attempt(receipt: object) -> str:
    receipt_fields = json.loads(receipt) if isinstance(receipt, str) else receipt
    assert isinstance(receipt_fields, dict)
    return str(receipt_fields["attempt"])


def make_dagsters_tables(home: Path) -> None:
    """Makes Dagster's tables before two processes start, because they can't do it together."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_run_records(limit=1)


def five_hours(kafka: str) -> str:
    """Returns a new topic with messages in the hours 1 to 5, in two topic-partitions."""
    topic = create_topic(kafka, partitions=2)
    value = json.dumps({"id": 7, "name": None}).encode()
    produce(kafka, topic, [Put(value, millis(h, i), i % 2) for h in range(1, 6) for i in range(50)])
    return topic
