"""The ledger in a database: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from windrow.ingest.errors import DamagedError, IdentityError, RefusedError
from windrow.ingest.ledger.database import REBUILD, Database, lock, open_database
from windrow.ingest.ledger.frozen import FrozenBoundaries
from windrow.ingest.ledger.tables import (
    BOUNDARIES,
    FACTS,
    GRIDS,
    OPENINGS,
    PLANS,
    RECEIPTS,
    REQUESTS,
    SCHEMAS,
    SINKS,
    TABLES,
    TARGETS,
    packed,
    sortable,
    unpacked,
)
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.label import Label, label_text
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.model.writer_schema import WriterSchema

T = TypeVar("T")
Key = Mapping[str, str]

_parsed: Callable[..., Any] = lru_cache(maxsize=16)(
    lambda stored, kind: from_json(unpacked(stored), kind)
)
"""Parses a value, or returns it from the cache: values never change, and a run asks for the
boundaries around its window several times.
"""

_SELF = "the ledger itself"
"""The scope of transactions for no pipeline; pipelines' scopes begin with `pipeline `."""


def open_ledger(url: str) -> SqlLedger:
    """The ledger at a path or an SQLAlchemy URL. Opens nothing; the first write creates it.

    Raises:
        SpecError: no ledger can be at such a URL.
    """
    return SqlLedger(open_database(url))


@dataclass(frozen=True)
class SqlLedger:
    """The ledger on SQLAlchemy Core (`ports.ledger.Ledger`).

    INV: every write reads and writes in one transaction that excludes the other writers of its
    pipeline, so "if absent" and "between its neighbours" hold at the commit, too. A read creates
    neither file nor table: in a ledger that doesn't exist nothing is frozen.

    All methods raise UnreachableError if the database can't be used, and DamagedError if it is
    damaged.
    """

    database: Database

    def identity(self) -> str:
        """The ledger's own random id.

        It is made with the ledger's tables, here at the latest: the caller is about to bind a table
        to it.

        Raises:
            DamagedError: the ledger has its tables, and no id in them.
        """
        known = self._ask(_identity, None)
        if known is None:
            with self._writing_self() as connection:
                known = _identity(connection)
        if known is None:
            what = (
                f"The ledger {self.database.name} has lost its id: the row of {FACTS.name} that"
                " names it is gone"
            )
            raise DamagedError(
                what,
                "ledger",
                "windrow doctor SPEC --rebuild-ledger takes it from the table, which names it too.",
            )
        return known

    def adopt_identity(self, identity: str) -> None:
        """Takes over the id that a table is bound to. For a rebuilt, still empty ledger only.

        Raises:
            IdentityError: this ledger has boundaries and another id.
        """
        with self._writing_self() as connection:
            mine = _identity(connection)
            if mine is None:
                connection.execute(insert(FACTS), {"name": "identity", "value": identity})
            if mine in {None, identity}:
                return
            if connection.execute(select(BOUNDARIES.c.label).limit(1)).first() is not None:
                raise IdentityError(
                    f"The ledger {self.database.name} has id {mine} and holds boundaries; the table"
                    f" is bound to ledger {identity}",
                    "ledger",
                    "Use the state file that the table was begun with, or an empty one to rebuild"
                    " from the table's receipts.",
                )
            connection.execute(
                update(FACTS).where(FACTS.c.name == "identity").values(value=identity)
            )

    def bind_grid(self, pipeline_id: str, grid: str) -> str:
        """Records the pipeline's grid if none is recorded; returns the recorded one."""
        with self.writing(pipeline_id) as connection:
            row = _put_if_absent(connection, GRIDS, {"pipeline": pipeline_id}, {"grid": grid})
            return grid if row is None else str(row.grid)

    def sink(self, pipeline_id: str) -> str | None:
        """The identity of the table that the pipeline writes to; None if it has none yet."""
        row = self._ask(lambda c: _get(c, SINKS, {"pipeline": pipeline_id}), None, SINKS)
        return None if row is None else str(row.sink)

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        """Records the pipeline's table if none is recorded; returns the recorded one."""
        with self.writing(pipeline_id) as connection:
            row = _put_if_absent(connection, SINKS, {"pipeline": pipeline_id}, {"sink": sink})
            return sink if row is None else str(row.sink)

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        """Records another table, and forgets the receipts of windows that it doesn't hold.

        Raises:
            RefusedError: the recorded table isn't the one that the caller has seen.
        """
        key = {"pipeline": pipeline_id}
        with self.writing(pipeline_id) as connection:
            row = _get(connection, SINKS, key)
            if (None if row is None else row.sink) not in {instead_of, sink}:
                raise RefusedError(
                    f"Another table of {pipeline_id} was recorded meanwhile",
                    "ledger",
                    "Look again: windrow rebind SPEC.",
                )
            put = insert(SINKS).values(key) if row is None else update(SINKS).where(_at(SINKS, key))
            connection.execute(put.values(sink=sink))
            for window in forget:
                connection.execute(delete(RECEIPTS).where(_at(RECEIPTS, _window(window))))

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary of a label, for the window that ends there."""
        return self._ask(
            lambda c: self._value(_get(c, BOUNDARIES, _label(pipeline_id, label)), Boundary), None
        )

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary of a label, for the window that starts there.

        After a rebase it is the opening, else `boundary`.
        """
        key = _label(pipeline_id, label)

        def question(connection: Connection) -> Boundary | None:
            row = (
                _get(connection, OPENINGS, key)
                if self.database.has(connection, OPENINGS.name)
                else None
            )
            return self._value(row or _get(connection, BOUNDARIES, key), Boundary)

        return self._ask(question, None)

    def neighbours(self, pipeline_id: str, label: Label) -> tuple[Boundary | None, Boundary | None]:
        """The nearest frozen boundary below a label, or its opening, and the nearest one above."""
        nothing: tuple[Boundary | None, Boundary | None] = (None, None)
        return self._ask(lambda c: self._frozen(c, pipeline_id, [label]).neighbours(label), nothing)

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        """The frozen boundaries with the highest labels, at most `count`, in label order."""
        wanted = (
            select(BOUNDARIES)
            .where(BOUNDARIES.c.pipeline == pipeline_id)
            .order_by(BOUNDARIES.c.label.desc())
            .limit(count)
        )
        return self._ask(
            lambda c: [self._decoded(row, Boundary) for row in c.execute(wanted)][::-1], []
        )

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freezes boundaries; returns the frozen ones of the same labels, in label order.

        A boundary that is frozen already stays, and is returned in place of the new one. A new one
        is clamped between its frozen neighbours. Both happen in one transaction, because else:

            1 Run A reads the neighbours of label 4.
            2 Run B freezes label 3 at a higher offset than A has for label 4.
            3 A inserts label 4: the window between them would be negative.
        """
        if not boundaries:
            return []
        ordered = sorted(boundaries, key=lambda b: sortable(b.label))
        with self.writing(pipeline_id) as connection:
            frozen = self._frozen(connection, pipeline_id, [b.label for b in ordered])
            now_frozen = [frozen.freeze(b) for b in ordered]
            if frozen.added:
                rows = [{**_label(pipeline_id, b.label), "value": _packed(b)} for b in frozen.added]
                connection.execute(insert(BOUNDARIES), rows)
            return now_frozen

    def rebase(
        self, pipeline_id: str, opening: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Records that the source is another one from the highest frozen label on.

        Its transaction excludes freezing: else a boundary of the old source could be frozen behind
        the one of the new source.

        Raises:
            RefusedError: the label isn't the highest frozen one, or the recorded opening isn't the
                one that the caller has seen.
        """
        key, highest = (
            _label(pipeline_id, opening.label),
            select(BOUNDARIES.c.label).where(BOUNDARIES.c.pipeline == pipeline_id),
        )
        with self.writing(pipeline_id) as connection:
            recorded = self._value(_get(connection, OPENINGS, key), Boundary)
            if recorded == opening:
                return
            if recorded != instead_of:
                what = f"Another rebase of {pipeline_id} is recorded at {label_text(opening.label)}"
                raise RefusedError(what, "ledger", "Look again: windrow rebase SPEC.")
            if (
                connection.execute(highest.order_by(BOUNDARIES.c.label.desc()).limit(1)).scalar()
                != key["label"]
            ):
                raise RefusedError(
                    f"The source of {pipeline_id} can only be replaced at its highest frozen"
                    f" boundary, not at {label_text(opening.label)}",
                    "ledger",
                    "Another run froze one meanwhile, or nothing is frozen yet. Look again: windrow"
                    " rebase SPEC.",
                )
            values = {"value": _packed(opening)}
            put = (
                insert(OPENINGS).values(**key)
                if recorded is None
                else update(OPENINGS).where(_at(OPENINGS, key))
            )
            connection.execute(put.values(**values))

    def rebased(self, pipeline_id: str) -> list[Boundary]:
        """The openings that rebases have recorded, in label order."""
        openings = (
            select(OPENINGS).where(OPENINGS.c.pipeline == pipeline_id).order_by(OPENINGS.c.label)
        )
        return self._ask(
            lambda c: [self._decoded(row, Boundary) for row in c.execute(openings)], [], OPENINGS
        )

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        """Records the micro-batch that a request runs; returns the recorded one.

        The first one counts. So a request's retries run the same micro-batch.
        """
        with self.writing(pipeline_id) as connection:
            row = _put_if_absent(
                connection,
                REQUESTS,
                {"pipeline": pipeline_id, "request": request},
                {"number": number},
            )
            return number if row is None else int(row.number)

    def assigned(self, pipeline_id: str, request: str) -> int | None:
        """The micro-batch that was assigned to a request; None if there is none."""
        row = self._ask(
            lambda c: _get(c, REQUESTS, {"pipeline": pipeline_id, "request": request}),
            None,
            REQUESTS,
        )
        return None if row is None else int(row.number)

    def plan(self, window: Window) -> Plan | None:
        """The frozen plan of a window; None if there is none."""
        return self._ask(lambda c: self._value(_get(c, PLANS, _window(window)), Plan), None)

    def freeze_plan(self, plan: Plan) -> Plan:
        """Freezes a window's plan, if none is frozen; returns the frozen one."""
        return self.freeze_plans([plan])[0]

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """Freezes plans of one pipeline in one transaction; returns the frozen ones."""
        if not plans:
            return []
        with self.writing(plans[0].window.pipeline) as connection:
            rows = [
                _put_if_absent(connection, PLANS, _window(plan.window), {"value": _packed(plan)})
                for plan in plans
            ]
            return [
                plan if row is None else self._decoded(row, Plan)
                for plan, row in zip(plans, rows, strict=True)
            ]

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """Records the generation that a replacing request writes; returns the recorded one.

        The first one counts. So a request's retries don't replace again.
        """
        with self.writing(window.pipeline) as connection:
            row = _put_if_absent(
                connection,
                TARGETS,
                {**_window(window), "request": request},
                {"generation": proposed},
            )
            return proposed if row is None else int(row.generation)

    def record(
        self, receipt: Receipt, written: str | None = None, *, also_older: bool = False
    ) -> None:
        """Stores a copy of a committed receipt: each window's newest generation.

        Two receipts of one generation exist if the table was lost and the window was run again.
        Then the sink has the second one, and so the newer copy replaces the older one.
        """
        key, new = (
            _window(receipt.window),
            {
                "generation": receipt.generation,
                "value": packed(written or to_json(receipt)),
            },
        )
        with self.writing(receipt.window.pipeline) as connection:
            row = _put_if_absent(connection, RECEIPTS, key, new)
            if row is None or row.value == new["value"]:
                return
            if also_older or row.generation <= receipt.generation:
                connection.execute(update(RECEIPTS).where(_at(RECEIPTS, key)).values(**new))

    def written(self, window: Window) -> str | None:
        """The exact text of a window's copy; None if there is none."""
        row = self._ask(lambda c: _get(c, RECEIPTS, _window(window)), None)
        if row is None:
            return None
        with self._readable(row, Receipt):
            return unpacked(row.value)

    def recorded(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        """The copies of receipts in window order, or those of the `newest` windows."""
        order = (RECEIPTS.c.window_start.desc(), RECEIPTS.c.window_end.desc())
        newest_first = (
            select(RECEIPTS)
            .where(RECEIPTS.c.pipeline == pipeline_id)
            .order_by(*order)
            .limit(newest)
        )
        return self._ask(
            lambda c: [self._decoded(row, Receipt) for row in c.execute(newest_first)][::-1], []
        )

    def schemas(self, pipeline_id: str) -> list[WriterSchema]:
        """The writers' schemas, the one that was recorded last first."""
        last_first = (
            select(SCHEMAS)
            .where(SCHEMAS.c.pipeline == pipeline_id)
            .order_by(SCHEMAS.c.number.desc())
        )
        return self._ask(
            lambda c: [self._decoded(row, WriterSchema) for row in c.execute(last_first)],
            [],
            SCHEMAS,
        )

    def keep_schemas(self, pipeline_id: str, schemas: Sequence[WriterSchema]) -> list[WriterSchema]:
        """Records writers' schemas whose ids are new; returns the recorded ones."""
        if not schemas:
            return []
        with self.writing(pipeline_id) as connection:
            count = connection.execute(
                select(func.count()).select_from(SCHEMAS).where(SCHEMAS.c.pipeline == pipeline_id)
            ).scalar_one()
            kept: list[WriterSchema] = []
            for schema in schemas:
                key, value = (
                    {"pipeline": pipeline_id, "id": schema.id},
                    {
                        "number": count + len(kept),
                        "value": _packed(schema),
                    },
                )
                row = _put_if_absent(connection, SCHEMAS, key, value)
                kept.append(schema if row is None else self._decoded(row, WriterSchema))
            return kept

    def _ask(self, question: Callable[[Connection], T], nothing: T, *more: Table) -> T:
        """Asks one state of the ledger.

        The answer is `nothing` if the ledger doesn't exist, or an older version of windrow made it
        without these tables.
        """
        with self.database.reading() as connection:
            has_tables = connection is not None and self.database.has(
                connection, FACTS.name, *(t.name for t in more)
            )
            return question(connection) if connection is not None and has_tables else nothing

    def writing(self, pipeline_id: str) -> AbstractContextManager[Connection]:
        return self._writing_in(f"pipeline {pipeline_id}")

    def _writing_self(self) -> AbstractContextManager[Connection]:
        return self._writing_in(_SELF)

    @contextmanager
    def _writing_in(self, scope: str) -> Iterator[Connection]:
        """Opens a transaction that writes, in a ledger with all tables.

        Missing tables are created; an older version of windrow made fewer of them. On a server the
        first writes of two pipelines exclude each other, too:

            1 A and B see no tables.   2 A takes the ledger's own lock, B waits.
            3 A creates the tables and commits.   4 B goes on, looks again and sees them.
        """
        with self.database.writing(scope) as connection:
            if not self.database.has(connection, *TABLES.tables):
                lock(connection, _SELF)
                TABLES.create_all(connection)
                _put_if_absent(connection, FACTS, {"name": "identity"}, {"value": uuid.uuid4().hex})
            yield connection

    def _frozen(
        self, connection: Connection, pipeline_id: str, labels: Sequence[Label]
    ) -> FrozenBoundaries:
        """The frozen boundaries around these labels."""
        has_openings = self.database.has(connection, OPENINGS.name)
        return FrozenBoundaries(
            connection, pipeline_id, labels, has_openings, lambda row: self._decoded(row, Boundary)
        )

    def _value(self, row: Row[Any] | None, kind: type[T]) -> T | None:
        return None if row is None else self._decoded(row, kind)

    def _decoded(self, row: Row[Any], kind: type[T]) -> T:
        with self._readable(row, kind):
            value: T = _parsed(row.value, kind)
            return value

    @contextmanager
    def _readable(self, row: Row[Any], kind: type[Any]) -> Iterator[None]:
        try:
            yield
        except (msgspec.DecodeError, ValueError) as error:
            what = (
                f"The ledger {self.database.name} holds a {kind.__name__.lower()} of pipeline"
                f" {row.pipeline} that can't be read"
            )
            raise DamagedError(what, "ledger", REBUILD) from error


def _identity(connection: Connection) -> str | None:
    found: str | None = connection.execute(
        select(FACTS.c.value).where(FACTS.c.name == "identity")
    ).scalar()
    return found


def _packed(value: msgspec.Struct) -> str:
    return packed(to_json(value))


def _label(pipeline_id: str, label: Label) -> Key:
    return {"pipeline": pipeline_id, "label": sortable(label)}


def _window(window: Window) -> Key:
    return {
        "pipeline": window.pipeline,
        "window_start": sortable(window.start),
        "window_end": sortable(window.end),
    }


def _at(table: Table, key: Key) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in key.items()))


def _get(connection: Connection, table: Table, key: Key) -> Row[Any] | None:
    return connection.execute(_by(table, tuple(key)), key).first()


@cache
def _by(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """The statement of `_get`, built once: that takes longer than to run it."""
    return select(table).where(and_(*(table.c[name] == bindparam(name) for name in names)))


def _put_if_absent(
    connection: Connection, table: Table, key: Key, rest: Mapping[str, object]
) -> Row[Any] | None:
    """Inserts a row if its key is free, and returns None; else returns the row with the key.

    In a transaction that writes.
    """
    row = _get(connection, table, key)
    if row is None:
        connection.execute(insert(table), {**key, **rest})
    return row
