"""The jars of the embedded broker, in a cache, which Maven fills once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.java import install
from windrow.ingest.waiting import waiting_for

KAFKA = "4.3.0"
POM = Path(__file__).with_name("kafka-pom.xml")
_MAVEN_SECONDS = 600


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
            f"Either {install('maven')}, or name a folder with Kafka's jars in WINDROW_KAFKA_JARS.",
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
