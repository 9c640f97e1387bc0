"""From topics into a topic, by the command, on real Kafka and real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from tests.sinks.kafka.world import read_committed

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("spark"),
    pytest.mark.long,
]

HOUR = "2026-01-05T01:00:00Z"


def test_a_run_that_dies_halfway_is_finished_by_the_next(kafka: str, tmp_path: Path) -> None:
    """A run that dies halfway is finished by the next run.

    It is killed after the publication of its splits. The target then has each message once, in
    the order of the source.
    """
    source, target = create_topic(kafka, partitions=2), create_topic(kafka, partitions=2)
    produce(
        kafka,
        source,
        [Put(json.dumps({"id": i, "name": None}).encode(), millis(1, i), i % 2) for i in range(40)],
    )
    user = User(kafka, source, tmp_path)
    spec = tmp_path / "things.yaml"
    sink = (
        f"{{kind: kafka, topic: {target}, staging: ./staging, partitioner: source, key: {{columns:"
        " [id]}}"
    )
    spec.write_text(spec.read_text().replace("{kind: delta, path: ./things}", sink))
    with user.starts("run", "--window", HOUR, crash="split.after:kill") as dies:
        dies.communicate(timeout=300)
    assert dies.returncode == -9
    ran = user.types("run", "--window", HOUR)
    assert [w["committed"]["receipt"]["counts"]["valid"] for w in ran["windows"]] == [40]
    messages = [
        (m.partition(), json.loads(m.value() or b"")["id"]) for m in read_committed(kafka, target)
    ]
    assert [[i for p, i in messages if p == partition] for partition in (0, 1)] == [
        list(range(0, 40, 2)),
        list(range(1, 40, 2)),
    ]
    assert user.types("verify", "--deep")["findings"] == []
