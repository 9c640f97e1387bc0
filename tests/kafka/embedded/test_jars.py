"""Errors about missing Java and jars name the command that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.ingest import java
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.embedded import server


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH has only what a test adds, with its own project folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("WINDROW_KAFKA_JARS", raising=False)
    monkeypatch.setattr(server, "root", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "good"),
    [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0_392", False), ("25.0.1", True)],
)
def test_java_from_17_on_is_taken(bare: Path, version: str, good: bool) -> None:
    """Java 17 and later is accepted, and an older version is refused with its name and advice.

    A note says if the version is neither 17 nor 21, because windrow isn't tested with it.
    """
    program(bare / "bin", "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    problem = java.java_problem()
    assert (problem is None) is good
    untried = java.java_untried() if good else None
    assert untried == (
        f"{bare / 'bin' / 'java'} is 25, and windrow is tried with 17 and 21"
        if version.startswith("25")
        else None
    )
    if problem is not None:
        assert version.removeprefix("1.").split(".")[0] in problem
        assert "apt-get install" in problem


def test_java_home_goes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME overrides the PATH, because Spark uses JAVA_HOME."""
    program(bare / "bin", "java", "echo 'openjdk version \"17.0.1\"' >&2")
    program(bare / "home" / "bin", "java", "echo 'openjdk version \"11.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert "is 11: correct JAVA_HOME, or unset it" in str(java.java_problem())


def test_no_java_at_all(bare: Path) -> None:
    """A machine without Java gets an error with the command to install it."""
    assert (
        "is none on the PATH: install it (on Debian and its kin: apt-get install openjdk-17"
        in str(java.java_problem())
    )


def test_a_java_home_without_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong JAVA_HOME is named in the error. Java on the PATH doesn't replace it."""
    program(bare / "bin", "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    problem = str(java.java_problem())
    assert f"there is none in JAVA_HOME, which is {bare / 'gone'}: correct JAVA_HOME" in problem
    assert "apt-get" not in problem


def test_no_maven_and_no_jars(bare: Path) -> None:
    """Without Maven the jars can't be fetched, so UnreachableError names how to install it."""
    with pytest.raises(UnreachableError, match="apt-get install"):
        server.find_jars()


def test_jars_appear_whole_or_not_at_all(bare: Path) -> None:
    """A failed fetch leaves no cache, and its error has Maven's output.

    The next try fills the cache, and later ones don't call Maven.
    """
    find = 'for a in "$@"; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; done'
    copy = f'{find}; /bin/mkdir -p "$out"; : > "$out/kafka_2.13-4.3.0.jar"'
    program(bare / "bin", "mvn", f"{copy}; echo no route to repository; exit 1")
    with pytest.raises(UnreachableError, match="no route to repository"):
        server.find_jars()
    assert list((bare / ".windrow").iterdir()) == []
    program(bare / "bin", "mvn", copy)
    jar_folder = server.find_jars()
    assert [jar.name for jar in jar_folder.iterdir()] == ["kafka_2.13-4.3.0.jar"]
    assert list((bare / ".windrow").iterdir()) == [jar_folder]
    (bare / "bin" / "mvn").unlink()
    assert server.find_jars() == jar_folder


def test_a_named_folder_must_hold_kafka(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$WINDROW_KAFKA_JARS is used if it holds Kafka, and otherwise named in the error."""
    monkeypatch.setenv("WINDROW_KAFKA_JARS", str(bare))
    with pytest.raises(SpecError, match="WINDROW_KAFKA_JARS"):
        server.find_jars()
    (bare / "kafka_2.13-4.3.0.jar").touch()
    assert server.find_jars() == bare
