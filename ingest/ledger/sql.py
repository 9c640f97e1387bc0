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
    sortable,
)
from windrow.ingest.ledger.texts import packed, unpacked
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
    lambda kept, kind: from_json(unpacked(kept), kind)
)
"""Values don't change, and a run asks for the boundaries around its window several times."""

_SELF = "the ledger itself"
"""The scope of what belongs to no pipeline; pipelines' scopes begin with `pipeline `."""


def open_ledger(url: str) -> SqlLedger:
    """The ledger at a path or an SQLAlchemy URL. Touches nothing: the first write makes what isn't there.

    Raises:
        SpecError: the URL makes no sense.
    """  # noqa: E501
    return SqlLedger(open_database(url))


@dataclass(frozen=True)
class SqlLedger:
    """`ports.ledger.Ledger` on SQLAlchemy Core.

    INV: every write reads and writes inside one transaction that excludes the other
    writers of its pipeline, so "if absent" and "between its neighbours" hold at the
    commit and not only at the look. What only reads makes neither file nor table: in a
    ledger that isn't there nothing is frozen.

    All methods raise UnreachableError if the database can't be used, and DamagedError
    if it is damaged.
    """

    database: Database

    def identity(self) -> str:
        """The ledger's own random id, made with its tables: asking for it makes them,
        for whoever asks is about to bind a table to it.

        Raises:
            DamagedError: it has its tables, and no id in them.
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
        """Take over the id that a table is bound to; for a rebuilt, still empty ledger only.

        Raises:
            IdentityError: if this ledger already holds boundaries and another id.
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
        """Record the pipeline's grid if none is recorded; the recorded one."""
        with self._writing(pipeline_id) as connection:
            row = _put_if_absent(connection, GRIDS, {"pipeline": pipeline_id}, {"grid": grid})
            return grid if row is None else str(row.grid)

    def sink(self, pipeline_id: str) -> str | None:
        """The table that the pipeline writes to; None if it has none yet."""
        return self._ask(lambda c: self._sink(c, pipeline_id), None)

    def bind_sink(self, pipeline_id: str, sink: str) -> str:
        """Record the table that the pipeline writes to if none is recorded; the recorded one."""
        with self._writing(pipeline_id) as connection:
            bound = self._sink(connection, pipeline_id) or sink
            _put_if_absent(connection, SINKS, {"pipeline": pipeline_id}, {"sink": bound})
            return bound

    def rebind(
        self, pipeline_id: str, sink: str, instead_of: str | None, forget: Sequence[Window]
    ) -> None:
        """Record another table in place of the one that the caller has seen, and forget
        the receipts of windows that it doesn't hold.

        Raises:
            RefusedError: another table is recorded than was seen.
        """
        with self._writing(pipeline_id) as connection:
            if self._sink(connection, pipeline_id) not in {instead_of, sink}:
                raise RefusedError(
                    f"Another table of {pipeline_id} was recorded meanwhile",
                    "ledger",
                    "Look again: windrow rebind SPEC.",
                )
            if (
                _put_if_absent(connection, SINKS, {"pipeline": pipeline_id}, {"sink": sink})
                is not None
            ):
                connection.execute(
                    update(SINKS).where(SINKS.c.pipeline == pipeline_id).values(sink=sink)
                )
            for window in forget:
                connection.execute(delete(RECEIPTS).where(_at(RECEIPTS, _window(window))))

    def _sink(self, connection: Connection, pipeline_id: str) -> str | None:
        """The recorded one; a ledger of an older version has none, but where its newest
        window was committed, or planned to be.
        """
        row = (
            _get(connection, SINKS, {"pipeline": pipeline_id})
            if self.database.has(connection, SINKS.name)
            else None
        )
        if row is not None:
            return str(row.sink)
        for table in (RECEIPTS, PLANS):
            newest_first = (
                select(table)
                .where(table.c.pipeline == pipeline_id)
                .order_by(table.c.window_start.desc(), table.c.window_end.desc())
            )
            newest = connection.execute(newest_first.limit(1)).first()
            if newest is not None:
                return (
                    self._decoded(newest, Receipt).plan.sink
                    if table is RECEIPTS
                    else self._decoded(newest, Plan).sink
                )
        return None

    def boundary(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that ends there sees it."""
        return self._ask(
            lambda c: self._value(_get(c, BOUNDARIES, _label(pipeline_id, label)), Boundary), None
        )

    def start(self, pipeline_id: str, label: Label) -> Boundary | None:
        """The frozen boundary under a label, as the window that starts there sees it:
        its opening after a rebase, else `boundary`.
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
        """The nearest frozen boundaries below (its opening) and above a label."""
        nothing: tuple[Boundary | None, Boundary | None] = (None, None)
        return self._ask(lambda c: self._frozen(c, pipeline_id, [label]).neighbours(label), nothing)

    def newest(self, pipeline_id: str, count: int = 1) -> list[Boundary]:
        """The frozen boundaries with the highest labels, at most `count`, ascending; as
        `boundary` sees them.
        """
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
        """Freeze under one serialized transaction; the frozen boundaries of the same labels, in label order.

        Per boundary: what is frozen under its label is left and returned in its place;
        else it is clamped between its frozen neighbours and inserted. Were the
        neighbours read before the transaction, then 1. run A reads them for label 4, 2.
        run B freezes label 3 at a higher offset than A resolved, 3. A inserts label 4:
        the window between them would be negative.
        """  # noqa: E501
        if not boundaries:
            return []
        ordered = sorted(boundaries, key=lambda b: sortable(b.label))
        with self._writing(pipeline_id) as connection:
            frozen = self._frozen(connection, pipeline_id, [b.label for b in ordered])
            now_frozen = [frozen.freeze(b) for b in ordered]
            if frozen.added:
                rows = [{**_label(pipeline_id, b.label), "value": _kept(b)} for b in frozen.added]
                connection.execute(insert(BOUNDARIES), rows)
            return now_frozen

    def rebase(
        self, pipeline_id: str, opening: Boundary, instead_of: Boundary | None = None
    ) -> None:
        """Record that from the highest frozen label on the source is another one, in
        place of the opening that the caller has seen there.

        In the transaction that excludes freezing: a boundary that is frozen meanwhile
        would be of the old source, behind the new one.

        Raises:
            RefusedError: the label is not the highest frozen one, or another opening is
                there than was seen.
        """
        key, highest = (
            _label(pipeline_id, opening.label),
            select(BOUNDARIES.c.label).where(BOUNDARIES.c.pipeline == pipeline_id),
        )
        with self._writing(pipeline_id) as connection:
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
            values = {"value": _kept(opening)}
            put = (
                insert(OPENINGS).values(**key)
                if recorded is None
                else update(OPENINGS).where(_at(OPENINGS, key))
            )
            connection.execute(put.values(**values))

    def rebased(self, pipeline_id: str) -> list[Boundary]:
        """The openings that were recorded by rebases, in label order."""
        openings = (
            select(OPENINGS).where(OPENINGS.c.pipeline == pipeline_id).order_by(OPENINGS.c.label)
        )
        return self._ask(
            lambda c: [self._decoded(row, Boundary) for row in c.execute(openings)], [], OPENINGS
        )

    def assign(self, pipeline_id: str, request: str, number: int) -> int:
        """The micro-batch that a request runs: put-if-absent by request, so that its
        retries run the same one.
        """
        with self._writing(pipeline_id) as connection:
            row = _put_if_absent(
                connection,
                REQUESTS,
                {"pipeline": pipeline_id, "request": request},
                {"number": number},
            )
            return number if row is None else int(row.number)

    def assigned(self, pipeline_id: str, request: str) -> int | None:
        """The micro-batch that was assigned to a request."""
        row = self._ask(
            lambda c: _get(c, REQUESTS, {"pipeline": pipeline_id, "request": request}),
            None,
            REQUESTS,
        )
        return None if row is None else int(row.number)

    def plan(self, window: Window) -> Plan | None:
        """The frozen plan of a window."""
        return self._ask(lambda c: self._value(_get(c, PLANS, _window(window)), Plan), None)

    def freeze_plan(self, plan: Plan) -> Plan:
        """Put if absent; the one that is there."""
        return self.freeze_plans([plan])[0]

    def freeze_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """The same of several plans of one pipeline, in one transaction."""
        if not plans:
            return []
        with self._writing(plans[0].window.pipeline) as connection:
            rows = [
                _put_if_absent(connection, PLANS, _window(plan.window), {"value": _kept(plan)})
                for plan in plans
            ]
            return [
                plan if row is None else self._decoded(row, Plan)
                for plan, row in zip(plans, rows, strict=True)
            ]

    def target_generation(self, window: Window, request: str, proposed: int) -> int:
        """The generation that a replacing request aims at: put-if-absent by (window,
        request), so that its retries don't replace again.
        """
        with self._writing(window.pipeline) as connection:
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
        """Keep a copy of a committed receipt: the newest generation per window, and of
        one generation what the sink said last.

        Two receipts of one generation are there where the table was lost and the window
        run again: the sink holds the second one.
        """
        key, new = (
            _window(receipt.window),
            {
                "generation": receipt.generation,
                "value": packed(written or to_json(receipt)),
            },
        )
        with self._writing(receipt.window.pipeline) as connection:
            row = _put_if_absent(connection, RECEIPTS, key, new)
            stays = (
                row is None
                or row.value == new["value"]
                or (row.generation > receipt.generation and not also_older)
            )
            if not stays:
                connection.execute(update(RECEIPTS).where(_at(RECEIPTS, key)).values(**new))

    def written(self, window: Window) -> str | None:
        """The exact text of the window's copy, as it was recorded."""
        row = self._ask(lambda c: _get(c, RECEIPTS, _window(window)), None)
        if row is None:
            return None
        with self._readable(row, Receipt):
            return unpacked(row.value)

    def recorded(self, pipeline_id: str, newest: int | None = None) -> list[Receipt]:
        """The copies, in window order; of the `newest` windows only, if that is given."""
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
        """The writers' schemas that are kept, the last kept first."""
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
        """Put each if its id is absent, in one transaction; those that are there now."""
        if not schemas:
            return []
        with self._writing(pipeline_id) as connection:
            count = connection.execute(
                select(func.count()).select_from(SCHEMAS).where(SCHEMAS.c.pipeline == pipeline_id)
            ).scalar_one()
            kept: list[WriterSchema] = []
            for schema in schemas:
                key, value = (
                    {"pipeline": pipeline_id, "id": schema.id},
                    {
                        "number": count + len(kept),
                        "value": _kept(schema),
                    },
                )
                row = _put_if_absent(connection, SCHEMAS, key, value)
                kept.append(schema if row is None else self._decoded(row, WriterSchema))
            return kept

    def _ask(self, question: Callable[[Connection], T], nothing: T, *more: Table) -> T:
        """The answer of one state of the ledger; `nothing` if there is no ledger yet,
        or an older version made it without these tables.
        """
        with self.database.reading() as connection:
            has_tables = connection is not None and self.database.has(
                connection, FACTS.name, *(t.name for t in more)
            )
            return question(connection) if connection is not None and has_tables else nothing

    def _writing(self, pipeline_id: str) -> AbstractContextManager[Connection]:
        return self._writing_in(f"pipeline {pipeline_id}")

    def _writing_self(self) -> AbstractContextManager[Connection]:
        return self._writing_in(_SELF)

    @contextmanager
    def _writing_in(self, scope: str) -> Iterator[Connection]:
        """A writing transaction in a ledger that has its tables, also if an older version made it with fewer.

        On a server, first writes of two pipelines exclude each other too: 1. A and B
        find no tables, 2. A takes the ledger's own lock, B waits, 3. A makes the tables
        and commits, 4. B goes on, looks once more and finds them.
        """  # noqa: E501
        with self.database.writing(scope) as connection:
            if not self.database.has(connection, *TABLES.tables):
                lock(connection, _SELF)
                TABLES.create_all(connection)
                _put_if_absent(connection, FACTS, {"name": "identity"}, {"value": uuid.uuid4().hex})
            yield connection

    def _frozen(
        self, connection: Connection, pipeline_id: str, labels: Sequence[Label]
    ) -> FrozenBoundaries:
        """What is frozen from right below the lowest of these labels to right above the highest."""
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


def _kept(value: msgspec.Struct) -> str:
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
    """Made once: to put a statement together takes longer than to run it."""
    return select(table).where(and_(*(table.c[name] == bindparam(name) for name in names)))


def _put_if_absent(
    connection: Connection, table: Table, key: Key, rest: Mapping[str, object]
) -> Row[Any] | None:
    """The row that was there under the key; None if there was none and it was put there now.

    Inside a writing transaction.
    """
    row = _get(connection, table, key)
    if row is None:
        connection.execute(insert(table), {**key, **rest})
    return row
