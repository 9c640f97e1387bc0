"""What who asks may say of a topic's messages, where a sample doesn't tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SampledFormat = Literal[
    "json",
    "json-schema-confluent",
    "csv",
    "string",
    "raw",
    "debezium-json",
    "canal-json",
    "maxwell-json",
]
"""The formats that a sample alone says enough of."""


@dataclass(frozen=True)
class Hints:
    """The messages' format; of CSV the names of its fields; of change data the table,
    as `database.table`.
    """

    format: SampledFormat | None = None
    columns: tuple[str, ...] = ()
    table: str | None = None
