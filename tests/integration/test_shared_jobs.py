"""Workers die in a Spark job that several windows share, on real Kafka.

Each window is exactly once, with its own messages only.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from tests.integration.deadly import Deadly
from tests.integration.harness import PipelineSetup, millis, read_visible, verdict
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.assemble import assemble
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run_windows
from windrow.ingest.runner.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

HOURS, PARTITIONS, EACH = 8, 3, 60
"""The number of windows, of topic-partitions, and of messages of a window in a topic-partition."""


@pytest.fixture
def setup(kafka: str, tmp_path: Path) -> PipelineSetup:
    """A pipeline with eight hours in three topic-partitions, and a malformed message in each."""
    topic = create_topic(kafka, partitions=PARTITIONS)
    for n in range(HOURS):
        puts = [
            Put(thing(n, i), millis(n, i // PARTITIONS), i % PARTITIONS)
            for i in range(EACH * PARTITIONS - PARTITIONS)
        ]
        produce(
            kafka, topic, [*puts, *(Put(b"poison", millis(n, 59), p) for p in range(PARTITIONS))]
        )
    produce(kafka, topic, [Put(thing(HOURS, p), millis(HOURS), p) for p in range(PARTITIONS)])
    return PipelineSetup(kafka, topic, tmp_path)


def thing(n: int, i: int) -> bytes:
    return json.dumps({"id": n * 1000 + i, "name": None}).encode()


def backfill(setup: PipelineSetup, pipeline: Pipeline) -> list[bool]:
    """Runs all hours together and returns for each whether it was committed before."""
    return [
        result.recovered
        for result in run_windows(
            pipeline, [setup.window(n) for n in range(HOURS)], Request("test")
        )
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize(("splits", "deaths"), [(3, 1), (1, 4)], ids=["many", "again and again"])
def test_workers_die_in_a_shared_job(
    setup: PipelineSetup, spark: SparkSession, dice: random.Random, splits: int, deaths: int
) -> None:
    """Each window is committed once with its own rows, if workers of a shared job die.

    Random splits kill their worker. One split kills it until Spark gives up the job.
    """
    folder = setup.folder / "deaths"
    folder.mkdir()
    chosen = dice.sample([(n, p) for n in range(HOURS) for p in range(PARTITIONS)], splits)
    deadly = {n * 1000 + p + PARTITIONS * dice.randrange(EACH - 1): deaths for n, p in chosen}
    engine = SparkEngine(lambda: spark.sparkContext)
    pipeline = assemble(setup.spec(), engine, Deadly(folder, deadly))
    assert backfill(setup, pipeline) == [False] * HOURS
    assert len(list(folder.iterdir())) == splits * deaths
    counts = {c.receipt.window: c.receipt.counts for c in pipeline.sink.receipts()}
    assert [(counts[setup.window(n)].read, counts[setup.window(n)].dead) for n in range(HOURS)] == [
        (EACH * PARTITIONS, PARTITIONS)
    ] * HOURS
    expected = {
        tp: dict(sorted(id_by_offset.items())[:-1])
        for tp, id_by_offset in read_visible(setup.bootstrap, setup.topic).items()
    }
    report = verdict(setup, expected)
    assert report.ok, report
    staged = {path.name for path in (setup.folder / "things" / "data").rglob("*.parquet*")}
    assert len(staged) > HOURS * PARTITIONS, "no worker died beside what it had staged"
    assert backfill(setup, pipeline) == [True] * HOURS
