"""The command on pipelines with a table in an SQLite file, as the documentation's page says."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Stage, hour, stage
from tests.docs.test_pages import ROOT, text
from windrow.ingest.config.load import load_spec

__all__ = ["stage"]

PAGE = "docs/sinks/sqlite.md"


@pytest.fixture
def pipeline(stage: Stage) -> Stage:
    """A pipeline with a table in an SQLite file."""
    stage.sink("{kind: sqlite, path: orders.sqlite, table: orders}")
    return stage


def query(question: str, file: str = "orders.sqlite") -> list[Any]:
    """Returns the rows of a query by a user's own connection."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute(question).fetchall()


def test_what_the_page_says(pipeline: Stage) -> None:
    """The page's spec loads.

    Its SQL and its Python read a table, which has an index over the windows.
    """
    shutil.copy(ROOT / "assets" / "defs" / "orders" / "schema.py", "schema.py.orders")
    Path("page").mkdir()
    Path("schema.py.orders").rename("page/schema.py")
    Path("page/orders.yaml").write_text(text(PAGE).split("```yaml\n")[1].partition("```")[0])
    assert (
        load_spec(Path("page/orders.yaml")).sink_path() == f"{Path.cwd()}/page/orders.sqlite#orders"
    )
    pipeline.json("run", pipeline.spec, "--window", hour(0))
    (question,) = [part.split('"')[1] for part in text(PAGE).split("```sh\n")[1:]]
    assert query(question) == [("2026-01-05", 4)]
    namespace: dict[str, Any] = {}
    exec(text(PAGE).split("```python\n")[1].partition("```")[0], namespace)
    assert sorted(namespace["orders"]["id"]) == [0, 1, 2, 3]
    assert namespace["orders"]["_timestamp"].dt.tz is not None
    tables = {name for (name,) in query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {
        "orders",
        "orders_dead",
        *(f"windrow_{table}" for table in ("tables", "receipts", "offsets", "notes")),
    }
    (plan,) = query("EXPLAIN QUERY PLAN SELECT * FROM orders WHERE _window = 'x'")
    assert "USING INDEX windrow_" in plan[-1]


def test_a_value_that_somebody_changed_is_found(pipeline: Stage) -> None:
    """verify --deep names the window of a changed value, and quotes no value."""
    pipeline.json("run", pipeline.spec, "--window", hour(0))
    for bad, says in (
        (7, "not those that were committed"),
        ("secret", "column id of"),
        (b"secret", "column id of"),
    ):
        with closing(sqlite3.connect("orders.sqlite", isolation_level=None)) as database:
            database.execute("UPDATE orders SET id = ? WHERE rowid = 1", [bad])
        finding, *_ = pipeline.json("verify", pipeline.spec, "--deep", code=1)["findings"]
        assert says in finding["what"]
        assert "secret" not in str(finding)


def test_a_ledger_and_a_table_in_one_file(pipeline: Stage) -> None:
    """A ledger and a table in one file are refused before anything is read, whichever was
    first.

    Neither is changed.
    """
    spec = Path(pipeline.spec)
    pipeline.json("run", pipeline.spec, "--window", hour(0))
    apart = spec.read_text()
    spec.write_text(f"{apart}state: orders.sqlite\n")
    for command in (("run", "--window", hour(1)), ("doctor",), ("plan", "--window", hour(1))):
        reply = pipeline.call(command[0], pipeline.spec, *command[1:])
        assert (reply.exit_code, "holds tables of a sink" in reply.output) == (2, True), (
            reply.output
        )
    spec.write_text(apart)
    assert pipeline.json("verify", pipeline.spec, "--deep")["findings"] == []
    another = apart.replace("orders.sqlite", ".windrow/state.db").replace("id: things", "id: more")
    spec.write_text(another)
    reply = pipeline.json("run", pipeline.spec, "--window", hour(1), code=2)["error"]["message"]
    assert "is a ledger, which has the file for itself" in reply
    spec.write_text(apart)
    assert pipeline.json("verify", pipeline.spec, "--deep")["findings"] == []


def test_a_file_that_is_no_database(pipeline: Stage) -> None:
    """A file that isn't a database is refused, and doesn't change."""
    Path("orders.sqlite").write_text("somebody's notes, " * 100)
    assert (
        "is no SQLite database"
        in pipeline.json("run", pipeline.spec, "--window", hour(0), code=2)["error"]["message"]
    )
    assert Path("orders.sqlite").read_text().startswith("somebody's notes")


def test_a_folder_that_cannot_be(pipeline: Stage) -> None:
    """A folder of the file that is itself a file is refused before anything is read."""
    Path("notes").write_text("")
    spec = Path(pipeline.spec)
    spec.write_text(spec.read_text().replace("orders.sqlite", "notes/orders.sqlite"))
    assert (
        "notes is no folder"
        in pipeline.json("run", pipeline.spec, "--window", hour(0), code=2)["error"]["message"]
    )
