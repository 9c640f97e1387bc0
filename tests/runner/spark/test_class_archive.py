"""Java's archive of Spark's classes: made once, used by every session, never half written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windrow.ingest.errors import UnreachableError
from windrow.ingest.runner.spark import class_archive, local
from windrow.ingest.runner.spark.local import started_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of archives, which doesn't exist yet."""
    monkeypatch.setattr(local, "ARCHIVES", tmp_path / "var")
    return tmp_path / "var"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that ends with an error."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").write_text("1")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_no_spark_without_java(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java the error names the place where it was looked for, before Spark reports a
    program that doesn't start.
    """
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "/nowhere")
    where = "in JAVA_HOME, which is /nowhere" if home else "on the PATH"
    with pytest.raises(UnreachableError, match=f"Java 17 or 21 .* none {where}"):
        started_context("local[1]", {})


@pytest.mark.spark
def test_a_session_has_it_mapped(spark: SparkSession) -> None:
    """The Java of a session has the archive open that `make setup` made."""
    path = local.archive_path()
    assert path is not None
    assert path.is_file()
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # noqa: SLF001
    assert str(path) in Path(f"/proc/{pid}/maps").read_text()


def test_none_is_no_option(folder: Path) -> None:
    """Without an archive Java gets no option; with one, the option for it and one that silences
    messages about it.
    """
    assert local.archive_options() == ""
    path = local.archive_path()
    assert path is not None
    assert path.parent == folder
    folder.mkdir()
    path.touch()
    assert local.archive_options().startswith(f"-XX:SharedArchiveFile={path} -Xlog:disable ")


@pytest.mark.usefixtures("folder")
def test_another_java_has_another(java: Path) -> None:
    """The archive's name changes with the Java, also if the Java was replaced at the same path."""
    first = local.archive_path()
    os.utime(java / "lib" / "modules", (1, 1))
    assert local.archive_path() != first


@pytest.mark.usefixtures("folder")
def test_without_java_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java a session is begun without an archive, and making an archive raises
    UnreachableError.
    """
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert local.archive_path() is None
    assert local.archive_options() == ""
    with pytest.raises(UnreachableError, match="There is no Java"):
        class_archive.make_archive()


def test_a_path_with_a_space_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path with a space has no archive, because Java's options are split at spaces."""
    monkeypatch.setattr(local, "ARCHIVES", tmp_path / "my files")
    assert local.archive_path() is None


@pytest.mark.usefixtures("java")
def test_a_spark_that_does_not_start(folder: Path) -> None:
    """If Spark doesn't start, the error has advice, and no file is left that a later session
    would use.
    """
    with pytest.raises(UnreachableError, match="Spark did not start"):
        class_archive.make_archive()
    assert list(folder.iterdir()) == []


def test_nothing_half_written_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Java writes, no file has the archive's name; afterwards the complete file has it,
    and an older archive is gone.
    """
    folder.mkdir()
    older = folder / "spark-0123.jsa"
    older.touch()
    options_meanwhile: list[str] = []

    def record(archive: Path) -> None:
        archive.write_bytes(b"half")
        options_meanwhile.append(local.archive_options())
        archive.write_bytes(b"whole")

    monkeypatch.setattr(class_archive, "record_classes", record)
    path = class_archive.make_archive()
    assert options_meanwhile == [""]
    assert path.read_bytes() == b"whole"
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_takes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that can't be written is named, and the error says that Spark only starts slower."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(local, "ARCHIVES", tmp_path / "file" / "var")
    with pytest.raises(
        UnreachableError, match=re.escape(f"No archive could be written to {tmp_path}")
    ) as caught:
        class_archive.make_archive()
    assert "Spark only starts slower" in caught.value.advice
