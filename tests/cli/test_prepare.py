"""`windrow prepare`, which is run once for an environment; doctor reports if it wasn't run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Stage
from windrow.ingest.cli import doctor, prepare
from windrow.ingest.native.calling import Compiled
from windrow.ingest.runner.spark import class_archive, local

INGEST = Path(__file__).parents[2] / "ingest"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An environment in which nothing is prepared; the names of prepared modules are recorded."""
    prepared_modules = list[str]()

    def record(archive: Path) -> None:
        archive.write_bytes(b"classes")

    monkeypatch.setattr(doctor, "java_problem", lambda: None)
    monkeypatch.setattr(doctor, "java_untried", lambda: None)
    monkeypatch.setattr(local, "ARCHIVES", tmp_path / "var")
    monkeypatch.setattr(class_archive, "record_classes", record)
    monkeypatch.setattr(Compiled, "is_kept", lambda code: code.module in prepared_modules)
    monkeypatch.setattr(Compiled, "keep", lambda code: prepared_modules.append(code.module))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: prepared_modules.append(command[2]))
    return prepared_modules


def test_all_passes_are_prepared() -> None:
    """Every module with compiled code is prepared."""
    called = re.compile(r'= Compiled\("windrow\.ingest\.([\w.]+)"\)')
    compiled_modules = {
        m for file in INGEST.rglob("*.py") for m in called.findall(file.read_text("utf-8"))
    }
    assert compiled_modules == set(prepare.PASSES)


def test_the_doctor_says_where_it_was_not_run(stage: Stage, bare: list[str]) -> None:
    """`doctor` warns, and names what is missing, until `windrow prepare` has made all of it."""
    lines = {check["name"]: check for check in stage.json("doctor")["checks"]}
    assert lines["prepared"]["level"] == "warn"
    assert "no machine code and no Java's archive" in lines["prepared"]["what"]
    assert "windrow prepare" in lines["prepared"]["fix"]
    done = stage.json("prepare")
    assert (done["compiled"], Path(done["archive"]).read_bytes()) == (len(bare) - 1, b"classes")
    assert "compileall" in bare
    lines = {check["name"]: check["level"] for check in stage.json("doctor")["checks"]}
    assert lines["prepared"] == "ok"
    module = f"windrow.ingest.{prepare.PASSES[-1]}"
    bare.remove(module)
    lines = {check["name"]: check for check in stage.json("doctor")["checks"]}
    assert lines["prepared"]["what"] == "there is no machine code yet"
    stage.json("prepare")
    assert module in bare
    assert prepare.find_unprepared() is None


def test_without_java_the_rest_is_prepared(
    stage: Stage, bare: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without Java, the rest is prepared, and the document has the error, too."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    done = stage.json("prepare", code=3)
    assert (done["compiled"], done["archive"]) == (len(bare) - 1, None)
    assert "There is no Java" in done["error"]["message"]
