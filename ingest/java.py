"""The Java of this machine, which Spark and Kafka's server need: its path and its problems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

JAVA_MAJORS = (17, 21)
"""Java versions that windrow is tested with. Kafka's server and Spark need at least the first."""


def install_advice(packages: str) -> str:
    """Returns the advice how to install packages of the operating system."""
    return f"install it (on Debian and its kin: apt-get install {packages})"


def java_command() -> str | None:
    """Returns the path of the java that Spark uses: from JAVA_HOME, or else from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def java_problem() -> str | None:
    """Returns what is wrong with this machine's Java and how to fix it; None if it can be used."""
    versions = " or ".join(map(str, JAVA_MAJORS))
    java, home = java_command(), os.environ.get("JAVA_HOME")
    advice = (
        "correct JAVA_HOME, or unset it"
        if home
        else install_advice("openjdk-17-jdk-headless, or openjdk-21-jdk-headless")
        + ", or set JAVA_HOME"
    )
    if java is None:
        return (
            f"Java {versions} is needed and there is none"
            f" {f'in JAVA_HOME, which is {home}' if home else 'on the PATH'}: {advice}"
        )
    try:
        major = _major(java)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (
            f"Java {versions} is needed and {java} does not run ({type(error).__name__}): {advice}"
        )
    if major < JAVA_MAJORS[0]:
        return (
            f"Java {versions} is needed and {java} is {major or 'of an unknown version'}: {advice}"
        )
    return None


def java_untried() -> str | None:
    """Returns a warning if windrow isn't tested with this version of Java; None if it is.

    Only for a Java that can be used.
    """
    major, tried = _major(java := java_command() or "java"), " and ".join(map(str, JAVA_MAJORS))
    return None if major in JAVA_MAJORS else f"{java} is {major}, and windrow is tried with {tried}"


@cache  # doctor asks for each pipeline of a file
def _major(java: str) -> int:
    """Asks a java for its major version; 0 if it doesn't say it."""
    output = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False, timeout=60
    ).stderr
    major = re.search(r'version "(?:1\.)?(\d+)', output)
    return 0 if major is None else int(major[1])
