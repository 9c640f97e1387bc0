"""From real Kafka into a real PostgreSQL, by the command, on Spark."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.integration.customers import Last, last_words, make_user, random_log
from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOUR = "2026-01-05T01:00:00Z"


def url_of(postgres: str) -> str:
    """Returns the server's URL for specs and psycopg."""
    return postgres.replace("postgresql+psycopg://", "postgresql://", 1)


def test_from_a_topic_to_a_table(kafka: str, tmp_path: Path, postgres: str) -> None:
    """Each message is a row or a dead letter, once, also after a replay.

    The password comes from a template. The table verifies.
    """
    url = url_of(postgres)
    topic = create_topic(kafka, partitions=2)
    puts = [
        Put(json.dumps({"id": i, "name": None}).encode(), millis(1, i), i % 2) for i in range(40)
    ]
    produce(kafka, topic, [*puts, Put(b"poison", millis(1, 50))])
    user = User(kafka, topic, tmp_path)
    table, spec = f"things_{uuid.uuid4().hex[:12]}", tmp_path / "things.yaml"
    sink = (
        f"sink: {{kind: postgres, url: '{{{{ env.DATABASE }}}}', table: {table}, staging:"
        " ./staged}"
    )
    spec.write_text(spec.read_text().replace("sink: {kind: delta, path: ./things}", sink))
    with (tmp_path / ".env").open("a") as env:
        env.write(f"DATABASE={url}\n")
    user.types("run", "--window", HOUR)
    user.types("replay", "--window", HOUR)
    with psycopg.connect(url) as connection:
        assert connection.execute(
            f"SELECT count(*), count(DISTINCT id) FROM {table}"
        ).fetchone() == (40, 40)
    assert [d["reason"] for d in user.types("dead", "show")["dead"]] == ["not_json"]
    assert user.types("verify", "--deep")["findings"] == []


@pytest.mark.some(1)
@pytest.mark.parametrize("mode", ["upsert", "delete-aware"])
def test_the_last_word_on_each_customer(
    mode: str, kafka: str, tmp_path: Path, postgres: str, dice: random.Random
) -> None:
    """The table is the fold of the messages, if hours run out of order and are replayed.

    The table verifies with its values.
    """
    url, table, log = url_of(postgres), f"customers_{uuid.uuid4().hex[:12]}", random_log(dice, 60)
    location = f"kind: postgres, url: '{{{{ env.DATABASE }}}}', table: {table}, staging: ./staged"
    user = make_user(kafka, tmp_path, f"mode: {mode}", log=log, location=location)
    with (tmp_path / ".env").open("a") as env:
        env.write(f"DATABASE={url}\n")
    marks = mode == "delete-aware"
    expected = {
        customer: last
        for customer, last in last_words(log).items()
        if marks or last.name is not None
    }

    def read_table() -> dict[tuple[str, int], Last]:
        query = "SELECT shop, number, name, _partition, _offset, {} FROM {}"
        deleted = sql.Identifier("_deleted") if marks else sql.SQL("false")
        with psycopg.connect(url) as connection:
            rows = connection.execute(
                sql.SQL(query).format(deleted, sql.Identifier(table))
            ).fetchall()
        assert all(is_deleted is (name is None) for _, _, name, _, _, is_deleted in rows)
        return {(shop, number): Last(*last) for shop, number, *last, _ in rows}

    for hour in (3, 1, 2):
        user.types("run", "--window", f"2026-01-05T0{hour}:00:00Z")
    assert read_table() == expected
    assert user.types("verify", "--deep")["findings"] == []
    for hour in (2, 1, 3):
        user.types("replay", "--window", f"2026-01-05T0{hour}:00:00Z")
    assert read_table() == expected
    assert user.types("verify", "--deep")["findings"] == []
    receipts = [window["receipt"] for window in user.types("show")["windows"]]
    assert [r["generation"] for r in receipts] == [1, 1, 1]
    assert sum(r["merged"]["rows_added"] - r["merged"]["rows_removed"] for r in receipts) == len(
        expected
    )
    dead = [
        customer is None or name == "" for messages in log.values() for customer, name in messages
    ]
    assert sum(r["counts"]["dead"] for r in receipts) == sum(dead)
