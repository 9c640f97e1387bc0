"""A pipeline into an Iceberg table, by the command and by the documentation's page."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(stage: Stage) -> Stage:
    """A pipeline into an Iceberg table in a new catalog."""
    stage.sink("{kind: iceberg, warehouse: lake, table: shop.things}")
    return stage


def test_doctor_makes_nothing(lake: Stage) -> None:
    """Doctor says that there is no table yet, and makes no catalog."""
    checks = lake.json("doctor", lake.spec, code=0)["checks"]
    assert "no table there yet" in next(c["what"] for c in checks if c["name"] == "sink")
    assert not (lake.folder / "lake").exists()


def test_doctor_announces_a_new_column(lake: Stage) -> None:
    """Doctor names the column that the next rows would add to a table with rows."""
    lake.json("run", lake.spec, "--window", hour(0))
    schema = lake.folder / "schema.py"
    schema.write_text(
        schema.read_text()
        + '    note: pl.String = pa.Field(nullable=True, metadata={"optional": True})\n'
    )
    assert (
        "note (string)"
        in next(c for c in lake.json("doctor", lake.spec)["checks"] if c["name"] == "sink")["what"]
    )


def test_one_topic_into_several_tables(lake: Stage) -> None:
    """Routes may have several Iceberg tables."""
    ours = "{kind: iceberg, warehouse: lake, table: shop.things}"
    lake.sink(
        f"{{kind: routes, by: column, name: id, tables: [{{values: ['1', '2'], sink: {ours}}}],"
        f" other: {ours.replace('things', 'rest')}}}"
    )
    lake.json("run", lake.spec, "--window", hour(0))
    lake.json("replay", lake.spec, "--window", hour(0))
    assert lake.json("verify", lake.spec, "--deep")["findings"] == []


PAGE = (Path(__file__).parents[3] / "docs" / "sinks" / "iceberg.md").read_text(encoding="utf-8")


def test_the_page_shows_specs_that_load(tmp_path: Path) -> None:
    """Both YAML sections of the page load as specs with a table's place and without secrets."""
    from windrow.ingest.config.load import parse_spec

    (tmp_path / "payments.py").write_text("")
    full_spec, catalog = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    assert parse_spec(full_spec, tmp_path).sink_path() == f"{tmp_path}/lake:shop.payments"
    assert catalog["sink"]["catalog"]["credential"] == {"env": "CATALOG_CREDENTIAL"}
    assert (
        parse_spec({**full_spec, **catalog}, tmp_path).sink_path()
        == "https://catalog.example/production/lake:shop.payments"
    )


def test_the_page_shows_code_that_runs(lake: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's code for reading and for expiring snapshots runs.

    A rerun then skips its window.
    """
    lake.json("run", lake.spec, "--window", hour(0))
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        code = block.replace("shop.payments", "shop.things").replace(
            "timedelta(days=5)", "timedelta(days=-1)"
        )
        with warnings.catch_warnings(action="ignore"):  # polars warns that a package is missing
            exec(code, names)
    names["catalog"].close()
    assert lake.json("run", lake.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    assert lake.json("verify", lake.spec, "--deep")["findings"] == []


def test_a_missing_package_names_its_extra(lake: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyIceberg installed, the error names the extra to install."""
    for name in [
        n for n in sys.modules if n.startswith(("pyiceberg", "windrow.ingest.sinks.iceberg."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    error = lake.json("show", lake.spec, code=2)["error"]
    assert "pip install 'windrow-ingest[iceberg]'" in str(error)


def test_two_passwords_are_one_table() -> None:
    """A changed password doesn't change a table's identity, and isn't part of it."""
    from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable

    first_table, second_table = (
        CatalogTable.in_catalog(
            "a.b", {"type": "sql", "uri": f"postgresql://me:{word}@db/catalog", "name": "lake"}
        )
        for word in ("x1", "y2")
    )
    assert first_table.location == second_table.location == "postgresql://db/catalog/lake:a.b"
