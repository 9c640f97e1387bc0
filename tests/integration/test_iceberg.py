"""An Iceberg table from real Kafka, by the command, on Spark, read by PyIceberg alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.integration.harness import millis
from tests.integration.test_command import expected, hours
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

BOTH = "2026-01-05T01:00:00Z/2026-01-05T03:00:00Z"


def ids(folder: Path) -> list[int]:
    """Returns the ids in the table, which is found by its catalog only."""
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        return sorted(
            catalog.load_table("shop.things")
            .scan(selected_fields=("id",))
            .to_arrow()["id"]
            .to_pylist()
        )
    finally:
        catalog.close()


def test_two_hours_into_an_iceberg_table(kafka: str, tmp_path: Path) -> None:
    """Each message is there once after two hours, a rerun and a replay.

    Workers write the files, and one commit for each window adds them.
    """
    topic = create_topic(kafka, partitions=2)
    produce(kafka, topic, [*hours(1), Put(b"poison", millis(1, 50)), *hours(2)])
    user = User(kafka, topic, tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(
        spec.read_text().replace(
            "{kind: delta, path: ./things}",
            "{kind: iceberg, warehouse: ./lake, table: shop.things}",
        )
    )
    assert [w["recovered"] for w in user.types("run", "--window", BOTH)["windows"]] == [False] * 2
    assert ids(tmp_path) == expected(1, 2)
    assert [w["recovered"] for w in user.types("run", "--window", BOTH)["windows"]] == [True] * 2
    user.types("replay", "--window", "2026-01-05T01:00:00Z")
    assert ids(tmp_path) == expected(1, 2)
    assert [d["reason"] for d in user.types("dead", "show")["dead"]] == ["not_json"]
    assert user.types("verify", "--deep")["findings"] == []
    assert {c["level"] for c in user.types("doctor")["checks"]} <= {"ok", "warn"}
