"""A standalone Spark cluster whose workers have nothing of windrow: their own home, and an
environment without its code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import windrow.ingest.errors
from tests.runner.spark.daemons import LIMIT, Cluster
from tests.runner.spark.daemons import cluster as any_cluster
from windrow.ingest.runner.spark.cluster import own_code


@contextmanager
def cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Runs a cluster until the end of the block; it ends with all its children."""
    with any_cluster(folder, workers, cores, _bare) as running_cluster:
        yield running_cluster


@contextmanager
def known_cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Runs a cluster whose workers have different addresses, and homes with compiled code of an
    earlier run.

    For Spark they are different machines. It never runs the second try of a task on the machine
    that still has the first.
    """
    with any_cluster(
        folder, workers, cores, _visited, lambda number: f"127.0.0.{number + 1}"
    ) as running_cluster:
        yield running_cluster


def _visited(folder: Path) -> dict[str, str]:
    environment = _bare(folder)
    leave_compiled(folder / "home" / ".cache")
    return environment


def leave_compiled(cache: Path) -> None:
    """Puts windrow's code, and the code compiled from it, into a cache, as an earlier run does."""
    above = cache / "windrow" / "code"
    above.mkdir(0o700, parents=True)
    package = above / own_code().digest / "windrow"
    shutil.copytree(Path(windrow.ingest.errors.__file__).parent, package / "ingest")
    shutil.copy(Path(windrow.__file__), package)


def _bare(folder: Path) -> dict[str, str]:
    """Returns the environment of a worker that has windrow's requirements but not windrow."""
    python = deps_only(folder / "environment")
    (folder / "home").mkdir()
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "JAVA_HOME": os.environ["JAVA_HOME"],
    }


def deps_only(folder: Path) -> Path:
    """Makes an environment with this one's packages but without windrow, and returns its
    interpreter.

    The path file that installs windrow has no effect there.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=LIMIT
    )
    packages = (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python3"
