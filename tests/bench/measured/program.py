"""windrow as a measured program, which does as much of its work as a job says.

python program.py BOOTSTRAP [MASTER]      then a JSON job per line on stdin, an answer per line
on stdout

- `raw` reads messages.
- `decoded` makes columns.
- `rules` also checks the rules of the model.
- `table` does everything.
- `around` does everything, and answers the seconds without the engine's part: the driver's own
  time.

The first three run the task of a window without a sink, on the same engine. `table` has a new
table and ledger each time, so it plans, freezes boundaries and commits. MASTER may be a Spark
Connect server's address.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.runner.spark.daemons import DRIVER_PROPERTIES
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Staged, Staging
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run_windows
from windrow.ingest.runner.spark.cluster import spark_session
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.runner.spark.jobs import context_of
from windrow.ingest.runner.spark.local import is_local
from windrow.ingest.runner.spark.server import kept_alive, run_empty_task
from windrow.ingest.runner.task import SplitTask
from windrow.ingest.schema.columns import Columns
from windrow.ingest.transform.chain import Chain

BENCH_FOLDER = Path(__file__).parents[1]


class Nowhere:
    """A stager that writes nothing and counts rows."""

    def __init__(self, _: Split) -> None:
        self.rows = 0

    def add(self, rows: pa.RecordBatch, _: pa.RecordBatch) -> None:
        """Counts the rows."""
        self.rows += rows.num_rows

    def finish(self) -> Staging:
        """Returns the count."""
        return Staging(self.rows)

    def discard(self) -> None:
        """Does nothing."""


class NoRows:
    """A decoder that ignores its messages: each is filtered and becomes no row."""

    columns = Columns(())

    def open(self) -> Decode:
        """Returns the same function for every batch."""
        none, text = pa.array([], pa.int64()), pa.array([], pa.string())
        return lambda messages: Decoded(
            pa.record_batch({}), none, none, text, text, text, filtered=messages.num_rows
        )


class Watched:
    """An engine that counts the seconds in which the driver waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.seconds = engine, 0.0

    def slots(self) -> int:
        """Returns the engine's number of slots."""
        return self._engine.slots()

    def start(self) -> None:
        """Starts the engine."""
        self._engine.start()

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs all splits, so that the clock is stopped when the driver goes on."""
        began = time.perf_counter()
        results = list(self._engine.run(task, splits))
        self.seconds += time.perf_counter() - began
        return iter(results)


def run_tasks(pipeline: Pipeline, job: dict[str, Any]) -> int:
    """Runs the tasks alone; returns the number of rows, or of messages for the work `raw`."""
    topic = job["topic"]
    plan = ReadPlan(
        pipeline.broker.cluster_id(), {topic: pipeline.broker.topic(topic).topic_id}, "fail"
    )
    rules = pipeline.transform() if job["work"] == "rules" else Chain(())
    decoder = NoRows() if job["work"] == "raw" else pipeline.decoder()
    task = SplitTask(pipeline.reader(plan), decoder, rules, Nowhere, Nowhere)
    splits = [Split(topic, partition, 0, stop) for partition, stop in enumerate(job["stops"])]
    counts = [staged.counts for staged in pipeline.engine.run(task, splits)]
    return sum(c.read if job["work"] == "raw" else c.rows_staged for c in counts)


def table(pipeline: Pipeline, first: datetime, job: dict[str, Any]) -> int:
    """Returns the number of rows and dead letters that all windows of the job committed."""
    span = timedelta(seconds=job["window_seconds"])
    windows = [
        Window("bench", first + i * span, first + (i + 1) * span) for i in range(job["windows"])
    ]
    counts = [
        result.committed.receipt.counts
        for result in run_windows(pipeline, windows, Request("bench"))
    ]
    return sum(c.rows + c.dead for c in counts)


def around(pipeline: Pipeline, first: datetime, job: dict[str, Any]) -> dict[str, Any]:
    """Returns the number of rows, and the seconds of the driver without the engine."""
    engine = Watched(pipeline.engine)
    began = time.perf_counter()
    rows = table(replace(pipeline, engine=engine), first, job)
    return {"rows": rows, "seconds": time.perf_counter() - began - engine.seconds}


def run_job(job: dict[str, Any], bootstrap: str, engine: SparkEngine) -> dict[str, Any]:
    """Does a job and returns its answer: the number of rows, and seconds with `around`."""
    first, out = datetime.fromtimestamp(job["first_seconds"], UTC), Path(job["out"])
    out.mkdir(parents=True)
    attributes = {
        "id": "bench",
        "source": {"bootstrap_servers": bootstrap, "topic": job["topic"], **job.get("source", {})},
        "window": {"grid": job["grid"], "start": first.isoformat()},
        "decode": {"schema": job["schema"]},
        "sink": job["sink"],
        "transform": job.get("transform"),
        "state": f"sqlite:///{out}/state.db",
    }
    pipeline = assemble(parse_spec(attributes, BENCH_FOLDER), engine)
    if job["work"] == "around":
        return around(pipeline, first, job)
    return {
        "rows": table(pipeline, first, job) if job["work"] == "table" else run_tasks(pipeline, job)
    }


def main(bootstrap: str, master: str = "local[2]") -> None:
    """Answers jobs until stdin ends."""
    if served := master.startswith("sc://"):
        session = ConnectedSpark(master).session()
    else:
        session = spark_session(master, None if is_local(master) else DRIVER_PROPERTIES)
    engine = SparkEngine(lambda: context_of(session) or session)
    session.range(1).count()
    print(json.dumps({"ready": True}), flush=True)

    # More time passes between two jobs of this program than Spark keeps idle workers for. A Connect
    # server keeps its workers in the same way.
    def keep() -> None:
        run_empty_task(session)
        session.sparkContext.parallelize(range(1), 1).mapPartitions(list).collect()

    with nullcontext() if served else kept_alive(keep):
        for line in sys.stdin:
            print(json.dumps(run_job(json.loads(line), bootstrap, engine)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
