"""The ledger in a database: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, and_, insert, inspect, select, update

from ingest.errors import IdentityError, RefusedError
from ingest.ledger.database import REBUILD, Database, lock, open_database
from ingest.ledger.tables import BOUNDARIES, FACTS, GRIDS, PLANS, RECEIPTS, TABLES, TARGETS, sortable
from ingest.model import Boundary, Plan, Receipt, Window, from_json, to_json

T = TypeVar("T")
Key = Mapping[str, str]

_SELF = "the ledger itself"
"""The scope of what belongs to no pipeline; pipelines' scopes begin with `pipeline `."""


def open_ledger(url: str) -> SqlLedger:
    """The ledger at a path or an SQLAlchemy URL. Touches nothing: the first write makes what isn't there.

    Raises:
        SpecError: the URL makes no sense.
    """
    return SqlLedger(open_database(url))


@dataclass(frozen=True)
class SqlLedger:
    """`ports.Ledger` on SQLAlchemy Core.

    INV: every write reads and writes inside one transaction that excludes the other writers of its pipeline, so "if absent" and "between
    its neighbours" hold at the commit and not only at the look. What only reads makes neither file nor table: in a ledger that isn't there
    nothing is frozen.

    All methods raise UnreachableError if the database can't be used, and RefusedError if it is damaged.
    """

    database: Database

    def identity(self) -> str:
        """The ledger's own random id, made with its tables: asking for it makes them, for whoever asks is about to bind a table to it."""
        known = self._ask(_identity, None)
        if known is not None:
            return known
        with self._writing_self() as connection:
            return _identity(connection)

    def adopt_identity(self, identity: str) -> None:
        """Take over the id that a table is bound to; for a rebuilt, still empty ledger only.

        Raises:
            IdentityError: if this ledger already holds boundaries and another id.
        """
        with self._writing_self() as connection:
            mine = _identity(connection)
            if mine == identity:
                return
            if connection.execute(select(BOUNDARIES.c.label).limit(1)).first() is not None:
                raise IdentityError(
                    f"The ledger {self.database.name} has id {mine} and holds boundaries; the table is bound to ledger {identity}",
                    "ledger", "Use the state file that the table was begun with, or an empty one to rebuild from the table's receipts.",
                )  # fmt: skip
            connection.execute(update(FACTS).where(FACTS.c.name == "identity").values(value=identity))

    def bind_grid(self, pipeline: str, grid: str) -> str:
        """Record the pipeline's grid if none is recorded; the recorded one."""
        with self._writing(pipeline) as connection:
            row = _put_if_absent(connection, GRIDS, {"pipeline": pipeline}, {"grid": grid})
            return str(row.grid)

    def boundary(self, pipeline: str, label: datetime) -> Boundary | None:
        """The frozen boundary under a label."""
        return self._ask(lambda c: self._value(_get(c, BOUNDARIES, _label(pipeline, label)), Boundary), None)

    def neighbours(self, pipeline: str, label: datetime) -> tuple[Boundary | None, Boundary | None]:
        """The nearest frozen boundaries below and above a label."""
        nothing: tuple[Boundary | None, Boundary | None] = (None, None)
        return self._ask(lambda c: self._neighbours(c, pipeline, label), nothing)

    def freeze(self, pipeline: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        """Freeze under one serialized transaction; the frozen boundaries of the same labels, in label order.

        Per boundary: what is frozen under its label is left and returned in its place; else it is clamped between its frozen neighbours and
        inserted. Were the neighbours read before the transaction, then 1. run A reads them for label 4, 2. run B freezes label 3 at a
        higher offset than A resolved, 3. A inserts label 4: the window between them would be negative.
        """
        with self._writing(pipeline) as connection:
            return [self._freeze_one(connection, pipeline, b) for b in sorted(boundaries, key=lambda b: b.label)]

    def plan(self, window: Window) -> Plan | None:
        """The frozen plan of a window."""
        return self._ask(lambda c: self._value(_get(c, PLANS, _window(window)), Plan), None)

    def freeze_plan(self, plan: Plan) -> Plan:
        """Put if absent; the one that is there."""
        with self._writing(plan.window.pipeline) as connection:
            return self._decoded(_put_if_absent(connection, PLANS, _window(plan.window), {"value": to_json(plan)}), Plan)

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """The generation that a replacing request aims at: put-if-absent by (window, request), so that its retries don't replace again."""
        with self._writing(window.pipeline) as connection:
            row = _put_if_absent(connection, TARGETS, {**_window(window), "request": request}, {"generation": proposed})
            return int(row.generation)

    def record(self, receipt: Receipt) -> None:
        """Keep a copy of a committed receipt; the newest generation per window. Idempotent."""
        key, new = _window(receipt.window), {"generation": receipt.generation, "value": to_json(receipt)}
        with self._writing(receipt.window.pipeline) as connection:
            held = _put_if_absent(connection, RECEIPTS, key, new)
            if held.generation < receipt.generation:
                connection.execute(update(RECEIPTS).where(_at(RECEIPTS, key)).values(**new))

    def recorded(self, pipeline: str) -> list[Receipt]:
        """The copies, in window order."""
        held = select(RECEIPTS).where(RECEIPTS.c.pipeline == pipeline).order_by(RECEIPTS.c.window_start, RECEIPTS.c.window_end)
        return self._ask(lambda c: [self._decoded(row, Receipt) for row in c.execute(held)], [])

    def _ask(self, question: Callable[[Connection], T], nothing: T) -> T:
        """The answer of one state of the ledger; `nothing` if there is no ledger yet."""
        with self.database.reading() as connection:
            return nothing if connection is None or not _made(connection) else question(connection)

    def _writing(self, pipeline: str) -> AbstractContextManager[Connection]:
        return self._writing_in(f"pipeline {pipeline}")

    def _writing_self(self) -> AbstractContextManager[Connection]:
        return self._writing_in(_SELF)

    @contextmanager
    def _writing_in(self, scope: str) -> Iterator[Connection]:
        """A writing transaction in a ledger that has its tables.

        On a server, first writes of two pipelines exclude each other too: 1. A and B find no tables, 2. A takes the ledger's own lock, B
        waits, 3. A makes the tables and commits, 4. B goes on, looks once more and finds them.
        """
        with self.database.writing(scope) as connection:
            if not _made(connection):
                lock(connection, _SELF)
                TABLES.create_all(connection)
                _put_if_absent(connection, FACTS, {"name": "identity"}, {"value": uuid.uuid4().hex})
            yield connection

    def _freeze_one(self, connection: Connection, pipeline: str, boundary: Boundary) -> Boundary:
        key = _label(pipeline, boundary.label)
        held = self._value(_get(connection, BOUNDARIES, key), Boundary)
        if held is not None:
            return held
        clamped = boundary.clamped(*self._neighbours(connection, pipeline, boundary.label))
        connection.execute(insert(BOUNDARIES).values(**key, value=to_json(clamped)))
        return clamped

    def _neighbours(self, connection: Connection, pipeline: str, label: datetime) -> tuple[Boundary | None, Boundary | None]:
        ours, at = BOUNDARIES.c.pipeline == pipeline, sortable(label)
        below = select(BOUNDARIES).where(ours, BOUNDARIES.c.label < at).order_by(BOUNDARIES.c.label.desc()).limit(1)
        above = select(BOUNDARIES).where(ours, BOUNDARIES.c.label > at).order_by(BOUNDARIES.c.label).limit(1)
        return self._value(connection.execute(below).first(), Boundary), self._value(connection.execute(above).first(), Boundary)

    def _value(self, row: Row[Any] | None, kind: type[T]) -> T | None:
        return None if row is None else self._decoded(row, kind)

    def _decoded(self, row: Row[Any], kind: type[T]) -> T:
        try:
            return from_json(row.value, kind)
        except (msgspec.DecodeError, ValueError) as error:
            what = f"The ledger {self.database.name} holds a {kind.__name__.lower()} of pipeline {row.pipeline} that can't be read"
            raise RefusedError(what, "ledger", REBUILD) from error


def _made(connection: Connection) -> bool:
    """Whether the tables are there: all or none, for one transaction makes them."""
    return inspect(connection).has_table(FACTS.name)


def _identity(connection: Connection) -> str:
    return str(connection.execute(select(FACTS.c.value).where(FACTS.c.name == "identity")).scalar_one())


def _label(pipeline: str, label: datetime) -> Key:
    return {"pipeline": pipeline, "label": sortable(label)}


def _window(window: Window) -> Key:
    return {"pipeline": window.pipeline, "window_start": sortable(window.start), "window_end": sortable(window.end)}


def _at(table: Table, key: Key) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in key.items()))


def _get(connection: Connection, table: Table, key: Key) -> Row[Any] | None:
    return connection.execute(select(table).where(_at(table, key))).first()


def _put_if_absent(connection: Connection, table: Table, key: Key, rest: Mapping[str, object]) -> Row[Any]:
    """The row under the key, put there first if there is none; inside a writing transaction."""
    held = _get(connection, table, key)
    if held is None:
        connection.execute(insert(table).values(**key, **rest))
        held = connection.execute(select(table).where(_at(table, key))).one()
    return held
