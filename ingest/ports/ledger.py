"""The ledger: put-if-absent storage of what was decided for the windows.

A ledger can be lost: it can be rebuilt from receipts, except for pauses, refusals and writers'
schemas; the latter are in the registry, and receipts have their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windrow.ingest.model.boundary import Boundary, Label
from windrow.ingest.model.ledger_records import Pause, RefusedWindow
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import FrozenStop, Initializer
from windrow.ingest.model.writer_schema import WriterSchema


class Ledger(Protocol):
    """Put-if-absent storage of frozen boundaries, plans, and copies of receipts.

    It also has the grid and the table of each pipeline.
    """

    def identity(self) -> str:
        """The ledger's random id, made once."""

    def adopt_identity(self, identity: str) -> None:
        """Takes over the id that a table is bound to; only for a rebuilt, empty ledger.

        Raises:
            IdentityError: this ledger already holds boundaries and another id.
        """

    def bind_grid(self, pipeline_id: str, grid: str) -> str:
        """Records the pipeline's grid if none is recorded; returns the recorded one."""

    def sink(self, pipeline_id: str) -> str | None:
        """The identity of the table that the pipeline writes to; None if none is recorded."""

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        """Records the pipeline's table if none is recorded; returns the recorded one."""

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        """Records another table for the pipeline.

        The receipts of the windows in `forget` are deleted: the new table doesn't hold
        these. Compare and set: `instead_of` is the table that the caller saw recorded,
        None for none. Idempotent.

        Raises:
            RefusedError: another table is recorded than the caller saw.
        """

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that ends there uses it."""

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that starts there uses it.

        After a rebase that is the boundary of the rebase, else it is `boundary`.
        """

    def neighbours(self, pipeline_id: str, label: Label) -> tuple[Boundary | None, Boundary | None]:
        """The nearest frozen boundaries below a label, or the rebase there, and above it."""

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        """The `count` frozen boundaries with the highest labels, ascending.

        They are those of `boundary`, not of rebases.
        """

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freezes boundaries in one serialized transaction.

        For each boundary it reads the frozen neighbours, clamps (`tiling.clamped`), and
        inserts. A boundary that is already frozen under a label stays. Returns the
        frozen boundaries, in label order.
        """

    def rebase(
        self, pipeline_id: str, boundary: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Records a rebase at the highest frozen label: another source from there on.

        Compare and set: `instead_of` is the rebase that the caller saw recorded there,
        None for none. Idempotent.

        Raises:
            RefusedError: the label is not the highest frozen one, or another rebase is
                recorded than the caller saw.
        """

    def rebased_boundaries(self, pipeline_id: str) -> list[Boundary]:
        """The boundaries of the rebases, in label order."""

    def pause(self, pipeline_id: str) -> Pause | None:
        """The newest record of a pause or of its end; None if there is none."""

    def put_pause(self, pipeline_id: str, pause: Pause) -> Pause:
        """Records a pause, or its end, unless its number has a record; returns the recorded one."""

    def refuse(self, refused: RefusedWindow) -> None:
        """Records that a window was refused, in place of an earlier refusal."""

    def refused_windows(self, pipeline_id: str) -> list[RefusedWindow]:
        """The refused windows that weren't committed since, in window order."""

    def frozen_stop(self, pipeline_id: str, position: Initializer) -> FrozenStop | None:
        """The frozen end of a pipeline's micro-batches, of the position in its spec."""

    def freeze_stop(self, pipeline_id: str, stop: FrozenStop) -> FrozenStop:
        """Records an end unless its position has one; returns the recorded one."""

    def plan(self, window: Window) -> Plan | None:
        """The frozen plan of a window."""

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """Puts plans of one pipeline for windows that have none, in one transaction.

        Returns the recorded ones.
        """

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        """Assigns a micro-batch to a request if it has none; returns the assigned number.

        So the retries of a request run the same micro-batch. Of a request for all windows that
        are due it is the first one's start, in seconds since 1970.
        """

    def assigned_number(self, pipeline_id: str, request: str) -> int | None:
        """The number that is assigned to a request, or None."""

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """Records the generation that a replacing request makes, unless it has one.

        Returns the recorded one, so that the retries of a request don't replace again.
        """

    def pins(self, window: Window, generation: int) -> tuple[Pin, ...]:
        """The recorded versions of a generation's lookups; empty if there are none."""

    def freeze_pins(
        self, window: Window, generation: int, pins: Sequence[Pin], *, anew: bool = False
    ) -> tuple[Pin, ...]:
        """Records the version of each lookup of a generation, unless it has one.

        A version of another source doesn't count. Returns the recorded ones.

        Args:
            window: the window.
            generation: its generation.
            pins: the versions, of all lookups that the pipeline has now.
            anew: also take the place of what is recorded.
        """

    def record(
        self, receipt: Receipt, written: str | None = None, *, also_older: bool = False
    ) -> None:
        """Keeps a copy of a committed receipt: the newest generation of each window.

        A receipt of the recorded generation takes the place of its copy. Idempotent. A refusal
        of the window is removed.

        Args:
            receipt: the receipt that was read from the sink.
            written: its exact text in the sink, which another version of windrow may
                have written; None: as this version writes it.
            also_older: also take the place of a newer generation: the table was
                restored from a backup.
        """

    def recorded_text(self, window: Window) -> str | None:
        """The exact text of the window's copy, as it was recorded, or None."""

    def recorded_receipts(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        """The copies of receipts, in window order.

        With `newest` only those of so many newest windows.
        """

    def schemas(self, pipeline_id: str) -> list[WriterSchema]:
        """The writers' schemas that are kept, the newest first."""

    def keep_schemas(self, pipeline_id: str, schemas: Sequence[WriterSchema]) -> list[WriterSchema]:
        """Puts each schema whose id is absent, in one transaction.

        Returns the recorded ones.
        """
