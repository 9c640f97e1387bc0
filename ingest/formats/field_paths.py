"""Columns that aren't at the top of a message, or have other names there.

A decoder reads the objects that have their fields. Then the fields become columns of the row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.coded_field import CodedField, column_as_sent
from windrow.ingest.formats.shared.nesting import Leaf, nest_columns, path_text, pick, refuse_nulls
from windrow.ingest.ports.decoder import SCHEMA, Decoded, Refusal
from windrow.ingest.schema.columns import Column, Columns


def columns_as_sent(columns: Columns) -> Columns:
    """Returns the columns of the messages, with an object for each column with paths.

    Raises:
        SpecError: a field would become two columns, whole or in parts.
    """
    leaves: list[Leaf] = [
        (path, column_as_sent(column) if column.codecs else column)
        for column in columns.columns
        for path in column.paths
    ]
    if not leaves:
        return columns
    others = [column for column in columns.columns if not column.paths]
    paths = sorted([path for path, _ in leaves] + [(column.name,) for column in others])
    for path, next_path in pairwise(paths):
        if next_path[: len(path)] == path:
            raise SpecError(
                f"The schema takes {path_text(path)} and {path_text(next_path)} of a message: a"
                " field becomes one column, whole or in parts",
                "spec",
                "Change metadata path, metadata aliases or decode.root; nothing was read.",
            )
    return replace(columns, columns=(*others, *nest_columns(leaves).columns))


class FieldReader:
    """Takes columns out of the objects of messages. Only one thread may use it at a time."""

    def __init__(self, columns: Columns, *, refuses_unknown: bool = False) -> None:
        """Makes a reader of columns.

        Args:
            columns: the columns.
            refuses_unknown: whether a message is refused that has a field in the row that no
                column is for.
        """
        self._columns, self._refuses_unknown = columns, refuses_unknown
        self._schema = columns.arrow_schema
        root = columns.row_path or ()
        is_in_root = any(path[: len(root)] == root for c in columns.columns for path in c.paths)
        self._root = root if is_in_root else ()
        self._coded = {c.name: CodedField(c, columns.finer) for c in columns.columns if c.codecs}

    def take(self, decoded: Decoded) -> Decoded:
        """Returns a verdict with the columns; each message is one row.

        Args:
            decoded: the verdict, whose rows have the columns of `columns_as_sent`.
        """
        arrays, cut, refusals = list[pa.Array](), [decoded.cut], list[Refusal]()
        if self._root:
            root = self._root
            refusals.append(refuse_nulls(pick(decoded.rows, root), path_text(root)))
        for column in self._columns.columns:
            array = _field_of(decoded.rows, column)
            if column.paths and not column.nullable:
                refusals.append(refuse_nulls(array, path_text(column.paths[0])))
            if column.name in self._coded:
                opened = self._coded[column.name].open(array)
                array = opened.values
                refusals += opened.refusals
                cut.append(decoded.row_index.to_numpy()[opened.cut])
            arrays.append(array)
        if self._refuses_unknown:
            refusals.append(_refuse_unknown(decoded))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return replace(decoded, rows=rows, cut=reduce(np.union1d, cut)).refused(SCHEMA, refusals)


def _field_of(rows: pa.RecordBatch, column: Column) -> pa.Array:
    picked = [pick(rows, path) for path in column.paths or ((column.name,),)]
    return picked[0] if len(picked) == 1 else pc.coalesce(*picked)


def _refuse_unknown(decoded: Decoded) -> Refusal:
    unknown_mask = np.isin(decoded.row_index.to_numpy(), decoded.ignoring)
    return Refusal(
        np.flatnonzero(unknown_mask),
        "unknown_field",
        "Object holds a field that the schema doesn't name",
    )
