"""Rows in a field of the envelope, which has a single row or a list of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.cdc.arrays import matching_items
from windrow.ingest.formats.cdc.unavailable import NOT_SENT, Unavailable, unavailable
from windrow.ingest.formats.shared.nesting import (
    Leaf,
    nest_columns,
    path_text,
    pick,
    refuse_nulls,
)
from windrow.ingest.formats.shared.repetition import (
    byte_sizes,
    key_and_header_sizes,
    max_repeated_bytes,
)
from windrow.ingest.ports.decoder import SCHEMA, VALUE, Decode, Decoded, Deletes, Refusal
from windrow.ingest.schema.columns import Column, Columns, field_of
from windrow.ingest.schema.message_fields import FieldPath

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowImage:
    """Rows of the table in a field of the envelope.

    Attributes:
        path: the path of the row, or of the list of rows.
        columns: the columns of the table.
        has_row_list: whether there is a list of rows at `path` and `former`.
        of_envelope: pairs of a column of the table that isn't in the row, and its path in
            the message.
        former: the path of the row before the change. If the former row differs in a column
            of `key`, it is deleted.
        key: the primary key; empty if no rows are deleted.
        unavailable: what happens to values that a change left unchanged and that the message
            doesn't have; None if the tool doesn't mark them.
        is_flat: whether the row's fields are beside the kind of change, and no former row is.
    """

    path: FieldPath
    columns: Columns
    has_row_list: bool = False
    of_envelope: tuple[tuple[str, FieldPath], ...] = ()
    former: FieldPath = ()
    key: tuple[str, ...] = ()
    unavailable: Unavailable | None = None
    is_flat: bool = False

    @property
    def wanted_columns(self) -> Columns:
        """Columns that have to be decoded for the rows."""
        return self.nest(self.leaves)

    def nest(self, leaves: Sequence[Leaf]) -> Columns:
        """Returns the columns of an envelope with these leaves, read like this image."""
        row_path = self.path if self._has_row and self.columns.row_path is not None else None
        return replace(nest_columns(leaves), finer=self.columns.finer, row_path=row_path)

    @property
    def leaves(self) -> list[Leaf]:
        """Columns that have to be decoded for the rows, with their paths."""
        of_envelope, by_name = (
            dict(self.of_envelope),
            {column.name: column for column in self.columns.columns},
        )
        leaves = [(path, by_name[name]) for name, path in self.of_envelope]
        if self.is_flat:
            of_row = [column for name, column in by_name.items() if name not in of_envelope]
            return [*leaves, *(((*self.path, column.name), column) for column in of_row)]
        for path, names in (
            (self.path, [name for name in by_name if name not in of_envelope]),
            (self.former, self._former_key),
        ):
            if names:
                row = pa.struct([field_of(by_name[name]) for name in names])
                leaves.append(
                    (path, Column("", pa.list_(row) if self.has_row_list else row, nullable=True))
                )
        return leaves

    def rows(self, decode: Decode, messages: pa.RecordBatch) -> Decoded:
        """Decodes the rows of some messages.

        A message without a row, or with a row that doesn't fit the columns, is refused.
        """
        decoded = decode(messages)
        if self._has_row:
            decoded = decoded.refused(
                SCHEMA, [refuse_nulls(pick(decoded.rows, self.path), path_text(self.path))]
            )
        if self.has_row_list:
            decoded = self._within_bounds(self._with_equal_counts(decoded), messages)
        images, of_envelope = (
            pick(decoded.rows, self.path) if self._has_row else pa.nulls(0),
            [pick(decoded.rows, path) for _, path in self.of_envelope],
        )
        former = pick(decoded.rows, self.former) if self._former_key else None
        if self.has_row_list:
            parents = pc.list_parent_indices(images)
            former = None if former is None else matching_items(images, former)
            images, of_envelope = images.flatten(), [values.take(parents) for values in of_envelope]
            decoded = decoded.with_rows(decoded.rows, parents.to_numpy())
        values, refusals, unsent_masks = self._values(images, of_envelope)
        rows = pa.RecordBatch.from_arrays(values, self.columns.arrow_schema.names)
        decoded = replace(decoded, unavailable=_names_of_unsent(unsent_masks))
        if not self.key:
            return replace(decoded, rows=rows).refused(SCHEMA, refusals)
        deletes = self._former_keys(rows, former)
        moved_deletes = Deletes(deletes.keys, decoded.row_index.take(deletes.index))
        return replace(decoded, rows=rows, deletes=moved_deletes).refused(SCHEMA, refusals)

    @property
    def _has_row(self) -> bool:
        """Whether a column comes from the row."""
        return len(self.columns.columns) > len(self.of_envelope)

    @property
    def _former_key(self) -> list[str]:
        """Columns of the key that the former row may have.

        Columns of the envelope are left out, because they are the same for both rows.
        """
        if self.is_flat:
            return []
        return [name for name in self.key if name not in dict(self.of_envelope)]

    @property
    def _image_path(self) -> str:
        return path_text(self.path) + ("[...]" if self.has_row_list else "")

    def _with_equal_counts(self, decoded: Decoded) -> Decoded:
        """Refuses messages whose numbers of rows and of former rows differ.

        A message without former rows isn't refused: its rows didn't exist before.
        """
        if not self._former_key:
            return decoded
        row_counts, former_counts = (
            pc.list_value_length(pick(decoded.rows, path)) for path in (self.path, self.former)
        )
        is_unequal = pc.fill_null(
            pc.and_(pc.not_equal(row_counts, former_counts), pc.not_equal(former_counts, 0)), False
        ).to_numpy(zero_copy_only=False)
        message = (
            f"Expected as many rows as at {path_text(self.path)} - at {path_text(self.former)}"
        )
        return decoded.refused(SCHEMA, [Refusal(np.flatnonzero(is_unequal), "row_count", message)])

    def _within_bounds(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        """Refuses messages whose rows would take much more memory than the message.

        Key, headers and columns of the envelope are repeated for each row.
        """
        row_counts, index = (
            pc.list_value_length(pick(decoded.rows, self.path)).to_numpy(zero_copy_only=False),
            decoded.row_index.to_numpy(),
        )
        value_sizes, repeated_sizes = (
            byte_sizes(messages.column("value"))[index],
            key_and_header_sizes(messages)[index],
        )
        max_bytes = max_repeated_bytes(value_sizes + repeated_sizes)
        for _, path in self.of_envelope:
            values = pick(decoded.rows, path)
            repeated_sizes = repeated_sizes + (
                value_sizes if pa.types.is_nested(values.type) else byte_sizes(values)
            )
        large_rows = np.flatnonzero((row_counts - 1) * repeated_sizes > max_bytes)
        return decoded.refused(
            VALUE,
            [
                Refusal(
                    large_rows,
                    "too_large",
                    "Expected fewer rows with so long a key, headers or envelope",
                )
            ],
        )

    def _values(
        self, images: pa.StructArray, of_envelope: Sequence[pa.Array]
    ) -> tuple[list[pa.Array], list[Refusal], dict[str, Mask]]:
        """Returns the columns of the rows.

        Args:
            images: the rows; not read if no column comes from them.
            of_envelope: the columns that the envelope has.

        Returns:
            The columns; the refusals of rows; and for each column in which the table keeps
            its own values, a mask of the values that the message doesn't have.
        """
        paths_and_values = {
            name: (path, values)
            for (name, path), values in zip(self.of_envelope, of_envelope, strict=True)
        }
        refusals = [refuse_nulls(images, self._image_path)] if self.has_row_list else []
        values, unsent_masks = [], {}
        for column in self.columns.columns:
            path, column_values = paths_and_values.get(
                column.name, ((*self.path, column.name), None)
            )
            value_path = (
                path_text(path)
                if column_values is not None
                else f"{self._image_path}.{column.name}"
            )
            if column_values is None:
                column_values = pc.struct_field(images, [column.name])
                mask = None if self.unavailable is None else unavailable(column_values)
                if mask is not None:
                    column_values = pc.if_else(
                        pa.array(mask), pa.scalar(None, column_values.type), column_values
                    )
                    if (
                        self.unavailable == "keep"
                        and column.nullable
                        and column.name not in self.key
                    ):
                        unsent_masks[column.name] = mask
                    elif self.unavailable != "null":
                        refusals.append(
                            Refusal(
                                np.flatnonzero(mask), "unavailable", f"{NOT_SENT} - at {value_path}"
                            )
                        )
            refusals += [] if column.nullable else [refuse_nulls(column_values, value_path)]
            values.append(column_values)
        return values, refusals, unsent_masks

    def _former_keys(self, rows: pa.RecordBatch, former: pa.StructArray | None) -> Deletes:
        """Returns the former keys of rows whose key has changed, with the rows' numbers.

        A column that is missing in the former row hasn't changed.
        """
        if former is not None and former.null_count == len(former):
            former = None
        keys, is_moved = [], np.zeros(rows.num_rows, np.bool_)
        for name in self.key:
            current_values = rows.column(name)
            if former is None or name not in self._former_key:
                keys.append(current_values)
                continue
            former_values = pc.coalesce(pc.struct_field(former, [name]), current_values)
            is_moved |= pc.fill_null(pc.not_equal(former_values, current_values), False).to_numpy(
                zero_copy_only=False
            )
            keys.append(former_values)
        moved_rows = pa.array(np.flatnonzero(is_moved), pa.int64())
        return Deletes(
            pa.RecordBatch.from_arrays(keys, list(self.key)).take(moved_rows), moved_rows
        )


def _names_of_unsent(unsent_masks: Mapping[str, Mask]) -> pa.ListArray | None:
    """Returns each row's names of the columns whose values the message doesn't have.

    Args:
        unsent_masks: a mask of such values for each column that has any. If it is empty,
            the result is None.
    """
    if not unsent_masks:
        return None
    names = pa.array(list(unsent_masks), pa.string())
    table = np.stack(list(unsent_masks.values()), axis=1)
    ends = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), names.take(pa.array(np.nonzero(table)[1]))
    )
