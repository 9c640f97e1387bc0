"""A run in a process of its own, in which Spark writes and shows as much as it can.

`test_canary.py` runs it:

    python -m tests.integration.canary SPEC WINDOW OUT [--spoil FILE] [--master URL
    --worker PID ...]

The folder OUT gets what Spark shows of its session, what is sent to workers, the run's end, and
the command line and environment of each process. These are the driver's processes and those
below the workers.

`--spoil FILE` writes another password to FILE after the driver has read it, so that the broker
refuses the workers.
"""

from __future__ import annotations

import argparse
import urllib.request
from pathlib import Path
from typing import Any

import psutil
from pyspark import cloudpickle

from tests.runner.spark.daemons import DRIVER_PROPERTIES
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.errors import WindrowError
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark import engine
from windrow.ingest.runner.spark.cluster import job_for_workers, spark_session
from windrow.ingest.runner.spark.jobs import SparkJob
from windrow.ingest.runner.spark.local import is_local

SHOWN = ("environment", "executors", "allexecutors", "jobs", "stages", "sql", "storage/rdd")
WRONG = "-another"
"""A suffix that turns the password into another one."""


def command_line(process: psutil.Process) -> str:
    """Returns the command line that any user can read; empty if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def environment(process: psutil.Process) -> str:
    """Returns the environment of the process; empty if the process has ended."""
    try:
        return repr(process.environ())
    except psutil.Error:
        return ""


def main(
    spec: Path, window: str, out: Path, spoil: Path | None, master: str, workers: list[int]
) -> None:
    """Runs the window and writes everything visible to `out`."""
    for folder in ("events", "local"):
        (out / folder).mkdir(parents=True)
    session = spark_session(
        master,
        {
            **({} if is_local(master) else DRIVER_PROPERTIES),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (out / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.local.dir": str(out / "local"),
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        },
    )

    def kept(spark: Any, job: SparkJob) -> Any:
        goes = job_for_workers(spark, job)
        (out / "job").write_bytes(cloudpickle.dumps(goes))  # type: ignore[no-untyped-call]  # Spark's own
        return goes

    loaded_spec = load_spec(spec)
    engine.job_for_workers = kept
    pipeline = assemble(loaded_spec, engine.SparkEngine(lambda: session.sparkContext))
    if spoil is not None:
        spoil.write_text(spoil.read_text().strip() + WRONG)
    [requested_window] = windows_named(loaded_spec, window)
    try:
        outcome = repr(run(pipeline, requested_window, Request("canary")))
    except WindrowError as error:
        outcome = f"{type(error).__name__}: {error}"
    (out / "said").write_text(outcome)
    (out / "conf").write_text(repr(session.sparkContext.getConf().getAll()))
    application = (
        f"{session.sparkContext.uiWebUrl}/api/v1/applications/{session.sparkContext.applicationId}"
    )
    for name in SHOWN:
        with urllib.request.urlopen(f"{application}/{name}", timeout=30) as response:
            (out / f"ui-{name.replace('/', '-')}").write_bytes(response.read())
    executors = [
        process for worker in workers for process in psutil.Process(worker).children(recursive=True)
    ]
    (out / "environments").write_text("\n".join(map(environment, executors)))
    processes = [psutil.Process(), *psutil.Process().children(recursive=True), *executors]
    (out / "processes").write_text("\n".join(map(command_line, processes)))
    kept = [path for path in (out / "local").rglob("*") if path.is_file()]
    # Spark removes these files when it ends.
    (out / "kept").write_bytes(b"\n".join(path.read_bytes() for path in kept))
    session.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", type=Path)
    parser.add_argument("window")
    parser.add_argument("out", type=Path)
    parser.add_argument("--spoil", type=Path)
    parser.add_argument("--master", default="local[2,1]")
    parser.add_argument("--worker", type=int, action="append", default=[])
    options = parser.parse_args()
    main(options.spec, options.window, options.out, options.spoil, options.master, options.worker)
