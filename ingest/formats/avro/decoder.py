"""Decoder of records in Avro's binary encoding, by the writer's schema of the spec.

A compiled pass takes most messages; the strict decoder decodes every other message.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from windrow.ingest.formats.avro.fit import check, ignored_fields
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.avro.program import ITEMS, TEXTS, program_of
from windrow.ingest.formats.avro.schema import AvroSchema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.row_decoder import DecodeValues
from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE, SPARE
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.onepass import IGNORING, TAKEN, OnePass, room_for_keys
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS = Compiled("windrow.ingest.formats.avro.scan")
"""The compiled functions of `scan.py`."""


@dataclass(frozen=True)
class AvroEncoding:
    """Encoding of values that are one record each.

    Attributes:
        writer_schema: the schema that the records were written with.
        keeps_unknown: whether rows have what no column is for.
    """

    writer_schema: GivenSchema
    keeps_unknown: bool = False

    def now(self) -> Self:
        return replace(self, writer_schema=self.writer_schema.now())

    def check(self, columns: Columns) -> None:
        schema = self.writer_schema.parse()
        _, named = columns.split_rest(keeps_unknown=self.keeps_unknown)
        check(schema, named.as_written(schema.fields).columns)

    def open(self, columns: Columns) -> DecodeValues:
        schema, keeps = self.writer_schema.parse(), self.keeps_unknown
        return avro_batch_decoder(schema, columns, keeps_unknown=keeps).decode

    def field_names(self, _value: bytes, _root: Sequence[str]) -> AbstractSet[str]:
        """Returns the names of the record's fields."""
        return self.writer_schema.parse().fields


def avro_batch_decoder(
    schema: AvroSchema, columns: Columns, *, keeps_unknown: bool = False
) -> BatchDecoder:
    """Makes the decoder of batches of records.

    Args:
        schema: the writer's schema.
        columns: the columns.
        keeps_unknown: whether rows have what no column is for.

    Raises:
        SpecError: a column can't be read from the schema.
    """
    by_field = columns.as_written(schema.fields)
    fast = AvroPass(schema, by_field.columns, keeps_unknown=keeps_unknown)
    strict = StrictAvro(schema, by_field.columns, keeps_unknown=keeps_unknown)
    return BatchDecoder(columns.arrow_schema, fast, strict, by_field.defaults)


class AvroPass(OnePass):
    """Compiled pass for a writer's schema and some columns.

    If rows keep fields of the schema, only the strict decoder reads them.
    """

    def __init__(
        self, schema: AvroSchema, columns: Columns, *, keeps_unknown: bool = False
    ) -> None:
        self.null_index, columns = columns.split_rest(keeps_unknown=keeps_unknown)
        self._program = program_of(schema, columns)
        super().__init__(self._program.nodes, ITEMS, PASS, ENTRIES_CODE)
        self._noted = IGNORING if ignored_fields(schema, columns) else TAKEN

    def ready(self) -> bool:
        keeps_fields = self.null_index is not None and self._noted == IGNORING
        return not keeps_fields and super().ready()

    def _scan(self, data: Any, begins: Any, ends: Any, _longest: int, mask: Any) -> None:
        symbols = np.frombuffer(self._program.symbols, np.uint8)
        size = int(ends[-1] - begins[0]) if len(ends) else 0
        texts = np.empty(len(symbols) + size + SPARE, np.uint8)
        texts[: len(symbols)], self.state[TEXTS], self._copying = symbols, len(symbols), (texts,)
        arguments = self._program.begin, self._program.numbers, self.state, self.entries, self.keys
        PASS.scan(data, begins, ends, *arguments, texts, mask)
        mask *= self._noted

    def _most_entries(self, size: int, _messages: int) -> int:
        """Returns the largest possible number of entries.

        A byte is the first byte of at most one value, which has at most two entries. The
        structs that begin at the same byte have one more entry each.
        """
        return (size + 1) * (2 + self._program.nested)

    def _room_for_keys(self, longest: int) -> int:
        return room_for_keys(longest) if self._program.keyed else 0
