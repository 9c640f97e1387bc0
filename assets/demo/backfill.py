"""Runs in Dagster: one over the day's 24 partitions, and one that drains micro-batches.

The first is what a backfill from the UI starts; a progress bar moves at each commit.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from windrow.assets.demo.orders import HOURS
from windrow.assets.names import job_name, upstream_keys
from windrow.assets.partitions import Stretch, key_of
from windrow.assets.schedule import range_tags
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_LOOK_SECONDS = 0.3


def backfill(
    defs: dg.Definitions, spec: PipelineSpec, keys: Sequence[str], console: Console
) -> dg.ExecuteInProcessResult:
    """Observes the topic, then runs the windows of `keys` in one run.

    Both are in the history of DAGSTER_HOME afterwards.
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
    """Observes the topic, then commits all waiting messages as micro-batches, in one run."""
    instance = dg.DagsterInstance.get()
    _observe(defs, spec, instance)
    return defs.resolve_job_def(job_name(spec)).execute_in_process(
        run_config=_QUIET, instance=instance, raise_on_error=False
    )


def day_keys(spec: PipelineSpec, start: datetime) -> list[str]:
    """The partition keys of the day's windows, from `start` on."""
    window = in_time(spec.window)
    return [key_of(window, start + timedelta(hours=n)) for n in range(HOURS)]


def say_failure(console: Console, result: dg.ExecuteInProcessResult, log: Path) -> None:
    """Prints why a run failed, by the error of its first failed step."""
    errors = [e.step_failure_data.error_display_string for e in result.get_step_failure_events()]
    why = errors[0] if errors else "the run failed before its first step"
    console.print(f"[red]The run failed.[/red] {why}\nMore in {log}", soft_wrap=True)


def _observe(defs: dg.Definitions, spec: PipelineSpec, instance: dg.DagsterInstance) -> None:
    everything = defs.resolve_implicit_global_asset_job_def()
    everything.execute_in_process(
        run_config=_QUIET, instance=instance, asset_selection=upstream_keys(spec)
    )


@contextmanager
def aside(log: Path) -> Iterator[None]:
    """Sends stderr to a file until the end of the block.

    Spark's JVM and Dagster write to the file descriptor itself, not through Python.
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
    """Shows a progress bar of the run's commits until the end of the block.

    A second thread reads the run's events: Dagster executes in the first one, where it
    handles Ctrl-C.
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
