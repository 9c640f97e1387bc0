"""A dead letter's headers: those of the message, then Kafka Connect's, then windrow's own. Pure.

Connect's are those of its `errors.deadletterqueue.context.headers.enable`
(`DeadLetterQueueReporter`), each a text in UTF-8, numbers as their digits: a program
that reads Connect's dead letters reads these. As there, a header of the message with
the same name stays before ours, and readers take the last.
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
"""What Connect calls the stage; `windrow.stage` has our own word."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TASK = "0"
"""There are no tasks that last; Connect's have numbers from 0 on."""


def headers_of(letter: Mapping[str, Any], window: str) -> list[tuple[str, str | bytes | None]]:
    """All headers of a dead letter, a row of their store."""
    mine = [(header["key"], header["value"]) for header in letter["headers"]]
    return mine + [
        (name, None if text is None else text.encode()) for name, text in _told(letter, window)
    ]


def _told(letter: Mapping[str, Any], window: str) -> list[tuple[str, str | None]]:
    stage, timestamp = letter["stage"], letter["_timestamp"]
    connect = {
        "topic": letter["_topic"],
        "partition": str(letter["_partition"]),
        "offset": str(letter["_offset"]),
        "connector.name": letter["pipeline"],
        "task.id": _TASK,
        "stage": _STAGES[stage],
        "class.name": f"windrow.{stage}",
        "exception.class.name": letter["reason"],
        "exception.message": letter["detail"],
    }
    own = {
        "window": window,
        "attempt": letter["attempt"],
        "generation": str(letter["generation"]),
        "stage": stage,
        "reason": letter["reason"],
        "schema.id": letter.get("schema_id"),
        "timestamp": (
            None if timestamp is None else str((timestamp - _EPOCH) // timedelta(milliseconds=1))
        ),
        "timestamp.type": letter["timestamp_type"],
    }
    return [(CONNECT + name, text) for name, text in connect.items()] + [
        (OWN + name, text) for name, text in own.items() if text is not None
    ]
