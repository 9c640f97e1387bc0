"""What a newcomer does wrong is answered by what happened and what to do."""

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
from windrow.ingest.cli.render import step

ROOT = Path(__file__).parents[2]


def run_refused(stage: Stage, *words: str, code: int) -> str:
    """What the command says, without the frame around mistakes of usage."""
    result = stage.call(*words)
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", "").split())


def test_a_window_without_its_option(stage: Stage) -> None:
    """Who forgets --window is told where it belongs."""
    text = run_refused(stage, "run", stage.spec, hour(0), code=2)
    assert f"Write --window before {hour(0)}" in text


def test_a_place_that_can_not_be_used(stage: Stage) -> None:
    """A folder that can't be made is the user's to mend, and no bug: the place is named."""
    folder = Path(stage.spec) / "broker"
    text = run_refused(stage, "broker", "run", "--folder", str(folder), code=3)
    assert text.startswith(f"{folder} can't be used: Not a directory")
    assert "may read and write it; then run the same command again" in text


def test_a_file_where_the_table_belongs(stage: Stage) -> None:
    """It is said that it is a file, not that the storage should be looked at."""
    table = stage.folder / "lake" / "things"
    table.parent.mkdir()
    table.write_text("something else")
    text = run_refused(stage, "run", stage.spec, "--window", hour(0), code=2)
    assert text.startswith(f"{table} is a file, and no folder for a table")
    assert "Set sink.path to a folder" in text


def test_a_server_of_spark_without_its_extra(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own error of a missing package becomes the extra's name and the command to type."""
    original_import = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyspark.sql.connect.client"):
            raise PySparkImportError("[PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0 must be installed")
        return original_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(errors.SpecError) as refused, errors.needing("connect", "Nobody can ask"):
        import pyspark.sql.connect.client.core  # noqa: F401
    assert "Nobody can ask: [PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0" in str(refused.value)
    assert "pip install 'windrow-ingest[connect]'" in str(refused.value)


@pytest.mark.parametrize(("pip", "command"), [(True, " pip "), (False, " uv pip ")])
def test_an_environment_without_pip(
    monkeypatch: pytest.MonkeyPatch, pip: bool, command: str
) -> None:
    """Where uv made the environment, the advice is a command that is there."""
    monkeypatch.setattr(errors, "find_spec", lambda name: (pip and name == "pip") or None)
    assert f":{command}install 'windrow-ingest[http]'" in errors.how_to_install("http")


def test_the_environment_of_a_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the project doesn't name, the next `uv sync` removes: so it is added to the project."""
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
    """Whatever a name, a reason or an error has in it is neither an emoji nor markup."""
    table = Table(shown, title=Text(shown))
    table.add_row(shown)
    output = Output(json=False)
    output.show(None, Text(shown), table, *step(Step(shown, ("a",), (shown,), ({"a": shown},), ())))
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
    """Whatever a step, a library of C or a child process writes to file descriptor 1."""
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
