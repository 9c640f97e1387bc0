"""Messages that kill Spark's workers, and batches that can't be unpacked, on real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.deadly import Deadly
from tests.integration.harness import PipelineSetup, millis, read_visible, verdict
from tests.integration.poisonous import Poisonous, Way
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.admin.dead_replay import DeadReplayRequest, replay_dead_letters
from windrow.ingest.admin.verify import verify
from windrow.ingest.assemble import assemble
from windrow.ingest.errors import DeadWorkerError, RefusedError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.testing.engine import LocalEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from windrow.ingest.ports.transform import Transform

pytestmark = [pytest.mark.broker, pytest.mark.spark]

KILLER = 2


@pytest.fixture
def setup(kafka: str, tmp_path: Path) -> PipelineSetup:
    """A pipeline with an hour of six messages, and a message of the next hour."""
    topic = create_topic(kafka, partitions=1)
    things = [Put(thing(i), millis(0, i), 0) for i in range(6)]
    produce(kafka, topic, [*things, Put(thing(6), millis(1), 0)])
    return PipelineSetup(kafka, topic, tmp_path)


def thing(thing_id: int) -> bytes:
    return json.dumps({"id": thing_id, "name": None}).encode()


def pipeline_of(setup: PipelineSetup, spark: SparkSession, transform: Transform) -> Pipeline:
    return assemble(setup.spec(), SparkEngine(lambda: spark.sparkContext), transform)


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        ("abort", "signal 6, Aborted"),
        pytest.param("segfault", "signal 11, Segmentation fault", marks=pytest.mark.long),
        pytest.param("memory", "more than 4 GiB of memory", marks=pytest.mark.long),
    ],
)
def test_a_message_that_kills_its_worker(
    setup: PipelineSetup, spark: SparkSession, death: Way, reason: str
) -> None:
    """A message that kills each of its workers becomes a dead letter; the window is committed.

    A dead-letter replay doesn't decode it: it would kill the driver.
    """
    pipeline = pipeline_of(setup, spark, Poisonous({KILLER: death}))
    receipt = run(pipeline, setup.window(0), Request("r")).committed.receipt
    assert (receipt.counts.read, receipt.counts.valid, receipt.counts.dead) == (6, 5, 1)
    (pill,) = pipeline.ledger.poison_pills("things")
    assert (pill.offset, pill.stage, pill.reason) == (KILLER, "rules", reason)
    assert str(pill) in receipt.warnings[0]
    replayed = replay_dead_letters(pipeline, setup.window(0), DeadReplayRequest("d"))
    assert (replayed.open, replayed.tried) == (1, 0)
    sent = read_visible(setup.bootstrap, setup.topic)[TopicPartition(setup.topic, 0)]
    kept = {offset: i for offset, i in sent.items() if offset != 6}
    assert verdict(setup, {TopicPartition(setup.topic, 0): kept}).ok
    parts = pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker
    assert verify("things", *parts, deep=True).findings == ()


@pytest.mark.long
def test_a_worker_that_is_killed_from_outside(setup: PipelineSetup, spark: SparkSession) -> None:
    """A process that is killed from outside proves nothing about the message: none is left out."""
    folder = setup.folder / "deaths"
    folder.mkdir()
    pipeline = pipeline_of(setup, spark, Deadly(folder, {KILLER: 5}))
    with pytest.raises(DeadWorkerError, match="was killed from outside"):
        run(pipeline, setup.window(0), Request("r"))
    assert pipeline.ledger.poison_pills("things") == []
    assert run(pipeline, setup.window(0), Request("r")).committed.receipt.counts.dead == 0


@pytest.mark.long
def test_a_batch_that_is_a_bomb(setup: PipelineSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that unpacks to more memory than a worker has is refused with its offsets.

    None of its messages is left out, nor any beside it. The window is far longer than what is
    read to plan it.
    """

    class Lost(LocalEngine):
        def run(self, *_: object) -> Iterator[Staged]:
            raise DeadWorkerError("The worker died", "stage", "Run the window again.")

        def worker_memory(self) -> int:
            return (2 << 30) + (1 << 28)

    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # each more reserves memory that it doesn't need
    bomb = Put(b" " * (900 << 20), millis(1, 30), 0)
    config = {"compression.type": "gzip", "message.max.bytes": 1_000_000_000}
    for puts in (
        [Put(thing(i), millis(1, i - 6), 0) for i in range(7, 37)],
        [bomb],
        [Put(thing(i), millis(1, i), 0) for i in range(38, 60)],
        [Put(thing(i), millis(2, i - 60), 0) for i in range(60, 90)],
    ):
        produce(setup.bootstrap, setup.topic, puts, config)
    pipeline = assemble(setup.spec(), Lost())
    with pytest.raises(RefusedError, match="from offset 37 to 37 can't be read"):
        run(pipeline, setup.window(1), Request("r"))
    assert pipeline.ledger.poison_pills("things") == []
