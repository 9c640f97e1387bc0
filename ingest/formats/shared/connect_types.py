"""Types that Kafka Connect and Debezium state by name: one table for JSON and Avro.

A name tells what a number or a text means. In Avro it is `connect.name`; in JSON it is the name
in the schema beside a message. This module doesn't load Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ZONED, ISO_DATE = "zoned-timestamp", "iso-date"
"""Logical types of strings that are a timestamp with an offset, and a date.

Debezium writes such strings. Avro's specification has no logical types for them.
"""

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
SCHEMA, PAYLOAD = "schema", "payload"
"""The two fields of a document that has its schema beside it."""
CONNECT_DECIMAL = f"{_CONNECT}Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""Name of Debezium's record of a scale and the bytes of a decimal.

Debezium writes it for numbers of a database column without a fixed scale.
"""

LOGICAL_TYPES: Mapping[str, tuple[str, str | None]] = {
    f"{_CONNECT}Date": ("int", "date"),
    f"{_CONNECT}Time": ("int", "time-millis"),
    f"{_CONNECT}Timestamp": ("long", "timestamp-millis"),
    f"{_DEBEZIUM}Date": ("int", "date"),
    f"{_DEBEZIUM}Time": ("int", "time-millis"),
    f"{_DEBEZIUM}MicroTime": ("long", "time-micros"),
    f"{_DEBEZIUM}NanoTime": ("long", None),
    f"{_DEBEZIUM}Timestamp": ("long", "timestamp-millis"),
    f"{_DEBEZIUM}MicroTimestamp": ("long", "timestamp-micros"),
    f"{_DEBEZIUM}NanoTimestamp": ("long", "timestamp-nanos"),
    f"{_DEBEZIUM}ZonedTimestamp": ("string", ZONED),
    f"{_DEBEZIUM}IsoTimestamp": ("string", ZONED),
    f"{_DEBEZIUM}IsoDate": ("string", ISO_DATE),
    f"{_DEBEZIUM}ZonedTime": ("string", None),
    f"{_DEBEZIUM}IsoTime": ("string", None),
    f"{_DEBEZIUM}Interval": ("string", None),
    f"{_DEBEZIUM}MicroDuration": ("long", None),
    f"{_DEBEZIUM}NanoDuration": ("long", None),
    f"{_DEBEZIUM}Year": ("int", None),
}
"""Avro's type and logical type, by name.

The logical type is None for a number or a text that is neither a date, a time nor a timestamp
of a unit that Avro has. Names that aren't here (`io.debezium.data.Uuid`, `Json`, `Xml`, `Enum`,
`EnumSet`, `Bits`) don't change how a value is read.
"""

_JSON_FORMS: Mapping[str | None, Mapping[str, Any]] = {
    "date": {"dates": "epoch_days"},
    "timestamp-millis": {"timestamps": "epoch_ms"},
    "timestamp-micros": {"timestamps": "epoch_us"},
    "timestamp-nanos": {"timestamps": "epoch_ns"},
}
_NO_FORM: Mapping[str, Any] = {}


def json_form(name: object) -> Mapping[str, Any] | None:
    """Returns how a type's values are written in JSON, as a change of a `Reading`.

    It is empty for texts, and for numbers that are neither dates nor timestamps.

    Args:
        name: the type's name; the result is None if it isn't in the table.
    """
    known = LOGICAL_TYPES.get(name) if isinstance(name, str) else None
    return None if known is None else _JSON_FORMS.get(known[1], _NO_FORM)
