"""Columns that a message left unchanged (`Decoded.unavailable`), for steps that read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.ports.decoder import RULES, Decoded, Refusal


class Asked(NamedTuple):
    """What a step computes of some columns.

    `may_keep`: where the message left all of them unchanged, the table keeps its value.
    """

    name: str
    reads: frozenset[str]
    may_keep: bool


def answerable(decoded: Decoded, asked: Sequence[Asked], kind: str, setting: str) -> Decoded:
    """Refuses messages of which a step asks what they left unchanged."""
    if decoded.unavailable is None:
        return decoded
    names, parents = decoded.unavailable.flatten(), pc.list_parent_indices(decoded.unavailable)
    refusals = []
    for name, reads, may_keep in asked:
        left = np.asarray(pc.is_in(names, pa.array(sorted(reads), pa.string())))
        rows, counts = np.unique(parents.to_numpy()[left], return_counts=True)
        refused = rows[counts < len(reads)] if may_keep else rows
        detail = (
            "The message left a column unchanged, and so doesn't say its value - in"
            f" {name} of {setting}"
        )
        refusals.append(Refusal(refused, f"{kind}:{name}:unavailable", detail))
    return decoded.refused(RULES, refusals)


def marked(made: Decoded, outputs: Mapping[str, Collection[str]]) -> Decoded:
    """Marks what depends on a column that the message left unchanged, and empties it.

    `outputs`: the columns that each column of `made` depends on, by the names before.
    """
    if made.unavailable is None:
        return made
    parents = pc.list_parent_indices(made.unavailable).to_numpy()
    names = made.unavailable.flatten()
    rows, marks = [], []
    arrays = dict(zip(made.rows.schema.names, made.rows.columns, strict=True))
    for output, reads in outputs.items():
        left = pc.is_in(names, pa.array(sorted(reads), pa.string()))
        found = np.unique(parents[np.asarray(left)])
        if len(found):
            rows.append(found)
            marks.append(np.repeat(output, len(found)))
            empty = np.zeros(made.rows.num_rows, np.bool_)
            empty[found] = True
            kind = arrays[output].type
            arrays[output] = pc.if_else(pa.array(empty), pa.scalar(None, kind), arrays[output])
    every = np.concatenate([np.zeros(0, np.int64), *rows])
    order = np.argsort(every, kind="stable")
    counts = np.bincount(every, minlength=made.rows.num_rows)
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()),
        pa.array(np.concatenate([np.zeros(0, str), *marks])[order], pa.string()),
    )
    changed = pa.RecordBatch.from_arrays(list(arrays.values()), schema=made.rows.schema)
    return replace(made, rows=changed, unavailable=lists)


def unavailable_rows(decoded: Decoded, columns: Collection[str]) -> npt.NDArray[np.bool_]:
    """Returns which rows have one of some columns left unchanged by their message."""
    found = np.zeros(decoded.rows.num_rows, np.bool_)
    if decoded.unavailable is not None:
        left = pc.is_in(decoded.unavailable.flatten(), pa.array(sorted(columns), pa.string()))
        found[pc.list_parent_indices(decoded.unavailable).to_numpy()[np.asarray(left)]] = True
    return found
