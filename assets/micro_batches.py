"""Micro-batches in Dagster: a run without a partition commits all waiting messages.

Each micro-batch becomes a partition of the table when it is committed, because it isn't
known earlier which ones there will be. A run of partitions reports or replays these
micro-batches, as it does with windows in time (`assets.window_asset`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import dagster as dg
from sqlalchemy.exc import IntegrityError

from windrow.assets.checks import log_checks
from windrow.assets.names import batches_name, table_key
from windrow.assets.reporting import (
    NEWEST,
    last_observations_of,
    progress_log,
    raise_if_cancelled,
    report_errors,
    request_id,
    show,
    show_refused,
)
from windrow.assets.schedule import NOTHING_WAITS, done_tag, refused_tag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.boundary import label_text, number_of
from windrow.ingest.model.grid import batch_at
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.frozen_stop import DONE
from windrow.ingest.runner.micro_batches import is_done, number_cut, run_batches
from windrow.ingest.runner.run_windows import refused_last, run_windows

PARTITIONS = 5_000
"""The maximum number of micro-batches that are partitions. Older ones can be run by the command."""

_EVENTS = 1_000
"""The maximum number of events that are searched for events of the newest micro-batches."""


def drain(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    code_version: str,
    *,
    fresh_lookups: bool,
) -> bool:
    """Commits all waiting messages, batch by batch; returns whether it has reported any batch.

    Before that, it reports committed batches that Dagster has no event of.

    Args:
        context: the run's context.
        pipeline: the pipeline.
        code_version: the code version of the asset, as for `show`.
        fresh_lookups: as for `Request`.
    """
    spec, has_shown, topics = pipeline.spec, False, last_observations_of(context, pipeline.spec)
    request = Request(request_id(context), fresh_lookups=fresh_lookups)

    def show_refusal(error: RefusedError) -> None:
        batch_count = number_cut(pipeline)
        newest = batch_at(spec.id, batch_count - 1) if batch_count else None
        if newest is not None and pipeline.sink.look(newest) is None:
            keep_newest(context.instance, spec, batch_count)
            show_refused(context, spec, newest.key, error)
        else:
            newest = None
        context.instance.add_run_tags(context.run.run_id, refused_tag(spec, newest))
        log_checks(context, pipeline)

    with report_errors(context, spec, "A micro-batch", show_refusal):
        batch_count = number_cut(pipeline)
        keep_newest(context.instance, spec, batch_count)
        waiting = run_batches(pipeline, request, progress_log(context))
        for result in chain(_not_shown(context, pipeline, batch_count, request), waiting):
            window = result.committed.receipt.window
            keep_newest(context.instance, spec, number_of(window.end))
            show(context, pipeline, result, topics, code_version, window.key)
            has_shown = True
            raise_if_cancelled(context)
        if spec.stop is not None and is_done(pipeline):
            context.instance.add_run_tags(context.run.run_id, done_tag(spec.stop))
            context.log.info(DONE)
        elif not has_shown:
            context.log.info("%s No micro-batch was cut.", NOTHING_WAITS)
    return has_shown


def keep_newest(instance: dg.DagsterInstance, spec: PipelineSpec, batch_count: int) -> None:
    """Makes the newest micro-batches Dagster's partitions, and removes older ones.

    Args:
        instance: Dagster's instance.
        spec: the pipeline.
        batch_count: the number of micro-batches that were cut so far.
    """
    name, oldest = batches_name(spec), max(0, batch_count - PARTITIONS)
    existing_keys = set(instance.get_dynamic_partitions(name))
    missing_keys = [
        key for n in range(oldest, batch_count) if (key := label_text(n)) not in existing_keys
    ]
    if missing_keys:
        try:
            instance.add_dynamic_partitions(name, missing_keys)
        except IntegrityError:  # another run has added one meanwhile; Dagster checks again
            instance.add_dynamic_partitions(name, missing_keys)
    for key in existing_keys:
        if key < label_text(oldest):
            instance.delete_dynamic_partition(name, key)


def _not_shown(
    context: dg.AssetExecutionContext, pipeline: Pipeline, batch_count: int, request: Request
) -> Iterator[Result]:
    """Reports the newest micro-batches that are committed and that Dagster has no event of.

    The run of such a batch died before it logged the event, or the command committed the
    batch.
    """
    batches = [
        batch_at(pipeline.spec.id, n) for n in range(max(0, batch_count - NEWEST), batch_count)
    ]
    records_filter = dg.AssetRecordsFilter(
        table_key(pipeline.spec), asset_partitions=[batch.key for batch in batches]
    )
    events = context.instance.fetch_materializations(records_filter, limit=_EVENTS).records
    shown_keys = {record.partition_key for record in events}
    unshown = [batch for batch in batches if batch.key not in shown_keys]
    batch_commits = zip(unshown, pipeline.sink.looks(unshown), strict=True)
    committed = [batch for batch, commit in batch_commits if commit is not None]
    return refused_last(run_windows(pipeline, committed, request), len(committed))
