"""A code location with two pipelines whose runs wait inside a window until they are cancelled.

One pipeline has windows of an hour, the other one has micro-batches.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import dagster as dg

from tests.assets.world import LocalTasks
from tests.integration.harness import HERE
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.runner import task
from windrow.ingest.sinks.kit.commit import commit_loop

FOLDER = "WINDROW_TESTS_CANCELLABLE"
"""Name of the environment variable with the folder of tables, ledger and marker files."""

IN_TIME = {"grid": "hourly", "start": "2026-01-05T00:00:00Z", "delay": "1m"}
BATCHES = {"grid": "batch", "max_records": "100"}


def spec_of(folder: Path, kafka: str, topic: str, window: dict[str, str]) -> PipelineSpec:
    """Returns the spec of the pipeline `hours` or `batches`, by its kind of windows.

    Its table is a SQLite file.
    """
    name = "hours" if window is IN_TIME else "batches"
    attributes = {
        "id": name,
        "source": {"bootstrap_servers": kafka, "topic": topic},
        "window": window,
        "decode": {"schema": "things.py:Thing"},
        "sink": {"kind": "sqlite", "path": str(folder / f"{name}.db"), "table": name},
        "state": f"sqlite:///{folder}/{name}-state.db",
    }
    return parse_spec(attributes, HERE)


def specs(folder: Path) -> list[PipelineSpec]:
    """Returns the specs of both pipelines, on the topic that a file in the folder names."""
    kafka, topic = (folder / "topic").read_text().split()
    return [spec_of(folder, kafka, topic, window) for window in (IN_TIME, BATCHES)]


def wait_at(point: str) -> None:
    """Waits at a crash point if the folder has a file with the point's name.

    The file is then renamed to "reached". If the file has a text, the interrupt that ends the
    wait is dropped. Python drops an exception like this in a callback of its garbage collector.
    """
    folder = Path(os.environ[FOLDER])
    if (folder / point).exists():
        drops = bool((folder / point).read_text())
        (folder / point).rename(folder / "reached")
        with suppress(*([dg.DagsterExecutionInterruptedError] if drops else [])):
            threading.Event().wait(120)


def definitions() -> dg.Definitions:
    """Returns both pipelines, with tasks in the run's own process."""
    for module in (task, commit_loop):
        patch.object(module, "crash_point", wait_at).start()
    engine = LocalTasks()
    return dg.Definitions.merge(
        *(kafka_table(spec, {SPARK_KEY: engine}) for spec in specs(Path(os.environ[FOLDER]))),
        dg.Definitions(executor=dg.in_process_executor),
    )


if FOLDER in os.environ:
    defs = definitions()
