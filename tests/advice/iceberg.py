"""What can become of an Iceberg table, and the way out that windrow names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tests.advice.delta import knows
from tests.advice.world import NEXT, Advice, Step, World
from tests.cli.conftest import Stage


@dataclass
class IcebergWorld(World):
    """With what other clients do to the table."""

    @property
    def table(self) -> Table:
        """The table, as another client opens it."""
        folder = self.stage.folder / "lake"
        uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
        catalog = load_catalog("default", type="sql", uri=uri, warehouse=warehouse)
        return catalog.load_table("shop.things")

    def loses(self, folder: str) -> None:
        """All files of a folder of windrow's own are gone."""
        (place,) = self.stage.folder.glob(f"lake/**/things/_windrow/{folder}")
        shutil.rmtree(place)


def world(stage: Stage, request: pytest.FixtureRequest) -> IcebergWorld:
    """The pipeline and its table."""
    del request
    made: IcebergWorld = IcebergWorld.on(
        stage, "{kind: iceberg, warehouse: lake, table: shop.things}"
    )
    return made


def more_columns(world: IcebergWorld) -> None:
    """Another client adds a column."""
    with world.table.update_schema() as update:
        update.add_column("extra", StringType())


def renamed(before: str, after: str) -> Callable[[IcebergWorld], None]:
    """Another client renames a column."""

    def do(world: IcebergWorld, _: re.Match[str] | None = None) -> None:
        with world.table.update_schema() as update:
            update.rename_column(before, after)

    return do


ROWS = [
    Advice(
        "a page is gone",
        lambda world: world.loses("pages"),
        f"windrow run SPEC --window {NEXT}",
        "nobody knows which ones are in the table",
        [Step(r"windrow verify \S+ --restore-receipts")],
    ),
    Advice(
        "another client has added a column",
        more_columns,
        f"windrow run SPEC --window {NEXT}",
        "extra: in the table",
        [Step(r"add it to the schema, nullable: (\w+)", knows)],
    ),
    Advice(
        "another client has renamed a column",
        renamed("id", "other"),
        f"windrow run SPEC --window {NEXT}",
        "it is called other now",
        [Step(r"rename it back", renamed("other", "id"))],
    ),
]
