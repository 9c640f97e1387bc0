"""A standalone Spark cluster on this machine, on loopback: a master and workers, each a
process with a folder of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from windrow.ingest.errors import UnreachableError

SPARK = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
LIMIT = 60
"""Seconds in which a master or a worker is up, or has ended."""

WORDS: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
"""What a driver on this machine tells Spark besides."""


@dataclass(frozen=True)
class Cluster:
    """`master`: its address. `workers`: their processes, by folder."""

    master: str
    workers: dict[Path, psutil.Process]


def of_this_process(_: Path) -> Mapping[str, str]:
    """A worker's environment: this process's own, with its Python."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
    }


@contextmanager
def cluster(
    folder: Path,
    workers: int = 2,
    cores: int = 1,
    environment: Callable[[Path], Mapping[str, str]] = of_this_process,
    hosts: Callable[[int], str] = lambda _: LOOPBACK,
) -> Iterator[Cluster]:
    """A cluster until the end of the block; gone then with all below it.

    Args:
        folder: where all of it has its files; made.
        workers: how many.
        cores: of each worker, which is how many tasks it runs at once.
        environment: the environment of a worker, from its folder.
        hosts: the address of a worker, from its number: Spark takes workers with one
            address for one machine.

    Raises:
        UnreachableError: a part of it doesn't come up; names its log.
    """
    with ExitStack() as stack:
        address, _ = stack.enter_context(
            _daemon(
                folder, "master.Master", [], r"Starting Spark master at (spark://\S+)", os.environ
            )
        )
        found = {}
        for number in range(workers):
            place = folder / f"worker-{number}"
            place.mkdir()
            words = [
                "--cores",
                str(cores),
                "--memory",
                "1g",
                "--work-dir",
                str(place / "work"),
                address,
            ]
            _, found[place] = stack.enter_context(
                _daemon(
                    place,
                    "worker.Worker",
                    words,
                    r"Successfully registered with master (\S+)",
                    environment(place),
                    hosts(number),
                )
            )
        yield Cluster(address, found)


@contextmanager
def _daemon(
    folder: Path,
    name: str,
    words: list[str],
    says: str,
    environment: Mapping[str, str],
    host: str = LOOPBACK,
) -> Iterator[tuple[str, psutil.Process]]:
    folder.mkdir(parents=True, exist_ok=True)
    here = ["--host", host, "--port", "0", "--webui-port", "0"]
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *here]
    env = {
        **environment,
        "SPARK_LOCAL_IP": host,
        "SPARK_HOME": str(SPARK),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    env.pop("PYTHONPATH", None)
    log = folder / f"{name}.log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            [*command, *words], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder
        ) as process,
    ):
        try:
            yield _said(log, process, says), psutil.Process(process.pid)
        finally:
            below = (
                psutil.Process(process.pid).children(recursive=True)
                if process.poll() is None
                else []
            )
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
        if process.poll() is not None or time.monotonic() > until:
            raise UnreachableError(
                "A part of the Spark cluster doesn't come up", "setup", f"What it said is in {log}."
            )
        pause.wait(0.05)
    return found[1]
