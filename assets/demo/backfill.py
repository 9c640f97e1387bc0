"""The day through Dagster: one run over 24 partitions, as a backfill from the UI, with
a bar that moves at each commit; one that drains.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from windrow.assets.names import job_name, upstream_keys
from windrow.assets.partitions import Stretch
from windrow.assets.schedule import range_tags
from windrow.ingest.config.pipeline import PipelineSpec

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_LOOK_SECONDS = 0.3


def backfill(
    defs: dg.Definitions, spec: PipelineSpec, keys: Sequence[str], console: Console
) -> dg.ExecuteInProcessResult:
    """Observe the topic, then run the windows of `keys` in one run; both go into the
    history of DAGSTER_HOME.
    """
    instance, run_id = dg.DagsterInstance.get(), str(uuid.uuid4())
    job = defs.resolve_job_def(job_name(spec))
    _observe(defs, spec, instance)
    with _bar(instance, run_id, len(keys), console):
        return job.execute_in_process(
            run_config=_QUIET,
            instance=instance,
            raise_on_error=False,
            run_id=run_id,
            tags=range_tags(Stretch(keys[0], keys[-1])),
        )


def drain(defs: dg.Definitions, spec: PipelineSpec) -> dg.ExecuteInProcessResult:
    """Observe the topic, then commit what is waiting in micro-batches, in one run."""
    instance = dg.DagsterInstance.get()
    _observe(defs, spec, instance)
    return defs.resolve_job_def(job_name(spec)).execute_in_process(
        run_config=_QUIET, instance=instance, raise_on_error=False
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Why the run failed, in the words of the step that did."""
    told = [e.step_failure_data.error_display_string for e in result.get_step_failure_events()]
    return told[0] if told else "the run failed before its first step"


def _observe(defs: dg.Definitions, spec: PipelineSpec, instance: dg.DagsterInstance) -> None:
    everything = defs.resolve_implicit_global_asset_job_def()
    everything.execute_in_process(
        run_config=_QUIET, instance=instance, asset_selection=upstream_keys(spec)
    )


@contextmanager
def aside(log: Path) -> Iterator[None]:
    """What Spark's JVM and Dagster say on stderr goes to a file: they write to the
    descriptor itself, past Python.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def _bar(instance: dg.DagsterInstance, run_id: str, total: int, console: Console) -> Iterator[None]:
    """Looks into the run's events from a second thread: the first belongs to Dagster,
    which minds Ctrl-C there.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("windows committed", total=total)

        def watch() -> None:
            while not ended.wait(_LOOK_SECONDS):
                progress.update(task, completed=_committed(instance, run_id))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            progress.update(task, completed=_committed(instance, run_id))


def _committed(instance: dg.DagsterInstance, run_id: str) -> int:
    records = instance.get_records_for_run(
        run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    ).records
    return len({r.partition_key for r in records})
