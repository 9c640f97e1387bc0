"""Operations on decoded rows that several kinds of steps share.

Metadata columns are added for steps that read them. In a table with a primary key, a row
that a step leaves out deletes its key. A step can't read a column that a message left
unchanged (`Decoded.unavailable`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.ports.decoder import RULES, Decoded, Deletes, Refusal
from windrow.ingest.schema.columns import REST
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.metadata_arrays import columns as metadata_columns
from windrow.ingest.schema.metadata_types import TYPES


def beside_rows(
    names: Mapping[str, str], decoded: Decoded, messages: pa.RecordBatch
) -> dict[str, pa.Array]:
    """Returns metadata columns with one value for each row, by their column names.

    Args:
        names: the wanted metadata, metadata name -> column name; `REST` for itself.
        decoded: the rows.
        messages: the messages that the rows were decoded from.
    """
    kinds = [name for name in names if name != REST]
    if not kinds:
        return dict.fromkeys(names.values(), decoded.rest)
    arrays = metadata_columns(kinds, for_rows(messages, decoded.row_index), "")
    columns = {
        names[name]: array.cast(TYPES[name]) for name, array in zip(kinds, arrays, strict=True)
    }
    return {**columns, REST: decoded.rest} if REST in names else columns


def with_deletes(
    decoded: Decoded, made_from: npt.NDArray[np.int64], primary_key: tuple[str, ...]
) -> tuple[Decoded, npt.NDArray[np.bool_]]:
    """Adds a delete of the key of each row that is left out.

    Args:
        decoded: the rows before the step.
        made_from: the numbers of the rows that the step keeps, ascending.
        primary_key: the table's primary key.

    Returns:
        The rows with the deletes, and a mask over `made_from`: False for a row that must be
        dropped, too. Within a message, deletes come before rows. So a kept row is dropped
        if a later row of the same message and key is left out.
    """
    removed_rows = np.ones(decoded.rows.num_rows, np.bool_)
    removed_rows[made_from] = False
    keys = decoded.rows.select(list(primary_key))
    index = decoded.row_index.to_numpy()
    stays = np.ones(len(made_from), np.bool_)
    affected_rows = np.flatnonzero(np.isin(index[made_from], index[removed_rows]))
    if len(affected_rows):
        removed_numbers = np.flatnonzero(removed_rows)
        last = {
            (index[row], *key.values()): row
            for row, key in zip(
                removed_numbers, keys.take(pa.array(removed_numbers)).to_pylist(), strict=True
            )
        }
        for position in affected_rows:
            row = made_from[position]
            key = keys.slice(row, 1).to_pylist()[0]
            stays[position] = last.get((index[row], *key.values()), -1) < row
    chosen = pa.array(removed_rows)
    new_deletes = Deletes(keys.filter(chosen), decoded.row_index.filter(chosen))
    merged = new_deletes if decoded.deletes is None else decoded.deletes.merge(new_deletes)
    return replace(decoded, deletes=merged), stays


class StepOutput(msgspec.Struct, frozen=True):
    """A column or condition that a step computes.

    Attributes:
        name: its name, for messages.
        reads: the columns that it is computed from.
        may_keep: True if the table may keep its value when the message left all columns of
            `reads` unchanged.
    """

    name: str
    reads: frozenset[str]
    may_keep: bool


def refuse_unanswerable(
    decoded: Decoded, outputs: Sequence[StepOutput], kind: str, setting: str
) -> Decoded:
    """Refuses messages whose unchanged columns the step needs."""
    if decoded.unavailable is None:
        return decoded
    refusals = []
    for output in outputs:
        rows, counts = np.unique(_rows(decoded.unavailable, output.reads), return_counts=True)
        refused = rows[counts < len(output.reads)] if output.may_keep else rows
        detail = (
            "The message left a column unchanged, and so doesn't say its value - in"
            f" {output.name} of {setting}"
        )
        refusals.append(Refusal(refused, f"{kind}:{output.name}:unavailable", detail))
    return decoded.refused(RULES, refusals)


def mark_unavailable(decoded: Decoded, outputs: Mapping[str, Collection[str]]) -> Decoded:
    """Marks columns as unavailable if they depend on an unchanged column, and makes them null.

    Args:
        decoded: the rows after the step; `unavailable` still has the names before the step.
        outputs: the columns before the step that each column of `decoded` depends on.
    """
    if decoded.unavailable is None:
        return decoded
    rows, marks = [], []
    arrays = dict(zip(decoded.rows.schema.names, decoded.rows.columns, strict=True))
    for output, reads in outputs.items():
        row_numbers = np.unique(_rows(decoded.unavailable, reads))
        if len(row_numbers):
            rows.append(row_numbers)
            marks.append(np.repeat(output, len(row_numbers)))
            empty = np.zeros(decoded.rows.num_rows, np.bool_)
            empty[row_numbers] = True
            kind = arrays[output].type
            arrays[output] = pc.if_else(pa.array(empty), pa.scalar(None, kind), arrays[output])
    all_row_numbers = np.concatenate([np.zeros(0, np.int64), *rows])
    order = np.argsort(all_row_numbers, kind="stable")
    counts = np.bincount(all_row_numbers, minlength=decoded.rows.num_rows)
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()),
        pa.array(np.concatenate([np.zeros(0, str), *marks])[order], pa.string()),
    )
    changed = pa.RecordBatch.from_arrays(list(arrays.values()), schema=decoded.rows.schema)
    return replace(decoded, rows=changed, unavailable=lists)


def unavailable_rows(decoded: Decoded, columns: Collection[str]) -> npt.NDArray[np.bool_]:
    """Returns a mask of the rows whose message left one of `columns` unchanged."""
    unavailable_mask = np.zeros(decoded.rows.num_rows, np.bool_)
    if decoded.unavailable is not None:
        unavailable_mask[_rows(decoded.unavailable, columns)] = True
    return unavailable_mask


def _rows(unavailable: pa.ListArray, columns: Collection[str]) -> npt.NDArray[np.int64]:
    """Returns the numbers of the rows whose lists name some columns.

    A row's number comes once for each such column.
    """
    named = pc.is_in(unavailable.flatten(), pa.array(sorted(columns), pa.string()))
    row_numbers: npt.NDArray[np.int64] = (
        pc.list_parent_indices(unavailable).filter(named).to_numpy()
    )
    return row_numbers
