"""A schema that changes between two runs, in all commands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.cli.conftest import SCHEMA, Stage, hour

NARROW = SCHEMA.replace("pl.Int64", "pl.Int32")
NOTE = "    note: pl.String = pa.Field(nullable=True)\n"
LARGE = 3_000_000_000
"""A number that doesn't fit into Int32."""


def evolve(stage: Stage, schema: str, mode: str) -> None:
    """Writes another schema, and sets `sink.evolve`."""
    (stage.folder / "schema.py").write_text(schema)
    spec = Path(stage.spec).read_text().splitlines()
    Path(stage.spec).write_text(
        "\n".join(
            [
                *(line for line in spec if not line.startswith("sink")),
                f"sink: {{path: lake/things, evolve: {mode}}}\n",
            ]
        )
    )


def table_rows(stage: Stage) -> pa.Table:
    """Returns the table's rows."""
    return DeltaTable(str(stage.folder / "lake" / "things")).to_pyarrow_table()


def about_sink(stage: Stage, code: int = 0) -> Any:
    """Returns doctor's check of the table."""
    (sink_check,) = [
        check
        for check in stage.json("doctor", stage.spec, code=code)["checks"]
        if check["name"] == "sink"
    ]
    return sink_check


@pytest.fixture
def narrow(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Two hours with a narrow schema; the second hour has a number that is too large for it."""
    monkeypatch.setattr("windrow.ingest.cli.doctor.java_problem", lambda: None)
    monkeypatch.setattr("windrow.ingest.cli.doctor.java_untried", lambda: None)
    stage.produce(4, b'{"id": %d, "note": "n"}' % LARGE, b'{"id": 1}')
    stage.produce(5, b'{"id": 6, "note": "six"}', b'{"id": 7}')
    (stage.folder / "schema.py").write_text(NARROW)
    stage.json("run", stage.spec, "--window", f"{hour(3)}/{hour(5)}")
    return stage


def test_a_new_column(narrow: Stage) -> None:
    """`doctor` reports a new column, and the next run adds it.

    Older rows have nulls there, until a replay fills them.
    """
    evolve(narrow, NARROW + NOTE, "add_columns")
    assert about_sink(narrow)["what"].endswith("; the next rows change its columns: note (string)")
    assert "note" not in table_rows(narrow).column_names
    narrow.json("run", narrow.spec, "--window", hour(5))
    assert sorted(map(str, table_rows(narrow)["note"].to_pylist())) == ["None"] * 4 + ["six"]
    assert "change" not in about_sink(narrow)["what"]
    narrow.json("replay", narrow.spec, "--window", hour(3))
    assert narrow.json("verify", narrow.spec, "--deep")["findings"] == []


def test_plan_names_the_windows_that_a_replay_fills(narrow: Stage) -> None:
    """`plan` names windows with fields that have a column now, until they are replayed."""
    narrow.json("run", narrow.spec, "--window", hour(5))
    plan = ("plan", narrow.spec, "--window", hour(6))
    assert narrow.json(*plan)["fillable"] == []
    evolve(narrow, NARROW + NOTE, "add_columns")
    assert narrow.json(*plan)["fillable"] == [hour(5)]
    assert f"Messages of {hour(5)} have fields that no column was for" in narrow.call(*plan).stdout
    narrow.json("replay", narrow.spec, "--window", hour(5))
    assert sorted(map(str, table_rows(narrow)["note"].to_pylist())) == ["None"] * 4 + ["six"]
    assert narrow.json(*plan)["fillable"] == []


@pytest.mark.parametrize(
    "column",
    [
        'pl.String = pa.Field(nullable=True, metadata={"aliases": ["note"]})',
        'pl.String = pa.Field(nullable=True, metadata={"path": "note.text"})',
    ],
)
def test_plan_names_the_windows_that_another_name_fills(narrow: Stage, column: str) -> None:
    """`plan` names the windows with a field that a column has under an alias or a path now."""
    narrow.json("run", narrow.spec, "--window", hour(5))
    evolve(narrow, f"{NARROW}    remark: {column}\n", "add_columns")
    assert narrow.json("plan", narrow.spec, "--window", hour(6))["fillable"] == [hour(5)]


@pytest.mark.parametrize(
    "key", ["", "key: {format: json, fields: [id]}, fields_include: except_key"]
)
@pytest.mark.parametrize("unknown", ["ignore", "dead", "keep"])
def test_the_model_follows_a_topic_with_renamed_fields(
    narrow: Stage, unknown: str, key: str
) -> None:
    """`infer --check` and `--update` find new fields if a column has aliases, whatever becomes of
    fields without a column. An alias is no new field.
    """
    remark = '    remark: pl.String = pa.Field(nullable=True, metadata={"aliases": ["note"]})\n'
    evolve(narrow, SCHEMA + remark, "add_columns")
    spec = Path(narrow.spec)
    decode = f"decode: {{schema: schema.py:Thing, unknown: {unknown}, {key}}}"
    spec.write_text(re.sub("^decode: .*$", decode, spec.read_text(), flags=re.MULTILINE))
    narrow.produce(5, b'{"id": 8, "note": "n", "remark": null, "size": 1}')
    findings = narrow.call("infer", "--check", narrow.spec, "--sample", "9").stdout
    assert "Field 'size' of " in findings
    assert "'note'" not in findings
    assert "remark" not in findings
    assert narrow.json("infer", "--update", narrow.spec)["changes"] == ["size: pl.Int64"]


def test_a_replay_into_an_append_only_table(narrow: Stage) -> None:
    """A replay into an append-only table is refused before the window is read.

    Nothing is staged, and new windows can still be committed.
    """
    table_path = narrow.folder / "lake" / "things"
    DeltaTable(str(table_path)).alter.set_table_properties({"delta.appendOnly": "true"})
    files_before = sorted(table_path.glob("data/*/*.parquet"))
    error = narrow.json("replay", narrow.spec, "--window", hour(3), code=1)["error"]["message"]
    assert "is append-only (delta.appendOnly), " in error
    assert f"a replay of {hour(3)}" in error
    assert sorted(table_path.glob("data/*/*.parquet")) == files_before
    narrow.json("run", narrow.spec, "--window", hour(5))
    assert narrow.json("verify", narrow.spec, "--deep")["findings"] == []


def test_a_wider_column(narrow: Stage) -> None:
    """Dead letters with too large numbers are replayed into the wider column.

    Every receipt still agrees with the table.
    """
    evolve(narrow, SCHEMA + NOTE, "widen")
    assert about_sink(narrow)["what"].endswith(
        "the next rows change its columns: note (string), id (integer not null to long not null)"
    )
    narrow.json("dead", "replay", narrow.spec, "--window", hour(4))
    rows = table_rows(narrow)
    assert rows.schema.field("id").type == pa.int64()
    assert sorted(rows["id"].to_pylist()) == [1, 9, 9, LARGE]
    assert narrow.json("verify", narrow.spec, "--deep")["findings"] == []


def test_the_model_follows_the_topic(narrow: Stage) -> None:
    """`infer --check` names `--update`, which shows the schema's changes, and with `--yes` writes
    them; the table follows with its next rows, and dead letters become rows.
    """
    evolve(narrow, NARROW, "widen")
    narrow.produce(5, b'{"id": 8, "to": {"city": "c", "zip": 1}, "never": null}')
    schema = narrow.folder / "schema.py"
    checked = narrow.json("infer", "--check", narrow.spec)["findings"]
    assert "windrow infer --update SPEC adds fields" in str(checked)
    shown = narrow.json("infer", "--update", narrow.spec)
    assert (shown["written"], schema.read_text()) == (False, NARROW)
    assert (
        "add --yes to change the schema so" in narrow.call("infer", "--update", narrow.spec).stdout
    )
    assert narrow.json("infer", "--update", narrow.spec, "--yes")["written"]
    assert schema.read_text() == SCHEMA + NOTE + (
        '    to: pl.Struct({"city": pl.String, "zip": pl.Int64}) = pa.Field(nullable=True)\n'
    )
    assert narrow.json("infer", "--update", narrow.spec)["changes"] == []
    narrow.json("run", narrow.spec, "--window", hour(5))
    narrow.json("dead", "replay", narrow.spec, "--window", hour(4))
    assert LARGE in table_rows(narrow)["id"].to_pylist()
    assert {"city": "c", "zip": 1} in table_rows(narrow)["to"].to_pylist()
    assert narrow.json("verify", narrow.spec, "--deep")["findings"] == []


@pytest.mark.parametrize(("mode", "added"), [("none", []), ("add_columns", ["note: pl.String"])])
def test_an_update_is_what_the_table_takes(narrow: Stage, mode: str, added: list[str]) -> None:
    """A change that `sink.evolve` doesn't allow is not proposed."""
    evolve(narrow, NARROW, mode)
    assert narrow.json("infer", "--update", narrow.spec, "--yes")["changes"] == added


@pytest.mark.parametrize(
    ("schema", "mode", "says"),
    [
        (NARROW + NOTE, "none", "note: new (string), and sink.evolve is none"),
        (SCHEMA, "add_columns", "id: integer not null in the table, long not null in the schema"),
        (
            NARROW.replace("pl.Int32", "pl.String"),
            "widen",
            "id: integer not null in the table, string not null in the schema",
        ),
    ],
)
def test_what_is_refused(narrow: Stage, schema: str, mode: str, says: str) -> None:
    """A change that `sink.evolve` doesn't allow is refused by `doctor` and `run`.

    They name the difference before anything is frozen or read. With the old schema, runs
    continue.
    """
    table_before = table_rows(narrow)
    evolve(narrow, schema, mode)
    assert says in about_sink(narrow, code=1)["what"]
    ran = narrow.call("run", narrow.spec, "--window", hour(5))
    assert ran.exit_code == 1
    assert says in " ".join(ran.output.split())
    assert table_rows(narrow) == table_before
    evolve(narrow, NARROW, mode)
    narrow.json("run", narrow.spec, "--window", hour(5))
    assert narrow.json("verify", narrow.spec, "--deep")["findings"] == []


def test_the_first_model_was_wrong(stage: Stage) -> None:
    """If the first schema was wrong and the run was refused, the message says what to remove.

    Then all messages are committed. Dead letters of the refused run don't matter.
    """
    (stage.folder / "schema.py").write_text(SCHEMA.replace("pl.Int64", "pl.String"))
    first = ("run", stage.spec, "--window", hour(0))
    assert "schema and the table" not in stage.call(*first).output
    (stage.folder / "schema.py").write_text(SCHEMA)
    output = " ".join(stage.call(*first).output.split())
    match = re.search(r"No window is in the table yet: .* remove (\S+), and run this again", output)
    assert match is not None, output
    assert match[1] in about_sink(stage, code=1)["fix"]
    assert match[0] in stage.json("rebind", stage.spec, code=1)["error"]["message"]
    shutil.rmtree(match[1])
    assert stage.json(*first)["windows"][0]["committed"]["receipt"]["counts"]["rows"]
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
