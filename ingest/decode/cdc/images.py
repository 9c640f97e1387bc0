"""Rows as a field of the envelope holds them: one, or a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.cdc.arrays import picked, shown
from ingest.decode.cdc.envelope import FieldPath
from ingest.decode.cdc.forms import AS_THEY_ARE, Forms
from ingest.decode.cdc.inner import nested
from ingest.ports.decoder import SCHEMA, Decode, Decoded, Refusal
from ingest.schema.columns import Column, Columns, field_of


@dataclass(frozen=True)
class Image:
    """What one row of the envelope's rows holds.

    `path`: where the row is, or the list of them where there are `many`; `columns`: the table's; `beside`: those of them that the envelope
    has itself, each with its path; `forms`: how values are written.
    """

    path: FieldPath
    columns: Columns
    many: bool = False
    beside: tuple[tuple[str, FieldPath], ...] = ()
    forms: Forms = AS_THEY_ARE

    @property
    def asked(self) -> Columns:
        """What has to be decoded for it."""
        beside = dict(self.beside)
        own = pa.struct([field_of(self.forms.written(column)) for column in self.columns.columns if column.name not in beside])
        row = Column("", pa.list_(own) if self.many else own, nullable=True)
        by_name = {column.name: self.forms.written(column) for column in self.columns.columns}
        return nested([(self.path, row), *((path, by_name[name]) for name, path in self.beside)])

    def rows(self, decode: Decode, messages: pa.RecordBatch) -> Decoded:
        """The rows that messages hold; those that hold none where one should be, or one that doesn't fit, are refused."""
        found = decode(messages)
        missing = np.flatnonzero(picked(found.rows, self.path).is_null())
        found = found.refused(SCHEMA, [Refusal(missing, "missing", f"Expected a value, got none - at {shown(self.path)}")])
        envelopes, own = found.rows, picked(found.rows, self.path)
        if self.many:
            parents = pc.list_parent_indices(own).to_numpy()
            envelopes, own = envelopes.take(pa.array(parents)), own.flatten()
            found = found.with_rows(envelopes, parents)
        values, refusals = self._values(envelopes, own)
        found = replace(found, rows=pa.RecordBatch.from_arrays(values, self.columns.arrow_schema.names))
        return found.refused(SCHEMA, refusals)

    def _values(self, envelopes: pa.RecordBatch, own: pa.StructArray) -> tuple[list[pa.Array], list[Refusal]]:
        """The columns of the rows, and what doesn't fit."""
        beside, at = dict(self.beside), shown(self.path) + ("[...]" if self.many else "")
        refusals = [_missing(own, at)] if self.many else []
        values = []
        for column in self.columns.columns:
            path = beside.get(column.name)
            raw, place = (pc.struct_field(own, [column.name]), f"{at}.{column.name}") if path is None else (picked(envelopes, path), shown(path))
            read, misfits = self.forms.read(raw, column)
            refusals += [Refusal(m.positions, m.reason, f"{m.what} - at {place}") for m in misfits]
            if not column.nullable:
                refusals.append(_missing(raw, place))
            values.append(read)
        return values, refusals


def _missing(values: pa.Array, place: str) -> Refusal:
    nulls: npt.NDArray[np.intp] = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    return Refusal(nulls, "missing", f"Expected a value, got none - at {place}")
