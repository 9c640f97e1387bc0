"""Compressed batches that unpack to far more than they have on the wire, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.reader_contract import plan_of
from tests.contracts.reading import batches_of
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.errors import RefusedError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_recipe
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = pytest.mark.broker

MEBIBYTES = 128
MOST_MEBIBYTES = 2 * MEBIBYTES + 120
"""What SECURITY.md says of a batch: twice what it unpacks to, and what each read takes."""


def send(bootstrap: str, codec: str, value: bytes) -> str:
    """Sends two small messages, and one in a compressed batch of its own; returns the topic."""
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, [Put(b"{}", 0), Put(b"{}", 0)])
    client = {"compression.type": codec, "message.max.bytes": 1_000_000_000}
    produce(bootstrap, topic, [Put(value, 0)], client)
    return topic


@pytest.mark.some(1)
@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_a_batch_takes_twice_the_memory_that_it_unpacks_to(kafka: str, codec: str) -> None:
    """A process that reads a batch of some kilobytes takes what SECURITY.md says."""
    topic = send(kafka, codec, b" " * (MEBIBYTES << 20))
    done = subprocess.run(
        [sys.executable, "-m", "tests.kafka.unpacked", kafka, topic, "3"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert MEBIBYTES < float(done.stdout) < MOST_MEBIBYTES


def test_a_batch_that_cannot_be_unpacked_is_refused_by_its_offset(kafka: str) -> None:
    """Driver and reader name the offset of a zstd batch that unpacks to more than 100 MB. A
    larger `fetch.max.bytes` lets it in.
    """
    topic = send(kafka, "zstd", b" " * 100_000_001)
    tp, broker = TopicPartition(topic, 0), KafkaBroker(kafka, {})
    reader = KafkaReader(consumer_recipe(kafka, {}), plan_of(broker, tp))
    for read in (
        lambda: batches_of(reader, Split(topic, 0, 0, 3)),
        lambda: list(broker.stamps(tp, 0, 3)),
    ):
        with pytest.raises(RefusedError, match=r"of message at 2 of \d+ bytes failed") as refused:
            read()
        assert "Kafka's own tools" in refused.value.advice
    with pytest.raises(RefusedError) as refused:
        batches_of(reader, Split(topic, 0, 0, 3))
    assert refused.value.log_position == f"{topic}[0]@2"
    large = consumer_recipe(kafka, {"fetch.max.bytes": 1_000_000_000})
    batches = batches_of(KafkaReader(large, plan_of(broker, tp)), Split(topic, 0, 0, 3))
    assert sum(batch.num_rows for batch in batches) == 3
