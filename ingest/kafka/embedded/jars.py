"""Java, and the jars of the embedded broker.

The jars are in a cache, which Maven fills once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from windrow.ingest.errors import SpecError, UnreachableError

KAFKA = "4.3.0"
JAVA_MAJORS = (17, 21)
"""Java versions that both Kafka's server and Spark run on."""

POM = Path(__file__).with_name("kafka-pom.xml")
_MAVEN_SECONDS = 600
_INSTALL = "apt-get install -y openjdk-17-jdk-headless maven"


def java_command() -> str | None:
    """Path of the java that Spark takes too: that of JAVA_HOME, else that on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def java_problem() -> str | None:
    """The problem of this machine's Java and its solution, in one sentence; None if fine."""
    wanted = " or ".join(map(str, JAVA_MAJORS))
    java, home = java_command(), os.environ.get("JAVA_HOME")
    do = "correct JAVA_HOME, or unset it" if home else f"{_INSTALL}, or set JAVA_HOME"
    if java is None:
        return (
            f"Java {wanted} is needed and there is none"
            f" {f'in JAVA_HOME, which is {home}' if home else 'on the PATH'}: {do}"
        )
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"Java {wanted} is needed and {java} does not run ({type(why).__name__}): {do}"
    major = re.search(r'version "(?:1\.)?(\d+)', output)
    if major is None or int(major[1]) not in JAVA_MAJORS:
        return (
            f"Java {wanted} is needed and {java} is"
            f" {major[1] if major else 'of an unknown version'}: {do}"
        )
    return None


def find_jars() -> Path:
    """Folder with Kafka's jars: $WINDROW_KAFKA_JARS, else the project's cache.

    Maven fills the cache on first use.

    Raises:
        SpecError: $WINDROW_KAFKA_JARS names a folder without Kafka's jars.
        UnreachableError: Maven is missing, or could not download the jars.
    """
    named = os.environ.get("WINDROW_KAFKA_JARS")
    if named:
        if not any(Path(named).glob("kafka_2.13-*.jar")):
            what = f"WINDROW_KAFKA_JARS is {named}, which holds no kafka_2.13 jar"
            raise SpecError(what, "setup", "Name a folder with Kafka's jars, or unset it.")
        return Path(named)
    cache = root() / ".windrow" / f"kafka-{KAFKA}"
    return cache if cache.is_dir() else _fetch(cache)


def root() -> Path:
    """The checkout, or the current folder where windrow is an installed package."""
    checkout = Path(__file__).parents[4]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def _fetch(cache: Path) -> Path:
    """Downloads the jars to another folder and renames it: a cache is always complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UnreachableError(
            "Maven is needed to fetch Kafka's jars, and there is no mvn on the path",
            "setup",
            f"Type: {_INSTALL}",
        )
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=cache.parent) as work:
        pom = shutil.copy(POM, Path(work) / "pom.xml")
        jars = Path(work) / "jars"
        _maven(
            [
                maven,
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={jars}",
            ]
        )
        try:
            jars.rename(cache)
        except OSError:
            if not cache.is_dir():  # else another process was first, with the same jars
                raise
    return cache


def _maven(command: list[str]) -> None:
    typed = " ".join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAVEN_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(
            f"Maven took longer than {_MAVEN_SECONDS} s", "setup", f"Try by hand: {typed}"
        ) from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        do = f"Look at Maven's settings and the network; by hand: {typed}"
        raise UnreachableError(f"Maven could not fetch Kafka's jars:\n{tail}\n", "setup", do)
