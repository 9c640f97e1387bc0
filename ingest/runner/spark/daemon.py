"""Spark's daemon of Python workers on this machine, with the pyspark that is installed here.

Spark puts a zip of pyspark before everything else on the path of its workers, and Python
compiles each module of a zip each time that it loads it, which a small window waits for.
The environment has the same modules, and has them compiled.

Spark runs this as it runs `pyspark.daemon` (the property `DAEMON_MODULE`).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from windrow.ingest.runner.spark.pyspark_internals import SPARK_ZIPS


def main() -> None:
    """Runs Spark's own daemon, which never returns."""
    sys.path.sort(key=lambda path: any(map(Path(path).match, SPARK_ZIPS)))  # Spark's come last
    # workers are forked of this process: each loads windrow as it is when the worker begins
    for name in [name for name in sys.modules if name.partition(".")[0] == "windrow"]:
        del sys.modules[name]
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
