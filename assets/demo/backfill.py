"""Runs in Dagster: one over the day's 24 partitions, and one that drains micro-batches.

The first is what a backfill from the UI starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
from rich.console import Console

from windrow.assets.demo.orders import HOURS
from windrow.assets.names import job_name, upstream_keys
from windrow.assets.partitions import key_of
from windrow.assets.schedule import range_tags
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize(
    defs: dg.Definitions, spec: PipelineSpec, keys: Sequence[str] = ()
) -> dg.ExecuteInProcessResult:
    """Observes the topic, then runs the windows of `keys` in one run, or waiting micro-batches.

    Both are in the history of DAGSTER_HOME afterwards.
    """
    instance = dg.DagsterInstance.get()
    defs.resolve_implicit_global_asset_job_def().execute_in_process(
        run_config=_QUIET, instance=instance, asset_selection=upstream_keys(spec)
    )
    tags = range_tags(dg.PartitionKeyRange(keys[0], keys[-1])) if keys else {}
    return defs.resolve_job_def(job_name(spec)).execute_in_process(
        run_config=_QUIET, instance=instance, raise_on_error=False, tags=tags
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
