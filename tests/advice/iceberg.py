"""Damages of an Iceberg table, and the advice that windrow gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tests.advice.world import NEXT, Advice, Step, World, of_lakes, retry_step
from tests.cli.conftest import Stage


@dataclass
class IcebergWorld(World):
    """A pipeline on an Iceberg table, which other clients change."""

    @property
    def table(self) -> Table:
        """The table, opened like another client does."""
        folder = self.stage.folder / "lake"
        uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
        catalog = load_catalog("default", type="sql", uri=uri, warehouse=warehouse)
        return catalog.load_table("shop.things")


def world(stage: Stage, request: pytest.FixtureRequest) -> IcebergWorld:
    """Returns a pipeline with its table."""
    del request
    new_world: IcebergWorld = IcebergWorld.on(
        stage, "{kind: iceberg, warehouse: lake, table: shop.things}"
    )
    return new_world


def more_columns(world: IcebergWorld) -> None:
    """Adds a column, like another client does."""
    with world.table.update_schema() as update:
        update.add_column("extra", StringType())


def renamed(old_name: str, new_name: str) -> Callable[[IcebergWorld], None]:
    """Returns a function that renames a column, like another client does."""

    def do(world: IcebergWorld, _: re.Match[str] | None = None) -> None:
        with world.table.update_schema() as update:
            update.rename_column(old_name, new_name)

    return do


def dropped(world: IcebergWorld) -> None:
    """Drops a column without nulls, like another client does."""
    with world.table.update_schema() as update:
        update.delete_column("id")


def added_again(world: IcebergWorld, _: re.Match[str]) -> None:
    """Adds the column again, with another field id."""
    with world.table.update_schema() as update:
        update.add_column("id", LongType())


def may_lack(world: World, match: re.Match[str]) -> None:
    """Makes the column nullable in the model."""
    schema = world.stage.folder / "schema.py"
    line = f"{match[1]}: pl.Int64"
    schema.write_text(schema.read_text().replace(line, f"{line} = pa.Field(nullable=True)"))


def finds(world: World, match: re.Match[str]) -> None:
    """Calls a command that must have findings."""
    assert world.types(match[0]) == 1, world.output


def replays(world: World, _: re.Match[str]) -> None:
    """Replays each window that verification named."""
    named = re.findall(r"windrow replay \S+ --window \S+?(?=[.,;)]? )", f"{world.output} ")
    assert named, world.output
    for command in dict.fromkeys(named):
        assert world.types(command) == 0, world.output


ROWS = [
    Advice(
        "the catalog of the folder is gone",
        lambda world: (world.stage.folder / "lake/catalog.db").rename("kept.db"),
        f"windrow run SPEC --window {NEXT}",
        r"\(catalog.db\) is gone, and files of rows are left",
        [
            Step(
                "restore the folder of the warehouse from a backup",
                lambda world, _: Path("kept.db").rename(world.stage.folder / "lake/catalog.db"),
            )
        ],
    ),
    *of_lakes(more_columns),
    Advice(
        "another client has dropped a column",
        dropped,
        f"windrow run SPEC --window {NEXT}",
        "id: another program dropped this column",
        [
            Step(r"add it to the table again", added_again),
            Step(r"(\w+): another program .* nullable there and in the schema", may_lack),
            retry_step(f"windrow run SPEC --window {NEXT}"),
            Step(r"windrow verify \S+ --deep", finds),
            Step(r"windrow replay \S+ --window", replays),
        ],
    ),
    Advice(
        "another client has renamed a column",
        renamed("id", "other"),
        f"windrow run SPEC --window {NEXT}",
        "id: another program renamed this column to other",
        [Step(r"rename it back", renamed("other", "id"))],
    ),
]
