"""The format of messages is recognised from a sample.

If the sample doesn't tell, the error says which option to pass.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.cdc.corpus import text
from tests.formats.cdc.recorded import FLATTENED, RECORDINGS, Recording
from tests.formats.confluent.registries import FixedRegistry, framed
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.payloads import AvroPayloads
from windrow.ingest.infer.candidates import column_refusal, table_refusal
from windrow.ingest.infer.new_pipeline import propose
from windrow.ingest.infer.proposal import KEEP_KEY, Proposal, without_unusable
from windrow.ingest.infer.registry_schemas import EVENTS
from windrow.ingest.infer.request import PipelineRequest, SampledFormat
from windrow.ingest.infer.schema_drift import Subject, compare_fields, compare_schema
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.messages import MESSAGES

Pair = tuple[bytes | None, bytes | None]
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'


def messages(pairs: Sequence[Pair], headers: Sequence[tuple[str, bytes]] = ()) -> pa.Table:
    """Returns messages with these keys and values."""
    stamped = {
        "topic": "t",
        "partition": 0,
        "timestamp": None,
        "timestamp_type": "CreateTime",
        "leader_epoch": None,
    }
    header_list = [{"key": name, "value": value} for name, value in headers]
    rows = [
        {**stamped, "offset": i, "key": key, "value": value, "headers": header_list}
        for i, (key, value) in enumerate(pairs)
    ]
    return pa.Table.from_pylist(rows, schema=MESSAGES)


def request_with(**hints: Any) -> PipelineRequest:
    """Returns a request for a topic, with hints."""
    return PipelineRequest("t", **hints)


def propose_for(
    *values: Any, request: PipelineRequest | None = None, registry: FixedRegistry | None = None
) -> Proposal:
    """Returns the proposal for messages with these values and without keys."""
    octets = [value if isinstance(value, bytes | None) else text(value) for value in values]
    return propose(
        request or request_with(), messages([(None, value) for value in octets]), registry
    )


def settings(proposal: Proposal) -> dict[str, Any]:
    """Returns the proposal's `decode` section."""
    return {name: setting.value for name, setting in proposal.decode.items()}


DEBEZIUM = {"op": "c", "before": None, "after": {"id": 1}, "source": {}}
TRANSACTION, HEARTBEAT = (
    {
        "status": "BEGIN",
        "id": "571:1",
        "event_count": None,
        "data_collections": None,
    },
    {"ts_ms": 1},
)


def event_of_table(table: str, schema: str | None = None) -> dict[str, Any]:
    """Returns Debezium's event of a row of this table."""
    return {**DEBEZIUM, "source": {"db": "d", "schema": schema, "table": table}}


CANAL = {"type": "INSERT", "database": "d", "table": "t", "isDdl": False, "data": [{"id": "1"}]}
MAXWELL = {"type": "insert", "database": "d", "table": "t", "ts": 1, "data": {"id": 1}}


def dms(operation: str, row: dict[str, Any] | None = None, **beside: Any) -> dict[str, Any]:
    """Returns a message of AWS DMS, with the names and the order of one that it wrote."""
    is_data = not operation.endswith("-table")
    metadata = {
        "timestamp": "2026-01-05T09:00:00.983670Z",
        "record-type": "data" if is_data else "control",
        "operation": operation,
        "partition-key-type": "primary-key" if is_data else "task-id",
        "partition-key-value": "public.t.1" if is_data else "serv-res-id-1-yhru",
        "schema-name": "public",
        "table-name": "t",
    }
    part = {"data": row or {"id": 1}} if is_data else {"control": {}}
    return {**part, **beside, "metadata": metadata}


RECOGNISED: dict[str, tuple[list[Any], SampledFormat]] = {
    "documents": ([{"id": 1}, None], "json"),
    "documents with a little poison": ([*[{"id": 1}] * 3, b"poison", None], "json"),
    "documents that are about operations": (
        [
            {"op": "c", "id": 1},
            {"type": "insert", "table": "t"},
            {"action": "I", "id": 1},
            {"action": "sort", "columns": []},
        ],
        "json",
    ),
    "events of debezium": (
        [DEBEZIUM, None, {**DEBEZIUM, "op": "d", "before": {"id": 1}, "after": None}],
        "debezium-json",
    ),
    "events of debezium among its marks": ([TRANSACTION, HEARTBEAT, DEBEZIUM], "debezium-json"),
    "events with their schema": (
        [
            {
                "schema": {
                    "fields": [{"field": "after", "fields": [{"field": "id", "type": "int32"}]}]
                },
                "payload": DEBEZIUM,
            }
        ],
        "debezium-json",
    ),
    "events of canal": (
        [CANAL, {**CANAL, "type": "ALTER", "isDdl": True, "data": None}],
        "canal-json",
    ),
    "rows of ExtractNewRecordState": (
        [{"id": 1, "__deleted": "false"}, {"id": 1, "__deleted": "true"}, None],
        "debezium-json",
    ),
    "rows with names that Debezium would add behind ids": (
        [framed(3, b'{"id": 1, "__source_ts_ms": 5}')],
        "debezium-json-schema-confluent",
    ),
    "messages of DMS": ([dms("load"), dms("create-table"), dms("delete")], "dms-json"),
    "events of maxwell": (
        [MAXWELL, {**MAXWELL, "type": "bootstrap-start", "data": {}}],
        "maxwell-json",
    ),
    "documents behind ids": (
        [framed(3, b'{"id": 1}'), framed(4, b'{"id": 2}')],
        "json-schema-confluent",
    ),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_messages_tell(name: str) -> None:
    """Each format is recognised from its messages, and messages that are only similar are not."""
    values, format_ = RECOGNISED[name]
    assert propose_for(*values).format == format_


UNTOLD: dict[str, tuple[list[Any], PipelineRequest, str, str]] = {
    "no message": (
        [],
        request_with(),
        "No message of topic t can be sampled",
        "--registry https://HOST:PORT",
    ),
    "no value": (
        [None, None],
        request_with(),
        "2 messages of topic t sampled, none with a value",
        "windrow init",
    ),
    "something else": (
        [b"a,b", b"\xff", {"id": 1}],
        request_with(),
        "Of 3 messages of topic t, JSON objects: 1;",
        "--format csv --columns",
    ),
    "ids without a registry": (
        [framed(3, b"\x02"), framed(3, b"\x04")],
        request_with(),
        "most with 3",
        "--registry https://HOST:PORT",
    ),
    "events among documents": (
        [DEBEZIUM, {"id": 1}],
        request_with(),
        "Of 2 messages of topic t only 1 could be Debezium's",
        "--format debezium-json",
    ),
    "rows of several tables": (
        [MAXWELL, {**MAXWELL, "table": "u"}],
        request_with(),
        "2 tables: 'd.t' (1), 'd.u' (1)",
        "--table DATABASE.TABLE",
    ),
    "another table": (
        [MAXWELL],
        request_with(table="d.x"),
        "No sampled message holds a row of 'd.x', but of 'd.t' (1)",
        "--table DATABASE.TABLE",
    ),
    "a table and no rows": (
        [{**MAXWELL, "type": "bootstrap-start", "data": {}}],
        request_with(table="d.x"),
        "a row of 'd.x'",
        "--table DATABASE.TABLE",
    ),
    "events without a row": (
        [{**MAXWELL, "type": "bootstrap-start", "data": {}}],
        request_with(),
        "have no row",
        "--sample",
    ),
    "nothing but a truncation": (
        [{**DEBEZIUM, "op": "t", "after": None}],
        request_with(),
        "Debezium events have no row",
        "windrow init",
    ),
    "changes of rows that are not there": (
        [{**CANAL, "data": None}, {**CANAL, "data": []}],
        request_with(),
        "have no row",
        "--sample",
    ),
    "csv without names": (
        [b"1,2"],
        request_with(format="csv"),
        "don't have the names of CSV's fields",
        "--columns id,name",
    ),
    "csv with too few names": (
        [b"1,2", b"3,4"],
        request_with(format="csv", columns=("a", "b", "c")),
        "into 3 fields",
        "--columns",
    ),
    "csv by two delimiters": (
        [b"1,2;3"],
        request_with(format="csv", columns=("a", "b")),
        "2 fields by ',' and ';'",
        "by hand",
    ),
    "no documents": (
        [b"1"],
        request_with(format="json"),
        "None of 1 message of topic t could be JSON objects",
        "--format raw",
    ),
    "no events": ([{"id": 1}], request_with(format="canal-json"), "Canal's events", "--format raw"),
    "names for nothing": (
        [{"id": 1}],
        request_with(columns=("a",)),
        "--columns names the fields of CSV",
        "--format csv",
    ),
    "a table of nothing": (
        [{"id": 1}],
        request_with(table="d.t"),
        "--table chooses",
        "Leave it out",
    ),
    "rows of several tables in debezium's topic": (
        [event_of_table("t"), event_of_table("u", "s")],
        request_with(),
        "2 tables: 'd.t' (1), 's.u' (1)",
        "--table DATABASE.TABLE",
    ),
    "messages of wal2json": (
        [
            {"action": "B"},
            {"action": "I", "table": "t", "columns": [{"name": "id", "value": 1}]},
            {"action": "D", "table": "t", "identity": [{"name": "id", "value": 1}]},
        ],
        request_with(),
        "wal2json's, whose rows are lists of columns",
        "--format json",
    ),
    "messages of wal2json in its first form": (
        [{"change": [{"kind": "insert", "columnnames": ["id"], "columnvalues": [1]}]}],
        request_with(),
        "wal2json's, whose rows are lists of columns",
        "--format json",
    ),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_messages_do_not_tell_is_asked_for(name: str) -> None:
    """A sample that doesn't tell its format raises SpecError.

    The error says what was seen, without payloads, and which option to pass.
    """
    values, request, message, advice = UNTOLD[name]
    with pytest.raises(SpecError) as refused:
        propose_for(*values, request=request)
    assert message in refused.value.message
    assert advice in refused.value.advice
    assert "Nothing was written" in refused.value.advice
    assert not refused.value.message.endswith(" ")


def test_messages_that_name_no_schema_are_told_by_themselves() -> None:
    """Messages without a schema id are read without the registry, even if the subject exists."""
    registry = FixedRegistry((WriterSchema("3", "AVRO", AVRO),))
    assert propose_for({"id": 1}, registry=registry).format == "json"
    assert propose_for(framed(3, b"\x02"), registry=registry).format == "avro-confluent"
    assert propose_for(registry=registry).format == "avro-confluent"


def test_a_schema_that_no_subject_has_is_found_by_its_id() -> None:
    """A schema is found by its id if no subject has it.

    Producers may use another naming strategy. An unknown id is reported.
    """

    class Subjectless(FixedRegistry):
        def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
            return []

    registry = Subjectless((WriterSchema("3", "AVRO", AVRO),))
    proposal = propose_for(framed(3, b"\x02"), registry=registry)
    assert (proposal.source, [candidate.name for candidate in proposal.candidates]) == (
        "from the schema of the registry, id 3",
        ["id"],
    )
    with pytest.raises(SpecError, match="doesn't know schema id 9"):
        propose_for(framed(9, b"\x02"), registry=registry)
    with pytest.raises(SpecError, match="has no subject t-value"):
        propose_for(registry=registry)


def test_the_record_is_told() -> None:
    """The proposal has the record of values and keys, so another record makes no null rows.

    Messages with unknown schemas change nothing.
    """
    key = (
        '{"type": "record", "namespace": "shop", "name": "K", "fields": [{"name": "shop", "type":'
        ' "string"}]}'
    )

    class BySubject(FixedRegistry):
        def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
            return [
                schema
                for schema in self.schemas
                if (schema.text == key) == subject.endswith("-key")
            ][:limit]

    registry = BySubject((WriterSchema("3", "AVRO", AVRO), WriterSchema("4", "AVRO", key)))
    known_pair, unknown = ((framed(id_, b"\x02a"), framed(3, b"\x02")) for id_ in (4, 9))
    proposal = propose(request_with(), messages([known_pair, known_pair, unknown]), registry)
    assert settings(proposal)["records"] == ["R"]
    assert settings(proposal)["key"] == {
        "format": "avro-confluent",
        "fields": ["shop"],
        "records": ["shop.K"],
    }


def recorded_proposal(
    recording: Recording = RECORDINGS["adaptive"],
    *,
    keys: bool = True,
    topic: str = "shop.public.customers",
) -> Proposal:
    """Returns the proposal for the events that Debezium recorded, by the registry's schemas."""

    class BySubject(FixedRegistry):
        def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
            names = {"Envelope", "Value"} if subject.endswith("-value") else {"Key"}
            versions = [
                schema
                for schema in self.schemas
                if json.loads(schema.text)["name"] in names
                and json.loads(schema.text)["namespace"] == "shop.public.customers"
            ]
            return versions[::-1][:limit]

    pairs = [
        (event.key if keys else None, event.value)
        for event in recording.events
        if event.topic == "shop.public.customers"
    ]
    registry = BySubject(recording.registry.schemas)
    return propose(PipelineRequest(topic), messages(pairs), registry)


def test_an_envelope_by_registry_is_no_row() -> None:
    """Debezium's events by a registry become a table of their rows, by the key of the messages."""
    proposal = recorded_proposal()
    assert settings(proposal) == {"format": "debezium-avro-confluent"}
    assert proposal.primary_key == ("id",)
    columns = {candidate.name: candidate for candidate in proposal.candidates}
    assert {"small", "x", "added"} <= columns.keys()
    assert not {"before", "after", "op", "source"} & columns.keys()
    assert columns["small"].guess.type == pa.int64()
    assert columns["tstz"].guess.type == pa.timestamp("us", "UTC")
    assert (columns["id"].nullable, columns["x"].nullable) == (False, True)


def test_an_envelope_without_keys_or_of_another_topic() -> None:
    """Without keys each change is a row with its kind; a topic of another name names the table."""
    proposal = recorded_proposal(keys=False, topic="all")
    assert settings(proposal) == {
        "format": "debezium-avro-confluent",
        "table_include": "customers",
        "envelope": {"op": "op"},
    }
    assert proposal.primary_key == ()
    assert "primary key is unknown" in proposal.hints[0]


def test_flattened_rows_by_registry() -> None:
    """Rows of ExtractNewRecordState by a registry are a keyed table."""
    proposal = recorded_proposal(FLATTENED["rewrite"])
    key = {"format": "avro-confluent", "fields": ["id"]}
    assert settings(proposal) == {"format": EVENTS, "flattened": True, "key": key}
    assert proposal.primary_key == ("id",)
    assert recorded_proposal(FLATTENED["rewrite"], keys=False).primary_key == ()


def test_an_envelope_of_texts_is_refused() -> None:
    """Events of MongoDB in Avro are reported, not proposed as rows of the envelope."""
    fields = [
        {"name": name, "type": ["null", "string"]} for name in ("before", "after", "op", "source")
    ]
    envelope = json.dumps({"type": "record", "name": "Envelope", "fields": fields})
    registry = FixedRegistry((WriterSchema("3", "AVRO", envelope),))
    with pytest.raises(SpecError, match="MongoDB"):
        propose_for(framed(3, b"\x00\x00\x00\x00"), registry=registry)


@pytest.mark.parametrize("with_registry", [False, True])
def test_an_envelope_behind_a_json_schema(with_registry: bool) -> None:
    """Debezium's JSON behind a schema's id is recognised, with and without its registry."""
    stated = {"type": "object", "properties": {name: {} for name in DEBEZIUM}}
    registry = FixedRegistry((WriterSchema("3", "JSON", json.dumps(stated)),))
    proposal = propose_for(framed(3, text(DEBEZIUM)), registry=registry if with_registry else None)
    assert proposal.format == "debezium-json-schema-confluent"
    assert [candidate.name for candidate in proposal.candidates] == ["id", "op"]


def test_a_union_of_records() -> None:
    """Each record of a union is a row with the fields of all records.

    A field that some record lacks is nullable, and a column has the record's name.
    """
    more = AVRO.replace('"R"', '"x.B"').replace("]}", ', {"name": "more", "type": "string"}]}')
    union = f"[{AVRO}, {more}]"
    proposal = propose_for(
        framed(3, b"\x00\x02"), registry=FixedRegistry((WriterSchema("3", "AVRO", union),))
    )
    assert settings(proposal)["records"] == ["R", "x.B"]
    assert [(candidate.name, candidate.nullable) for candidate in proposal.candidates] == [
        ("id", False),
        ("more", True),
        ("kind", False),
    ]
    assert settings(proposal)["written_with"] == {"kind": "record"}


def test_a_json_schema_is_held_against_what_was_sampled() -> None:
    """The formats of a JSON Schema are compared with the sample.

    A time without an offset is a text.
    """
    stated = {
        "type": "object",
        "properties": {
            name: {"type": "string", "format": "date-time"} for name in ("at", "local", "later")
        },
    }
    registry = FixedRegistry((WriterSchema("3", "JSON", json.dumps(stated)),))
    proposal = propose_for(
        framed(3, b'{"at": "2026-01-05T09:00:00Z", "local": "2026-01-05T09:00:00"}'),
        registry=registry,
    )
    assert {candidate.name: str(candidate.guess.type) for candidate in proposal.candidates} == {
        "at": "timestamp[us, tz=UTC]",
        "local": "string",
        "later": "timestamp[us, tz=UTC]",
    }


KEYED: dict[str, tuple[list[Pair], dict[str, Any], list[str]]] = {
    "says more than the value": (
        [(b'{"shop": "a"}', b'{"id": 1}')],
        {"format": "json", "fields": ["shop"]},
        ["shop", "id"],
    ),
    "says something else by one name": (
        [(b'{"id": 1, "n": 2}', b'{"id": 2}')],
        {"format": "json", "fields": ["key_id", "key_n"], "fields_prefix": "key_"},
        ["key_id", "key_n", "id"],
    ),
    "differs by case only": (
        [(b'{"ID": 1}', b'{"id": 2}')],
        {"format": "json", "fields": ["key_ID"], "fields_prefix": "key_"},
        ["key_ID", "id"],
    ),
    "is an object once": ([(b'{"shop": "a"}', b'{"id": 1}'), (b"a", b'{"id": 1}')], {}, ["id"]),
    "is missing once": ([(b'{"shop": "a"}', b'{"id": 1}'), (None, b'{"id": 1}')], {}, ["id"]),
}


@pytest.mark.parametrize("name", KEYED)
def test_keys(name: str) -> None:
    """Keys become columns if all keys are objects and some key says more than its value."""
    pairs, key, columns = KEYED[name]
    proposal = propose(request_with(), messages(pairs), None)
    assert (
        settings(proposal).get("key", {}),
        [candidate.name for candidate in proposal.candidates],
    ) == (
        key,
        columns,
    )
    assert ("fields_include" in settings(proposal)) == bool(key)


@pytest.mark.parametrize(
    "keyless_request",
    [
        request_with(format="csv", columns=("a", "b")),
        request_with(format="string"),
        request_with(format="raw"),
    ],
    ids=lambda request: request.format,
)
def test_keys_that_are_left_out_are_told(keyless_request: PipelineRequest) -> None:
    """A hint reports keys that are left out, for each format. Without keys there is no hint."""
    assert propose(keyless_request, messages([(b"k", b"1,2"), (None, b"1,2")]), None).hints == (
        KEEP_KEY,
    )
    assert propose(keyless_request, messages([(None, b"1,2"), (b"", b"1,2")]), None).hints == ()


@pytest.mark.parametrize(("key", "key_format"), [(b"a-1", "string"), (bytes(7) + b"\x11", "raw")])
def test_keys_beside_values_of_a_registry(key: bytes, key_format: str) -> None:
    """A key needs no registered schema if the values have one: it is a text or a long.

    The long's bytes look like a schema id.
    """

    class OfValues(FixedRegistry):
        def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
            return super().of_subject(subject, limit) if subject == "t-value" else []

    table = messages([(key, framed(3, b"\x02"))])
    proposal = propose(request_with(), table, OfValues((WriterSchema("3", "AVRO", AVRO),)))
    assert settings(proposal)["key"] == {"format": key_format, "fields": ["key"]}


def snapshot_event(**row: Any) -> dict[str, Any]:
    """Returns Debezium's event of a row in a snapshot."""
    return {**DEBEZIUM, "op": "r", "after": row}


PRIMARY: dict[str, tuple[list[tuple[Any, Any]], tuple[str, ...]]] = {
    "debezium's keys": ([({"id": 1}, DEBEZIUM)], ("id",)),
    "debezium's keys with their schema": (
        [({"schema": {}, "payload": {"id": 1}}, DEBEZIUM)],
        ("id",),
    ),
    "keys that aren't the row's": ([({"id": 7}, DEBEZIUM)], ()),
    "keys of several shapes": (
        [({"id": 1}, DEBEZIUM), ({"id": 1, "n": 1}, {**DEBEZIUM, "after": {"id": 1, "n": 1}})],
        (),
    ),
    "a key that may be null": ([({"id": None}, {**DEBEZIUM, "after": {"id": None}})], ()),
    "a key that is no exact value": ([({"id": 1.5}, {**DEBEZIUM, "after": {"id": 1.5}})], ()),
    "no keys": ([(None, DEBEZIUM)], ()),
    "canal's names": ([(None, {**CANAL, "pkNames": ["id"]})], ("id",)),
    "canal's table without a key": ([(None, {**CANAL, "pkNames": None})], ()),
    "canal's name, twice": ([(None, {**CANAL, "pkNames": ["id", "id"]})], ("id",)),
    "canal's names that are none": ([(None, {**CANAL, "pkNames": [["id"], {}]})], ()),
    "maxwell's keys": ([({"database": "d", "table": "t", "pk.id": 1}, MAXWELL)], ("id",)),
    "a key that two rows of a snapshot have": (
        [
            ({"c": 1}, snapshot_event(c=1, n=3)),
            ({"c": 1}, snapshot_event(c=1, n=4)),
            ({"c": 2}, snapshot_event(c=2, n=5)),
        ],
        (),
    ),
    "rows that a snapshot read again": ([({"c": 1}, snapshot_event(c=1, n=3))] * 2, ("c",)),
    "a row that came back": (
        [
            ({"c": 1}, snapshot_event(c=1, n=3)),
            ({"c": 1}, {**snapshot_event(c=1, n=4), "op": "u"}),
            (
                {"c": 1},
                {**snapshot_event(), "op": "d", "before": {"c": 1, "n": None}, "after": None},
            ),
            ({"c": 1}, snapshot_event(c=1, n=5)),
        ],
        ("c",),
    ),
}


@pytest.mark.parametrize("name", PRIMARY)
def test_primary_keys(name: str) -> None:
    """The primary key consists of columns that all events name and all rows have.

    Without one, the table only grows, and a column tells each row's operation.
    """
    pairs, key = PRIMARY[name]
    proposal = propose(
        request_with(),
        messages([(None if k is None else text(k), text(v)) for k, v in pairs]),
        None,
    )
    assert proposal.primary_key == key
    assert ("envelope" in settings(proposal)) == (not key)
    assert all(not candidate.nullable for candidate in proposal.candidates if candidate.name in key)


def test_a_schema_in_a_header_counts() -> None:
    """A schema id in a header is recognised. Confluent's serializers may write it there."""
    table = messages([(None, b"\x02")], [("__value_schema_id", framed(3, b""))])
    assert (
        propose(request_with(), table, FixedRegistry((WriterSchema("3", "AVRO", AVRO),))).format
        == "avro-confluent"
    )
    json_messages = messages([(None, b'{"id": 1}')], [("__value_schema_id", framed(3, b""))])
    assert propose(request_with(), json_messages, None).format == "json-schema-confluent"


def test_lines_of_fields() -> None:
    """The proposed delimiter splits all lines.

    A field has the first type that takes all its texts.

    An empty field is null.
    """
    proposal = propose_for(
        b'1;"x";007', b"2;;08", request=request_with(format="csv", columns=("id", "name", "code"))
    )
    assert settings(proposal) == {"format": "csv", "delimiter": ";", "null_literal": ""}
    assert [(o.name, str(o.guess.type), o.nullable) for o in proposal.candidates] == [
        ("id", "int64", False),
        ("name", "string", True),
        ("code", "string", False),
    ]


@pytest.mark.parametrize(
    ("line", "quotes"),
    [(b'1\t"x"', "none"), (b'1\t"x" "y', "none"), (b'1\t"x\ty"', None)],
    ids=["around a field", "inside one", "around a tab"],
)
def test_quotes_of_fields_between_tabs(line: bytes, quotes: str | None) -> None:
    """Quotes between tabs are ordinary characters, unless a line can't be read so."""
    proposal = propose_for(line, request=request_with(format="csv", columns=("id", "name")))
    assert settings(proposal).get("quote") == quotes


@pytest.mark.parametrize(
    ("head", "lines"), [(b"Id, name", 3), (b"id,name", 300), (b"number,what", 300)]
)
def test_a_line_of_names_is_no_value(head: bytes, lines: int) -> None:
    """A header line among the messages doesn't turn each column into a text.

    It is recognised by the column names, or as one line of a hundred.
    """
    values = [head, *(b"%d,x" % n for n in range(lines))]
    proposal = propose_for(*values, request=request_with(format="csv", columns=("id", "name")))
    assert [str(candidate.guess.type) for candidate in proposal.candidates] == ["int64", "string"]
    assert any("line of the names" in hint for hint in proposal.hints) == (b"ame" in head)


NUMBERS: dict[str, tuple[list[str], str]] = {
    "of a double": (["0.1", "1.50", "-2.5e300", "5e-324", "0.10000000000000001", "3"], "double"),
    "whole, and of doubles": (["0.5", "1152921504606847000"], "double"),
    "whole, with more digits": (["0.5", "1152921504606847001"], "decimal128(38, 9)"),
    "nanoseconds": (["1767603600.123456789", "1767603600"], "decimal128(38, 9)"),
    "a fraction of 18 digits": (["0.123456789012345678"], "decimal128(38, 18)"),
    "too small for a double": (["1e-400"], "string"),
    "one of many": (["0.5"] * 199 + ["0.123456789012345678"], "decimal128(38, 18)"),
    "one of many in a text": (["0.5"] * 199 + ['"0.123456789012345678"'], "decimal128(38, 18)"),
    "one in a text, among great ones": (["1e300"] * 199 + ['"0.123456789012345678"'], "string"),
    "one that no number is as great as": (["0.5"] * 199 + ['"1e9999999999999999999"'], "double"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_keep_their_digits(name: str) -> None:
    """A float is proposed only if it keeps all digits of all sampled numbers."""
    literals, kind = NUMBERS[name]
    for request in (None, request_with(format="csv", columns=("x",))):
        values = [text if request else f'{{"x": {text}}}' for text in literals]
        (candidate,) = propose_for(
            *(value.encode() for value in values), request=request
        ).candidates
        assert str(candidate.guess.type) == kind


def test_a_schema_of_connect_without_fields() -> None:
    """A schema beside the documents that says nothing of their fields is refused."""
    with pytest.raises(SpecError, match="doesn't have the fields"):
        propose_for({"schema": {"type": "struct"}, "payload": {"id": 1}})


def test_floats_that_are_no_numbers() -> None:
    """Bare NaN and infinities, as Python writes them, are read with the option for them."""
    proposal = propose_for(b'{"x": 0.5}', b'{"x": NaN}', b'{"x": -Infinity}')
    assert str(proposal.candidates[0].guess.type) == "double"
    assert settings(proposal)["allow_non_numeric_numbers"] is True


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["12.50", "3", None], "decimal128(38, 9)"),
        (["12", None], "decimal128(38, 0)"),
        (["1" * 38 + ".5"], "string"),
        ([None], "string"),
    ],
)
def test_a_decimal_whose_digits_canal_does_not_state(values: list[Any], kind: str) -> None:
    """The digits of a decimal without a stated scale come from the values.

    MySQL's own default has no digits after the point.
    """
    events = [{**CANAL, "mysqlType": {"n": "decimal"}, "data": [{"n": n}]} for n in values]
    assert str(propose_for(*events).candidates[0].guess.type) == kind


@pytest.mark.parametrize(
    ("stated", "value", "kind"),
    [
        ("date", "0000-00-00", "string"),
        ("date", "2026-01-05", "date32[day]"),
        ("int(5) unsigned zerofill", "00005", "string"),
        ("int(5) unsigned", "5", "int64"),
        ("datetime(6)", "2026-01-05 09:00:00.123456", "timestamp[us, tz=UTC]"),
    ],
)
def test_values_that_are_not_what_canal_states(stated: str, value: str, kind: str) -> None:
    """A column whose values contradict the type that Canal states is a text, with a note.

    Otherwise all its messages would be dead letters.
    """
    events = [{**CANAL, "mysqlType": {"n": stated}, "data": [{"n": n}]} for n in (None, value)]
    (candidate, _) = propose_for(*events).candidates
    assert str(candidate.guess.type) == kind
    assert ("not all of its values" in candidate.guess.note) == (kind == "string")


def test_names_that_are_data() -> None:
    """A note says that field names seem to be data, if each document has another name."""
    hints = propose_for(*({f"k{n}": 1} for n in range(250))).hints
    assert [hint[:40] for hint in hints] == ["the names of the 250 fields seem to be d"]
    assert propose_for({"a": 1, "b": 2}, {"a": 1, "c": "x"}, {"d": True}).hints == ()


@pytest.mark.parametrize("value", [["2026-01-05Z"], {"a": {"b": "2026-01-05"}}, "2026-01-05"])
def test_dates_inside_others_are_dates_of_debezium(value: Any) -> None:
    """A date as text inside lists or structs is read as a date too."""
    proposal = propose_for({**DEBEZIUM, "after": {"id": 1, "ds": value}})
    assert settings(proposal)["dates"] == "iso-8601"


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "")])
def test_a_field_of_a_line_needs_a_name_of_its_own(names: tuple[str, str]) -> None:
    """Each field of a line needs its own name, because no field can be left out."""
    lines = propose_for(b"1,2", request=request_with(format="csv", columns=names))
    with pytest.raises(SpecError, match="in --columns can't be a column"):
        without_unusable(lines, table_refusal(DEFAULT, delta=True), "t")


@pytest.mark.parametrize(
    ("event", "envelope"),
    [
        ({**MAXWELL, "data": {"Type": 1}}, {"type_": "type"}),
        ({**CANAL, "data": [{"type": "1", "TYPE_": "2"}]}, {"type__": "type"}),
        ({**DEBEZIUM, "after": {"op": 1}}, {"op_": "op"}),
    ],
)
def test_what_became_of_a_row_is_beside_a_column_of_that_name(
    event: dict[str, Any], envelope: dict[str, str]
) -> None:
    """A column for the operation gets another name if the rows have a column of its name.

    Tables ignore the case of names. Without the operation a deleted row looks like an existing
    row.
    """
    proposal = propose_for(event)
    assert settings(proposal)["envelope"] == envelope
    assert [candidate.name for candidate in proposal.candidates][-1:] == list(envelope)


@pytest.mark.parametrize(
    "stated", [f"decimal({'9' * 5000})", "decimal(0,0)", "decimal(5,9)", "decimal(999)", "int("]
)
def test_a_stated_type_that_no_column_has_is_a_text(stated: str) -> None:
    """A stated type that no column can have becomes a text and stops nothing."""
    (candidate,) = propose_for({**CANAL, "mysqlType": {"id": stated}}).candidates[:1]
    assert str(candidate.guess.type) in {"string", "int32"}


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_floats_of_debezium_that_are_no_numbers(name: str) -> None:
    """NaN and the infinities of Debezium are values of a float column."""
    rows = [{"id": n, "f": f} for n, f in enumerate([1.5, name, 2.5])]
    candidates = propose_for(*({**DEBEZIUM, "after": row} for row in rows)).candidates
    assert [(c.name, str(c.guess.type)) for c in candidates[:2]] == [
        ("id", "int64"),
        ("f", "double"),
    ]


def test_digits_of_debezium_that_no_column_has_are_a_text() -> None:
    """A stated scale that no column can have becomes a text."""
    field = {
        "field": "id",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "9" * 5000},
    }
    (candidate,) = propose_for(
        {"schema": {"fields": [{"field": "after", "fields": [field]}]}, "payload": DEBEZIUM}
    ).candidates[:1]
    assert str(candidate.guess.type) == "string"


def test_what_a_schema_states_inside_others() -> None:
    """Dates, timestamps and decimals inside lists, structs and maps are read as outside.

    A decimal of any scale needs a choice by the user.
    """
    date, timestamp = (
        {"type": "int32", "name": "io.debezium.time.Date"},
        {
            "type": "int64",
            "name": "io.debezium.time.MicroTimestamp",
        },
    )
    price = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    fields = [
        {"field": "days", "type": "array", "items": date},
        {"field": "store", "type": "map", "keys": {"type": "string"}, "values": price},
        {"field": "inner", "type": "struct", "fields": [{"field": "at", **timestamp}]},
        {
            "field": "any",
            "type": "struct",
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"field": "scale", "type": "int32"}],
        },
        {"field": "odd", "type": "map", "keys": {"type": "int32"}, "values": price},
    ]
    proposal = propose_for(
        {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": DEBEZIUM}
    )
    assert "decimal_format" not in settings(proposal)
    assert [str(candidate.guess.type) for candidate in proposal.candidates][:5] == [
        "list<item: date32[day]>",
        "list<item: struct<key: string, value: decimal128(38, 2)>>",
        "struct<at: timestamp[us, tz=UTC]>",
        "None",
        "None",
    ]
    assert "Decimal(38, N)" in proposal.candidates[3].guess.note


@pytest.mark.parametrize(
    ("objects", "kind"),
    [
        ([{f"item {n}": n for n in range(300)}], "list<item: struct<key: string, value: int64>>"),
        ([{"b": 1}, {"c": 1}, {"d": 1.5}], "list<item: struct<key: string, value: double>>"),
        (
            [{"u1": {"n": 1}}, {"u2": {"n": 2, "x": "y"}}, {"u3": {"n": 3}}, {}],
            "list<item: struct<key: string, value: struct<n: int64, x: string>>>",
        ),
        ([{f"k{n}": {}} for n in range(250)], "None"),
        ([{"b": 1}, {"c": 1}], "struct<b: int64, c: int64>"),
        ([{"b": 1, "c": 1}, {"d": 1}], "struct<b: int64, c: int64, d: int64>"),
        (
            [{"paid": {"n": 1}}, {"sent": {"to": "x"}}, {"left": {"why": "y"}}],
            "struct<paid: struct<n: int64>, sent: struct<to: string>, left: struct<why: string>>",
        ),
        ([{"b": 1}, {"c": "x"}, {"d": True}], "struct<b: int64, c: string, d: bool>"),
    ],
)
def test_an_object_with_data_for_keys_is_a_list_of_entries(
    objects: list[dict[str, Any]], kind: str
) -> None:
    """An object whose keys are data becomes a list of entries.

    Keys are data if there are hundreds. They are data too if each object has few keys, all
    objects have many, and the values are similar.
    """
    (candidate,) = propose_for(*({"stock": stock} for stock in objects)).candidates
    assert str(candidate.guess.type) == kind


@pytest.mark.parametrize("delta", [True, False])
def test_names_that_no_column_can_have(delta: bool) -> None:
    """A name that a column can't have is left out with a reason, by `infer` and by its check."""
    proposal = propose_for(
        {
            "userId": 1,
            "userid": 2,
            "_window": 3,
            "": 4,
            "first name": 5,
            "place": {"a=b": 1},
            "fine": 6,
        }
    )
    refusal = table_refusal(DEFAULT, delta=delta)
    beyond = {"first name", "place"} if delta else set()
    omitted_names = {
        candidate.name
        for candidate in without_unusable(proposal, refusal, "t").candidates
        if not candidate.usable
    }
    assert omitted_names == {"userid", "_window", ""} | beyond
    columns = Columns((Column("userId", pa.int64(), nullable=False),))
    findings = list(
        compare_fields(
            "it", "messages", proposal.candidates, columns, {}, column_refusal(columns, refusal), []
        )
    )
    assert {
        f.message.split("'")[1] for f in findings if f.advice.startswith("It can't be a column: ")
    } == omitted_names
    assert {
        f.message.split("'")[1] for f in findings if f.advice.startswith("It could be a column")
    } == {
        "fine",
        "first name",
        "place",
    } - beyond


def test_a_column_that_the_newest_schema_calls_otherwise() -> None:
    """The check finds a column by its alias in the newest schema.

    A missing column with a default is no finding. A type that doesn't fit is reported under
    either name.
    """
    more = Column("money", pa.string(), nullable=False, default=pa.scalar("EUR"))
    for kind, expected_messages in ((pa.int64(), []), (pa.bool_(), ["id: int can't become bool"])):
        columns = Columns((Column("number", kind, nullable=False, aliases=("id",)), more))
        subject = Subject("t-value", "t", "value", "avro-confluent", AvroPayloads(), columns)
        findings = compare_schema(
            WriterSchema("1", "AVRO", AVRO),
            subject,
            messages([]),
            table_refusal(DEFAULT, delta=True),
        )
        assert [finding.message.rpartition("): ")[2] for finding in findings] == expected_messages


def test_the_newest_envelope_is_compared_by_its_row() -> None:
    """`--check` compares the columns with the row in the newest envelope of the subject."""
    newest = RECORDINGS["adaptive"].registry.schemas[-1]
    columns = Columns(
        (
            Column("id", pa.int64(), nullable=False),
            Column("small", pa.bool_(), nullable=True),
            Column("x", pa.string(), nullable=True),
        )
    )
    subject = Subject("t-value", "t", "value", EVENTS, AvroPayloads(), columns)
    refuses = table_refusal(DEFAULT, delta=True)
    findings = [
        (finding.level, finding.message)
        for finding in compare_schema(newest, subject, messages([]), refuses)
    ]
    (wrong,) = [words for level, words in findings if level == "wrong"]
    assert wrong.endswith("small: long can't become bool")
    assert any("Column x is null" in words for _, words in findings)
    assert any("'added'" in words for _, words in findings)
    heartbeat = WriterSchema("1", "AVRO", AVRO)
    (finding,) = compare_schema(heartbeat, subject, messages([]), refuses)
    assert "no change event" in finding.message


def test_a_name_is_no_pattern() -> None:
    """A table's name is matched exactly, even if it has characters of regular expressions."""
    proposal = propose_for(
        {**MAXWELL, "table": "a.b"}, MAXWELL, request=request_with(table="d.a.b")
    )
    assert settings(proposal)["database_include"] == "d"
    assert settings(proposal)["table_include"] == r"a\.b"
    assert json.dumps(settings(proposal))


def test_the_table_of_a_topic_is_said() -> None:
    """The table is stated in the spec, unless Debezium's topic is named after it.

    Otherwise another table that is routed to the topic would be read, or refused.
    """
    included = [
        {
            name: value
            for name, value in settings(propose_for(event)).items()
            if name.endswith("_include")
        }
        for event in (event_of_table("t"), event_of_table("u"), event_of_table("u", "s"), CANAL)
    ]
    assert included == [
        {},
        {"database_include": "d", "table_include": "u"},
        {"table_include": r"s\.u"},
        {"database_include": "d", "table_include": "t"},
    ]
