"""What a pipeline has frozen around some labels, read at once: freezing hundreds of
boundaries asks the database once or twice.
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
from windrow.ingest.source.enumerator.tiling import clamped


class FrozenBoundaries:
    """The frozen boundaries from right below the lowest of some labels to right above
    the highest, and those that are added here.

    Rows are decoded when they are asked for. An instant is no neighbour of a number.
    """

    def __init__(
        self,
        connection: Connection,
        pipeline_id: str,
        labels: Sequence[Label],
        has_openings: bool,
        decode: Callable[[Row[Any]], Boundary],
    ) -> None:
        """`has_openings`: whether the ledger has that table; an older version made none."""
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
        """The nearest below (its opening) and above."""
        text = sortable(label)
        below, above = bisect_left(self._order, text) - 1, bisect_right(self._order, text)
        lower = self._order[below] if below >= 0 and _alike(self._order[below], text) else None
        upper = (
            self._order[above]
            if above < len(self._order) and _alike(self._order[above], text)
            else None
        )
        return None if lower is None else self._opened(lower), (
            None if upper is None else self._at(upper)
        )

    def freeze(self, boundary: Boundary) -> Boundary:
        """The one that is there; else this one, clamped between its neighbours, which is there from now on.

        Raises:
            IdentityError, UnreachableError: see `tiling.clamped`.
        """  # noqa: E501
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


def _alike(one: str, other: str) -> bool:
    return one.startswith(NUMBERS) == other.startswith(NUMBERS)


def _read(
    connection: Connection, table: Table, pipeline_id: str, low: str, high: str
) -> dict[str, Row[Any]]:
    """One statement: the labels from `low` to `high`, with the nearest outside."""
    return {
        row.label: row
        for row in connection.execute(
            _around(table), {"ours": pipeline_id, "low": low, "high": high}
        )
    }


@cache
def _around(table: Table) -> Select[Any]:
    """Made once: to put it together takes longer than to run it."""
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
