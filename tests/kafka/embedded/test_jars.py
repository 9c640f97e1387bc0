"""Errors about missing Java and jars name the command that helps."""

from __future__ import annotations

import hashlib
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


def test_a_java_is_asked_for_its_version_once(bare: Path) -> None:
    """A process starts Java once for its version, whatever number of pipelines `doctor` checks."""
    calls = bare / "calls"
    program(bare / "bin", "java", f"echo x >> {calls}; echo 'openjdk version \"17.0.1\"' >&2")
    assert [java.java_problem() or java.java_untried() for _ in range(3)] == [None] * 3
    assert calls.read_text() == "x\n"


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


FIND_FOLDER = 'for a in "$@"; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; done'


def fake_maven(folder: Path, jar_text: str) -> None:
    """Writes an mvn that copies a single jar with this text."""
    jar = '"$out/kafka_2.13-4.3.0.jar"'
    program(
        folder / "bin", "mvn", f'{FIND_FOLDER}; /bin/mkdir -p "$out"; printf %s {jar_text} > {jar}'
    )


@pytest.fixture
def pinned(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine as `bare`, for a Kafka that is a single jar with the text `right`."""
    hashes = bare / "kafka-jars.sha256"
    digest = hashlib.sha256(b"right").hexdigest()
    hashes.write_text(f"{digest}  org/kafka_2.13/4.3.0/kafka_2.13-4.3.0.jar\n")
    monkeypatch.setattr(server, "JAR_HASHES", hashes)
    return bare


def test_jars_appear_whole_or_not_at_all(pinned: Path) -> None:
    """A failed fetch leaves no cache, and its error has Maven's output.

    The next try fills the cache, and later ones don't call Maven.
    """
    fake_maven(pinned, "right; echo no route to repository; exit 1; true")
    with pytest.raises(UnreachableError, match="no route to repository"):
        server.find_jars()
    assert list((pinned / ".windrow").iterdir()) == []
    fake_maven(pinned, "right")
    jar_folder = server.find_jars()
    assert [jar.name for jar in jar_folder.iterdir()] == ["kafka_2.13-4.3.0.jar"]
    assert list((pinned / ".windrow").iterdir()) == [jar_folder]
    (pinned / "bin" / "mvn").unlink()
    assert server.find_jars() == jar_folder


def test_a_changed_jar_is_refused(pinned: Path) -> None:
    """A jar with another hash than the pinned one is named in an error and never used.

    The right jar is taken, once Maven has it.
    """
    fake_maven(pinned, "changed")
    with pytest.raises(UnreachableError, match=r"other jars .*: kafka_2\.13-4\.3\.0\.jar"):
        server.find_jars()
    assert list((pinned / ".windrow").iterdir()) == []
    fake_maven(pinned, "right")
    assert server.find_jars().is_dir()


def test_hashes_are_of_the_jars_that_kafka_runs_on() -> None:
    """The hashes are of the same jars as the folder that the tests' brokers start from has."""
    named = {line.rpartition("/")[2] for line in server.JAR_HASHES.read_text("utf-8").splitlines()}
    assert f"kafka_2.13-{server.KAFKA}.jar" in named
    assert named == {jar.name for jar in server.find_jars().iterdir()}


def test_a_named_folder_must_hold_kafka(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$WINDROW_KAFKA_JARS is used if it holds Kafka, and otherwise named in the error."""
    monkeypatch.setenv("WINDROW_KAFKA_JARS", str(bare))
    with pytest.raises(SpecError, match="WINDROW_KAFKA_JARS"):
        server.find_jars()
    (bare / "kafka_2.13-4.3.0.jar").touch()
    assert server.find_jars() == bare
