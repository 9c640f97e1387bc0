"""What a run refuses before it reads a message, plan, doctor and try refuse, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour
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


def refused(stage: Stage, word: str) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
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
    """Names of windrow's own beside a function's columns, types that the table can't hold, keys of
    another type, stores that aren't there: in the same words, by each command.
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
    code, said = refused(stage, word)
    assert (code, says in said) == (2, True), said


@pytest.mark.parametrize("word", ["run", "plan", "doctor"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_database_that_cannot_be_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, word: str, *, committed: bool
) -> None:
    """Before anything is read, whether or not the table is in it."""
    stage.sink(SQLITE)
    if committed:
        assert stage.call("run", stage.spec, "--window", hour(1)).exit_code == 0
    else:
        Path("things.sqlite").touch()
    access = os.access

    def denied(path: str, mode: int) -> bool:
        written = mode == os.W_OK and path.endswith("things.sqlite")
        return not written and access(path, mode)

    monkeypatch.setattr(os, "access", denied)
    code, said = refused(stage, word)
    assert (code, "things.sqlite can't be written" in said) == (2, True), said
