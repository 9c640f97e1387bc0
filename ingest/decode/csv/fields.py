"""The columns as the compiled pass goes by them, and what it keeps in mind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ingest.decode.shared.nodes import Node, bounds_of

WIDTH = 5
KIND, LOW, HIGH, FACTOR, REQUIRED = range(WIDTH)
"""What stands at which place of a field: see `shared.nodes` and `shared.nodes.bounds_of`; 1 where null won't do."""

ENTRIES, ROWS = range(2)
"""What stands at which place of the state: entries of the tape; rows."""


def fields_of(nodes: Sequence[Node], *, sql: bool) -> npt.NDArray[np.int64]:
    """A row of `WIDTH` for each column's node. `sql`: whether timestamps are written as in SQL."""
    rows = [(node.kind, *bounds_of(node, sql=sql), node.required) for node in nodes]
    return np.array(rows, np.int64).ravel()
