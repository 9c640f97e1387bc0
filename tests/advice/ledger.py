"""Damages of a ledger, or of a whole table, and the advice that windrow gives.

The table is in an SQLite file; the messages are the same for every kind of table.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.advice.sqlite import FILE, SqliteWorld, world
from tests.advice.world import COMMITTED, Advice, Step, World
from tests.cli.conftest import hour

__all__ = ["world"]

RUN = f"windrow run SPEC --window {COMMITTED}"
LEDGER = Path(".windrow/state.db")
OF = "windrow_ledger_2 WHERE kind = '{}'"
SET = "UPDATE windrow_ledger_2 SET value = replace(value, '{}', '{}') WHERE kind = '{}'"
CUT, CUT_BEHIND = (SET.format('"offset":6', f'"offset":{n}', "boundary") for n in (5, 7))
"""Statements that change an offset of the newest boundary to another one than its window's end."""
REBUILD = Step("windrow doctor SPEC --rebuild-ledger")
AWAY = Step("a file can be moved away instead", lambda _w, _m: LEDGER.unlink())
ELSEWHERE = Step(
    "[Ss]et `?state`? to another path or database|one that doesn't exist yet",
    lambda world, _: elsewhere(world),
)


def elsewhere(world: World) -> None:
    """Sets the spec's ledger to another file."""
    spec = Path(world.stage.spec)
    settings = re.sub(r"^state: .*\n", "", spec.read_text(), flags=re.MULTILINE)
    spec.write_text(f"{settings}\nstate: other.db\n")


def ledger(statement: str) -> Callable[[SqliteWorld], None]:
    """Returns a function that runs a statement on the ledger's database."""

    def do(_: SqliteWorld) -> None:
        with closing(sqlite3.connect(LEDGER, isolation_level=None)) as database:
            database.execute(statement)

    return do


def of_another_version(_: SqliteWorld) -> None:
    """Replaces the ledger by one of the previous version."""
    with closing(sqlite3.connect(LEDGER, isolation_level=None)) as database:
        database.execute("DROP TABLE windrow_ledger_2")
        database.execute("CREATE TABLE windrow_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


def renamed(world: SqliteWorld) -> None:
    """Renames the table's file, also in the spec."""
    spec = Path(world.stage.spec)
    spec.write_text(spec.read_text().replace(FILE, "moved.sqlite"))
    Path(FILE).rename("moved.sqlite")


def named(world: SqliteWorld, name: str) -> None:
    """Changes the pipeline's id in the spec."""
    spec = Path(world.stage.spec)
    spec.write_text(re.sub(r"^id: .*", f"id: {name}", spec.read_text()))


def older(world: SqliteWorld) -> None:
    """Restores the table from before the newest window."""
    world.keeps()
    assert world.types(f"windrow run SPEC --window {hour(2)}/{hour(4)}") == 0
    world.restores()


ROWS = [
    Advice(
        "lost ledger",
        lambda _: LEDGER.unlink(),
        "windrow verify SPEC",
        "is missing in the ledger",
        [REBUILD],
    ),
    Advice(
        "lost ledger, and a run",
        lambda _: LEDGER.unlink(),
        f"windrow run SPEC --window {hour(2)}",
        "belongs to ledger",
        [REBUILD],
    ),
    Advice(
        "the id was changed",
        lambda world: named(world, "others"),
        RUN,
        "belongs to pipeline 'things', not 'others'",
        [Step(r"Set it back to (\w+)", lambda world, match: named(world, match[1]))],
    ),
    *(
        Advice(
            f"ledger of another version: {step.words}",
            of_another_version,
            RUN,
            "was made by another version of windrow",
            [step, REBUILD],
            code=2,
        )
        for step in (AWAY, ELSEWHERE)
    ),
    Advice(
        "ledger that is none",
        lambda _: LEDGER.write_text("x" * 9999),
        "windrow doctor SPEC",
        "is damaged",
        [AWAY, REBUILD],
    ),
    *(
        Advice(f"ledger: {harm}", ledger(harm), "windrow verify SPEC", says, steps)
        for harm, says, steps in [
            (f"DELETE FROM {OF.format('plan')}", "its plan is missing in the ledger", [REBUILD]),
            (f"DELETE FROM {OF.format('boundary')}", "is missing in the ledger", [REBUILD]),
            (f"DELETE FROM {OF.format('identity')}", "this one is", [ELSEWHERE, REBUILD]),
            (
                SET.format('"dead":1', '"dead":2', "receipt"),
                "the ledger's copy of the receipt differs",
                [REBUILD],
            ),
            (SET.format("}", "", "receipt"), "can't be read", [AWAY, REBUILD]),
            (
                SET.format('"stop":3', '"stop":2', "plan"),
                "its plan differs in the ledger",
                [ELSEWHERE, REBUILD],
            ),
            (CUT, "the boundary at its end differs in the ledger", [ELSEWHERE, REBUILD]),
        ]
    ),
    *(
        Advice(f"a boundary elsewhere: {says}", ledger(cut), command, says, [ELSEWHERE, REBUILD])
        for cut, command, says in [
            (CUT, "windrow lag SPEC", "ends elsewhere by the ledger"),
            (CUT_BEHIND, "windrow doctor SPEC", "ends elsewhere by the ledger"),
            (CUT, "windrow doctor SPEC --rebuild-ledger", "contradicts the table's receipts"),
            (CUT, f"windrow run SPEC --window {hour(2)}", "are already committed under window"),
            (CUT_BEHIND, f"windrow run SPEC --window {hour(2)}", "is cut at offset 7 where"),
        ]
    ),
    Advice(
        "lost table",
        lambda _: Path(FILE).unlink(),
        RUN,
        "isn't there, and the ledger knows 2 committed windows",
        [
            Step("windrow rebind SPEC"),
            Step("They can be run again", lambda w, _: w.types(RUN)),
        ],
    ),
    Advice(
        "paused",
        lambda w: w.types("windrow pause SPEC --why 'the broker moves' --who ann"),
        f"windrow run SPEC --window {hour(3)}",
        "Pipeline things is paused by ann since .*: the broker moves",
        [Step("windrow resume SPEC")],
    ),
    Advice(
        "moved table",
        renamed,
        RUN,
        "the spec now names",
        [Step("windrow rebind SPEC")],
    ),
    Advice(
        "older table",
        older,
        "windrow doctor SPEC",
        "lacks 2 windows",
        [Step(f"windrow run SPEC --window {hour(2)}/{hour(4)}")],
        code=0,
    ),
]
