"""The dialects of JSON, as data: how each format writes values in JSON.

One decoder reads all dialects; a `Reading` gives it the rules. A spec's options change the
rules of its format. Kafka Connect's schema in a message changes them for that message. This
module doesn't load Arrow, so that specs can be checked without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

TimestampForm = Literal["iso-8601", "sql", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]
"""Form of timestamps.

`iso-8601` needs an offset; `sql` without an offset is UTC; the others are numbers since
1970.
"""

DateForm = Literal["iso-8601", "epoch_days"]
"""Form of dates: ISO 8601, or whole days since 1970."""

DecimalForm = Literal["numeric", "base64"]
"""Form of decimals.

`numeric` is their digits, as a number or a text. `base64` is the bytes of the unscaled
integer.
"""

Unknown = Literal["ignore", "keep", "dead"]
"""Treatment of fields that the schema doesn't name.

- `ignore`: they are passed over.
- `keep`: the row has them as a text.
- `dead`: their messages are dead letters.
"""


@dataclass(frozen=True)
class Reading:
    """Rules for reading values, at any depth.

    Attributes:
        timestamps: the form of timestamps, for columns whose model doesn't give one.
        lenient: whether a value of another type is taken if it means the same: a number in
            a string, a whole number that is written with a fraction, a number or a boolean
            for a String.
        dates: the form of dates.
        decimals: the form of decimals.
        scale: the scale of decimals that are written as bytes; None for the column's scale.
        non_numeric: whether `NaN`, `Infinity` and `-Infinity`, bare or in quotes, are
            values of floats.
        unknown: the treatment of fields that the schema doesn't name.
        is_only_column: whether a document that is no object is the value of the only column.
        stated: whether a schema in the message gives the forms; the model's forms don't
            count then.
        fields: the rules for each field of an object, by name, from the message's schema.
            Other fields have the same rules as the object.
        items: the rules for items of a list and entries of a map, from the message's
            schema; None for the same rules as the list or map.
        zone: the time zone of timestamps without an offset, for columns whose model doesn't
            give one.
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
        """Returns the zone of a column's texts without an offset; None if each needs an offset.

        Args:
            zone: the column's zone in the model.
        """
        return zone or self.zone or ("UTC" if self.timestamps == "sql" else None)

    def unit(self, epoch: str | None, zone: str | None = None) -> str | None:
        """Returns the unit of a column's timestamps that are numbers; None if they are texts.

        Args:
            epoch: the column's unit in the model.
            zone: the column's zone in the model.
        """
        stated_unit = (
            self.timestamps.removeprefix("epoch_") if self.timestamps.startswith("epoch_") else None
        )
        return stated_unit if self.stated else None if zone is not None else epoch or stated_unit

    def field(self, name: str) -> Reading:
        """Returns the rules for a field of an object. For a map's values it is named `value`."""
        return dict(self.fields).get(name) or replace(self, fields=(), items=None)

    def item(self) -> Reading:
        """Returns the rules for an item of a list, or an entry of a map."""
        return self.items or replace(self, fields=())


EXACT = Reading()
"""Rules of strict JSON, and of the fields of CSV."""
JSON = Reading(is_only_column=True)
"""Rules of `json` and `json-schema-confluent`, before their options change them."""
DEBEZIUM = Reading(dates="epoch_days", non_numeric=True)
CANAL = Reading(timestamps="sql", lenient=True)
"""Rules of Canal, which writes every value as a text."""
MAXWELL = Reading(timestamps="sql")
