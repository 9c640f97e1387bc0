"""The dialects of JSON, as data: how each format writes values in it.

All are read by one decoder, which goes by a `Reading`. A spec's options change the dialect of
its format; Kafka Connect's schema in a message changes it for that message. Nothing here loads
Arrow, so that specs are checked without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

TimestampForm = Literal["iso-8601", "sql", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]
"""Form of timestamps.

`iso-8601` needs an offset; `sql` without an offset is UTC; the others are numbers since
1970.
"""

DateForm = Literal["iso-8601", "epoch_days"]
"""Form of dates: ISO 8601, or whole days since 1970."""

DecimalForm = Literal["numeric", "base64"]
"""Form of decimals.

`numeric`: their digits, as a number or a text. `base64`: the bytes of the unscaled
integer.
"""

Unknown = Literal["ignore", "dead"]


@dataclass(frozen=True)
class Reading:
    """Rules for reading values, at any depth.

    - `timestamps`, `zone`: for columns whose model doesn't say it itself.
    - `lenient`: whether a value of another type is taken if it means the same: a number in a
      string, a whole number that is written with a fraction, a number or a boolean for a
      String.
    - `dates`, `decimals`: how these are written; `scale`: of decimals that are bytes;
      None: the column's.
    - `non_numeric`: whether `NaN`, `Infinity` and `-Infinity`, bare or in quotes, are
      values of floats.
    - `unknown`: what becomes of a message with fields that the schema doesn't name.
    - `is_only_column`: whether a document that is no object is the value of the only column.
    - `stated`: whether the message's own schema gives the form, whatever the model
      says; `fields`, `items`: how values inside are read by it. Without such a schema
      all are read by the same rules.
    """

    timestamps: TimestampForm = "iso-8601"
    lenient: bool = False
    dates: DateForm = "iso-8601"
    decimals: DecimalForm = "numeric"
    scale: int | None = None
    non_numeric: bool = False
    unknown: Unknown = "ignore"
    is_only_column: bool = False
    stated: bool = False
    fields: tuple[tuple[str, Reading], ...] = ()
    items: Reading | None = None
    zone: str | None = None

    def clock(self, zone: str | None = None) -> str | None:
        """Zone of a column's texts that have no offset; None: each must have one.

        `zone`: the column's zone in the model.
        """
        return zone or self.zone or ("UTC" if self.timestamps == "sql" else None)

    def unit(self, epoch: str | None, zone: str | None = None) -> str | None:
        """Unit of a column's timestamps if they are numbers; None: they are texts.

        `epoch`, `zone`: those of the column in the model.
        """
        stated_unit = (
            self.timestamps.removeprefix("epoch_") if self.timestamps.startswith("epoch_") else None
        )
        return stated_unit if self.stated else None if zone is not None else epoch or stated_unit

    def field(self, name: str) -> Reading:
        """Rules for a field of an object; a map's values are its field `value`."""
        return dict(self.fields).get(name) or replace(self, fields=(), items=None)

    def item(self) -> Reading:
        """Rules for an item of a list, or an entry of a map."""
        return self.items or replace(self, fields=())


EXACT = Reading()
"""Strict JSON, and the fields of CSV."""
JSON = Reading(is_only_column=True)
"""Of `json` and `json-schema-confluent`; `coerce: lenient` and `allow_non_numeric_numbers` are
options of theirs."""
DEBEZIUM = Reading(dates="epoch_days", non_numeric=True)
CANAL = Reading(timestamps="sql", lenient=True)
"""Canal writes every value as a text."""
MAXWELL = Reading(timestamps="sql")

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
CONNECT_DECIMAL, ZONED_TIMESTAMP = f"{_CONNECT}Decimal", f"{_DEBEZIUM}ZonedTimestamp"
_NO_FORM: Mapping[str, Any] = {}
CONNECT_FORMS: Mapping[str, Mapping[str, Any]] = {
    f"{_CONNECT}Date": {"dates": "epoch_days"},
    f"{_CONNECT}Timestamp": {"timestamps": "epoch_ms"},
    f"{_CONNECT}Time": _NO_FORM,
    f"{_DEBEZIUM}Date": {"dates": "epoch_days"},
    f"{_DEBEZIUM}Timestamp": {"timestamps": "epoch_ms"},
    f"{_DEBEZIUM}MicroTimestamp": {"timestamps": "epoch_us"},
    f"{_DEBEZIUM}NanoTimestamp": {"timestamps": "epoch_ns"},
    **{f"{_DEBEZIUM}{name}": _NO_FORM for name in ("Time", "MicroTime", "NanoTime", "ZonedTime")},
    **{
        f"{_DEBEZIUM}{name}": _NO_FORM
        for name in ("ZonedTimestamp", "IsoTimestamp", "IsoDate", "IsoTime")
    },
}
"""How dates and timestamps are written, by the name of their schema in Kafka Connect.

Names with no form are of texts, or of numbers that are neither dates nor timestamps.
"""
