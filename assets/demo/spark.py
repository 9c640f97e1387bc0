"""Where the demo's tasks run: in Spark of its own, on a cluster of two workers on this
machine, or on a Spark Connect server.
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
from windrow.assets.demo.standalone import LIMIT, WORDS, cluster
from windrow.ingest.errors import UnreachableError
from windrow.resources.spark import Spark


@contextmanager
def spark_at(kind: SparkPlace | None, folder: Path) -> Iterator[Spark]:
    """The resource that says where, until the end of the block; what it started is gone then.

    None: what a pipeline has unless told.

    Args:
        kind: which of them.
        folder: for the cluster's files and logs; emptied before.

    Raises:
        UnreachableError: it doesn't come up.
    """
    if kind == "cluster":
        shutil.rmtree(folder, ignore_errors=True)
        with cluster(folder) as made:
            yield Spark(
                master=made.master, spark_config={**WORDS, "spark.pyspark.python": sys.executable}
            )
    elif kind == "connect":
        folder.mkdir(parents=True, exist_ok=True)
        with _server(folder / "connect.log") as address:
            yield Spark(connect=address)
    else:
        yield Spark()


@contextmanager
def _server(log: Path) -> Iterator[str]:
    """`windrow spark run` until the end of the block; its address."""
    command = [
        str(Path(sys.executable).with_name("windrow")),
        "spark",
        "run",
        "--port",
        "0",
        "--json",
    ]
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True) as process,
    ):
        try:
            said = ""
            while (
                process.stdout is not None
                and not said.endswith("}\n")
                and (line := process.stdout.readline())
            ):
                said += line
            if not said.endswith("}\n"):
                raise UnreachableError(
                    "The Spark Connect server doesn't come up",
                    "setup",
                    f"What it said is in {log}.",
                )
            yield json.loads(said)["connect"]
        finally:
            process.terminate()
            process.wait(LIMIT)
