"""Mistakes of new users: the message says what happened and what to do."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkImportError
from rich.table import Table
from rich.text import Text

from tests.cli.conftest import HOURLY, SCHEMA, SPEC, TOPIC, Stage, hour
from windrow.ingest import errors
from windrow.ingest.admin.try_steps import Step
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.render import step_tables

ROOT = Path(__file__).parents[2]


def run_refused(stage: Stage, *words: str, code: int) -> str:
    """Returns the command's output, without the frame around usage errors."""
    result = stage.call(*words)
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", "").split())


def test_a_window_without_its_option(stage: Stage) -> None:
    """If --window is forgotten, the message says where to write it."""
    text = run_refused(stage, "run", stage.spec, hour(0), code=2)
    assert f"Write --window before {hour(0)}" in text


def test_a_place_that_can_not_be_used(stage: Stage) -> None:
    """A folder that can't be made is named with advice, and isn't called a bug."""
    folder = Path(stage.spec) / "broker"
    text = run_refused(stage, "broker", "run", "--folder", str(folder), code=3)
    assert text.startswith(f"{folder} can't be used: Not a directory")
    assert "may read and write it; then run the same command again" in text


def test_a_file_where_the_table_belongs(stage: Stage) -> None:
    """If the table's path is a file, the message says so."""
    table = stage.folder / "lake" / "things"
    table.parent.mkdir()
    table.write_text("something else")
    text = run_refused(stage, "run", stage.spec, "--window", hour(0), code=2)
    assert text.startswith(f"{table} is a file, and no folder for a table")
    assert "Set sink.path to a folder" in text


def test_a_server_of_spark_without_its_extra(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's error about a missing package becomes the name of the extra and a command."""
    original_import = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyspark.sql.connect.client"):
            raise PySparkImportError("[PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0 must be installed")
        return original_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    with (
        pytest.raises(errors.SpecError) as refused,
        errors.require_extra("connect", "Nobody can ask"),
    ):
        import pyspark.sql.connect.client.core  # noqa: F401
    assert "Nobody can ask: [PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0" in str(refused.value)
    assert "pip install 'windrow-ingest[connect]'" in str(refused.value)


@pytest.mark.parametrize(("pip", "command"), [(True, " pip "), (False, " uv pip ")])
def test_an_environment_without_pip(
    monkeypatch: pytest.MonkeyPatch, pip: bool, command: str
) -> None:
    """In an environment that uv made, the advice is a command of uv."""
    monkeypatch.setattr(errors, "find_spec", lambda name: (pip and name == "pip") or None)
    assert f":{command}install 'windrow-ingest[http]'" in errors.how_to_install("http")


def test_the_environment_of_a_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a project of uv, the advice adds the extra to the project.

    The next `uv sync` would remove a package that the project doesn't name.
    """
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert "pip install" in errors.how_to_install("http")
    (tmp_path / "uv.lock").touch()
    advice = f"In {tmp_path}: uv add 'windrow-ingest[http]'"
    assert errors.how_to_install("http") == advice
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert "In a project of uv's it is\n`uv add 'windrow-ingest[postgres,s3]'`" in page


@pytest.mark.parametrize("shown", ["schema.py:M: 3 rows", ":fire: [bold]x[/bold]", "[/red]"])
def test_texts_of_others_stay_as_they_are(
    shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, reasons and errors are printed unchanged, without emojis or markup."""
    table = Table(shown, title=Text(shown))
    table.add_row(shown)
    output = Output(json=False)
    output.show(
        None, Text(shown), table, *step_tables(Step(shown, ("a",), (shown,), ({"a": shown},), ()))
    )
    output.say(shown)
    output.fail(errors.SpecError(shown, "spec", shown))
    captured = capsys.readouterr()
    assert captured.out.count(shown) == 7
    assert captured.err.count(shown) == 3


LOUD = """\
import os
import subprocess

import polars as pl


def loud(rows: pl.DataFrame) -> pl.DataFrame:
    os.write(1, b"of C")
    subprocess.run(["echo", "of a child"], check=True)
    return rows
"""


def test_only_the_document_is_on_stdout(tmp_path: Path) -> None:
    """Only the JSON document is on stdout, even if a step or a child process writes there."""
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "schema.py").write_text(SCHEMA)
    loud = "transform: {steps: [{python: 'loud.py:loud', schema: 'schema.py:Thing'}]}\n"
    spec = SPEC.replace("SOURCE", TOPIC).replace("WINDOW", HOURLY)
    (tmp_path / "things.yaml").write_text(spec + loud)
    (tmp_path / "lines").write_text('{"id": 1}\n')
    done = subprocess.run(
        [sys.executable, "-m", "windrow.ingest.cli.main", "try", "things.yaml", "lines", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert json.loads(done.stdout)["steps"][-1]["rows"] == [{"id": 1}]
    assert "of C" in done.stderr
    assert "of a child" in done.stderr
