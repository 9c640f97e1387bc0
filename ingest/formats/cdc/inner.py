"""The formats that an envelope itself may be written in.

Each decodes columns that lie in one another, all of them nullable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.fit import check
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.cdc.arrays import together
from windrow.ingest.formats.cdc.connect import SCHEMA, reading_by
from windrow.ingest.formats.cdc.envelope import FieldPath
from windrow.ingest.formats.json.values import Reading
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.schema.columns import Column, Columns, epoch_of, field_of, zone_of
from windrow.ingest.schema.dtypes import holds_bytes

OnNull = Literal["dead", "drop"]

_MACHINES = 64
"""Machines that are kept for the schemas of messages."""


class Inner(Protocol):
    """What an envelope is written in. Picklable: a recipe."""

    def now(self) -> Self:
        """The same with what it reads from files as it is now.

        Raises:
            SpecError: a file can't be read.
        """

    def check(self, columns: Columns) -> None:
        """Whether these columns can come from it.

        Raises:
            SpecError: with those that can't.
        """

    def may_have(self, path: FieldPath) -> bool:
        """Whether messages may have a text at a path."""

    def open(self, columns: Columns, on_null: OnNull) -> Decode:
        """What decodes them, for the thread that asks: one row of each message, or a
        dead letter.
        """


@dataclass(frozen=True)
class JsonInner:
    """JSON. `reading`: how its values are written; `with_schema`: whether each message
    has a schema beside it that says more of that.
    """

    reading: Reading
    with_schema: bool = False

    def now(self) -> Self:
        return self

    def check(self, columns: Columns) -> None:
        wrong = [".".join(path) for path in _paths_of_bytes(columns.arrow_schema)]
        if wrong:
            what = f"The schema can't be used for JSON, which has no bytes: {', '.join(wrong)}"
            raise SpecError(
                what, "spec", "Take String, and decode it after the table; nothing was read."
            )

    def may_have(self, path: FieldPath) -> bool:
        del path
        return True

    def open(self, columns: Columns, on_null: OnNull) -> Decode:
        from windrow.ingest.formats.json.batch_decoder import (
            json_batch_decoder,
        )  # compiled code is loaded where messages are decoded

        if self.with_schema and any(_may_be_stated(column.type) for column in columns.columns):
            return _BySchema(columns, self.reading, on_null).decode
        machine = json_batch_decoder(columns, "ignore", self.reading)
        return lambda messages: machine.decode(messages.column("value"), on_null)


class _BySchema:
    """Decodes each message by the schema beside it. Not for several threads at once."""

    def __init__(self, columns: Columns, reading: Reading, on_null: OnNull) -> None:
        from windrow.ingest.formats.json.batch_decoder import json_batch_decoder  # as above

        self._schema, self._reading, self._on_null = columns.arrow_schema, reading, on_null
        self._texts = json_batch_decoder(
            Columns((Column(SCHEMA, pa.string(), nullable=True),)), "ignore", Reading(lenient=True)
        )
        self._machine = lru_cache(_MACHINES)(
            lambda stated: json_batch_decoder(columns, "ignore", stated)
        )

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """The verdict on each message. What isn't even JSON is said so by any machine."""
        values = messages.column("value")
        found = self._texts.decode(values, "dead")
        texts, places = pc.dictionary_encode(found.rows.column(SCHEMA)), np.full(len(values), -1)
        places[found.row_index.to_numpy()] = pc.fill_null(texts.indices, -1).to_numpy()
        groups: dict[Reading, int] = {}
        readings = [
            reading_by(text, self._reading) for text in [*texts.dictionary.to_pylist(), None]
        ]
        group = np.array([groups.setdefault(reading, len(groups)) for reading in readings])[places]
        parts = []
        for reading, number in groups.items():
            index = pa.array(np.flatnonzero(group == number))
            some = values if len(index) == len(values) else values.take(index)
            parts.append(self._machine(reading).decode(some, self._on_null).numbered(index))
        return together(self._schema, parts, None)


@dataclass(frozen=True)
class AvroInner:
    """Avro's binary encoding. `writer_schema`: the envelope's."""

    writer_schema: GivenSchema

    def now(self) -> Self:
        return replace(self, writer_schema=self.writer_schema.now())

    def check(self, columns: Columns) -> None:
        check(self.writer_schema.parsed(), columns)

    def may_have(self, path: FieldPath) -> bool:
        try:
            self.check(nested([(path, Column("", pa.string(), nullable=True))]))
        except SpecError:
            return False
        return True

    def open(self, columns: Columns, on_null: OnNull) -> Decode:
        from windrow.ingest.formats.avro.batch_decoder import avro_batch_decoder  # as above

        machine = avro_batch_decoder(self.writer_schema.parsed(), columns)
        return lambda messages: machine.decode(messages.column("value"), on_null)


def nested(leaves: Sequence[tuple[FieldPath, Column]]) -> Columns:
    """The columns of an envelope, each at its path; no path is another one's beginning."""
    fields = _fields([(path, field_of(column)) for path, column in leaves])
    return Columns(
        tuple(
            Column(f.name, f.type, nullable=True, epoch=epoch_of(f), zone=zone_of(f))
            for f in fields
        )
    )


def _fields(leaves: Sequence[tuple[FieldPath, pa.Field]]) -> list[pa.Field]:
    """The fields of one level, each with all that lies below it."""
    below: dict[str, list[tuple[FieldPath, pa.Field]]] = {}
    for (name, *rest), leaf in leaves:
        below.setdefault(name, []).append((tuple(rest), leaf))
    return [
        (
            group[0][1].with_name(name)
            if not group[0][0]
            else pa.field(name, pa.struct(_fields(group)))
        )
        for name, group in below.items()
    ]


def _may_be_stated(kind: pa.DataType) -> bool:
    """Whether values of a type may be written in a form that a schema states."""
    if pa.types.is_nested(kind):
        return any(_may_be_stated(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _paths_of_bytes(fields: Sequence[pa.Field]) -> list[FieldPath]:
    """Where in columns there are bytes."""
    found: list[FieldPath] = []
    for field in fields:
        if pa.types.is_struct(field.type):
            found += [(field.name, *path) for path in _paths_of_bytes(list(field.type))]
        elif holds_bytes(field.type):
            found.append((field.name,))
    return found
