"""The Spark that runs the demo's tasks.

It is the demo's own, a cluster of two workers on this machine, or a Spark Connect server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.assets.demo.place import SparkPlace
from windrow.assets.demo.standalone import DRIVER_PROPERTIES, LIMIT, cluster
from windrow.ingest.errors import UnreachableError
from windrow.resources.spark import Spark


@contextmanager
def spark_at(kind: SparkPlace | None, folder: Path) -> Iterator[Spark]:
    """Starts a cluster or a server until the end of the block; yields its resource.

    Args:
        kind: cluster or server; None for the demo's own Spark.
        folder: for files and logs; a cluster's is emptied before.

    Raises:
        UnreachableError: it doesn't come up.
    """
    if kind == "cluster":
        shutil.rmtree(folder, ignore_errors=True)
        with cluster(folder) as made:
            yield Spark(
                master=made.master,
                spark_config={**DRIVER_PROPERTIES, "spark.pyspark.python": sys.executable},
            )
    elif kind == "connect":
        folder.mkdir(parents=True, exist_ok=True)
        with _server(folder / "connect.log") as address:
            yield Spark(connect=address)
    else:
        yield Spark()


@contextmanager
def _server(log: Path) -> Iterator[str]:
    """Runs `windrow spark run` until the end of the block; yields its address."""
    windrow = str(Path(sys.executable).with_name("windrow"))
    command = [windrow, "spark", "run", "--port", "0", "--json"]
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            document = ""
            while not document.endswith("}\n") and (line := process.stdout.readline()):
                document += line
            if not document.endswith("}\n"):
                raise UnreachableError(
                    "The Spark Connect server doesn't start", "setup", f"See its output in {log}."
                )
            yield json.loads(document)["connect"]
        finally:
            process.terminate()
            process.wait(LIMIT)
