"""A standalone Spark cluster on this machine's loopback: a master and workers, each a process
with its own folder.
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
"""Maximum seconds for the start or the end of a master or a worker."""

DRIVER_PROPERTIES: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
}
"""Spark properties of a driver on this machine."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: address of the master.
        workers: process of each worker, by its folder.
    """

    master: str
    workers: dict[Path, psutil.Process]

    def executors(self) -> list[psutil.Process]:
        """Returns the Java processes that run tasks, of all drivers and servers."""
        return [child for worker in self.workers.values() for child in worker.children()]


def of_this_process(_: Path) -> Mapping[str, str]:
    """Returns the default environment of a worker: this process's own, with its Python on PATH."""
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
    """Runs a cluster until the end of the block; its executors end with it.

    Args:
        folder: folder for all files of the cluster; it is made.
        workers: number of workers.
        cores: cores of each worker, which is the number of tasks that it runs at once.
        environment: function of a worker's folder that returns its environment.
        hosts: function of a worker's number that returns its address. Spark takes workers with
            the same address as one machine.

    Raises:
        UnreachableError: the master or a worker doesn't start; the message names its log.
    """
    with ExitStack() as stack:
        address, _ = stack.enter_context(
            _daemon(
                folder, "master.Master", [], r"Starting Spark master at (spark://\S+)", os.environ
            )
        )
        running = {}
        for number in range(workers):
            worker_folder = folder / f"worker-{number}"
            worker_folder.mkdir()
            options = f"--cores {cores} --memory 1g --work-dir".split()
            _, running[worker_folder] = stack.enter_context(
                _daemon(
                    worker_folder,
                    "worker.Worker",
                    [*options, str(worker_folder / "work"), address],
                    r"Successfully registered with master (\S+)",
                    environment(worker_folder),
                    hosts(number),
                )
            )
        yield Cluster(address, running)


@contextmanager
def _daemon(
    folder: Path,
    name: str,
    arguments: list[str],
    started: str,
    environment: Mapping[str, str],
    host: str = LOOPBACK,
) -> Iterator[tuple[str, psutil.Process]]:
    """Runs a master or a worker until the end of the block.

    Args:
        folder: folder of its files.
        name: its class within org.apache.spark.deploy.
        arguments: more arguments of the command.
        started: pattern of the log line that it writes once it is up.
        environment: its environment.
        host: its address.

    Yields:
        The pattern's group, and the process.
    """
    addresses = ["--host", host, "--port", "0", "--webui-port", "0"]
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *addresses]
    with running(folder, [*command, *arguments], started, environment, host) as daemon:
        yield daemon


@contextmanager
def running(
    folder: Path,
    command: list[str],
    started: str,
    environment: Mapping[str, str],
    host: str = LOOPBACK,
) -> Iterator[tuple[str, psutil.Process]]:
    """Runs a command that starts a master or a worker, until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {
        **environment,
        "SPARK_LOCAL_IP": host,
        "SPARK_HOME": str(SPARK),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    env.pop("PYTHONPATH", None)
    log = folder / f"{command[1].rpartition('.')[2]}.log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder
        ) as process,
    ):
        try:
            yield _logged(log, process, started), psutil.Process(process.pid)
        finally:
            below = (
                psutil.Process(process.pid).children(recursive=True)
                if process.poll() is None
                else []
            )
            process.terminate()
            process.wait(LIMIT)
            for process_below in below:
                if process_below.is_running():
                    process_below.kill()
            psutil.wait_procs(below, LIMIT)


def _logged(log: Path, process: subprocess.Popen[bytes], pattern: str) -> str:
    """Waits for a line in a log, and returns the pattern's group."""
    until, pause = time.monotonic() + LIMIT, threading.Event()
    while (match := re.search(pattern, log.read_text(errors="replace"))) is None:
        if process.poll() is not None or time.monotonic() > until:
            raise UnreachableError(
                "The Spark cluster's master or one of its workers doesn't start",
                "setup",
                f"See its output in {log}.",
            )
        pause.wait(0.05)
    return match[1]
