"""The ledger in a database: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from windrow.ingest.errors import IdentityError, RefusedError
from windrow.ingest.ledger.database import Database, open_database
from windrow.ingest.ledger.entries import (
    BOUNDARY,
    GENERATION,
    GRID,
    IDENTITY,
    ITSELF,
    MICRO_BATCH,
    ONLY,
    PAUSE,
    PINS,
    PLAN,
    POISON_PILL,
    REBASE,
    RECEIPT,
    RECEIPT_TEXT,
    REFUSED,
    SCHEMA,
    SINK,
    STOP,
    Entries,
    sortable,
)
from windrow.ingest.model.boundary import Boundary, Label, is_later, label_text
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.ledger_records import Pause, PoisonPill, RefusedWindow
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import FrozenStop, Initializer
from windrow.ingest.model.tiling import clamp
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.settings.secrets import Secret


def open_ledger(url: str, password: Secret | None = None) -> SqlLedger:
    """Makes the ledger at a path or an SQLAlchemy URL. Opens nothing; the first write creates it.

    Args:
        url: the path or URL.
        password: the reference to the password of the URL's user.

    Raises:
        SpecError: a ledger can't be at such a URL.
    """
    return SqlLedger(open_database(url, password))


@dataclass(frozen=True)
class SqlLedger:
    """The ledger in an SQL database. `ports.ledger.Ledger` documents the methods.

    INV: every write reads and writes in one transaction that excludes the other writers of
    its pipeline. So "if absent" and "between its neighbours" still hold at the commit. A
    read creates neither file nor table: a ledger that doesn't exist has no frozen entries.

    All methods raise UnreachableError if the database can't be used, DamagedError if it is
    damaged, and SpecError if another version of windrow made it.
    """

    database: Database
    makes_identity: bool = field(default=True, kw_only=True)

    def without_writes(self) -> SqlLedger:
        return replace(self, makes_identity=False)

    def identity(self) -> str:
        with self._read_entries(ITSELF) as entries:
            identity = entries.get(IDENTITY, ONLY)
        if identity is None and not self.makes_identity:
            return "without an id yet"
        if identity is None:
            with self.writing(ITSELF) as entries:
                identity = entries.put_if_absent(IDENTITY, ONLY, uuid.uuid4().hex)
        return identity

    def refuse_unwritable(self) -> None:
        self.database.refuse_lacking()

    def adopt_identity(self, identity: str) -> None:
        with self.writing(ITSELF) as entries:
            recorded = entries.put_if_absent(IDENTITY, ONLY, identity)
            if recorded != identity and entries.in_any_pipeline(BOUNDARY):
                raise IdentityError(
                    f"The ledger {self.database.name} has id {recorded} and holds boundaries; the"
                    f" table is bound to ledger {identity}",
                    "ledger",
                    "Set `state` to the ledger that the table was begun with; or to one that"
                    " doesn't exist yet, to rebuild it from the table's receipts.",
                )
            entries.put(IDENTITY, ONLY, identity)

    def bind_grid(self, pipeline_id: str, grid: str) -> str:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(GRID, ONLY, grid)

    def sink(self, pipeline_id: str) -> str | None:
        with self._read_entries(pipeline_id) as entries:
            return entries.get(SINK, ONLY)

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(SINK, ONLY, sink)

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        with self.writing(pipeline_id) as entries:
            if entries.get(SINK, ONLY) not in {instead_of, sink}:
                raise RefusedError(
                    f"Another table of {pipeline_id} was recorded meanwhile",
                    "ledger",
                    "Look again: windrow rebind SPEC.",
                )
            entries.put(SINK, ONLY, sink)
            for window in forget:
                entries.remove(RECEIPT, window)

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        with self._read_entries(pipeline_id) as entries:
            return entries.get(BOUNDARY, label)

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        with self._read_entries(pipeline_id) as entries:
            return entries.get(REBASE, label) or entries.get(BOUNDARY, label)

    def neighbours(self, pipeline_id: str, label: Label) -> tuple[Boundary | None, Boundary | None]:
        with self._read_entries(pipeline_id) as entries:
            return _neighbours(entries, label)

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        with self._read_entries(pipeline_id) as entries:
            return entries.highest(BOUNDARY, count)

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freezes boundaries, in label order, each between its neighbours.

        All are frozen in one transaction. Otherwise this could happen:

        1. Run A reads the neighbours of label 4.
        2. Run B freezes label 3 at a higher offset than A has for label 4.
        3. Run A inserts label 4: the window between the two would be negative.

        Raises:
            IdentityError: see `tiling.clamp`.
            UnreachableError: see `tiling.clamp`; or the database can't be used.
        """
        if not boundaries:
            return []
        with self.writing(pipeline_id) as entries:
            return [
                entries.get(BOUNDARY, boundary.label)
                or entries.add(
                    BOUNDARY,
                    boundary.label,
                    clamp(boundary, *_neighbours(entries, boundary.label)),
                )
                for boundary in sorted(boundaries, key=lambda boundary: sortable(boundary.label))
            ]

    def rebase(
        self, pipeline_id: str, boundary: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Stores a rebase, in a transaction that excludes freezing.

        Otherwise a boundary of the old source could be frozen after the boundary of the new
        source.
        """
        label = boundary.label
        with self.writing(pipeline_id) as entries:
            recorded = entries.get(REBASE, label)
            if recorded == boundary:
                return
            if recorded != instead_of:
                raise RefusedError(
                    f"Another rebase of {pipeline_id} is recorded at {label_text(label)}",
                    "ledger",
                    "Look again: windrow rebase SPEC.",
                )
            if [newest.label for newest in entries.highest(BOUNDARY, 1)] != [label]:
                raise RefusedError(
                    f"The source of {pipeline_id} can only be replaced at its highest frozen"
                    f" boundary, not at {label_text(label)}",
                    "ledger",
                    "Another run froze one meanwhile, or nothing is frozen yet. Look again: windrow"
                    " rebase SPEC.",
                )
            entries.put(REBASE, label, boundary)

    def rebased_boundaries(self, pipeline_id: str) -> list[Boundary]:
        with self._read_entries(pipeline_id) as entries:
            return entries.highest(REBASE)

    def pause(self, pipeline_id: str) -> Pause | None:
        with self._read_entries(pipeline_id) as entries:
            return next(iter(entries.highest(PAUSE, 1)), None)

    def put_pause(self, pipeline_id: str, pause: Pause) -> Pause:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(PAUSE, pause.number, pause)

    def poison_pills(self, pipeline_id: str) -> list[PoisonPill]:
        with self._read_entries(pipeline_id) as entries:
            records = entries.highest(POISON_PILL)  # of a message, the newest is the last
        return list({(p.topic_id, p.partition, p.offset): p for p in records}.values())

    def put_poison_pill(self, pipeline_id: str, pill: PoisonPill) -> PoisonPill:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(POISON_PILL, pill, pill)

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(MICRO_BATCH, request, number)

    def assigned_number(self, pipeline_id: str, request: str) -> int | None:
        with self._read_entries(pipeline_id) as entries:
            return entries.get(MICRO_BATCH, request)

    def refuse(self, refused: RefusedWindow) -> None:
        with self.writing(refused.window.pipeline) as entries:
            entries.put(REFUSED, refused.window, refused)

    def refused_windows(self, pipeline_id: str) -> list[RefusedWindow]:
        with self._read_entries(pipeline_id) as entries:
            return entries.highest(REFUSED)

    def frozen_stop(self, pipeline_id: str, position: Initializer) -> FrozenStop | None:
        with self._read_entries(pipeline_id) as entries:
            return entries.get(STOP, position)

    def freeze_stop(self, pipeline_id: str, stop: FrozenStop) -> FrozenStop:
        with self.writing(pipeline_id) as entries:
            return entries.put_if_absent(STOP, stop.position, stop)

    def plan(self, window: Window) -> Plan | None:
        with self._read_entries(window.pipeline) as entries:
            return entries.get(PLAN, window)

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        if not plans:
            return []
        with self.writing(plans[0].window.pipeline) as entries:
            return [entries.put_if_absent(PLAN, plan.window, plan) for plan in plans]

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        with self.writing(window.pipeline) as entries:
            return entries.put_if_absent(GENERATION, (window, request), proposed)

    def pins(self, window: Window, generation: int) -> tuple[Pin, ...]:
        with self._read_entries(window.pipeline) as entries:
            return entries.get(PINS, (window, generation)) or ()

    def freeze_pins(
        self, window: Window, generation: int, pins: Sequence[Pin], *, anew: bool = False
    ) -> tuple[Pin, ...]:
        key = (window, generation)
        with self.writing(window.pipeline) as entries:
            recorded = {} if anew else {p.lookup: p for p in entries.get(PINS, key) or ()}
            now = {
                p.lookup: recorded[p.lookup]
                if p.lookup in recorded and recorded[p.lookup].source == p.source
                else p
                for p in pins
            }
            pins_by_lookup = recorded | now
            if pins_by_lookup != recorded:
                entries.put(PINS, key, tuple(pins_by_lookup.values()))
            return tuple(now.values())

    def record(
        self, receipt: Receipt, written: str | None = None, *, also_older: bool = False
    ) -> None:
        """Stores a copy of a committed receipt: each window's newest generation.

        Two receipts of one generation exist if the table was lost and the window was run
        again. The sink then has the second one, so the newer copy replaces the older one.
        """
        with self.writing(receipt.window.pipeline) as entries:
            recorded = entries.get(RECEIPT, receipt.window)
            if recorded is None or also_older or recorded.generation <= receipt.generation:
                raw = msgspec.Raw((written or to_json(receipt)).encode())
                entries.put(RECEIPT_TEXT, receipt.window, raw)
            entries.remove(REFUSED, receipt.window)

    def recorded_text(self, window: Window) -> str | None:
        with self._read_entries(window.pipeline) as entries:
            raw = entries.get(RECEIPT_TEXT, window)
            return None if raw is None else bytes(raw).decode()

    def recorded_receipts(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        with self._read_entries(pipeline_id) as entries:
            return entries.highest(RECEIPT, newest)

    def schemas(self, pipeline_id: str) -> list[WriterSchema]:
        with self._read_entries(pipeline_id) as entries:
            return entries.newest_first(SCHEMA)

    def keep_schemas(self, pipeline_id: str, schemas: Sequence[WriterSchema]) -> list[WriterSchema]:
        if not schemas:
            return []
        with self.writing(pipeline_id) as entries:
            return [entries.put_if_absent(SCHEMA, schema.id, schema) for schema in schemas]

    @contextmanager
    def _read_entries(self, pipeline_id: str) -> Iterator[Entries]:
        """Opens a pipeline's entries for reading, as `Database.reading` does."""
        with self.database.reading() as connection:
            yield Entries(connection, pipeline_id, self.database.name)

    @contextmanager
    def writing(self, pipeline_id: str) -> Iterator[Entries]:
        """Opens a pipeline's entries in a transaction that excludes its other writers."""
        with self.database.writing(pipeline_id) as connection:
            yield Entries(connection, pipeline_id, self.database.name)


def _neighbours(entries: Entries, label: Label) -> tuple[Boundary | None, Boundary | None]:
    """Returns the nearest boundary below, or the rebase at its label, and the nearest one above.

    The label of a micro-batch is no neighbour of an instant.
    """
    below, above = entries.below(BOUNDARY, label), entries.above(BOUNDARY, label)
    if below is not None:
        below = entries.get(REBASE, below.label) or below
    return (
        below if below is not None and is_later(label, below.label) else None,
        above if above is not None and is_later(above.label, label) else None,
    )
