"""The progress of tasks on real Kafka and Spark, also if a worker is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.halting import Halting
from tests.integration.harness import PipelineSetup, millis
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.assemble import assemble
from windrow.ingest.ports.engine import Engine
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.progress import Progress
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine

pytestmark = [pytest.mark.broker, pytest.mark.spark]

EACH, BATCH = 300, 100
"""The number of messages of each topic-partition, and of a batch."""


@pytest.fixture
def setup(kafka: str, tmp_path: Path) -> PipelineSetup:
    """An hour in two topic-partitions."""
    topic = create_topic(kafka, partitions=2)
    ids = [(p, i) for p in range(2) for i in range(EACH)]
    things = [Put(json.dumps({"id": p * 1000 + i}).encode(), millis(0), p) for p, i in ids]
    produce(kafka, topic, [*things, *(Put(b'{"id": 1}', millis(1), p) for p in range(2))])
    return PipelineSetup(kafka, topic, tmp_path, {"source": {"tuning": {"batch_messages": BATCH}}})


@pytest.fixture(params=["session", pytest.param("server", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "session":
        session = request.getfixturevalue("spark")
        return SparkEngine(lambda: session.sparkContext)
    return SparkEngine(ConnectedSpark(request.getfixturevalue("spark_server")).session)


def test_progress_never_goes_back(
    setup: PipelineSetup, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress never decreases, also if a split is read again.

    1. Two tasks read, and the progress of both is reported.
    2. A worker is killed, and its split is read again.
    3. The progress has a note about it, doesn't decrease, and doesn't exceed the window.
    4. No file of the progress is left.
    """
    monkeypatch.setattr("windrow.ingest.runner.progress.INTERVAL_SECONDS", 0.001)
    reports: list[Progress] = []

    def tell(progress: Progress) -> None:
        reports.append(progress)
        if progress.done >= 2 * BATCH:  # both tasks have read their first batches
            (setup.folder / str(BATCH)).touch()
            (setup.folder / str(1000 + BATCH)).touch()
        if any("again" in note for note in progress.notes):
            (setup.folder / str(2 * BATCH)).touch()

    halting = Halting(setup.folder, (BATCH, 1000 + BATCH, 2 * BATCH), deadly=BATCH)
    result = run(assemble(setup.spec(), engine, halting), setup.window(0), Request("r"), tell)
    assert result.committed.receipt.counts.rows == 2 * EACH
    read = [progress.done for progress in reports if progress.total]
    assert (read, {progress.total for progress in reports if progress.total}) == (
        sorted(read),
        {2 * EACH},
    )
    assert [note for progress in reports for note in progress.notes] == [
        f"Reading window {setup.window(0).key}: 2 splits",
        f"{setup.topic}[0] is read again from offset 0 on: a worker was lost",
    ]
    assert any(f"{max(read)} of {2 * EACH} messages" in progress.text for progress in reports)
    assert [*(setup.folder / "things" / "data" / "_progress").iterdir()] == []
