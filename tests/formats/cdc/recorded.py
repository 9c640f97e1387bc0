"""Events that Debezium wrote, in Avro with the schemas of a registry and in JSON.

Debezium 3.6.1 read a table of PostgreSQL 15 (pgoutput) in its embedded engine, once for each
`time.precision.mode`. Each recording has a snapshot, inserts with infinite timestamps, updates of
values, of a key and beside a large value (TOAST), deletions, a logical message, ALTER TABLE with
added, dropped and widened columns, and TRUNCATE. `AvroData` of Apicurio's converter (2.6.13), a
fork of Confluent's, made the Avro schemas and values, and Avro's GenericDatumWriter (1.12.0) the
bytes. Connect's JsonConverter (4.3.0) without schemas wrote the same events in JSON. The magic byte
and the ids 1, 2, ... before the bytes are Confluent's wire format.

A line of `recorded.jsonl` is a mode with its schemas, or an event of its recording.

`flattened.jsonl` has the events of the table in the mode `adaptive` once more, behind
ExtractNewRecordState (3.6.1), for three of its modes of deletions. Some lines also have the
value with its schema beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.formats.confluent.registries import FixedRegistry
from windrow.ingest.model.writer_schema import WriterSchema


@dataclass(frozen=True)
class Event:
    """Event in both forms.

    Attributes:
        topic: the topic.
        key: the message's key in Avro; None if it has none.
        value: the message's value in Avro; None for a tombstone.
        document: the same value as a JSON document.
        json_key: the same key as a JSON document.
        with_schema: the same JSON document with its schema beside it, if it was recorded.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    document: dict[str, Any] | None
    json_key: dict[str, Any] | None = None
    with_schema: dict[str, Any] | None = None

    @property
    def json(self) -> bytes | None:
        """Value in JSON."""
        return None if self.document is None else json.dumps(self.document).encode()


@dataclass(frozen=True)
class Recording:
    """Events of a mode of the connector or of ExtractNewRecordState, in their order."""

    registry: FixedRegistry
    events: list[Event]


def _recordings(name: str) -> dict[str, Recording]:
    recordings: dict[str, Recording] = {}
    for line in (Path(__file__).parent / name).read_text().splitlines():
        part = json.loads(line)
        if "schemas" in part:
            schemas = (
                WriterSchema(id_, "AVRO", json.dumps(schema))
                for id_, schema in part["schemas"].items()
            )
            recordings[part["mode"]] = Recording(FixedRegistry(tuple(schemas)), [])
            continue
        key, value = (
            None if part[name] is None else bytes.fromhex(part[name]) for name in ("key", "value")
        )
        event = Event(
            part["topic"], key, value, part["json"], part["json_key"], part.get("with_schema")
        )
        recordings[part["mode"]].events.append(event)
    return recordings


RECORDINGS = _recordings("recorded.jsonl")
FLATTENED = _recordings("flattened.jsonl")
