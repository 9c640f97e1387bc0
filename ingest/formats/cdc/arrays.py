"""Columns that lie in one another, as an envelope holds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.cdc.envelope import FieldPath
from windrow.ingest.ports.decoder import Decoded, Refusal
from windrow.ingest.schema.columns import Column, Columns, epoch_of, field_of, zone_of


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


def picked(rows: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """What lies at a path; null where something on the way to it is."""
    name, *rest = path
    column = rows.column(name)
    return pc.struct_field(column, rest) if rest else column


def path_text(path: FieldPath) -> str:
    """A path, for people."""
    return ".".join(("$", *path))


def missing(values: pa.Array, place: str) -> Refusal:
    """Those that are null, and must not be."""
    return Refusal(
        np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)),
        "missing",
        f"Expected a value, got none - at {place}",
    )


def chosen(decoded: Decoded, kept: npt.NDArray[np.bool_]) -> Decoded:
    """The same with some of the rows; the messages of the others are filtered."""
    if kept.all():
        return decoded
    rows = np.flatnonzero(kept)
    return decoded.with_rows(decoded.rows.take(pa.array(rows)), rows)


def beside_items(lists: pa.ListArray, others: pa.ListArray) -> pa.Array:
    """For each item of some lists the item at its place in another list beside; null
    where that is null.

    Both have the same length.
    """
    parents = pc.list_parent_indices(lists).to_numpy()
    lengths = np.where(others.is_valid(), pc.fill_null(pc.list_value_length(others), 0), 0)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    within = np.arange(len(parents)) - np.repeat(
        np.concatenate([[0], np.cumsum(counts)])[:-1], counts
    )
    there = lengths[parents] > 0
    return others.flatten().take(
        pa.array(np.where(there, begins[parents] + within, 0), mask=~there)
    )
