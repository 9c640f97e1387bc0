"""A run in a process of its own, with all that Spark offers to write down or to show; run by `test_canary.py`.

    python -m tests.integration.canary SPEC WINDOW OUT [FILE]

OUT gets what Spark says of itself while its session is up, what is sent to workers, and how the run ended. FILE: the password's, which gets
another one once the driver has read it: so the workers are turned away.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
from pyspark import cloudpickle

from ingest.assemble import assemble
from ingest.cli.windows import named
from ingest.engine.cluster import spark_session
from ingest.engine.spark import Job, SparkEngine
from ingest.errors import WindrowError
from ingest.run.context import Request
from ingest.run.pipeline import run
from ingest.spec.load import load_spec

SHOWN = ("environment", "executors", "allexecutors", "jobs", "stages", "sql", "storage/rdd")
WRONG = "-another"
"""Behind the password, makes another one of it."""


def command_line(process: psutil.Process) -> str:
    """As anybody on the machine can read it; of one that has ended meanwhile, none."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def main(spec: Path, window: str, out: Path, file: Path | None) -> None:
    """See above."""
    for folder in ("events", "local"):
        (out / folder).mkdir(parents=True)
    session = spark_session("local[2,1]", {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": (out / "events").as_uri(), "spark.eventLog.compress": "false",
        "spark.local.dir": str(out / "local"), "spark.ui.enabled": "true", "spark.ui.port": "0",
    })  # fmt: skip

    def sent(job: Job) -> Any:
        (out / "job").write_bytes(cloudpickle.dumps(job))  # type: ignore[no-untyped-call]  # Spark's own
        return job

    made = load_spec(spec)
    pipeline = assemble(made, SparkEngine(lambda: session, shipped=sent))
    if file is not None:
        file.write_text(file.read_text().strip() + WRONG)
    [asked] = named(made, window) or []
    try:
        said = repr(run(pipeline, asked, Request("canary")))
    except WindrowError as error:
        said = f"{type(error).__name__}: {error}"
    (out / "said").write_text(said)
    (out / "conf").write_text(repr(session.sparkContext.getConf().getAll()))
    application = f"{session.sparkContext.uiWebUrl}/api/v1/applications/{session.sparkContext.applicationId}"
    for name in SHOWN:
        with urllib.request.urlopen(f"{application}/{name}", timeout=30) as answer:
            (out / f"ui-{name.replace('/', '-')}").write_bytes(answer.read())
    (out / "processes").write_text("\n".join(map(command_line, [psutil.Process(), *psutil.Process().children(recursive=True)])))
    kept = [path for path in (out / "local").rglob("*") if path.is_file()]
    (out / "kept").write_bytes(b"\n".join(path.read_bytes() for path in kept))  # Spark removes them when it ends
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
