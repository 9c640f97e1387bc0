"""Decoder of messages of a Protobuf type that the spec names.

A compiled pass takes most messages; the strict decoder decodes every other message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from windrow.ingest.formats.protobuf.descriptors import TypesFile, message_type
from windrow.ingest.formats.protobuf.fields import reader
from windrow.ingest.formats.protobuf.strict import StrictProtobuf
from windrow.ingest.formats.protobuf.tables import ITEMS, field_tables
from windrow.ingest.formats.row_decoder import DecodeValues
from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.nodes import WIDE
from windrow.ingest.formats.shared.onepass import OnePass, room_for_keys
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS = Compiled("windrow.ingest.formats.protobuf.scan")
"""The compiled functions of `scan.py`."""


@dataclass(frozen=True)
class ProtobufEncoding:
    """Encoding of values that are one Protobuf message each.

    Attributes:
        types: the file with the message type.
        message: the full name of the message type.
    """

    types: TypesFile
    message: str

    def now(self) -> Self:
        return replace(self, types=self.types.now())

    def check(self, columns: Columns) -> None:
        kind = self._type()
        reader(kind, columns.as_written(kind.fields_by_name).columns)

    def open(self, columns: Columns) -> DecodeValues:
        return protobuf_batch_decoder(self._type(), columns).decode

    def _type(self) -> Any:
        return message_type(self.types.octets(), self.message, self.types.name)


def protobuf_batch_decoder(kind: Any, columns: Columns) -> BatchDecoder:
    """Makes the decoder of batches of messages of a type.

    Raises:
        SpecError: a column can't be read from the type.
    """
    by_field = columns.as_written(kind.fields_by_name)
    fast, strict = ProtobufPass(kind, by_field.columns), StrictProtobuf(kind, by_field.columns)
    return BatchDecoder(columns.arrow_schema, fast, strict, by_field.defaults)


class ProtobufPass(OnePass):
    """Compiled pass for a message type and some columns."""

    def __init__(self, kind: Any, columns: Columns) -> None:
        tables = self._tables = field_tables(kind, columns)
        super().__init__(
            tables.nodes,
            ITEMS,
            PASS,
            ENTRIES_CODE,
            np.frombuffer(tables.symbols, np.uint8),
            null=-1,
            defaults=tables.defaults,
            by_key=True,
        )
        self._widest = 2 if any(node.kind == WIDE for node in tables.nodes) else 1

    def _scan(self, data: Any, begins: Any, ends: Any, _longest: int, mask: Any) -> None:
        tables = self._tables
        arguments = (
            tables.root,
            tables.inner_spaces,
            tables.numbers,
            self.state,
            self.entries,
            self.keys,
        )
        PASS.scan(data, begins, ends, *arguments, mask)

    def _most_entries(self, size: int, _messages: int) -> int:
        """Returns the largest possible number of entries.

        An item of a list has at least one byte, and any other value at least two. Each field
        of a list also has an entry for the list's length, and at least two bytes.
        """
        return self._widest * size + size + 2

    def _room_for_keys(self, longest: int) -> int:
        return room_for_keys(longest) if self._tables.keyed else 0
