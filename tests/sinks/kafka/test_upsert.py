"""A topic whose messages replace each other by key: the last message of each key is a row of
the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from deltalake import DeltaTable

from tests.cli.conftest import START, Stage, hour, stage
from tests.kafka.produce import create_topic
from tests.registry.server import RegistryServer
from tests.sinks.kafka.deserializers import KEY, VALUE, deserializer
from tests.sinks.kafka.world import encoder_of, read_committed
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.sinks.kafka.audit import KafkaAudit
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.stage import ArrowWriter
from windrow.ingest.testing.contracts.windows import messages, window

__all__ = ["stage"]

DECODE = "decode: {schema: 'schema.py:Thing', key: {fields: [id]}}"
UPSERT = "mode: upsert, primary_key: [id]"
SINK = (
    "sink: {{kind: kafka, bootstrap_servers: '{servers}', topic: {topic}, staging: lake/staging,"
    " {more}}}"
)
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
    size: pl.Int64
    name: pl.String = pa.Field(nullable=True)
"""
LOG: list[list[tuple[int, int, int | None]]] = [
    [
        (0, 1, 10),
        (0, 2, 20),
        (1, 3, 30),
        (0, 1, None),
        (1, 4, 40),
        (0, 1, 11),
        (1, 9, 90),
        (0, 9, 91),
    ],
    [(0, 2, None), (1, 3, 31), (0, 5, None), (1, 4, None), (1, 4, 41), (0, 9, None), (1, 9, 92)],
]
"""Per window and message: partition, key and size; None deletes.

Key 9 is in both partitions.
"""


def world(
    stage: Stage, kafka: str, more: str, config: Mapping[str, str] | None = None
) -> tuple[str, str, str]:
    """Returns the target topic, a pipeline into it, and a pipeline of the same messages into a
    keyed Delta table.
    """
    topic, table = create_topic(kafka, partitions=3, config=config), stage.folder / "table.yaml"
    (stage.folder / "schema.py").write_text(SCHEMA)
    for number, window_messages in enumerate(LOG):
        for second, (partition, key, size) in enumerate(window_messages):
            value = (
                None
                if size is None
                else json.dumps(
                    {"id": key, "size": size, "name": None if size % 2 else f"n{size}"}
                ).encode()
            )
            instant = START + timedelta(hours=5 + number, seconds=second)
            stage.broker.produce(
                TopicPartition("shop.things", partition),
                value,
                key=b'{"id": %d}' % key,
                timestamp=instant,
            )
    stage.write()
    spec = Path(stage.spec).read_text().replace('decode: {schema: "schema.py:Thing"}', DECODE)
    sink = SINK.format(servers=kafka, topic=topic, more=f"{UPSERT}, atomic_window: true, {more}")
    Path(stage.spec).write_text(spec.replace("sink: {path: lake/things}", sink))
    table.write_text(
        spec.replace("id: things", "id: table").replace(
            "sink: {path: lake/things}", f"sink: {{path: lake/table, {UPSERT}}}"
        )
    )
    return topic, stage.spec, str(table)


def rows(stage: Stage) -> dict[int, Any]:
    """Returns the rows of the Delta table by key."""
    rows = DeltaTable(str(stage.folder / "lake" / "table")).to_pyarrow_table().to_pylist()
    return {row["id"]: {name: row[name] for name in ("id", "size", "name")} for row in rows}


@pytest.mark.some(1)
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "avro-confluent", "protobuf-confluent"])
def test_a_fold_of_the_topic_is_the_table(
    stage: Stage, kafka: str, schema_registry: RegistryServer, form: str
) -> None:
    """The last message of each key, without deletes, gives the keyed Delta table of the same
    messages.

    This holds for a key in two partitions of the source. A window older than a published one is
    refused, because its messages would come last.
    """
    sink_settings = f"value: {{format: {form}}}, key: {{columns: [id], format: {form}}}"
    sink_settings += f", registry: {{url: '{schema_registry.url}'}}" if form != "json" else ""
    topic, spec, table = world(stage, kafka, sink_settings)
    for number in (5, 6):
        for pipeline_spec in (spec, table):
            stage.json("run", pipeline_spec, "--window", hour(number))
    folded: dict[int, Any] = {}
    places: dict[int, set[int | None]] = {}
    deletes = 0
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 10}) as client:
        read = deserializer(form, client, topic)
        for message in read_committed(kafka, topic):
            key, value = read(message.key(), KEY), read(message.value(), VALUE)
            places.setdefault(key["id"], set()).add(message.partition())
            deletes += message.value() is None
            folded[key["id"]] = value
    assert {key: value for key, value in folded.items() if value is not None} == rows(stage)
    assert sorted(rows(stage)) == [1, 3, 4, 9]
    assert deletes == 5
    assert all(len(partitions) == 1 for partitions in places.values())
    assert stage.json("verify", spec, "--deep")["findings"] == []
    refused = stage.json("run", spec, "--window", hour(4), code=1)
    assert "can't be published after window" in refused["error"]["message"]


@pytest.mark.broker
@pytest.mark.slow
def test_other_messages_than_were_published_are_found(
    stage: Stage, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value or delete that differs from the recorded checksum is found in its split, but only
    if all messages are read back.
    """
    _, spec, _ = world(stage, kafka, "transaction_timeout: 1m")
    monkeypatch.setattr(ArrowWriter, "write", record_wrong_checksum(ArrowWriter.write))
    stage.json("run", spec, "--window", hour(5))
    assert stage.json("verify", spec)["findings"] == []
    findings = stage.json("verify", spec, "--deep", code=1)["findings"]
    assert [f["level"] for f in findings] == ["wrong", "wrong"]
    assert all("the messages are not those that were committed" in f["what"] for f in findings)


def record_wrong_checksum(write: Any) -> Any:
    """Returns a broken twin of `write` that records a wrong checksum of a batch."""

    def twin(writer: Any, rows: pa.Table) -> None:
        write(writer, rows)
        writer.same += 1

    return twin


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(("policy", "level"), [("delete", "wrong"), ("compact", "info")])
def test_what_compaction_took_is_not_lost(
    stage: Stage, kafka: str, monkeypatch: pytest.MonkeyPatch, policy: str, level: str
) -> None:
    """Messages missing from a compacted changelog may have been replaced, so they are no error.

    In other topics they are.
    """
    _, spec, _ = world(stage, kafka, "transaction_timeout: 1m", config={"cleanup.policy": policy})
    for number in (5, 6):
        stage.json("run", spec, "--window", hour(number))
    read = KafkaAudit.messages

    def read_compacted(audit: KafkaAudit, window: Any) -> Any:
        last = {message.key(): message.offset() for _, _, message in read(audit, window)}
        return (
            read_message
            for read_message in read(audit, window)
            if last[read_message[2].key()] == read_message[2].offset()
        )

    monkeypatch.setattr(KafkaAudit, "messages", read_compacted)
    for flags in ((), ("--deep",)):
        findings = stage.json("verify", spec, *flags, code=int(level == "wrong"))["findings"]
        assert {f["level"] for f in findings} == {level}


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "level"), [("delete", "warn"), ("compact", "ok"), ("compact,delete", "ok")]
)
def test_a_changelog_should_be_compacted(stage: Stage, kafka: str, policy: str, level: str) -> None:
    """Doctor warns of a changelog's topic from which Kafka would delete rows that no message
    has replaced.
    """
    topic, spec, _ = world(
        stage, kafka, "transaction_timeout: 1m", config={"cleanup.policy": policy}
    )
    (check,) = (c for c in stage.json("doctor", spec, code=0)["checks"] if c["name"] == "sink")
    assert check["level"] == level
    assert ("set cleanup.policy=compact for each" in check["what"] and topic in check["what"]) == (
        level == "warn"
    )


def test_a_delete_has_a_key_and_no_value() -> None:
    """A delete has a key like any other message, and no value."""
    batch = pa.record_batch(
        {"id": [1, 2], "size": pa.array([5, None], pa.int64()), DELETED: [False, True]}
    )
    encoder = encoder_of(
        PlainSerializer("json", ("id", "size")),
        key=PlainSerializer("json", ("id",)),
        primary_key=("id",),
    )
    columns = encoder.encode(batch, messages(Split("t", 0, 0, 2)), window(0))
    assert columns["key"].to_pylist() == [b'{"id":1}', b'{"id":2}']
    assert columns["value"].to_pylist() == [b'{"id":1,"size":5}', None]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("mode: upsert, atomic_window: true", "sink.mode: upsert needs primary_key"),
        ("primary_key: [id]", "sink.primary_key: goes with mode upsert"),
        (UPSERT, "sink.atomic_window: must be true with mode upsert"),
        (
            f"{UPSERT}, atomic_window: true, partitioner: source",
            "sink.partitioner: goes with mode append",
        ),
        (
            f"{UPSERT}, atomic_window: true, key: {{columns: [size]}}",
            "sink.key.columns: must be those of primary_key",
        ),
        (
            f"topic_column: name, atomic_window: true, {UPSERT}",
            "sink.topic_column: must be a column of primary_key",
        ),
    ],
)
def test_mistakes_are_told_when_the_spec_is_read(stage: Stage, more: str, says: str) -> None:
    """Settings that could put a key's messages into two partitions, or out of order, are
    refused.
    """
    spec = Path(stage.spec)
    stage.write()
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}", SINK.format(servers="127.0.0.1:2", topic="out", more=more)
        )
    )
    assert says in json.dumps(stage.json("show", stage.spec, code=2)["error"]["message"])
