"""Damages of a table in PostgreSQL, and the advice that windrow gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.advice.ledger import ELSEWHERE, REBUILD
from tests.advice.world import COMMITTED, Advice, Step, World, rewrites
from tests.cli.conftest import Stage, hour


@dataclass
class PostgresWorld(World):
    """A pipeline on a PostgreSQL table.

    Attributes:
        url: the database's URL, for another client.
    """

    url: str = ""

    def asks(self, statement: str) -> None:
        """Runs a statement, like a user does with psql."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.replace("HOUR", hour(1)))


def world(stage: Stage, request: pytest.FixtureRequest) -> PostgresWorld:
    """Returns a pipeline on a database of its own."""
    url = request.getfixturevalue("database")
    sink = f'{{kind: postgres, url: "{url}", table: things, staging: "{stage.folder}/staging"}}'
    new_world: PostgresWorld = PostgresWorld.on(stage, sink)
    new_world.url = url
    return new_world


def harms(*statements: str) -> Callable[[PostgresWorld], None]:
    """Returns a function that runs statements on the database."""
    return lambda world: [world.asks(statement) for statement in statements] and None


def sql_step(words: str, statement: str | None = None) -> Step:
    """Returns a step that runs a statement: the given one, or the one in the message."""
    return Step(words, lambda world, match: world.asks(statement or match[0]))


def typed(words: str, command: str) -> Step:
    """Returns a step that calls a command for the windows of this world."""
    return Step(words, lambda world, _: world.types(command))


def ledger_on_server(world: PostgresWorld) -> None:
    """Moves the ledger into the database, and damages a receipt in it."""
    spec = Path(world.stage.spec)
    spec.write_text(f"{spec.read_text()}\nstate: {world.url}\n")
    assert world.types("windrow doctor SPEC --rebuild-ledger") == 0, world.output
    world.output = ""
    world.asks("UPDATE windrow_ledger_2 SET value = '{' WHERE kind = 'receipt'")


def rule_on_upserts(world: PostgresWorld) -> None:
    """Runs a pipeline that replaces rows, and adds a rule to its table."""
    rewrites(world, ("id: things", "id: others"), ("table: things", f"table: others, {UPSERT}"))
    assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output
    world.asks("CREATE RULE kept AS ON INSERT TO others DO ALSO DELETE FROM others WHERE id < 0")


UPSERT = "mode: upsert, primary_key: [id]"
VERIFY, DEEP = "windrow verify SPEC", "windrow verify SPEC --deep"
RUN = f"windrow run SPEC --window {hour(3)}"
RESTORE = Step("windrow verify SPEC --restore-receipts")
ROWS: list[Advice] = [
    Advice(
        "ledger on the server",
        ledger_on_server,
        VERIFY,
        "can't be read",
        [ELSEWHERE, REBUILD],
    ),
    Advice(
        "table in the place of another one",
        harms(
            "CREATE TABLE copied AS SELECT * FROM things",
            "DROP TABLE things",
            "ALTER TABLE copied RENAME TO things",
        ),
        VERIFY,
        "was not made by windrow, .* and holds rows",
        [sql_step(r"UPDATE \S+ SET relation = '[^']*' WHERE id = '[^']*'")],
        code=2,
    ),
    Advice(
        "renamed column",
        harms("ALTER TABLE things RENAME COLUMN id TO number"),
        DEEP,
        'column "id" does not exist',
        [
            sql_step(
                r"ALTER TABLE ... RENAME COLUMN", "ALTER TABLE things RENAME COLUMN number TO id"
            )
        ],
    ),
    Advice(
        "dropped column",
        harms("ALTER TABLE things DROP COLUMN id"),
        DEEP,
        'column "id" does not exist',
        [
            sql_step("add it again, nullable", "ALTER TABLE things ADD COLUMN id bigint"),
            typed("windrow verify SPEC --deep names", DEEP),
            typed("replay the windows", f"windrow replay SPEC --window {COMMITTED}"),
        ],
    ),
    Advice(
        "dropped window column",
        harms("ALTER TABLE things DROP COLUMN _window"),
        VERIFY,
        'column "_window" does not exist',
        [
            sql_step("add it again, nullable", "ALTER TABLE things ADD COLUMN _window text"),
            typed("windrow verify SPEC --deep names", DEEP),
            sql_step(
                "no window, .* Delete them before a window is replayed",
                "DELETE FROM things WHERE _window IS NULL",
            ),
            typed(
                f"windrow replay SPEC --window {hour(0)}", f"windrow replay SPEC --window {hour(0)}"
            ),
            typed(
                f"windrow replay SPEC --window {hour(1)}", f"windrow replay SPEC --window {hour(1)}"
            ),
        ],
    ),
    Advice(
        "column of others that must have a value",
        harms(
            "ALTER TABLE things ADD COLUMN mine text NOT NULL DEFAULT ''",
            "ALTER TABLE things ALTER COLUMN mine DROP DEFAULT",
        ),
        RUN,
        "mine: not null, and rows have no such column",
        [sql_step("give it a default", "ALTER TABLE things ALTER COLUMN mine SET DEFAULT ''")],
    ),
    Advice(
        "constraint",
        harms("ALTER TABLE things ADD CONSTRAINT small CHECK (id < 9)"),
        RUN,
        r'violates check constraint "small" \(commit, shop.things\[[01]\]@\d+\)',
        [sql_step("Fix that", "ALTER TABLE things DROP CONSTRAINT small")],
    ),
    Advice(
        "a trigger that deletes",
        harms(
            "CREATE FUNCTION del() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN DELETE FROM things WHERE _window <> NEW._window; RETURN NULL; END'",
            "CREATE TRIGGER del AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION del()",
        ),
        RUN,
        "a trigger, a rule or a foreign key of the table adds rows, or deletes some",
        [sql_step("Take it off", "DROP TRIGGER del ON things"), typed("run the window again", RUN)],
    ),
    Advice(
        "a rule on a table whose rows are replaced",
        rule_on_upserts,
        RUN,
        "has INSERT or UPDATE rules",
        [sql_step(r"take it off \(DROP RULE\)", "DROP RULE kept ON others")],
        code=2,
    ),
    Advice(
        "lost receipt",
        harms("DELETE FROM windrow.receipts WHERE window_key = 'HOUR'"),
        VERIFY,
        "its receipt is missing",
        [RESTORE],
    ),
    Advice(
        "edited receipt",
        harms("UPDATE windrow.receipts SET receipt = replace(receipt, 'a', 'b')"),
        VERIFY,
        "not those that were committed",
        [RESTORE],
    ),
    Advice(
        "deleted offsets",
        harms("DELETE FROM windrow.ranges"),
        VERIFY,
        "not those that were committed",
        [RESTORE],
    ),
]
