"""What a ledger keeps, put-if-absent.

It can be lost: everything in it can be rebuilt from receipts, but for writers' schemas:
those the registry has, and receipts their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.label import Label
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.model.writer_schema import WriterSchema


class Ledger(Protocol):
    """Frozen boundaries and plans of pipelines, their tables and grids, and copies of receipts."""

    def identity(self) -> str:
        """The ledger's own random id, made once."""

    def adopt_identity(self, identity: str) -> None:
        """Take over the id that a table is bound to; for a rebuilt, still empty ledger only.

        Raises:
            IdentityError: if this ledger already holds boundaries and another id.
        """

    def bind_grid(self, pipeline_id: str, grid: str) -> str:
        """Record the pipeline's grid if none is recorded; the recorded one."""

    def sink(self, pipeline_id: str) -> str | None:
        """The table that the pipeline writes to, by its identity; None if it has none yet."""

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        """Record the table that the pipeline writes to if none is recorded; the recorded one."""

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        """Record another table in place of the one that the caller has seen, and forget
        the receipts of windows that it doesn't hold.

        Compare and set: `instead_of` is None where none was recorded. Idempotent.

        Raises:
            RefusedError: another table is recorded than was seen.
        """

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that ends there sees it."""

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that starts there sees it:
        its opening after a rebase, else `boundary`.
        """

    def neighbours(self, pipeline_id: str, label: Label) -> tuple[Boundary | None, Boundary | None]:
        """The nearest frozen boundaries below (its opening) and above a label."""

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        """The frozen boundaries with the highest labels, at most `count`, ascending; as
        `boundary` sees them.
        """

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freeze under one serialized transaction; what is frozen now, in label order.

        Per boundary: read its frozen neighbours, clamp (`tiling.clamped`), insert. What
        is there already stays and is returned.
        """

    def rebase(
        self, pipeline_id: str, opening: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Record that from the highest frozen label on the source is another one, in
        place of the opening that the caller has seen there.

        Compare and set: `instead_of` is None where none was recorded. Idempotent.

        Raises:
            RefusedError: the label is not the highest frozen one, or another opening is
                there than was seen.
        """

    def rebased(self, pipeline_id: str) -> list[Boundary]:
        """The openings that were recorded by rebases, in label order."""

    def plan(self, window: Window) -> Plan | None:
        """The frozen plan of a window."""

    def freeze_plan(self, plan: Plan) -> Plan:
        """Put if absent; the one that is there."""

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """The same of several plans of one pipeline, in one transaction: all or none."""

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        """The micro-batch that a request runs: put-if-absent by request, so that its
        retries run the same one.
        """

    def assigned(self, pipeline_id: str, request: str) -> int | None:
        """The micro-batch that was assigned to a request."""

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """The generation that a replacing request aims at: put-if-absent by (window,
        request), so that its retries don't replace again.
        """

    def record(
        self, receipt: Receipt, written: str | None = None, *, also_older: bool = False
    ) -> None:
        """Keep a copy of a committed receipt: the newest generation per window, and of
        one generation what the sink said last.

        Idempotent.

        Args:
            receipt: as the sink holds it.
            written: its exact text there, which another version may have written;
                without, as this version writes it.
            also_older: in the place of a newer generation, too: the table was restored
                from a backup.
        """

    def written(self, window: Window) -> str | None:
        """The exact text of the window's copy, as it was recorded; None if there is none."""

    def recorded(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        """The copies, in window order; of the `newest` windows only, if that is given."""

    def schemas(self, pipeline_id: str) -> list[WriterSchema]:
        """Those that are kept, the last kept first."""

    def keep_schemas(self, pipeline_id: str, schemas: Sequence[WriterSchema]) -> list[WriterSchema]:
        """Put each if its id is absent, in one transaction; those that are there now."""
