"""Rows that a step leaves out, in a table with a primary key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded, Deletes


def with_deletes(
    decoded: Decoded, made_from: npt.NDArray[np.int64], primary_key: tuple[str, ...]
) -> tuple[Decoded, npt.NDArray[np.bool_]]:
    """Adds deletes of the keys of the rows that are left out.

    `made_from`: the rows that are kept, ascending.

    Returns:
        The result with them, and which of the rows that are kept stay. Of one message,
        deletes come before rows; so a row is dropped if a later row of its message, of the
        same key, is left out.
    """
    left_out = np.ones(decoded.rows.num_rows, np.bool_)
    left_out[made_from] = False
    keys = decoded.rows.select(list(primary_key))
    index = decoded.row_index.to_numpy()
    stays = np.ones(len(made_from), np.bool_)
    again = np.flatnonzero(np.isin(index[made_from], index[left_out]))
    if len(again):
        lost = np.flatnonzero(left_out)
        last = {
            (index[row], *key.values()): row
            for row, key in zip(lost, keys.take(pa.array(lost)).to_pylist(), strict=True)
        }
        for at in again:
            row = made_from[at]
            key = keys.slice(row, 1).to_pylist()[0]
            stays[at] = last.get((index[row], *key.values()), -1) < row
    chosen = pa.array(left_out)
    mine = Deletes(keys.filter(chosen), decoded.row_index.filter(chosen))
    merged = mine if decoded.deletes is None else decoded.deletes.merged(mine)
    return replace(decoded, deletes=merged), stays
