"""Imports the modules of tasks beforehand, in the workers of a server."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa

from windrow.ingest.native.calling import Compiled

_MODULES = (
    "runner.spark.engine",
    "runner.task",
    "source.reader.reader",
    "formats.json.decoder",
    "transform.chain",
    "transform.validate",
    "sinks.delta.stage",
)
_CODE = "formats.json.scan", "formats.shared.entries", "source.reader.passes", "schema.hashes"


def warm(address: str) -> None:
    """Sends a job to each core of a server, so that the first window is quick.

    After it, Java's classes are loaded, and the workers have imported the modules that
    tasks need.

    Raises:
        UnreachableError: the server can't run a job.
    """
    from windrow.ingest.runner.spark.connect import ConnectedSpark
    from windrow.ingest.runner.spark.engine import parallelism
    from windrow.ingest.runner.spark.jobs import DO_DOCTOR, collect_rows, spark_errors_as

    with closing(ConnectedSpark(address)) as client:
        session = client.session()
        with spark_errors_as("setup", "The server's workers can't start", DO_DOCTOR):
            tasks = parallelism(session)
            collect_rows(session.range(0, tasks, 1, tasks).mapInArrow(_load, "id long"))


def _load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Imports the modules that a task of a pipeline with default settings needs."""
    for name in _MODULES:
        importlib.import_module(f"windrow.ingest.{name}")
    from windrow.ingest.formats.json.layout import PASS
    from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE
    from windrow.ingest.runner.spark.worker import prepared_worker
    from windrow.ingest.schema.checksum import checksum
    from windrow.ingest.schema.user_code import import_pandera
    from windrow.ingest.source.reader.librdkafka import passes
    from windrow.ingest.transform.rules import frame_of

    rows = pa.record_batch({"text": ["a"]})
    with prepared_worker():
        pandera = import_pandera()
        pandera.DataFrameSchema({"text": pandera.Column(str)}).validate(frame_of(rows))
        # without machine code, the first window compiles only the functions that it needs
        if all(Compiled(f"windrow.ingest.{module}").is_kept() for module in _CODE):
            _ = PASS.scan, ENTRIES_CODE.scatter, passes.look
            checksum(rows)
        yield from batches
