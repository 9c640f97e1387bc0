"""Versions of tables to which a window is pinned: how long they can be read."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tests.cli.conftest import Stage, hour, stage
from windrow.ingest.cli import doctor

__all__ = ["stage"]


class Delta:
    """A Delta table to look up in."""

    setting = "{table: names}"
    identity = "delta:"

    def write(self, key: int) -> None:
        rows = pa.table({"id": pa.array([key], pa.int64()), "name": ["x"]})
        write_deltalake("names", rows, mode="overwrite")

    def expire(self) -> None:
        DeltaTable("names").vacuum(0, dry_run=False, enforce_retention_duration=False)


class Iceberg:
    """An Iceberg table to look up in."""

    setting = "{table: shop.names, warehouse: house}"
    identity = "iceberg:"

    def table(self) -> Any:
        Path("house").mkdir(exist_ok=True)
        place = Path("house").resolve()
        catalog = SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=str(place))
        catalog.create_namespace_if_not_exists("shop")
        return closing(catalog)

    def write(self, key: int) -> None:
        rows = pa.table({"id": pa.array([key], pa.int64()), "name": ["x"]})
        with self.table() as catalog:
            table = catalog.create_table_if_not_exists("shop.names", rows.schema)
            (table.overwrite if table.current_snapshot() else table.append)(rows)

    def expire(self) -> None:
        with self.table() as catalog:
            table = catalog.load_table("shop.names")
            newest = table.current_snapshot().snapshot_id
            ids = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != newest]
            table.maintenance.expire_snapshots().by_ids(ids).commit()


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("java_problem", "java_untried", "find_unprepared"):
        monkeypatch.setattr(doctor, name, lambda: None)


def check(stage: Stage, age: timedelta = timedelta(), code: int = 0) -> Any:
    """Returns the check of lookups, as doctor shows it after a while."""
    stage.now = datetime.now(UTC) + age
    checks = stage.json("doctor", stage.spec, code=code)["checks"]
    return next(check for check in checks if check["name"] == "lookups")


@pytest.mark.parametrize("table", [Delta(), Iceberg()], ids=lambda table: type(table).__name__)
def test_a_version_that_goes(stage: Stage, table: Delta | Iceberg) -> None:
    """Doctor warns before a version goes to which the oldest open window is pinned, and then fails.

    A run that needs it is refused before it reads anything. The error names both tables and
    the way out, which works.
    """
    table.write(99)
    step = f"{{lookup: names, key: {{id: id}}, from: {table.setting}, take: {{name: name}}"
    spec = Path(stage.spec)
    spec.write_text(f"{spec.read_text()}transform: {{steps: [{step}, on_miss: fail}}]}}\n")
    assert check(stage)["what"] == "the oldest open window looks up in the newest versions"
    assert stage.call("run", stage.spec, "--window", hour(0)).exit_code == 1
    table.write(0)
    assert check(stage)["what"].endswith(f"window {hour(0)} is pinned to can be read")
    old = check(stage, timedelta(days=6))
    assert old["level"] == "warn"
    assert f"{hour(0)} is pinned to a version of {table.identity}" in old["what"]
    table.expire()
    assert check(stage, code=1)["level"] == "fail"
    refused = stage.call("run", stage.spec, "--window", hour(0)).output
    assert "lake/things is pinned to a version of" in refused
    assert "names" in refused
    assert "--fresh-lookups" in refused
    spec.write_text(spec.read_text().replace("on_miss: fail", 'on_miss: "null"'))
    stage.json("run", stage.spec, "--window", hour(0), "--fresh-lookups")
