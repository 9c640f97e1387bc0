"""Headers of a dead letter: the message's, then Kafka Connect's, then windrow's. Pure.

Connect's are those of `errors.deadletterqueue.context.headers.enable`
(`DeadLetterQueueReporter`), each a text in UTF-8, numbers as decimal digits. A program
that reads Connect's dead letters reads these too. As with Connect, a header of the
message with the same name stays and comes first; readers take the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.ingest.ports.decoder import HEADER, KEY, RULES, SCHEMA, VALUE

CONNECT = "__connect.errors."
OWN = "windrow."

_STAGES = {
    KEY: "KEY_CONVERTER",
    HEADER: "HEADER_CONVERTER",
    VALUE: "VALUE_CONVERTER",
    SCHEMA: "VALUE_CONVERTER",
    RULES: "TRANSFORMATION",
}
"""Connect's name of each stage; `windrow.stage` has windrow's own."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TASK = "0"
"""Number of the task: windrow has no lasting tasks, and Connect counts from 0."""


def headers_of(dead_letter: Mapping[str, Any], window: str) -> list[tuple[str, str | bytes | None]]:
    """All headers of a dead letter, which is a row of the table of dead letters."""
    own = [(header["key"], header["value"]) for header in dead_letter["headers"]]
    return own + [
        (name, None if text is None else text.encode())
        for name, text in _context(dead_letter, window)
    ]


def _context(dead_letter: Mapping[str, Any], window: str) -> list[tuple[str, str | None]]:
    stage, timestamp = dead_letter["stage"], dead_letter["_timestamp"]
    connect = {
        "topic": dead_letter["_topic"],
        "partition": str(dead_letter["_partition"]),
        "offset": str(dead_letter["_offset"]),
        "connector.name": dead_letter["pipeline"],
        "task.id": _TASK,
        "stage": _STAGES[stage],
        "class.name": f"windrow.{stage}",
        "exception.class.name": dead_letter["reason"],
        "exception.message": dead_letter["detail"],
    }
    own = {
        "window": window,
        "attempt": dead_letter["attempt"],
        "generation": str(dead_letter["generation"]),
        "stage": stage,
        "reason": dead_letter["reason"],
        "schema.id": dead_letter.get("schema_id"),
        "timestamp": (
            None if timestamp is None else str((timestamp - _EPOCH) // timedelta(milliseconds=1))
        ),
        "timestamp.type": dead_letter["timestamp_type"],
    }
    return [(CONNECT + name, text) for name, text in connect.items()] + [
        (OWN + name, text) for name, text in own.items() if text is not None
    ]
