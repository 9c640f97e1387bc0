"""A run in a process of its own, in which Spark writes and shows as much as it can.

`channels.py` runs it:

    python -m tests.integration.canary SPEC WINDOW OUT [--spoil FILE]
        [--master URL --worker PID ... | --connect URL]

The folder OUT gets what Spark shows of its session, what is sent to workers, the run's end, and
the command line and environment of each process. These are the driver's processes and those
below the workers.

`--spoil FILE` writes another password to FILE after the driver has read it, so that the broker
refuses the workers.
"""

from __future__ import annotations

import argparse
import traceback
import urllib.request
from collections.abc import Sequence
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
from windrow.ingest.runner.spark.connect import ConnectedSpark
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
    spec: Path,
    window: str,
    out: Path,
    spoil: Path | None,
    master: str,
    workers: Sequence[int],
    server: str | None,
) -> None:
    """Runs the window and writes everything visible to `out`."""
    for folder in ("events", "local"):
        (out / folder).mkdir(parents=True)

    def kept(spark: Any, job: SparkJob) -> Any:
        goes = job_for_workers(spark, job)
        (out / "job").write_bytes(cloudpickle.dumps(goes))  # type: ignore[no-untyped-call]  # Spark's own
        return goes

    engine.job_for_workers = kept
    session = None if server else _session(master, out)
    spark = ConnectedSpark(server).session if server else (lambda: session.sparkContext)
    loaded_spec = load_spec(spec)
    pipeline = assemble(loaded_spec, engine.SparkEngine(spark))
    if spoil is not None:
        spoil.write_text(spoil.read_text().strip() + WRONG)
    [requested_window] = windows_named(loaded_spec, window)
    try:
        outcome = repr(run(pipeline, requested_window, Request("canary")))
    except WindrowError as error:
        outcome = "".join(traceback.format_exception(error))
    (out / "said").write_text(outcome)
    executors = [
        process for worker in workers for process in psutil.Process(worker).children(recursive=True)
    ]
    processes = [psutil.Process(), *psutil.Process().children(recursive=True), *executors]
    (out / "environments").write_text("\n".join(map(environment, processes)))
    (out / "processes").write_text("\n".join(map(command_line, processes)))
    if session is not None:
        _write_shown(session, out)
        session.stop()


def _session(master: str, out: Path) -> Any:
    return spark_session(
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


def _write_shown(session: Any, out: Path) -> None:
    """Writes the session's settings, its pages, and the files that Spark removes when it ends."""
    context = session.sparkContext
    (out / "conf").write_text(repr(context.getConf().getAll()))
    application = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    for name in SHOWN:
        with urllib.request.urlopen(f"{application}/{name}", timeout=30) as response:
            (out / f"ui-{name.replace('/', '-')}").write_bytes(response.read())
    kept = [path for path in (out / "local").rglob("*") if path.is_file()]
    (out / "kept").write_bytes(b"\n".join(path.read_bytes() for path in kept))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", type=Path)
    parser.add_argument("window")
    parser.add_argument("out", type=Path)
    parser.add_argument("--spoil", type=Path)
    parser.add_argument("--master", default="local[2,1]")
    parser.add_argument("--worker", type=int, action="append", default=[])
    parser.add_argument("--connect")
    options = parser.parse_args()
    main(
        options.spec,
        options.window,
        options.out,
        options.spoil,
        options.master,
        options.worker,
        options.connect,
    )
