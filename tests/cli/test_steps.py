"""`try` and `peek --rows`: the rows of a few messages after each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Stage, hour
from tests.command import CommandResult, run_command
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

THINGS = (Path(__file__).parents[1] / "integration" / "things.py").read_text()
STEPS = """\
transform:
  steps:
    - sql: SELECT *, string_split(name, ' ') AS words FROM rows WHERE id <> 3
    - sql: SELECT id, unnest(words) AS word FROM rows
    - sql: SELECT id, CAST(word AS BIGINT) AS number FROM rows
"""
VALUES = [b'{"id":1,"name":"7 8"}', b'{"id":2,"name":"x"}', b'{"id":3}', b"poison"]


def run_without_broker(*words: str) -> CommandResult:
    """Runs the command without a broker."""
    return run_command(*words, env={"BROKER": "127.0.0.1:9"})


def steps_of(user: User, *words: str) -> list[dict[str, Any]]:
    """Returns the steps of the document."""
    steps: list[dict[str, Any]] = user.types(*words)["steps"]
    return steps


def assert_each_is_told(steps: list[dict[str, Any]], topic: str) -> None:
    """Asserts the rows and messages of each step, and the messages that it leaves out,
    with reasons.
    """
    names = ["decode", "rules of things.py:Thing", *(f"transform.steps.{n}" for n in range(3))]
    assert [step["name"] for step in steps] == names
    assert [len(step["rows"]) for step in steps] == [3, 3, 2, 3, 2]
    omitted = [[(m["message"], m["why"]) for m in step["left_out"]] for step in steps]
    assert omitted == [
        [(f"{topic}[0]@3", "dead at value: not_json")],
        [],
        [(f"{topic}[0]@2", "no row")],
        [],
        [(f"{topic}[0]@1", "dead at rules: sql:number")],
    ]
    assert steps[4]["rows"] == [{"id": 1, "number": 7}, {"id": 1, "number": 8}]
    assert steps[4]["messages"] == [f"{topic}[0]@0"] * 2


def test_lines_of_a_file(tmp_path: Path) -> None:
    """`try` reads the lines of a file, asks no broker and writes nothing."""
    User("127.0.0.1:9", "t", tmp_path)
    spec, lines = tmp_path / "things.yaml", tmp_path / "lines"
    spec.write_text(spec.read_text() + STEPS)
    lines.write_bytes(b"\n".join(VALUES))
    files_before = sorted(tmp_path.iterdir())
    outcome = run_without_broker("try", str(spec), str(lines), "--json")
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert_each_is_told(document["steps"], "t")
    assert document["left_out"] is False
    assert sorted(path for path in tmp_path.iterdir() if path.name != "__pycache__") == files_before
    shown = run_without_broker("try", str(spec), str(lines), "--limit", "1").stdout
    assert "transform.steps.2: 2 rows" in shown
    assert shown.endswith("There are more, which are not shown (--limit)\n")
    both = run_without_broker("peek", str(spec), "--rows", "--out", str(tmp_path / "rows.jsonl"))
    assert (both.exit_code, (tmp_path / "rows.jsonl").exists()) == (2, False)
    (tmp_path / "same.py").write_text(
        "import polars as pl\n\n\ndef same(rows: pl.DataFrame) -> pl.DataFrame:\n    return rows\n"
    )
    python = "transform: {steps: [{python: 'same.py:same', schema: 'things.py:Thing'}]}\n"
    spec.write_text(spec.read_text().replace(STEPS, python))
    steps = json.loads(run_without_broker("try", str(spec), str(lines), "--json").stdout)["steps"]
    assert steps[2]["name"] == "transform.steps.0"
    missing = run_without_broker("try", str(spec), str(tmp_path / "none"))
    assert (missing.exit_code, "none can't be read" in " ".join(missing.output.split())) == (
        2,
        True,
    )


@pytest.mark.parametrize("typed_by", ["try", "peek"])
def test_numbers_that_json_lacks(stage: Stage, typed_by: str) -> None:
    """NaN and infinities are shown as words, alone, in lists and in structs."""
    columns = "    id: pl.Int64\n    f: pl.Float64 = pa.Field(nullable=True)\n"
    columns += "    l: pl.List(pl.Float64)\n"
    schema = stage.folder / "schema.py"
    nested = "    s: pl.Struct({'a': pl.Float64})\n"
    schema.write_text(schema.read_text().replace("    id: pl.Int64\n", columns + nested))
    spec = Path(stage.spec)
    spec.write_text(
        spec.read_text().replace("decode: {", "decode: {allow_non_numeric_numbers: true, ")
    )
    line = b'{"id": 2, "f": NaN, "l": [Infinity, 1.5], "s": {"a": -Infinity}}'
    (stage.folder / "lines").write_bytes(line)
    stage.produce(4, line)
    words = {
        "try": (str(stage.folder / "lines"),),
        "peek": ("--rows", "--start", f"timestamp:{hour(4)}"),
    }
    steps = stage.json(typed_by, stage.spec, *words[typed_by])["steps"]
    expected = {"id": 2, "f": "NaN", "l": ["Infinity", 1.5], "s": {"a": "-Infinity"}}
    assert [step["rows"] for step in steps] == [[expected]] * len(steps)


@pytest.mark.parametrize(("first", "warned"), [(1000, 1), (29, 0)])
def test_a_lookup_that_finds_none_of_many_keys(stage: Stage, first: int, warned: int) -> None:
    """A lookup that finds none of many keys causes a warning in the receipt.

    For example, the service's address is wrong.
    """
    stage.produce(5, *(b'{"id": %d}' % n for n in range(10, 30)))
    pq.write_table(pa.table({"id": [first], "city": ["Kyiv"]}), stage.folder / "shops.parquet")
    lookup = f"key: {{id: id}}, take: {{city: city}}, from: {{table: {stage.folder}}}"
    step = f"transform: {{steps: [{{lookup: shops, {lookup}}}]}}\n"
    Path(stage.spec).write_text(Path(stage.spec).read_text() + step)
    stage.json("run", stage.spec, "--window", hour(5))
    (window,) = stage.json("show", stage.spec)["windows"]
    warnings = [
        warning
        for warning in window["receipt"]["warnings"]
        if "shops found none of the 20" in warning
    ]
    assert len(warnings) == warned


@pytest.mark.broker
def test_messages_of_a_topic(kafka: str, tmp_path: Path) -> None:
    """`peek --rows` shows the first messages of the topic, like a run would decode them."""
    topic = create_topic(kafka, 1)
    produce(kafka, topic, [Put(value, 1_767_578_400_000) for value in VALUES])
    user = User(kafka, topic, tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(spec.read_text() + STEPS)
    assert_each_is_told(steps_of(user, "peek", "--rows"), topic)
    first_document = user.types("peek", "--rows", "--limit", "1")
    assert (first_document["steps"][0]["messages"], first_document["left_out"]) == (
        [f"{topic}[0]@0"],
        True,
    )
    assert steps_of(user, "peek", "--rows", "--stop", "earliest")[0]["rows"] == []
