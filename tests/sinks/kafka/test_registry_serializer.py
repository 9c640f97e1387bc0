"""Messages with schemas in a registry: the subjects, the ids, and the values that a consumer
reads.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.cli.conftest import Stage, hour, stage
from tests.kafka.produce import create_topic
from tests.registry.server import Fault, RegistryServer
from tests.sinks.kafka.deserializers import KEY, VALUE, deserializer
from tests.sinks.kafka.world import read_committed
from windrow.ingest.errors import BugError, SpecError, UnreachableError
from windrow.ingest.registry.client import Registry, Strategy, Subjects, client_of
from windrow.ingest.sinks.kafka.registry_serializer import RegisteredFormat, RegistrySerializer

__all__ = ["stage"]

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
BATCH = pa.RecordBatch.from_pylist([{"id": 1}, {"id": -1}], schema=ROWS)


def serializer(
    strategy: Strategy = "topic",
    *,
    register: bool = True,
    written: RegisteredFormat = "avro-confluent",
) -> RegistrySerializer:
    """Returns a serializer of one column."""
    return RegistrySerializer(
        written, ("id",), "shop.Thing", Subjects(strategy, ("shop.Thing",)), register=register
    )


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("topic", ["a-value", "b-value"]),
        ("record", ["shop.Thing"]),
        ("topic_record", ["a-shop.Thing", "b-shop.Thing"]),
    ],
)
def test_under_which_subjects(
    schema_registry: RegistryServer, strategy: Strategy, subjects: list[str]
) -> None:
    """Schemas are registered under the subjects of each naming strategy, for each topic.

    Messages begin with the schema's id.
    """
    schema_registry.register("another", "{}")
    registered = serializer(strategy).registered(ROWS, ["a", "b"], Registry(schema_registry.url))
    assert schema_registry.answer("GET", "/subjects", {}, None)[1] == ["another", *subjects]
    assert registered.encoded(BATCH).to_pylist() == [
        b"\x00\x00\x00\x00\x02\x02",
        b"\x00\x00\x00\x00\x02\x01",
    ]


def test_a_second_attempt_writes_the_same(schema_registry: RegistryServer) -> None:
    """A schema that is registered again has the same id, so a retry writes the same bytes."""
    registry = Registry(schema_registry.url)
    first = serializer().registered(ROWS, ["a"], registry)
    serializer().registered(ROWS.append(pa.field("more", pa.int64())), ["b"], registry)
    SchemaRegistryClient.clear_caches(client_of(registry.reveal(), os.getpid()))
    assert serializer().registered(ROWS, ["a"], registry) == first


def test_without_registering(schema_registry: RegistryServer) -> None:
    """A sink that may not register uses a schema that is registered.

    A missing one raises SpecError, which shows the schema.
    """
    registry, lookup = Registry(schema_registry.url), serializer(register=False)
    with pytest.raises(
        SpecError, match="doesn't have the sink's schema under subject a-value"
    ) as refused:
        lookup.registered(ROWS, ["a"], registry)
    assert lookup.schema_of(ROWS) in refused.value.advice
    assert schema_registry.answer("GET", "/subjects", {}, None)[1] == []
    id_ = schema_registry.register("a-value", lookup.schema_of(ROWS))
    assert lookup.registered(ROWS, ["a"], registry).schema_id == id_
    schema_registry.register("b-value", "{}")
    with pytest.raises(SpecError, match="subject b-value"):  # this subject has only other schemas
        lookup.registered(ROWS, ["b"], registry)


def test_a_schema_that_is_not_compatible(schema_registry: RegistryServer) -> None:
    """A schema that the registry finds incompatible raises SpecError, and nothing is written.

    A registry that is down raises UnreachableError.
    """
    refusal = (
        b'{"error_code": 409, "message": "Schema being registered is incompatible with an earlier'
        b' schema"}'
    )
    schema_registry.faults = {"/subjects/a-value/versions": Fault(409, refusal)}
    with pytest.raises(
        SpecError,
        match="refused the schema: 409: Schema being registered is incompatible",
    ):
        serializer().registered(ROWS, ["a"], Registry(schema_registry.url))
    schema_registry.faults = {"/subjects/a-value/versions": Fault(503)}
    with pytest.raises(UnreachableError, match="subject a-value: 503"):
        serializer().registered(ROWS, ["a"], Registry(schema_registry.url, retries=0))


def test_whether_it_would_be_taken(schema_registry: RegistryServer) -> None:
    """Doctor asks for each topic's subject whether the schema would be accepted, and registers
    nothing.

    A sink that may not register needs the schema there.
    """
    registry, unregistered = (
        Registry(schema_registry.url, section="sink"),
        serializer(register=False),
    )
    serializer().refuse_unregistrable(ROWS, ["a", "b"], registry)
    schema_registry.register("b-value", "{}")
    serializer().refuse_unregistrable(ROWS, ["a", "b"], registry)
    assert schema_registry.answer("GET", "/subjects", {}, None)[1] == ["b-value"]
    schema_registry.faults = {
        "/compatibility/subjects/b-value/versions": Fault(200, b'{"is_compatible": false}')
    }
    with pytest.raises(
        SpecError,
        match="the sink's schema isn't compatible with subject b-value",
    ):
        serializer().refuse_unregistrable(ROWS, ["a", "b"], registry)
    with pytest.raises(SpecError, match="doesn't have the sink's schema under subject a-value"):
        unregistered.refuse_unregistrable(ROWS, ["a"], registry)
    schema_registry.register("a-value", unregistered.schema_of(ROWS))
    unregistered.refuse_unregistrable(ROWS, ["a"], registry)
    schema_registry.faults = {
        "/compatibility/subjects/a-value/versions": Fault(200, b'{"is_compatible": "maybe"}')
    }
    with pytest.raises(UnreachableError, match="neither yes nor no"):
        serializer().refuse_unregistrable(ROWS, ["a"], registry)


def test_a_failure_says_whose_registry_it_is(schema_registry: RegistryServer) -> None:
    """A failure of the sink's registry names the setting of the sink, one of the source's
    registry that of the source.
    """
    registry = Registry(schema_registry.url, retries=0, section="sink")
    schema_registry.stop()
    with pytest.raises(UnreachableError) as refused:
        serializer().registered(ROWS, ["a"], registry)
    assert (refused.value.stage, "Check sink.registry" in refused.value.advice) == ("setup", True)
    with pytest.raises(UnreachableError) as reading:
        Registry(schema_registry.url, retries=0).of_subject("a", 1)
    assert (reading.value.stage, "Check source.registry" in reading.value.advice) == (
        "decode",
        True,
    )


def test_topics_with_different_ids(schema_registry: RegistryServer) -> None:
    """A registry with two ids for one schema is refused if one serializer writes to two topics."""
    schema_registry.faults = {"/subjects/b-value/versions": Fault(200, b'{"id": 7}')}
    with pytest.raises(
        SpecError, match="different ids for one schema under the subjects a-value, b-value"
    ):
        serializer().registered(ROWS, ["a", "b"], Registry(schema_registry.url))


def test_nothing_is_encoded_without_an_id() -> None:
    """Encoding without a schema id raises BugError, because no consumer could read the message."""
    with pytest.raises(BugError):
        serializer().encoded(BATCH)
    with pytest.raises(BugError):
        serializer().registered(ROWS, ["a"], None)


@pytest.mark.parametrize(
    ("written", "name"), [("avro-confluent", "Avro"), ("protobuf-confluent", "Protobuf")]
)
def test_a_column_that_has_no_counterpart(written: RegisteredFormat, name: str) -> None:
    """The error for a column without a counterpart says whether the key or the value has it."""
    with pytest.raises(SpecError, match=f"value can't be written as {name}: id is uint64"):
        serializer(written=written).schema_of(pa.schema([pa.field("id", pa.uint64())]))


def test_a_protobuf_message_says_which_it_is(schema_registry: RegistryServer) -> None:
    """After the id comes a byte 0 for the file's first message.

    The registry gets the schema type PROTOBUF.
    """
    registered = serializer(written="protobuf-confluent").registered(
        ROWS, ["a"], Registry(schema_registry.url)
    )
    assert registered.encoded(BATCH).to_pylist() == [
        b"\x00\x00\x00\x00\x01\x00\x08\x01",
        b"\x00\x00\x00\x00\x01\x00\x08" + b"\xff" * 9 + b"\x01",
    ]
    assert schema_registry.answer("GET", "/schemas/ids/1", {}, None)[1]["schemaType"] == "PROTOBUF"
    lookup = serializer(register=False, written="protobuf-confluent")
    assert lookup.registered(ROWS, ["a"], Registry(schema_registry.url)).schema_id == 1


SINK = (
    "sink: {{kind: kafka, bootstrap_servers: '{servers}', topic: {topic}, staging: lake/staging,"
    " {more}}}"
)


@pytest.mark.parametrize("written", ["avro-confluent", "protobuf-confluent"])
@pytest.mark.broker
@pytest.mark.slow
def test_a_pipeline_writes_what_a_registry_has_the_schema_of(
    stage: Stage, kafka: str, schema_registry: RegistryServer, written: str
) -> None:
    """Keys and values of a pipeline are read by Confluent's own deserializer, and the window is
    not published twice.
    """
    topic, spec = create_topic(kafka, partitions=2), Path(stage.spec)
    more = (
        f"key: {{columns: [id], format: {written}}}, value: {{format: {written}, record_name:"
        " shop.Thing, "
    )
    more += f"columns: [id, _timestamp, _topic]}}, registry: {{url: '{schema_registry.url}'}}"
    stage.write()
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}", SINK.format(servers=kafka, topic=topic, more=more)
        )
    )
    for _ in range(2):
        stage.json("run", stage.spec, "--window", hour(0))
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 10}) as client:
        read = deserializer(written, client, topic)
        decoded = [
            (read(message.key(), KEY), read(message.value(), VALUE))
            for message in read_committed(kafka, topic)
        ]
        assert sorted(client.get_subjects()) == [f"{topic}-key", f"{topic}-value"]
    assert sorted(value["id"] for _, value in decoded) == [0, 1, 2, 3]
    assert all(
        key == {"id": value["id"]} and value["_topic"] == "shop.things" for key, value in decoded
    )
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    assert sink_check(stage, 0)["level"] == "ok"
    schema_registry.faults = {
        f"/compatibility/subjects/{topic}-key/versions": Fault(200, b'{"is_compatible": false}')
    }
    assert f"schema isn't compatible with subject {topic}-key" in sink_check(stage, 2)["what"]
    schema_registry.stop()
    assert "Check sink.registry" in sink_check(stage, 3)["fix"]


def sink_check(stage: Stage, code: int) -> Any:
    """Returns doctor's check of the sink; doctor must end with the exit code `code`."""
    return next(
        check
        for check in stage.json("doctor", stage.spec, code=code)["checks"]
        if check["name"] == "sink"
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "value: {format: avro-confluent}",
            "sink.value.format: asks a schema registry: say which one as sink.registry",
        ),
        ("registry: {url: 'http://registry:8081'}", "sink.registry: would not be asked"),
        (
            "value: {record_name: a.B}",
            "sink.value.record_name: goes with format: avro-confluent or protobuf-confluent",
        ),
        (
            "value: {auto_register: false}",
            "sink.value.auto_register: goes with format: avro-confluent",
        ),
        (
            "value: {format: protobuf-confluent}",
            "sink.value.format: asks a schema registry: say which one as sink.registry",
        ),
        (
            "key: {columns: [id], format: avro-confluent, record_name: a-b}",
            "sink.key.record_name: must be a name as in shop.Order",
        ),
        (
            "value: {format: avro-confluent, subject_name_strategy: record}",
            "sink.value.record_name: is missing",
        ),
    ],
)
def test_mistakes_are_told_when_the_spec_is_read(stage: Stage, more: str, says: str) -> None:
    """Mistakes in the spec are reported with their places, before any server is asked."""
    spec = Path(stage.spec)
    stage.write()
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}", SINK.format(servers="127.0.0.1:2", topic="out", more=more)
        )
    )
    assert says in json.dumps(stage.json("show", stage.spec, code=2)["error"]["message"])
