"""JSON decoder: a compiled pass for most messages, a strict decoder for every other message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.json.layout import (
    ITEMS,
    PASS,
    REST_NAME,
    REST_NODE,
    SPARE,
    Tables,
    assign_readings,
    tables_of,
)
from windrow.ingest.formats.json.rest import Rest
from windrow.ingest.formats.json.strict import StrictJson
from windrow.ingest.formats.json.values import converter
from windrow.ingest.formats.row_decoder import DecodeValues, refuse_columns
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder, Taken
from windrow.ingest.formats.shared.budget import item_cost
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.nodes import EPOCH, LIST, MAP, WIDE, nodes_of
from windrow.ingest.formats.shared.onepass import OnePass, room_for_keys
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import holds_bytes, map_type


@dataclass(frozen=True)
class JsonEncoding:
    """Encoding of a row as a JSON document.

    Attributes:
        reading: the rules for reading its values.
        skip: the number of bytes before the document.
    """

    reading: Reading = EXACT
    skip: int = 0

    def now(self) -> Self:
        return self

    def check(self, columns: Columns) -> None:
        unusable_columns = _names_of_bytes(columns.arrow_schema)
        refuse_columns(
            unusable_columns,
            "JSON, which has no bytes",
            "Take String, and decode it after the table",
        )

    def misfits(self, columns: Columns, document: Mapping[str, Any]) -> dict[str, str]:
        """Returns why columns can't take values of the types in a document, by name.

        A value of a right type that is refused for another reason is no misfit.

        Args:
            columns: the columns.
            document: a document with a value for each of the columns.
        """
        reason_by_column: dict[str, str] = {}
        for column in columns.columns:
            try:
                reading = self.reading.field(column.name)
                convert = converter(column.type, column.epoch, reading, zone=column.zone)
                convert(document[column.name], f"$.{column.name}")
            except RefusedValueError as refusal:
                if refusal.reason == "wrong_type":
                    reason_by_column[column.name] = f"{column.name}: {refusal.detail}"
        return reason_by_column

    def open(self, columns: Columns) -> DecodeValues:
        return json_batch_decoder(columns, self.reading, self.skip).decode

    def field_names(self, value: bytes, root: Sequence[str]) -> AbstractSet[str]:
        """Returns the names of the fields of an object at a path; empty if there is no object."""
        try:
            fields = msgspec.json.decode(value[self.skip :], type=dict[str, msgspec.Raw])
            for name in root:
                fields = msgspec.json.decode(fields.get(name, b"null"), type=dict[str, msgspec.Raw])
        except msgspec.MsgspecError:
            return frozenset()
        return fields.keys()


DOCUMENT = JsonEncoding()


def json_batch_decoder(columns: Columns, reading: Reading = EXACT, skip: int = 0) -> BatchDecoder:
    """Makes a decoder for batches of documents.

    Args:
        columns: the columns.
        reading: the rules for reading values.
        skip: the number of bytes before each document.
    """
    fast, strict = JsonPass(columns, reading), StrictJson(columns, reading)
    return BatchDecoder(columns.arrow_schema, fast, strict, skip=skip)


def _names_of_bytes(fields: Sequence[pa.Field]) -> list[str]:
    """Returns the names of columns, and of fields in structs, that hold bytes."""
    names: list[str] = []
    for field in fields:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{name}" for name in _names_of_bytes(list(field.type))]
        elif holds_bytes(field.type):
            names.append(field.name)
    return names


_PARTS = pa.list_(
    pa.struct([("object", pa.int32()), ("item", pa.int32()), ("member", pa.string())])
)
"""Type of what the pass notes of a row's fields without a column: see `rest_scan.py`."""


class JsonPass(OnePass):
    """Compiled pass for some columns."""

    def __init__(self, columns: Columns, reading: Reading = EXACT) -> None:
        self._rest_index = Rest(columns, reading).index
        if self._rest_index is not None:
            parts = list(columns.columns)
            parts[self._rest_index] = Column(REST_NAME, _PARTS, nullable=True)
            columns = replace(columns, columns=tuple(parts))
        nodes = nodes_of(columns)
        super().__init__(nodes, ITEMS, PASS, PASS)
        self._readings, self._columns = assign_readings(nodes, reading), columns
        self._others = reading.unknown != "dead"
        for node in nodes:
            if node.kind in {LIST, MAP}:
                cost = sum(item_cost(child.type) for child in node.children)
                self.state[ITEMS + 2 * self._spaces + node.inner] = cost
        self._required = sum(node.required for node in nodes)
        self._widest = 2 if any(node.kind in {WIDE, EPOCH} for node in nodes) else 1
        # A list of entries may come as an object, and then each key has three entries.
        if any(map_type(node.type) is not None for node in nodes):
            self._widest = 3
        if self._rest_index is not None:
            self.state[REST_NODE] = nodes[0].children[self._rest_index].number
            self._widest = max(self._widest, 2)

    def decode(self, messages: pa.BinaryArray, skip: int = 0) -> Taken:
        taken = super().decode(messages, skip)
        if self._rest_index is not None:
            taken.columns[self._rest_index] = self._join_parts(taken.columns[self._rest_index])
        return taken

    def _join_parts(self, parts: pa.ListArray) -> pa.StringArray:
        """Returns the texts of what no column is for, whose parts the pass has noted."""
        node, item, member = parts.values.flatten()
        heads, _, tails = zip(*(p.partition("\0") for p in self._tables.pointers), strict=True)
        members = pc.binary_join_element_wise(
            pa.array(heads).take(node),
            item.cast(pa.string()),
            pa.array(tails).take(node),
            member,
            "",
            null_handling="replace",
        )
        return pc.binary_join_element_wise(
            "{",
            pc.binary_join(
                pa.ListArray.from_arrays(parts.offsets, members, mask=parts.is_null()), ","
            ),
            "}",
            "",
        )

    @cached_property
    def _tables(self) -> Tables:
        """Columns for the compiled pass.

        They are made at the first use, because compiled code hashes the names.
        """
        columns = self._columns
        return tables_of(self._nodes, self._readings, columns.finer, columns.row_path)

    def _scan(self, data: Any, begins: Any, ends: Any, longest: int, mask: Any) -> None:
        names = self._tables.names
        # After all names there is room for one more name, which is read and written.
        room = np.zeros(len(names) + longest + 8, np.uint8)
        room[: len(names)] = np.frombuffer(names, np.uint8)
        read = room.view()
        read.setflags(write=False)
        self.state[SPARE] = len(names)
        PASS.scan(
            data,
            begins,
            ends,
            read,
            room,
            self._others,
            self._required,
            self._tables.numbers,
            self.state,
            self.entries,
            self.keys,
            mask,
        )

    def _most_entries(self, size: int, messages: int) -> int:
        """Returns the largest possible number of entries.

        A value takes at least two bytes, and a key of an object with its value at least
        five. A message that is a bare value may be one byte.
        """
        return self._widest * (size // 2 + messages)

    def _room_for_keys(self, longest: int) -> int:
        return room_for_keys(longest // 2)
