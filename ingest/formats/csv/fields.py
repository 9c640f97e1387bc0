"""The columns as the compiled pass goes by them, and what it keeps in mind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windrow.ingest.formats.shared.nodes import Node, bounds_of
from windrow.ingest.schema.columns import Finer

WIDTH = 4
KIND, LOW, HIGH, REQUIRED = range(WIDTH)
"""What stands at which place of a field: see `shared.nodes` and
`shared.nodes.bounds_of`; 1 where null won't do.
"""

ENTRIES, ROWS = range(2)
"""What stands at which place of the state: entries of the tape; rows."""


def fields_of(nodes: Sequence[Node], finer: Finer) -> npt.NDArray[np.int64]:
    """A row of `WIDTH` for each column's node.

    `finer`: what becomes of timestamps finer than a microsecond.
    """
    rows = [(node.kind, *bounds_of(node, finer), node.required) for node in nodes]
    return np.array(rows, np.int64).ravel()
