"""What can become of a Delta table, and the way out that windrow names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tests.advice.world import NEXT, Advice, Step, World
from tests.cli.conftest import Stage

TABLE = "lake/things"


@dataclass
class DeltaWorld(World):
    """With a backup of the table, and what other clients do to it."""

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.stage.folder / TABLE

    def restores(self, _: re.Match[str]) -> None:
        """The backup takes the table's place."""
        shutil.rmtree(self.table)
        shutil.copytree("kept", self.table)


def knows(world: World, found: re.Match[str]) -> None:
    """The model gets a column that may be null."""
    schema = world.stage.folder / "schema.py"
    line = f"    {found[1]}: pl.String = pa.Field(nullable=True)\n"
    schema.write_text(f"{schema.read_text().rstrip()}\n{line}")


def world(stage: Stage, request: pytest.FixtureRequest) -> DeltaWorld:
    """The pipeline, its table, and a backup of it."""
    del request
    made: DeltaWorld = DeltaWorld.on(stage, f"{{path: {TABLE}}}")
    shutil.copytree(made.table, "kept")
    return made


def loses(folder: str) -> Callable[[DeltaWorld], None]:
    """All files of a folder of windrow's own are gone."""
    return lambda world: shutil.rmtree(world.table / "_windrow" / folder)


def more_columns(world: DeltaWorld) -> None:
    """Another client adds a column."""
    DeltaTable(world.table).alter.add_columns([Field("extra", PrimitiveType("string"))])


def constrained(world: DeltaWorld) -> None:
    """Another client adds a rule."""
    DeltaTable(world.table).alter.add_constraint({"few": "_offset < 100000"})


def released(world: DeltaWorld, found: re.Match[str]) -> None:
    """It takes the rule off again."""
    DeltaTable(world.table).alter.drop_constraint(found[1])


def gap(world: DeltaWorld) -> None:
    """An entry of the log is gone."""
    (world.table / "_delta_log" / f"{1:020d}.json").unlink()


RESTORE = Step(r"windrow verify SPEC --restore-receipts")

ROWS = [
    Advice(
        "a page is gone",
        loses("pages"),
        f"windrow run SPEC --window {NEXT}",
        "nobody knows which ones are in the table",
        [Step(r"windrow verify \S+ --restore-receipts")],
    ),
    Advice(
        "a receipt is gone",
        loses("receipts"),
        "windrow verify SPEC",
        "is missing",
        [RESTORE],
    ),
    Advice(
        "another client has added a column",
        more_columns,
        f"windrow run SPEC --window {NEXT}",
        "extra: in the table",
        [Step(r"add it to the schema, nullable: (\w+)", knows)],
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
        "an entry of the log is gone",
        gap,
        f"windrow run SPEC --window {NEXT}",
        "found gap",
        [Step(r"restore them from a backup", DeltaWorld.restores)],
    ),
]
