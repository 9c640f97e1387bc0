"""A pipeline whose rows go to several tables, by the command."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import SCHEMA, Stage, hour, stage
from windrow.ingest.model.boundary import TopicPartition

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # Delta tables on disk

ROUTES = """\
sink:
  kind: routes
  by: column
  name: id
  tables:
    - values: ["1"]
      sink: {path: lake/first}
    - pattern: "[23]"
      sink: {path: lake/second}
  other: {path: lake/things}
"""


ONE_DATABASE = """\
sink:
  kind: routes
  by: column
  name: id
  tables:
    - values: ["1"]
      sink: {{kind: sqlite, path: {path}, table: first}}
      {own}
  other: {{kind: sqlite, path: it.sqlite, table: things}}
transform: {{steps: [{{{step}: "schema.py:as_it_is", schema: "schema.py:Thing"}}]}}
"""
OF_TYPES = """\
sink:
  kind: routes
  by: column
  name: kind
  unrouted: dead
  tables:
    - values: [order]
      transform: {steps: [{sql: "SELECT id, total FROM rows"}], schema: "schema.py:Order"}
      sink: {path: lake/orders}
    - values: [visit]
      transform: {steps: [{sql: "SELECT id, page FROM rows"}]}
      sink: {kind: sqlite, path: visits.sqlite, table: visits}
  other: {path: lake/things}
"""
TYPES = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
    kind: pl.String = pa.Field(nullable=True)
    total: pl.Int64 = pa.Field(nullable=True)
    page: pl.String = pa.Field(nullable=True)


class Order(pa.DataFrameModel):
    id: pl.Int64
    total: pl.Int64
"""


@pytest.fixture
def routed(stage: Stage) -> Stage:
    """A stage with three tables."""
    write_spec(stage, ROUTES)
    return stage


def write_spec(stage: Stage, sink: str) -> None:
    """Writes the spec with another sink."""
    spec = Path(stage.spec)
    lines = spec.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if line.startswith("sink:"))
    spec.write_text("".join(lines[:start]) + sink)


def ids(stage: Stage, table: str) -> list[int]:
    """Returns the ids of a table's rows."""
    ids: list[int] = (
        DeltaTable(str(stage.folder / "lake" / table)).to_pyarrow_table()["id"].to_pylist()
    )
    return sorted(ids)


def test_rows_lie_where_their_values_lead(routed: Stage) -> None:
    """A row goes to the table of its value, a replay keeps it there, and the receipt names the
    tables.
    """
    routed.json("run", routed.spec, "--window", hour(0))
    old_ids = [ids(routed, table) for table in ("first", "second", "things")]
    assert sum(map(len, old_ids)) == 4
    assert all(old_ids)
    routed.json("replay", routed.spec, "--window", hour(0))
    assert [ids(routed, table) for table in ("first", "second", "things")] == old_ids
    (shown,) = routed.json("show", routed.spec)["windows"]
    assert [Path(r["table"]).name for r in shown["receipt"]["routed"]] == ["first", "second"]


def test_each_type_of_records_has_a_table_of_its_own_columns(stage: Stage) -> None:
    """A table has only the columns that its steps give, of a value that is decoded once. A message
    of no table, and one that the table's rules refuse, are dead letters with their reasons, which
    a replay makes rows of once a table takes them; all is verified with its contents.
    """
    (stage.folder / "schema.py").write_text(TYPES)
    write_spec(stage, OF_TYPES)
    stage.produce(
        9,
        b'{"kind": "order", "id": 1, "total": 7, "page": "/"}',
        b'{"kind": "visit", "id": 2, "page": "/", "total": 7}',
        b'{"kind": "order", "id": 3}',
        b'{"kind": "refund", "id": 4}',
        b'{"id": 5}',
        b'{"kind": "visit", "id": 6}',
    )
    stage.json("run", stage.spec, "--window", hour(9))
    orders = DeltaTable(str(stage.folder / "lake" / "orders")).to_pyarrow_table()
    assert [name for name in orders.column_names if name[0] != "_"] == ["id", "total"]
    assert orders["id"].to_pylist() == [1]
    with closing(sqlite3.connect(stage.folder / "visits.sqlite")) as database:
        visits = database.execute("SELECT id, page FROM visits ORDER BY id").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="total"):
            database.execute("SELECT total FROM visits")
    assert visits == [(2, "/"), (6, None)]
    letters = stage.json("dead", "show", stage.spec)["dead"]
    assert sorted(letter["reason"] for letter in letters) == [
        "check:total:not_nullable",
        "unrouted",
        "unrouted",
    ]
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    write_spec(stage, OF_TYPES.replace("[visit]", "[visit, refund]"))
    stage.json("dead", "replay", stage.spec, "--reason", "unrouted")
    with closing(sqlite3.connect(stage.folder / "visits.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM visits").fetchone() == (3,)


def test_a_step_with_other_rows_in_each_run(stage: Stage) -> None:
    """Only tables of one database take a step whose rows may differ from run to run.

    A `spark` step is refused if a table has rows of its own.
    """
    function = "\n\ndef as_it_is(rows: pl.DataFrame) -> pl.DataFrame:\n    return rows\n"
    (stage.folder / "schema.py").write_text(SCHEMA + function)

    def refuse_step(step: str, path: str, own: str = "") -> str:
        write_spec(stage, ONE_DATABASE.format(path=path, step=step, own=own))
        error = stage.json("run", stage.spec, "--window", hour(0), code=2)["error"]
        return str(error["message"])

    own = 'transform: {steps: [{sql: "SELECT * FROM rows"}]}'
    for step in ("python", "spark"):
        assert "shows it table by table" in refuse_step(step, "another.sqlite")
    assert "have rows of their own" in refuse_step("spark", "it.sqlite", own)
    write_spec(stage, ONE_DATABASE.format(path="it.sqlite", step="python", own=""))
    stage.json("run", stage.spec, "--window", hour(0))
    assert stage.json("verify", stage.spec)["findings"] == []


def test_a_window_without_a_table_is_due_again_once_it_has_one(stage: Stage) -> None:
    """A window that was refused because no table takes its messages is due again with another
    route.
    """
    (stage.folder / "schema.py").write_text(TYPES)
    write_spec(stage, OF_TYPES)
    stage.produce(9, *[b'{"kind": "refund", "id": 4}'] * 20)
    stage.json("run", stage.spec, "--window", hour(9), code=1)
    assert hour(9) not in stage.json("due", stage.spec)["windows"]
    write_spec(stage, OF_TYPES.replace("[visit]", "[visit, refund]"))
    assert hour(9) in stage.json("due", stage.spec)["windows"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  name: id\n", "", "sink.name: is missing: which column leads to a table"),
        ("by: column", "by: topic", "sink.name: goes with by: column or by: header"),
        ("name: id", "name: country", "sink.name is country, and no row has such a column"),
        ('values: ["1"]', "", "exactly one of values and pattern"),
        ('pattern: "[23]"', 'values: ["1"]', "1 leads to another table already"),
        ('pattern: "[23]"', 'pattern: "["', "can't be read as a regular expression"),
        (
            'pattern: "[23]"',
            'pattern: "(?=2)"',
            "sink.tables.1.pattern: can't be read as a regular expression of RE2",
        ),
        (
            'pattern: "[23]"',
            "pattern: '2)|(3'",
            "sink.tables.1.pattern: can't be read as a regular expression of RE2",
        ),
        ("lake/second", "lake/first", "two routes lead to delta:"),
        ("lake/second", "link/first", "two routes lead to delta:"),
        ("lake/second", "alias", "are one folder, or one lies in the other"),
        (
            "{path: lake/second}",
            "{kind: files, path: lake/first}",
            "are one folder, or one lies in the other",
        ),
        ("lake/second", "lake/first/data", "are one folder, or one lies in the other"),
        ("lake/second", "lake/things_dead", "are one folder, or one lies in the other"),
        (
            "{path: lake/second}",
            "{path: lake/second, mode: upsert, primary_key: [id]}",
            "must be append where there are routes",
        ),
        (
            "{path: lake/second}",
            "{kind: routes, by: topic}",
            "sink.tables.1.sink.kind: there is no such kind here; known are delta",
        ),
        ("{path: lake/second}", "{paht: lake/second}", "unknown key; did you mean path?"),
    ],
)
def test_mistakes_are_told(routed: Stage, old: str, new: str, says: str) -> None:
    """A wrong route is refused with its place in the spec.

    Two names of one folder count as one, because the rows of both routes would be there.
    """
    assert old in ROUTES
    (routed.folder / "link").symlink_to("lake")
    (routed.folder / "alias").symlink_to("lake/first")
    write_spec(routed, ROUTES.replace(old, new))
    assert says in routed.json("run", routed.spec, "--window", hour(0), code=2)["error"]["message"]
    assert not (routed.folder / "lake" / "things").exists()


def test_a_pattern_that_re2_alone_reads(routed: Stage) -> None:
    """Only RE2 reads patterns: classes of Unicode work, which Python's re doesn't have."""
    write_spec(routed, ROUTES.replace('pattern: "[23]"', r"pattern: '\p{Nd}{1}'"))
    routed.json("run", routed.spec, "--window", hour(0))
    assert ids(routed, "first") == [1]
    assert ids(routed, "things") == []


def test_the_attempt_is_no_column(routed: Stage) -> None:
    """A metadata column of the attempt is refused, because a window's rows may be of two
    attempts.
    """
    write_spec(routed, ROUTES + "metadata: {attempt: _attempt}\n")
    assert (
        "metadata.attempt can't be kept"
        in routed.json("run", routed.spec, "--window", hour(0), code=2)["error"]["message"]
    )


def test_fewer_messages_take_no_rows_out_of_tables_that_have_a_window(routed: Stage) -> None:
    """--accept-fewer doesn't replace a window that one of the tables lacks, because the other
    tables would lose rows.

    1. One table is replaced by an older copy.
    2. Messages of a window that it lacks are deleted.
    3. The replay is refused. If all tables have the window, it is accepted.
    """
    first, window = Path("lake/first"), ("--window", hour(1), "--accept-fewer")
    routed.json("run", routed.spec, "--window", hour(0))
    shutil.copytree(first, "older")
    routed.json("run", routed.spec, "--window", hour(1))
    first.rename("newer")
    Path("older").rename(first)
    routed.broker.delete_records(TopicPartition("shop.things", 0), 5)
    others = [ids(routed, table) for table in ("second", "things")]
    message = routed.json("replay", routed.spec, *window, code=1)["error"]["message"]
    assert "restore that table from a copy that has it" in message
    assert [ids(routed, table) for table in ("second", "things")] == others
    shutil.rmtree(first)
    Path("newer").rename(first)
    routed.json("replay", routed.spec, *window)
    assert sum(len(ids(routed, t)) for t in ("first", "second", "things")) < 8


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_table_that_is_gone_is_not_made_anew(routed: Stage, kind: str) -> None:
    """A run is refused if one table is gone, as an unmounted folder or a renamed table, and
    goes on once it is back.
    """
    table_options = "path: lake/it" if kind == "files" else "path: it.sqlite, table: it"
    write_spec(routed, ROUTES.replace("{path: lake/first}", f"{{kind: {kind}, {table_options}}}"))

    def rename_table(old: str, new: str) -> None:
        if kind == "files":
            Path(f"lake/{old}").rename(f"lake/{new}")
            return
        with closing(sqlite3.connect("it.sqlite")) as database:
            database.execute(f"ALTER TABLE {old} RENAME TO {new}")

    routed.json("run", routed.spec, "--window", hour(0))
    rename_table("it", "away")
    for command in ("run", "plan"):
        message = routed.json(command, routed.spec, "--window", hour(1), code=1)["error"]["message"]
        assert "isn't there, and the ledger knows 1 committed window of it" in message
    assert kind == "sqlite" or not Path("lake/it").exists()
    rename_table("away", "it")
    routed.json("run", routed.spec, "--window", hour(1))
    assert routed.json("verify", routed.spec)["findings"] == []
