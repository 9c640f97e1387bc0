"""Damages of a Delta table, and the advice that windrow gives."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tests.advice.world import COMMITTED, NEXT, Advice, Step, World, of_lakes, retry_step
from tests.cli.conftest import Stage

TABLE = "lake/things"


@dataclass
class DeltaWorld(World):
    """A pipeline on a Delta table, with a backup of the table."""

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.stage.folder / TABLE

    def restores(self, _: re.Match[str]) -> None:
        """Replaces the table by the backup."""
        shutil.rmtree(self.table)
        shutil.copytree("kept", self.table)


def world(stage: Stage, request: pytest.FixtureRequest) -> DeltaWorld:
    """Returns a pipeline with its table and a backup."""
    del request
    new_world: DeltaWorld = DeltaWorld.on(stage, f"{{path: {TABLE}}}")
    shutil.copytree(new_world.table, "kept")
    return new_world


def more_columns(world: DeltaWorld) -> None:
    """Adds a column, like another client does."""
    DeltaTable(world.table).alter.add_columns([Field("extra", PrimitiveType("string"))])


def constrained(world: DeltaWorld) -> None:
    """Adds a constraint, like another client does."""
    DeltaTable(world.table).alter.add_constraint({"few": "_offset < 100000"})


def released(world: DeltaWorld, match: re.Match[str]) -> None:
    """Removes the constraint, like another client does."""
    DeltaTable(world.table).alter.drop_constraint(match[1])


def torn(world: DeltaWorld) -> None:
    """Cuts the log entry of the only window off, like a loss of power does."""
    log = world.table / "_delta_log"
    (log / f"{2:020d}.json").unlink()
    (log / f"{1:020d}.json").write_bytes(b"{")


def gap(world: DeltaWorld) -> None:
    """Removes an entry of the log."""
    (world.table / "_delta_log" / f"{1:020d}.json").unlink()


def only_dead_letters_left(world: DeltaWorld) -> None:
    """Removes the table and the ledger, but not the dead letters."""
    shutil.rmtree(world.table)
    Path(".windrow/state.db").unlink()


ROWS = [
    *of_lakes(more_columns),
    Advice(
        "table and ledger removed, dead letters left",
        only_dead_letters_left,
        f"windrow run SPEC --window {COMMITTED}",
        "It has the dead letters of another table",
        [
            Step(r"move (\S+) away", lambda _, match: Path(match[1]).rename("away")),
            retry_step(f"windrow run SPEC --window {COMMITTED}"),
        ],
    ),
    Advice(
        "another client has added a rule",
        constrained,
        f"windrow run SPEC --window {NEXT}",
        "asks of whoever writes into it",
        [Step(r"the check constraint (\w+)", released)],
    ),
    Advice(
        "the log is gone",
        lambda world: shutil.rmtree(world.table / "_delta_log"),
        f"windrow run SPEC --window {NEXT}",
        r"the log of .* \(_delta_log\) is gone, and files of rows are left",
        [Step(r"restore the folder _delta_log from a backup", DeltaWorld.restores)],
    ),
    Advice(
        "the entry of the only window was cut off",
        torn,
        f"windrow run SPEC --window {NEXT}",
        "the newest entry of the table's log is damaged",
        [
            Step(r"mv '(.*?)' '(.*?)'", lambda _, match: Path(match[1]).rename(match[2])),
            Step(r"windrow verify SPEC", lambda world, _: world.types("windrow verify SPEC")),
            Step(r"windrow rebind SPEC"),
            Step(
                r"run its window again",
                lambda world, _: world.types(f"windrow run SPEC --window {COMMITTED}"),
            ),
        ],
        code=3,
    ),
    Advice(
        "an entry of the log is gone",
        gap,
        f"windrow run SPEC --window {NEXT}",
        "found gap",
        [Step(r"restore them from a backup", DeltaWorld.restores)],
    ),
]
