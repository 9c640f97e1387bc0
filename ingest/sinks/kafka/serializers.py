"""Serializers, which make a message's key or value from columns.

They are picklable, for executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from windrow.ingest.sinks.kafka.header_values import header_texts
from windrow.ingest.sinks.kafka.registry_serializer import Misfit, RegistrySerializer
from windrow.ingest.sinks.kit import (
    concat_texts,
    find_outside_calendar,
    json_texts,
)

Format = Literal["json", "string", "raw"]


class PlainSerializer(msgspec.Struct, frozen=True):
    """Makes keys or values as JSON, text or bytes.

    Attributes:
        format: the format; `string` and `raw` write a single column.
        columns: the columns that are written.
    """

    format: Format
    columns: tuple[str, ...]

    def encoded(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the bytes of each row; null only if a `string` or `raw` column is null."""
        if self.format == "json":
            return json_objects({name: batch[name] for name in self.columns}).cast(pa.binary())
        return header_texts(batch[self.columns[0]])

    def misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """Returns the rows with a date or time that has no ISO 8601 text."""
        return without_text(batch, self.columns, numbers=self.format != "json")


def json_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Writes each row as a JSON object, with all columns as members in their order."""
    if not columns:
        return pa.array([], pa.string())
    pieces: list[Any] = []
    for number, (name, column) in enumerate(columns.items()):
        pieces += [
            f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:",
            json_texts(column),
        ]
    return concat_texts(*pieces, "}")


def without_text(batch: pa.RecordBatch, columns: Iterable[str], *, numbers: bool) -> Misfit | None:
    """Returns the rows with a date or time that has no ISO 8601 text.

    Args:
        batch: the rows.
        columns: the columns to check.
        numbers: True if a column of instants is written as numbers, as in headers.
    """
    texts = {
        name: batch[name]
        for name in columns
        if not (numbers and pa.types.is_timestamp(batch[name].type))
    }
    return find_outside_calendar(texts)


Serializer = PlainSerializer | RegistrySerializer
"""A serializer of any format."""


def with_columns(serializer: Serializer, names: Sequence[str]) -> Serializer:
    """Returns the serializer, with these columns if it has none."""
    if serializer.columns:
        return serializer
    return msgspec.structs.replace(serializer, columns=tuple(names))
