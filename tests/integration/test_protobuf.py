"""Protobuf through the command, on real Kafka and real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.decode.protobuf.wire import number, text
from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_protobuf_from_a_topic_to_a_table(kafka: str, tmp_path: Path) -> None:
    """With the .proto file beside the spec: whole messages are rows, broken ones dead letters with their reasons."""
    topic = create_topic(kafka, partitions=2)
    whole = [number(1, i) + (text(2, f"name {i}") if i % 2 else b"") for i in range(40)]
    produce(kafka, topic, [Put(value, millis(1, i), i % 2) for i, value in enumerate([*whole, b"\xff", whole[1][:-1]])])
    user = User(kafka, topic, tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(spec.read_text().replace("decode: {", "decode: {format: protobuf, descriptor: thing.proto, message: shop.Thing, "))
    (tmp_path / "thing.proto").write_text('syntax = "proto3"; package shop; message Thing { int64 id = 1; optional string name = 2; }')
    counts = user.types("run", "--window", "2026-01-05T01:00:00Z/2026-01-05T02:00:00Z")["windows"][0]["committed"]["receipt"]["counts"]
    assert (counts["read"], counts["valid"], counts["dead"]) == (42, 40, 2)
    rows = DeltaTable(str(tmp_path / "things")).to_pyarrow_table(columns=["id", "name"]).sort_by("id").to_pylist()
    assert rows == [{"id": i, "name": f"name {i}" if i % 2 else None} for i in range(40)]
    assert str(user.types("dead", "show")).count("not_protobuf") >= 2
    assert user.types("verify", "--deep")["findings"] == []
