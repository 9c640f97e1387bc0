"""Reports a run of a table asset to Dagster: one event per window, and its errors.

1. The materialization of a window is logged right after its commit. If the run is killed
   later, the windows until then are green.
2. When the step ends, Dagster would log another event for each partition. The step's result
   (`events_logged`) prevents that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeAlias

import dagster as dg

from windrow.assets.dagster_internals import (
    CODE_VERSION,
    DATA_VERSION,
    NEVER_OBSERVED,
    NO_EVENT,
    data_version_tags,
    input_tags,
)
from windrow.assets.dead_letters import dead_letters_event
from windrow.assets.failures import (
    WindowFailedError,
    as_windrow_error,
    retry_or_failure,
    sentence_of,
)
from windrow.assets.metadata import Value, window_metadata
from windrow.assets.names import upstream_keys
from windrow.assets.topic import versions
from windrow.ingest.admin.completeness import completeness_of
from windrow.ingest.admin.lag import measure_lag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, WindrowError, foreign_exceptions, with_spec
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.runner.context import Pipeline, Result
from windrow.ingest.runner.frozen_stop import bounded_source
from windrow.ingest.runner.next_start import next_start_after
from windrow.ingest.runner.progress import Progress, lines

NEWEST = 48
"""The number of newest windows that checks read, and that measure a window's completeness."""

CANCELLED = {dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED}

Observed: TypeAlias = dict[dg.AssetKey, tuple[str, str]]
"""The observed topic assets, each with its data version and the id of the event that has it."""


def progress_log(context: dg.AssetExecutionContext) -> Callable[[Progress], None]:
    """Returns a function that logs the progress of reading windows."""
    return lines(lambda line: context.log.info("%s", line))


def warn_of_processes(context: dg.AssetExecutionContext) -> None:
    """Logs a hint if the run's executor starts a process and a Spark for each step."""
    if context.job_def.executor_def.name in {"multi_or_in_process_executor", "multiprocess"}:
        context.log.info(
            "Each step of this run has its own process and its own Spark:"
            " executor=dg.in_process_executor saves their start"
        )


def request_id(context: dg.AssetExecutionContext) -> str:
    """Returns the id of a run's request. A retry has the same id, and continues the request."""
    return context.run.root_run_id or context.run.run_id


def raise_if_cancelled(context: dg.AssetExecutionContext) -> None:
    """Raises Dagster's exception if the run is being cancelled.

    Dagster also raises it by a signal, at any place in the code. If that happens in a
    callback of Python's garbage collector, Python drops the exception, and the run would
    continue.

    Raises:
        DagsterExecutionInterruptedError: the run is being cancelled.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status in CANCELLED:
        raise dg.DagsterExecutionInterruptedError


# --------------------------------------------------------------------------------------------------


def last_observations_of(context: dg.AssetExecutionContext, spec: PipelineSpec) -> Observed:
    """Returns the newest observations of the pipeline's topics. It takes one query per topic."""
    observed: Observed = {}
    for key in upstream_keys(spec):
        for record in context.instance.fetch_observations(key, limit=1).records:
            observation = record.asset_observation
            version = None if observation is None else observation.data_version
            observed[key] = version or NEVER_OBSERVED, str(record.storage_id)
    return observed


def show(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    result: Result,
    observed: Observed,
    code_version: str,
    key: str,
    *,
    last: bool = True,
) -> None:
    """Logs the event of a window, and the event of its dead letters.

    The data version is the committed attempt, so a window that is only reported again makes
    nothing downstream stale. A topic that was never observed is observed here. Otherwise
    Dagster would take the first observation for a change, and show all earlier windows as
    stale.

    Args:
        context: the run's context.
        pipeline: the run's pipeline.
        result: the window's result.
        observed: the result of `last_observations_of`. Topics that are observed here are
            added.
        code_version: the code version of the asset. If a window is only reported again, its
            event keeps the code version that Dagster already shows.
        key: the window's partition.
        last: True if the run commits no later window, so that all messages after this
            window are unread.
    """
    spec, receipt = pipeline.spec, result.committed.receipt
    if result.recovered:
        code_version = _shown_version(context, receipt, key) or code_version
    tags = {CODE_VERSION: code_version, **data_version_tags(receipt.attempt)}
    stop = receipt.plan.stop
    read = versions(
        spec, stop.cluster_id, {stop_topic.topic: stop_topic.topic_id for stop_topic in stop.topics}
    )
    for topic in upstream_keys(spec):
        if topic in read and topic not in observed:
            context.log_event(
                dg.AssetObservation(
                    topic,
                    tags=data_version_tags(read[topic]),
                    metadata={"cluster_id": stop.cluster_id},
                )
            )
            observed[topic] = read[topic], NO_EVENT
        data_version, event = observed.get(topic, (NEVER_OBSERVED, NO_EVENT))
        tags |= input_tags(topic, read.get(topic, data_version), event)
    metadata = _metadata(context, pipeline, result, last=last)
    context.log_event(
        dg.AssetMaterialization(context.asset_key, partition=key, metadata=metadata, tags=tags)
    )
    context.log_event(dead_letters_event(spec, receipt, key, data_version_tags(receipt.attempt)))


def _shown_version(context: dg.AssetExecutionContext, receipt: Receipt, key: str) -> str | None:
    """Returns the code version with which Dagster shows this very commit of a window; else None."""
    records_filter = dg.AssetRecordsFilter(context.asset_key, asset_partitions=[key])
    for record in context.instance.fetch_materializations(records_filter, limit=1).records:
        event = record.asset_materialization
        if event is not None and (event.tags or {}).get(DATA_VERSION) == receipt.attempt:
            return (event.tags or {}).get(CODE_VERSION)
    return None


def _metadata(
    context: dg.AssetExecutionContext, pipeline: Pipeline, result: Result, *, last: bool
) -> Mapping[str, Value]:
    """Returns the entries of a window's event: its receipt, lag, completeness, the table's size.

    The window is already committed. So if a broker doesn't answer, some entries are missing
    and the run goes on.
    """
    spec, receipt = pipeline.spec, result.committed.receipt
    unread, state, size = None, None, dict[str, Value]()
    if result.group_offsets is not None and result.group_offsets.failed:
        context.log.warning(
            "Consumer group %s doesn't have all offsets: %s",
            result.group_offsets.group,
            "; ".join(result.group_offsets.reasons),
        )
    try:
        if last and pipeline.ledger.recorded_receipts(spec.id, 1)[-1].window == receipt.window:
            start = next_start_after(pipeline.ledger, receipt)
            unread = measure_lag(
                pipeline.broker,
                bounded_source(pipeline.spec, pipeline.ledger),
                start,
                pipeline.now(),
            )
        if not spec.window.is_batch:
            state = completeness_of(pipeline, NEWEST, [receipt]).windows[receipt.window.key]
        if last:
            size = _size(pipeline)
    except WindrowError as error:
        context.log.warning("Not all figures are shown: %s", error)
    return window_metadata(spec, pipeline.columns(), result, unread, state) | size


def _size(pipeline: Pipeline) -> dict[str, Value]:
    """Returns rows and bytes of the whole table. Dagster shows those of the newest event."""
    table_size = pipeline.sink.size()
    if table_size is None:
        return {}
    rows, size = table_size
    return {"dagster/row_count": rows, "dagster/size_bytes": size}


# --------------------------------------------------------------------------------------------------


def show_refused(
    context: dg.AssetExecutionContext, spec: PipelineSpec, key: str, error: WindrowError
) -> None:
    """Logs on a window's page why it is red, and what to do.

    Without it Dagster shows nothing on the page of a failed window; in a run over a range
    it shows a refused window as missing. If the window isn't refused for its data, the
    entry is "Failed" instead of "Refused": the schedule requests the window again.
    """
    error.advice = with_spec(error.advice, spec.spec_path)
    context.log.error("%s", sentence_of(f"Window {key}", error))
    for_data = isinstance(error, RefusedError) and not error.of_setting
    description = "Refused" if for_data else "Failed"
    metadata: dict[str, Value] = {
        description.lower(): error.message,
        "do": error.advice,
    }
    context.log_event(
        dg.AssetObservation(
            context.asset_key, partition=key, description=description, metadata=metadata
        )
    )


@contextmanager
def report_errors(
    context: dg.AssetExecutionContext,
    spec: PipelineSpec,
    subject: str,
    on_refused: Callable[[RefusedError], None] | None = None,
    on_failed: Callable[[WindrowError], None] | None = None,
) -> Iterator[None]:
    """Raises windrow's errors as Dagster's, and logs long waits, such as Spark's start or a commit.

    The step is retried if something was unreachable, else it fails.

    Args:
        context: the run's context.
        spec: the pipeline.
        subject: what fails, as the beginning of a sentence.
        on_refused: called if a window is refused for its data, so that the schedule doesn't
            request it again. It isn't called if the window isn't closed yet, or if it is
            refused for a wrong ledger, table or schema: once that is fixed, the schedule
            requests the window again.
        on_failed: called if the step fails for another reason.
    """

    def forward_to_log(record: logging.LogRecord) -> bool:
        with suppress(Exception):  # a line that Dagster can't log must not stop the run
            context.log.info("%s", record.getMessage())
        return True

    waits = logging.getLogger("windrow.waiting")
    waits.addFilter(forward_to_log)
    try:
        yield
    except foreign_exceptions() as raised:  # raised again; an unknown error counts as a bug
        error = as_windrow_error(raised)
        error.advice = with_spec(error.advice, spec.spec_path)
        failure = retry_or_failure(subject, error, context.retry_number, spec.dagster)
        if on_refused is not None and isinstance(error, RefusedError) and not error.of_setting:
            on_refused(error)
        elif on_failed is not None and isinstance(failure, WindowFailedError):
            on_failed(error)
        raise failure from None
    finally:
        waits.removeFilter(forward_to_log)
