"""A standalone Spark cluster on this machine: a master and workers in processes of their own.

Each worker has a folder and a home of its own, and an environment with the packages that windrow requires and none of windrow itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

SPARK = Path(pyspark.__file__).parent
LIMIT = 60
"""Seconds in which a master or a worker is up."""


@dataclass(frozen=True)
class Cluster:
    """`master`: its address. `workers`: their processes, by folder."""

    master: str
    workers: dict[Path, psutil.Process]


@contextmanager
def cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """A cluster until the end of the block; gone then with all below it."""
    with ExitStack() as stack:
        address, _ = stack.enter_context(_daemon(folder, "master.Master", [], r"Starting Spark master at (spark://\S+)", os.environ))
        found = {}
        for name in (f"worker-{number}" for number in range(workers)):
            place = folder / name
            python = deps_only(place / "environment")
            environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(place / "home"), "JAVA_HOME": os.environ["JAVA_HOME"]}
            (place / "home").mkdir()
            words = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(place / "work"), address]
            _, found[place] = stack.enter_context(
                _daemon(place, "worker.Worker", words, r"Successfully registered with master (\S+)", environment)
            )
        yield Cluster(address, found)


def deps_only(folder: Path) -> Path:
    """The interpreter of a new environment with this one's packages, but without windrow: what installs that is no part of a path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=LIMIT)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python3"


@contextmanager
def _daemon(folder: Path, name: str, words: list[str], says: str, environment: Mapping[str, str]) -> Iterator[tuple[str, psutil.Process]]:
    folder.mkdir(parents=True, exist_ok=True)
    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *here]
    clean = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK), "SPARK_DAEMON_MEMORY": "256m"}
    env = {**environment, **clean}
    env.pop("PYTHONPATH", None)
    log = folder / f"{name}.log"
    with log.open("w") as out, subprocess.Popen([*command, *words], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder) as process:
        try:
            yield _said(log, process, says), psutil.Process(process.pid)
        finally:
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.terminate()
            process.wait(LIMIT)
            for left in below:
                if left.is_running():
                    left.kill()
            psutil.wait_procs(below, LIMIT)


def _said(log: Path, process: subprocess.Popen[bytes], says: str) -> str:
    """What it says of itself once it is up."""
    until, pause = time.monotonic() + LIMIT, threading.Event()
    while (found := re.search(says, log.read_text(errors="replace"))) is None:
        assert process.poll() is None, f"it ended before it was up; see {log}"
        assert time.monotonic() < until, f"it isn't up; see {log}"
        pause.wait(0.05)
    return found[1]
