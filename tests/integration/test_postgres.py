"""From real Kafka into a real PostgreSQL by the command, on Spark."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import psycopg
import pytest

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOUR = "2026-01-05T01:00:00Z"


def test_from_a_topic_to_a_table(kafka: str, tmp_path: Path, postgres: str) -> None:
    """Each message is a row or a dead letter, once, also after a replay; the password comes by a template; the table verifies."""
    url = postgres.replace("postgresql+psycopg://", "postgresql://", 1)
    topic = create_topic(kafka, partitions=2)
    puts = [Put(json.dumps({"id": i, "name": None}).encode(), millis(1, i), i % 2) for i in range(40)]
    produce(kafka, topic, [*puts, Put(b"poison", millis(1, 50))])
    user = User(kafka, topic, tmp_path)
    table, spec = f"things_{uuid.uuid4().hex[:12]}", tmp_path / "things.yaml"
    sink = f"sink: {{kind: postgres, url: '{{{{ env.DATABASE }}}}', table: {table}, staging: ./staged}}"
    spec.write_text(spec.read_text().replace("sink: {kind: delta, path: ./things}", sink))
    with (tmp_path / ".env").open("a") as env:
        env.write(f"DATABASE={url}\n")
    user.types("run", "--window", HOUR)
    user.types("replay", "--window", HOUR)
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchone() == (40, 40)
    assert [d["reason"] for d in user.types("dead", "show")["dead"]] == ["not_json"]
    assert user.types("verify", "--deep")["findings"] == []
