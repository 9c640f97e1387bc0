"""Frozen boundaries around some labels, read at once.

So freezing hundreds of boundaries asks the database only once or twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, Text, bindparam, func, select

from windrow.ingest.ledger.tables import BOUNDARIES, NUMBERS, OPENINGS, sortable
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.label import Label
from windrow.ingest.model.tiling import clamped


class FrozenBoundaries:
    """The frozen boundaries around some labels, and the ones that are added.

    They reach from the nearest one below the lowest label to the nearest one above the highest.
    Rows are decoded when they are needed. The label of a micro-batch is no neighbour of a time.

    Args:
        connection: in a transaction.
        pipeline_id: whose boundaries.
        labels: at least one.
        has_openings: whether the ledger has that table; an older version made none.
        decode: reads a boundary from its row.
    """

    def __init__(
        self,
        connection: Connection,
        pipeline_id: str,
        labels: Sequence[Label],
        has_openings: bool,
        decode: Callable[[Row[Any]], Boundary],
    ) -> None:
        texts = sorted(map(sortable, labels))
        self._rows = _read(connection, BOUNDARIES, pipeline_id, texts[0], texts[-1])
        self._order = sorted(self._rows)
        self._openings = (
            _read(connection, OPENINGS, pipeline_id, min([texts[0], *self._order]), texts[-1])
            if has_openings
            else {}
        )
        self._decode = decode
        self._known: dict[str, Boundary] = {}
        self.added: list[Boundary] = []

    def neighbours(self, label: Label) -> tuple[Boundary | None, Boundary | None]:
        """The nearest boundary below, or its opening, and the nearest one above."""
        text = sortable(label)
        below, above = bisect_left(self._order, text) - 1, bisect_right(self._order, text)
        lower = (
            self._order[below] if below >= 0 and _is_comparable(self._order[below], text) else None
        )
        upper = (
            self._order[above]
            if above < len(self._order) and _is_comparable(self._order[above], text)
            else None
        )
        return None if lower is None else self._opened(lower), (
            None if upper is None else self._at(upper)
        )

    def freeze(self, boundary: Boundary) -> Boundary:
        """Returns the frozen boundary of the label; else clamps this one and adds it.

        Raises:
            IdentityError, UnreachableError: as `tiling.clamped` does.
        """
        text = sortable(boundary.label)
        frozen = self._at(text)
        if frozen is not None:
            return frozen
        moved = clamped(boundary, *self.neighbours(boundary.label))
        insort(self._order, text)
        self._known[text] = moved
        self.added.append(moved)
        return moved

    def _opened(self, text: str) -> Boundary | None:
        row = self._openings.get(text)
        return self._at(text) if row is None else self._decode(row)

    def _at(self, text: str) -> Boundary | None:
        if text not in self._known and text in self._rows:
            self._known[text] = self._decode(self._rows[text])
        return self._known.get(text)


def _is_comparable(one: str, other: str) -> bool:
    """Returns whether both labels are times, or both numbers of micro-batches."""
    return one.startswith(NUMBERS) == other.startswith(NUMBERS)


def _read(
    connection: Connection, table: Table, pipeline_id: str, low: str, high: str
) -> dict[str, Row[Any]]:
    """Reads the labels from `low` to `high`, and the nearest ones outside, by one statement."""
    return {
        row.label: row
        for row in connection.execute(
            _around(table), {"ours": pipeline_id, "low": low, "high": high}
        )
    }


@cache
def _around(table: Table) -> Select[Any]:
    """The statement of `_read`, built once: that takes longer than to run it."""
    ours, low, high = (
        table.c.pipeline == bindparam("ours"),
        bindparam("low", type_=Text),
        bindparam("high", type_=Text),
    )
    below = select(func.max(table.c.label)).where(ours, table.c.label < low).scalar_subquery()
    above = select(func.min(table.c.label)).where(ours, table.c.label > high).scalar_subquery()
    return select(table).where(
        ours,
        table.c.label >= func.coalesce(below, low),
        table.c.label <= func.coalesce(above, high),
    )
