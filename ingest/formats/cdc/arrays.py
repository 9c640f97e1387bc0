"""Functions on columns that are nested in an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.decoded import nothing
from windrow.ingest.formats.shared.nesting import Leaf
from windrow.ingest.ports.decoder import Decoded


def merge_leaves(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[Leaf] | None:
    """Returns the leaves of both; None if one message can't be decoded to all of them.

    It can't if a path is the beginning of another path, or has columns of two types.
    """
    merged = dict(second)
    for path, column in first:
        if merged.setdefault(path, column).type != column.type:
            return None
    paths = sorted(merged)
    is_nested = any(longer[: len(path)] == path for path, longer in pairwise(paths))
    return None if is_nested else list(merged.items())


def keep_rows(decoded: Decoded, row_mask: npt.NDArray[np.bool_]) -> Decoded:
    """Keeps some of the rows. A message that loses all of its rows counts as filtered."""
    if row_mask.all():
        return decoded
    rows = np.flatnonzero(row_mask)
    return decoded.with_rows(decoded.rows.take(pa.array(rows)), rows)


def select_rows(decoded: Decoded, row_mask: npt.NDArray[np.bool_]) -> Decoded:
    """Returns the verdict on the messages of some rows alone. Each message has one row."""
    rows = decoded.rows if row_mask.all() else decoded.rows.filter(pa.array(row_mask))
    index = decoded.row_index.to_numpy()[row_mask]
    return replace(
        nothing(decoded.rows.schema),
        rows=rows,
        row_index=pa.array(index),
        cut=decoded.cut[np.isin(decoded.cut, index)] if len(decoded.cut) else decoded.cut,
        ignored=tuple(part.filter(np.isin(part.index, index)) for part in decoded.ignored),
    )


def without_repeats(texts: pa.StringArray) -> pa.StringArray:
    """Returns the first text alone if all texts are the same, as names of a table are; else all."""
    if not len(texts) or texts.null_count:
        return texts
    octets, sizes = _octets_and_sizes(texts)
    is_repeated = (sizes == sizes[0]).all() and (
        octets[sizes[0] :] == octets[: len(octets) - sizes[0]]
    ).all()
    return texts.slice(0, 1) if is_repeated else texts


def as_letters(texts: pa.StringArray) -> npt.NDArray[np.uint8] | None:
    """Returns texts of one byte each as their bytes; None if a text has another length."""
    octets, sizes = _octets_and_sizes(texts)
    return octets if not texts.null_count and (sizes == 1).all() else None


def _octets_and_sizes(
    texts: pa.StringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Returns the bytes of all texts, and the number of bytes of each."""
    data, begins, ends = octets_of(texts)
    return data[begins[0] : ends[-1]] if len(texts) else data[:0], ends - begins


def matching_items(lists: pa.ListArray, others: pa.ListArray) -> pa.Array:
    """Returns the items of `others` that are at the same places as the items of `lists`.

    An item is null where the other list is null or empty. Any other pair of lists must have
    the same length.
    """
    parents = pc.list_parent_indices(lists).to_numpy()
    lengths = np.where(others.is_valid(), pc.fill_null(pc.list_value_length(others), 0), 0)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    index_in_list = np.arange(len(parents)) - np.repeat(
        np.concatenate([[0], np.cumsum(counts)])[:-1], counts
    )
    present = lengths[parents] > 0
    return others.flatten().take(
        pa.array(np.where(present, begins[parents] + index_in_list, 0), mask=~present)
    )
