"""The ledger: put-if-absent storage of decisions about windows.

A lost ledger can be rebuilt from receipts, except for pauses, refusals, poison pills and
writers' schemas. The registry still has the schemas, and receipts have their digests. Poison
pills are found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windrow.ingest.model.boundary import Boundary, Label
from windrow.ingest.model.ledger_records import Pause, PoisonPill, RefusedWindow
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
        """Returns the ledger's random id, made once."""

    def without_writes(self) -> Ledger:
        """Returns the same ledger, whose `identity` doesn't make an id, but says so."""

    def refuse_unwritable(self) -> None:
        """Checks whether this user may write to the ledger, if its database tells that.

        Raises:
            SpecError: the user lacks a privilege; the error has the statement that grants it.
        """

    def adopt_identity(self, identity: str) -> None:
        """Takes over the id that a table is bound to. It is only for a rebuilt, empty ledger.

        Raises:
            IdentityError: this ledger already holds boundaries and another id.
        """

    def bind_grid(self, pipeline_id: str, grid: str) -> str:
        """Records the pipeline's grid if none is recorded; returns the recorded grid."""

    def sink(self, pipeline_id: str) -> str | None:
        """Returns the identity of the table that the pipeline writes to; None if none is known."""

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        """Records the pipeline's table if none is recorded; returns the recorded table."""

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        """Records another table for the pipeline. Idempotent.

        Args:
            pipeline_id: the pipeline.
            sink: identity of the new table.
            instead_of: the table that the caller saw recorded; None if it saw none. Another
                table may have been recorded since, so the call compares before it writes.
            forget: windows that the new table doesn't hold. Their receipts are deleted.

        Raises:
            RefusedError: another table is recorded than the caller saw.
        """

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        """Returns the frozen boundary of a label, for the window that ends there."""

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        """Returns the frozen boundary of a label, for the window that starts there.

        If the pipeline was rebased at the label, it is the boundary of the rebase, else the
        same as `boundary`.
        """

    def neighbours(self, pipeline_id: str, label: Label) -> tuple[Boundary | None, Boundary | None]:
        """Returns the nearest frozen boundaries below and above a label.

        If the lower label was rebased, its boundary is that of the rebase.
        """

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        """Returns the `count` frozen boundaries with the highest labels, ascending.

        They are the boundaries that `boundary` returns, not those of rebases.
        """

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freezes boundaries in one serialized transaction.

        For each boundary it does three steps:

        1. It reads the frozen neighbours.
        2. It clamps the boundary between them (`tiling.clamp`).
        3. It inserts the boundary. A boundary that is already frozen under the label stays.

        Returns:
            The frozen boundaries, in label order.
        """

    def rebase(
        self, pipeline_id: str, boundary: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Records a rebase at the highest frozen label: windows from there on have another source.

        Idempotent.

        Args:
            pipeline_id: the pipeline.
            boundary: the boundary in the other source.
            instead_of: the rebase that the caller saw recorded there; None if it saw none.
                Another rebase may have been recorded since, so the call compares before it
                writes.

        Raises:
            RefusedError: the label is not the highest frozen label, or another rebase is
                recorded than the caller saw.
        """

    def rebased_boundaries(self, pipeline_id: str) -> list[Boundary]:
        """Returns the boundaries of the rebases, in label order."""

    def pause(self, pipeline_id: str) -> Pause | None:
        """Returns the newest record of a pause or of its end; None if there is none."""

    def put_pause(self, pipeline_id: str, pause: Pause) -> Pause:
        """Records a pause or its end, unless its number has a record; returns the recorded one."""

    def poison_pills(self, pipeline_id: str) -> list[PoisonPill]:
        """Returns the newest record of each message that was a poison pill."""

    def put_poison_pill(self, pipeline_id: str, pill: PoisonPill) -> PoisonPill:
        """Records a poison pill, or its end, unless its message and number have a record.

        Returns:
            The recorded one.
        """

    def refuse(self, refused: RefusedWindow) -> None:
        """Records that a window was refused. It replaces an earlier refusal of the window."""

    def refused_windows(self, pipeline_id: str) -> list[RefusedWindow]:
        """Returns the refused windows that weren't committed since, in window order."""

    def frozen_stop(self, pipeline_id: str, position: Initializer) -> FrozenStop | None:
        """Returns the frozen end of a pipeline's micro-batches; `position` is the spec's end."""

    def freeze_stop(self, pipeline_id: str, stop: FrozenStop) -> FrozenStop:
        """Records an end unless its position has one; returns the recorded end."""

    def plan(self, window: Window) -> Plan | None:
        """Returns the frozen plan of a window."""

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """Records plans of one pipeline for windows that have none, in one transaction.

        Returns:
            The recorded plans.
        """

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        """Assigns a micro-batch to a request if it has none; returns the assigned number.

        So the retries of a request run the same micro-batch. A request for all due windows has
        another number: the start of its first window, in seconds since 1970.
        """

    def assigned_number(self, pipeline_id: str, request: str) -> int | None:
        """Returns the number that is assigned to a request, or None."""

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """Records the generation that a replacing request makes, unless it has one.

        So the retries of a request don't replace the window again.

        Returns:
            The recorded generation.
        """

    def pins(self, window: Window, generation: int) -> tuple[Pin, ...]:
        """Returns the recorded versions of a generation's lookups; empty if there are none."""

    def freeze_pins(
        self, window: Window, generation: int, pins: Sequence[Pin], *, anew: bool = False
    ) -> tuple[Pin, ...]:
        """Records the version of each lookup of a generation, unless the lookup has one.

        A recorded version of another source doesn't count.

        Args:
            window: the window.
            generation: its generation.
            pins: the versions, of all lookups that the pipeline has now.
            anew: whether to replace recorded versions.

        Returns:
            The recorded versions.
        """

    def record(
        self, receipt: Receipt, written: str | None = None, *, also_older: bool = False
    ) -> None:
        """Keeps a copy of a committed receipt: the newest generation of each window. Idempotent.

        A receipt of the recorded generation replaces the recorded copy. A refusal of the window
        is removed.

        Args:
            receipt: the receipt that was read from the sink.
            written: its exact text in the sink, which another version of windrow may have
                written. None: the text that this version writes.
            also_older: whether to replace a newer generation too, because the table was
                restored from a backup.
        """

    def recorded_text(self, window: Window) -> str | None:
        """Returns the exact text of the window's copy, as it was recorded, or None."""

    def recorded_receipts(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        """Returns the copies of receipts, in window order.

        Args:
            pipeline_id: the pipeline.
            newest: number of the newest windows to return; None for all.
        """

    def schemas(self, pipeline_id: str) -> list[WriterSchema]:
        """Returns the writers' schemas that are kept, the newest first."""

    def keep_schemas(self, pipeline_id: str, schemas: Sequence[WriterSchema]) -> list[WriterSchema]:
        """Records each schema whose id is absent, in one transaction.

        Returns:
            The recorded schemas.
        """
