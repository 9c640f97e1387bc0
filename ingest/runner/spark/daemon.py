"""Spark's daemon of Python workers on this machine, with the installed pyspark.

Spark puts a zip of pyspark first on the path of its workers. Python compiles a module of a zip
each time that it loads the module, which slows down small windows. The environment has the same
modules, already compiled, so this daemon moves the zip to the end.

Spark runs this module in place of `pyspark.daemon` (the property `DAEMON_MODULE`).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from windrow.ingest.runner.spark.pyspark_internals import SPARK_ZIPS


def main() -> None:
    """Runs Spark's own daemon, which never returns."""
    sys.path.sort(key=lambda path: any(map(Path(path).match, SPARK_ZIPS)))  # Spark's zips go last
    # Workers are forked from this process. Each must load windrow's files itself, in their state
    # when the worker begins.
    for name in [name for name in sys.modules if name.partition(".")[0] == "windrow"]:
        del sys.modules[name]
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
