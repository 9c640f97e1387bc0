"""What a newcomer does wrong is answered by what happened and what to do."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkImportError

from tests.cli.conftest import Stage, hour
from windrow.ingest import errors


def said(stage: Stage, *words: str, code: int) -> str:
    """What the command says, without the frame around mistakes of usage."""
    result = stage.call(*words)
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", "").split())


def test_a_window_without_its_option(stage: Stage) -> None:
    """Who forgets --window is told where it belongs."""
    text = said(stage, "run", stage.spec, hour(0), code=2)
    assert f"Write --window before {hour(0)}" in text


def test_a_place_that_can_not_be_used(stage: Stage) -> None:
    """A folder that can't be made is the user's to mend, and no bug: the place is named."""
    place = Path(stage.spec) / "broker"
    text = said(stage, "broker", "run", "--folder", str(place), code=3)
    assert text.startswith(f"{place} can't be used: Not a directory")
    assert "may read and write it; then run the same command again" in text


def test_a_file_where_the_table_belongs(stage: Stage) -> None:
    """It is said that it is a file, not that the storage should be looked at."""
    table = stage.folder / "lake" / "things"
    table.parent.mkdir()
    table.write_text("something else")
    text = said(stage, "run", stage.spec, "--window", hour(0), code=2)
    assert text.startswith(f"{table} is a file, and no folder for a table")
    assert "Set sink.path to a folder" in text


def test_a_server_of_spark_without_its_extra(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own error of a missing package becomes the extra's name and the command to type."""
    found = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyspark.sql.connect.client"):
            raise PySparkImportError("[PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0 must be installed")
        return found(name, *args, **kwargs)

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
