"""`windrow spark run` in other processes, for tests that call, stop or kill it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.commands import first_document
from windrow.ingest.runner.spark.connect import TOKEN

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "windrow.ingest.cli.main", "spark", "run", "--json"]


@contextmanager
def serving(
    *words: str, port: int = 0, environment: Mapping[str, str] = {}, folder: Path = ROOT
) -> Iterator[tuple[str, psutil.Process]]:
    """Runs a server, which ends with all its children at the end of the block.

    Args:
        words: more arguments of the command.
        port: its port; 0 for any free one.
        environment: more environment variables.
        folder: its working folder. Tasks of the tests can be imported from any folder.

    Yields:
        The server's address, and its process.
    """
    clean = {
        name: value for name, value in os.environ.items() if name not in {TOKEN, "WINDROW_CRASH"}
    }
    env = {**clean, "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen(
        [*COMMAND, "--port", str(port), *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=env,
    ) as process:
        below: list[psutil.Process] = []
        try:
            address = first_document(process)["connect"]
            below = psutil.Process(process.pid).children(recursive=True)
            yield address, psutil.Process(process.pid)
        finally:
            if process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                process.terminate()
            process.wait(60)
            for process_below in below:
                if process_below.is_running():
                    process_below.kill()
