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
from windrow.ingest.waiting import waiting_for

KAFKA = "4.3.0"
JAVA_MAJORS = (17, 21)
"""Java versions that windrow is tried with; Kafka's server and Spark need the first at least."""

POM = Path(__file__).with_name("kafka-pom.xml")
_MAVEN_SECONDS = 600


def _install(packages: str) -> str:
    return f"install it (on Debian and its kin: apt-get install {packages})"


def java_command() -> str | None:
    """Path of the java that Spark takes too: that of JAVA_HOME, else that on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def java_problem() -> str | None:
    """The problem of this machine's Java and its solution, in one sentence; None if fine."""
    wanted = " or ".join(map(str, JAVA_MAJORS))
    java, home = java_command(), os.environ.get("JAVA_HOME")
    do = (
        "correct JAVA_HOME, or unset it"
        if home
        else f"{_install('openjdk-17-jdk-headless, or openjdk-21-jdk-headless')}, or set JAVA_HOME"
    )
    if java is None:
        return (
            f"Java {wanted} is needed and there is none"
            f" {f'in JAVA_HOME, which is {home}' if home else 'on the PATH'}: {do}"
        )
    try:
        major = _major(java)
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"Java {wanted} is needed and {java} does not run ({type(why).__name__}): {do}"
    if major < JAVA_MAJORS[0]:
        return f"Java {wanted} is needed and {java} is {major or 'of an unknown version'}: {do}"
    return None


def java_untried() -> str | None:
    """Says that this machine's Java, which has no problem, is none that windrow is tried with."""
    major, tried = _major(java := java_command() or "java"), " and ".join(map(str, JAVA_MAJORS))
    return None if major in JAVA_MAJORS else f"{java} is {major}, and windrow is tried with {tried}"


def _major(java: str) -> int:
    """Asks a Java for its version; 0 if it doesn't say."""
    output = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False, timeout=60
    ).stderr
    major = re.search(r'version "(?:1\.)?(\d+)', output)
    return 0 if major is None else int(major[1])


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
            f"Either {_install('maven')}, or name a folder with Kafka's jars in"
            " WINDROW_KAFKA_JARS.",
        )
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=cache.parent) as work:
        pom = shutil.copy(POM, Path(work) / "pom.xml")
        jars = Path(work) / "jars"
        with waiting_for(f"Maven to fetch Kafka's jars into {cache}, once"):
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
