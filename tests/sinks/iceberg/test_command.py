"""A pipeline whose spec names an Iceberg table: the command as it is, and what is told
of mistakes in the section.
"""

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
    """A pipeline into a table with a catalog of its own."""
    spec = Path(stage.spec)
    spec.write_text(
        spec.read_text().replace(
            "sink: {path: lake/things}",
            "sink: {kind: iceberg, warehouse: lake, table: shop.things}",
        )
    )
    return stage


def test_a_pipeline_runs_on_it(lake: Stage) -> None:
    """From its spec: run, replay, show, dead letters, verify with everything read back,
    doctor and sweep, by the command as it is.
    """
    assert (
        "no table there yet"
        in next(c for c in lake.json("doctor", lake.spec, code=0)["checks"] if c["name"] == "sink")[
            "what"
        ]
    )
    assert not (lake.folder / "lake").exists()
    assert (
        lake.json("run", lake.spec, "--window", hour(0))["windows"][0]["committed"]["receipt"][
            "counts"
        ]["valid"]
        == 4
    )
    assert lake.json("run", lake.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    lake.json("replay", lake.spec, "--window", hour(0))
    (shown,) = lake.json("show", lake.spec)["windows"]
    assert shown["receipt"]["generation"] == 1
    assert [letter["reason"] for letter in lake.json("dead", "show", lake.spec)["dead"]] == [
        "not_json"
    ]
    assert lake.json("verify", lake.spec, "--deep")["findings"] == []
    assert lake.json("sweep", lake.spec)["files"] == []
    assert (
        next(c for c in lake.json("doctor", lake.spec, code=0)["checks"] if c["name"] == "sink")[
            "level"
        ]
        == "ok"
    )


def test_a_new_column_comes_with_its_first_rows(lake: Stage) -> None:
    """Doctor tells of it before; older rows have nulls, and every checksum stays."""
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
    """Iceberg tables take part in routes, beside each other and beside those of another kind."""
    spec = Path(lake.spec)
    ours = "{kind: iceberg, warehouse: lake, table: shop.things}"
    routes = (
        f"{{kind: routes, by: column, name: id, tables: [{{values: ['1', '2'], sink: {ours}}}],"
        f" other: {ours.replace('things', 'rest')}}}"
    )
    spec.write_text(spec.read_text().replace(ours, routes))
    lake.json("run", lake.spec, "--window", hour(0))
    lake.json("replay", lake.spec, "--window", hour(0))
    assert lake.json("verify", lake.spec, "--deep")["findings"] == []


def said(lake: Stage, section: str) -> str:
    """What a section is refused with."""
    spec = Path(lake.spec)
    lines = [line for line in spec.read_text().splitlines() if not line.startswith("sink:")]
    spec.write_text("\n".join([*lines, f"sink: {section}", ""]))
    return str(lake.json("show", lake.spec, code=2)["error"]["message"])


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (
            "{kind: iceberg, table: shop.things}",
            "either warehouse, a folder, or catalog must be set",
        ),
        ("{kind: iceberg, warehouse: lake}", "sink.table: is missing"),
        ("{kind: iceberg, warehouse: lake, table: things}", "sink.table: must be namespace.table"),
        (
            "{kind: iceberg, warehouse: lake, table: shop./etc}",
            "sink.table: must be namespace.table",
        ),
        (
            "{kind: iceberg, warehouse: 's3://bucket/lake', table: shop.things}",
            "sink.warehouse: must be a folder of this machine",
        ),
        (
            "{kind: iceberg, warehouse: lake, catalog: {type: rest}, table: shop.things}",
            "sink.catalog: goes without warehouse",
        ),
        ("{kind: iceberg, catalog: {}, table: shop.things}", "sink.catalog: names no property"),
        (
            "{kind: iceberg, catalog: {type: in-memory}, table: shop.things}",
            "sink.catalog: of type in-memory is gone with its process",
        ),
        (
            "{kind: iceberg, catalog: {py-io-impl: os.system}, table: shop.things}",
            "sink.catalog: py-io-impl: set by windrow itself",
        ),
        (
            (
                "{kind: iceberg, catalog: {type: rest, s3.secret-access-key: hunter2}, table:"
                " shop.things}"
            ),
            "is written out",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: [hunter2]}, table: shop.things}",
            "sink.catalog.token: must be a text",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {value: hunter2}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: A, file: b}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: ''}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: NOT_THERE}}, table: shop.things}",
            "variable NOT_THERE, which",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {file: not/there}}, table: shop.things}",
            "not/there, which",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, uri: {env: X}}, table: shop.things}",
            "sink.catalog.uri is a reference",
        ),
        (
            "{kind: iceberg, warehouse: lake, table: shop.things, mode: upsert}",
            "sink.mode: an Iceberg table takes no upsert",
        ),
        ("{kind: iceberg, warehouse: lake, table: shop.things, path: x}", "sink.path: unknown key"),
        ("{kind: iceberg, warehouse: 'a%20b', table: shop.things}", "with a %, ? or # in it"),
        ("{kind: iceberg, catalog: {type: nothing}, table: shop.things}", "can't be opened"),
        (
            (
                "{kind: iceberg, catalog: {type: sql, uri: 'oracle+none://u:hunter2@h/d'}, table:"
                " shop.things}"
            ),
            "sink.catalog.uri: is a URL with a password written out",
        ),
        (
            "{kind: iceberg, catalog: {type: sql, uri: 'oracle+none://h/d'}, table: shop.things}",
            "can't be opened",
        ),
    ],
)
def test_its_mistakes_are_told(lake: Stage, section: str, says: str) -> None:
    """Each with its place and what to do; no secret is repeated."""
    message = said(lake, section)
    assert says in message
    assert "hunter2" not in message


PAGE = (Path(__file__).parents[3] / "docs" / "sinks" / "iceberg.md").read_text(encoding="utf-8")


def test_the_page_shows_specs_that_load(tmp_path: Path) -> None:
    """Who copies either section has a table's place, and no secret in it."""
    from windrow.ingest.config.load import parse_spec

    (tmp_path / "payments.py").write_text("")
    whole, catalog = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    assert parse_spec(whole, tmp_path).sink_path() == f"{tmp_path}/lake:shop.payments"
    assert catalog["sink"]["catalog"]["credential"] == {"env": "CATALOG_CREDENTIAL"}
    assert (
        parse_spec({**whole, **catalog}, tmp_path).sink_path()
        == "https://catalog.example/production/lake:shop.payments"
    )


def test_the_page_shows_code_that_runs(lake: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, and expiring snapshots; after which a rerun skips."""
    lake.json("run", lake.spec, "--window", hour(0))
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        code = block.replace("shop.payments", "shop.things").replace(
            "timedelta(days=5)", "timedelta(days=-1)"
        )
        with warnings.catch_warnings(action="ignore"):  # polars would like a package of its own
            exec(code, names)
    names["catalog"].close()
    assert lake.json("run", lake.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    assert lake.json("verify", lake.spec, "--deep")["findings"] == []


def test_a_missing_package_names_its_extra(lake: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg is an extra: who doesn't have it is told its name."""
    for name in [
        n for n in sys.modules if n.startswith(("pyiceberg", "windrow.ingest.sinks.iceberg."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    error = lake.json("show", lake.spec, code=2)["error"]
    assert "pip install 'windrow-ingest[iceberg]'" in str(error)


def test_two_spellings_of_a_secret_are_one_table() -> None:
    """A password that changes makes no other table of it, and stands in no identity."""
    from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable

    one, other = (
        CatalogTable.in_catalog(
            "a.b", {"type": "sql", "uri": f"postgresql://me:{word}@db/catalog", "name": "lake"}
        )
        for word in ("x1", "y2")
    )
    assert one.place == other.place == "postgresql://db/catalog/lake:a.b"
