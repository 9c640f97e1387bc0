"""Small transforms like a user's: one explodes lists, one filters rows, one renames a column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns


def column(columns: Columns, name: str) -> int:
    """Returns the position of a column."""
    names = [c.name for c in columns.columns]
    if name not in names:
        raise SpecError(
            f"there is no column {name}, there are {', '.join(names)}", "spec", "Name one of these."
        )
    return names.index(name)


@dataclass(frozen=True)
class Explode:
    """A row for each value of a list. A null and an empty list have none."""

    name: str

    def columns(self, input_columns: Columns) -> Columns:
        i = column(input_columns, self.name)
        element_column = replace(
            input_columns.columns[i], type=input_columns.columns[i].type.value_type, nullable=True
        )
        return Columns(
            (*input_columns.columns[:i], element_column, *input_columns.columns[i + 1 :])
        )

    def open(self) -> Apply:
        def explode(decoded: Decoded, _: pa.RecordBatch) -> Decoded:
            i = decoded.rows.schema.get_field_index(self.name)
            lists = decoded.rows.column(i)
            made_from = pc.list_parent_indices(lists).to_numpy()
            rows = decoded.rows.take(pa.array(made_from, pa.int64()))
            field = pa.field(self.name, lists.type.value_type)
            return decoded.with_rows(rows.set_column(i, field, lists.flatten()), made_from)

        return explode


@dataclass(frozen=True)
class Only:
    """Rows in which a column is greater than a number."""

    name: str
    above: int

    def columns(self, input_columns: Columns) -> Columns:
        column(input_columns, self.name)
        return input_columns

    def open(self) -> Apply:
        def keep(decoded: Decoded, _: pa.RecordBatch) -> Decoded:
            mask = pc.greater(decoded.rows.column(self.name), self.above).fill_null(False)
            return decoded.with_rows(decoded.rows.filter(mask), np.flatnonzero(mask))

        return keep


@dataclass(frozen=True)
class Rename:
    """Another name for a column."""

    name: str
    new_name: str

    def columns(self, input_columns: Columns) -> Columns:
        i = column(input_columns, self.name)
        return Columns(
            (
                *input_columns.columns[:i],
                replace(input_columns.columns[i], name=self.new_name),
                *input_columns.columns[i + 1 :],
            )
        )

    def open(self) -> Apply:
        def rename(decoded: Decoded, _: pa.RecordBatch) -> Decoded:
            fields = [
                f.with_name(self.new_name) if f.name == self.name else f
                for f in decoded.rows.schema
            ]
            rows = pa.RecordBatch.from_arrays(decoded.rows.columns, schema=pa.schema(fields))
            return decoded.with_rows(rows, np.arange(rows.num_rows))

        return rename
