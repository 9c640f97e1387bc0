"""What a run refuses before it reads a message is refused by `plan`, `doctor` and `try`, too."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Stage, hour
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.engine import LocalEngine

FUNCTION = "def same(rows):\n    return rows\n"
SCHEMA = """\


class Placed(pa.DataFrameModel):
    id: pl.Int64 = pa.Field(alias="_offset")


class Nested(pa.DataFrameModel):
    id: pl.List(pl.Int64)


class Text(pa.DataFrameModel):
    id: pl.String
"""
SPARK = "{spark: 'function.py:same', schema: 'schema.py:NAME'}"
SQLITE = "{kind: sqlite, path: things.sqlite, table: things}"
UPSERT = "{kind: delta, path: upserts, mode: upsert, primary_key: [id]}"


def run_command(stage: Stage, word: str) -> tuple[int, str]:
    """Returns the exit code and the output of a command."""
    Path("lines").write_text('{"id": 1}\n')
    more = {"doctor": (), "try": ("lines",)}.get(word, ("--window", hour(0)))
    result = stage.call(word, stage.spec, *more)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("word", ["run", "plan", "doctor", "try"])
@pytest.mark.parametrize(
    ("sink", "steps", "says"),
    [
        ("{path: t}", ["{sql: 'SELECT *, 5 AS _offset FROM rows'}", SPARK], "_offset"),
        (
            "{path: t}",
            [SPARK.replace("NAME", "Placed"), "{sql: 'SELECT 1 AS id FROM rows'}"],
            "_offset",
        ),
        ("{path: t}", ["{sql: 'SELECT id, 1 AS _window FROM rows'}"], "_window"),
        (UPSERT, [SPARK.replace("NAME", "Text")], "column id of sink.primary_key"),
        ("{kind: files, path: t, format: csv}", [SPARK.replace("NAME", "Nested")], "csv"),
        ("{path: 'gs://lake/t'}", [], "come later"),
        ("{path: 'abfss://lake@here.dfs.core.windows.net/t'}", [], "come later"),
    ],
)
def test_what_the_spec_cannot_mean(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    sink: str,
    steps: list[str],
    says: str,
    word: str,
) -> None:
    """A spec that can't work is refused by each command with the same words.

    Examples are names that windrow uses itself, types that the table can't hold, keys with
    another type, and unsupported stores.
    """
    monkeypatch.setattr(LocalEngine, "transform", print, raising=False)  # as if it had DataFrames
    Path("function.py").write_text(FUNCTION)
    schema = Path("schema.py")
    schema.write_text(f"{schema.read_text()}{SCHEMA}")
    stage.sink(sink)
    spec = Path(stage.spec)
    listed = "".join(f"    - {step.replace('NAME', 'Thing')}\n" for step in steps)
    spec.write_text(
        f"{spec.read_text()}{listed and 'transform:'}\n{listed and '  steps:'}\n{listed}"
    )
    code, output = run_command(stage, word)
    assert (code, says in output) == (2, True), output


@pytest.mark.parametrize("word", ["run", "plan", "doctor"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_database_that_cannot_be_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, word: str, *, committed: bool
) -> None:
    """A database that can't be written is refused before a message is read.

    The table may exist in it or not.
    """
    stage.sink(SQLITE)
    if committed:
        assert stage.call("run", stage.spec, "--window", hour(1)).exit_code == 0
    else:
        Path("things.sqlite").touch()
    access = os.access

    def denied(path: str | Path, mode: int) -> bool:
        written = mode == os.W_OK and str(path).endswith("things.sqlite")
        return not written and access(path, mode)

    monkeypatch.setattr(os, "access", denied)
    code, output = run_command(stage, word)
    assert (code, "things.sqlite can't be written" in output) == (2, True), output


def edit(stage: Stage, old: str, new: str, name: str = "things.yaml") -> None:
    """Replaces a text in the spec or in a file of its folder."""
    path = stage.folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def committed(stage: Stage) -> None:
    """Commits the second hour; the commands are then called for the first one."""
    stage.json("run", stage.spec, "--window", hour(1))


def expired(stage: Stage) -> None:
    stage.broker.delete_records(TopicPartition("shop.things", 0), 4)


def expired_behind_the_plan(stage: Stage) -> None:
    edit(stage, "0.6", "0")
    stage.json("run", stage.spec, "--window", hour(0), code=1)
    edit(stage, "ratio: 0", "ratio: 0.6")
    expired(stage)


def topic_made_anew(stage: Stage) -> None:
    committed(stage)
    stage.broker.recreate_topic("shop.things", 2)


def no_dead_topic(stage: Stage) -> None:
    edit(stage, "limits:", "dead_letters: {topic: things.dead}\nlimits:")
    stage.dead_topic.is_there = False


def other_type(stage: Stage) -> None:
    committed(stage)
    edit(stage, "pl.Int64", "pl.String", "schema.py")


def other_key(stage: Stage) -> None:
    committed(stage)
    edit(stage, "id: pl.Int64", "id: pl.Int64\n    k: pl.Int64", "schema.py")
    edit(stage, "decode: {", "decode: {key: {fields: [k]}, fields_include: except_key, ")
    stage.sink("{path: lake/things, mode: upsert, primary_key: [k]}")


def no_such_rule(stage: Stage) -> None:
    edit(stage, "pl.Int64", "pl.Int64 = pa.Field(no_such_check=1)", "schema.py")


def no_extra(stage: Stage) -> None:
    # acts as if the extra isn't installed
    protobuf = "format: protobuf, message: t.Thing, descriptor: things.desc, "
    edit(stage, "decode: {", f"decode: {{{protobuf}")
    Path("things.desc").touch()


def no_folder(_: Stage) -> None:
    Path("lake").touch()


def others_table(stage: Stage) -> None:
    committed(stage)
    edit(stage, "id: things", "id: others")


def foreign_table(_: Stage) -> None:
    write_deltalake("lake/things", pa.table({"id": [1]}))


def table_gone(stage: Stage) -> None:
    committed(stage)
    shutil.rmtree("lake")


def constraint(stage: Stage) -> None:
    committed(stage)
    DeltaTable("lake/things").alter.add_constraint({"positive": "id >= 0"})


def other_format(stage: Stage) -> None:
    stage.sink("{kind: files, format: jsonl, path: lake/things}")
    committed(stage)
    edit(stage, "jsonl", "csv")


def other_kind(stage: Stage) -> None:
    stage.sink("{kind: files, format: jsonl, path: lake/things}")
    write_deltalake("lake/things", pa.table({"id": [1]}))


def foreign_dead_letters(_: Stage) -> None:
    write_deltalake("lake/things_dead", pa.table({"id": [1]}))


def others_dead_letters(stage: Stage) -> None:
    committed(stage)
    shutil.copytree("lake/things_dead", "lake/others_dead")
    edit(stage, "id: things", "id: others")
    edit(stage, "lake/things", "lake/others")


def changed_dead_letters(stage: Stage) -> None:
    stage.sink(SQLITE)
    committed(stage)
    with sqlite3.connect("things.sqlite") as database:
        database.execute("ALTER TABLE things_dead RENAME COLUMN reason TO why")


def lookup(stage: Stage, key: object) -> None:
    step = "{lookup: names, key: {id: id}, from: {table: names}, take: {name: name}}"
    edit(stage, "limits:", f"transform: {{steps: [{step}]}}\nlimits:")
    write_deltalake("names", pa.table({"id": [key], "name": ["x"]}))


def nothing_to_look_up_in(stage: Stage) -> None:
    lookup(stage, 1)
    shutil.rmtree("names")


def key_of_another_type(stage: Stage) -> None:
    lookup(stage, "1")


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("trouble", "code", "says"),
    [
        (expired, 1, "may have lost its first messages"),
        (expired_behind_the_plan, 1, "wants offsets"),
        (topic_made_anew, 1, "The topic was recreated"),
        (no_dead_topic, 2, "no topic things.dead"),
        (other_type, 1, "differ"),
        (other_key, 1, "is partitioned by _window, not by _bucket"),
        (no_such_rule, 2, "no_such_check"),
        (no_extra, 2, "Protobuf can't be decoded: google.protobuf.message isn't installed"),
        (no_folder, 2, "lake is no folder"),
        (others_table, 1, "belongs to pipeline 'things', not 'others'"),
        (foreign_table, 2, "was not made by windrow"),
        (table_gone, 1, "isn't there, and the ledger knows 1 committed window"),
        (constraint, 1, "the check constraint positive"),
        (other_format, 2, "was begun with jsonl files, not csv"),
        (other_kind, 2, "a table of another kind"),
        (foreign_dead_letters, 2, "things_dead was not made by windrow"),
        (others_dead_letters, 1, "others_dead belongs to pipeline 'things'"),
        (changed_dead_letters, 1, "things_dead"),
        (nothing_to_look_up_in, 2, "neither a Delta table nor a Parquet file"),
        (key_of_another_type, 2, "can't be compared"),
    ],
)
def test_plan_and_doctor_refuse_what_run_refuses(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[Stage], None],
    code: int,
    says: str,
) -> None:
    """`plan` and `doctor` refuse what a run refuses before it reads a message, in the same words.

    Examples are deleted messages, mistakes of the schema, a missing extra, and tables that are
    missing, changed, of another owner, or not writable.
    """
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    trouble(stage)
    assert_refused_alike(stage, code, says)


def assert_refused_alike(stage: Stage, code: int, says: str) -> None:
    """Asserts that `plan`, `doctor` and then `run` refuse the first hour with the same words."""
    window = ("--window", hour(0))
    planned = stage.json("plan", stage.spec, *window, code=code)["error"]["message"]
    checks = stage.json("doctor", stage.spec, code=code)["checks"]
    (failed, *_) = [check for check in checks if check["level"] == "fail"]
    assert stage.json("run", stage.spec, *window, code=code)["error"]["message"] == planned
    assert says in planned
    # a check has no stage, and no path of the spec
    assert failed["what"].split(" (")[0] in planned
    assert re.split("SPEC|;", failed["fix"])[0] in planned


@pytest.mark.parametrize(
    ("bound", "statements", "says"),
    [
        (False, ["CREATE TABLE t (id bigint, more int NOT NULL)"], "more: not null"),
        (False, ["CREATE TABLE t (id bigint)"], "_topic (text not null): not in the table"),
        (False, ["CREATE TABLE t (id bigint)", "INSERT INTO t VALUES (1)"], "holds rows"),
        (False, ["CREATE VIEW t AS SELECT 1 AS id"], "is no table"),
        (
            True,
            [
                "ALTER TABLE t ADD more int NOT NULL DEFAULT 1",
                "ALTER TABLE t ALTER more DROP DEFAULT",
            ],
            "more: not null",
        ),
    ],
)
def test_a_table_in_postgres_that_takes_no_rows(
    stage: Stage, database: str, statements: list[str], says: str, *, bound: bool
) -> None:
    """A PostgreSQL table that can't take the rows is refused.

    Its columns or rows are not those of the sink, or it is a view.
    """
    stage.sink(f"{{kind: postgres, url: '{database}', table: t, staging: staged}}")
    if bound:
        committed(stage)
    with psycopg.connect(database, autocommit=True) as server:
        for statement in statements:
            server.execute(statement)
    assert_refused_alike(stage, 2 if says in {"holds rows", "is no table"} else 1, says)
