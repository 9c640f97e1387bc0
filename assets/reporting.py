"""What every run of a table asset does around windrow's own: its errors in Dagster's
words, its receipts as metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from windrow.assets.columns import declared_schema, lineage
from windrow.assets.completion import judged
from windrow.assets.failing import again_or_failure
from windrow.assets.metadata import Value, window_metadata
from windrow.ingest.admin.lag import Lag, lag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, WindrowError, with_spec
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Sized
from windrow.ingest.runner.context import Pipeline, Progress, Result
from windrow.ingest.runner.next_start import next_start_after
from windrow.ingest.schema.columns import Columns
from windrow.ingest.source.enumerator.completeness import WindowState

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""For what may pass by itself; refused data is not tried again."""

NEWEST = 48
"""How many windows back the state of a window is told from."""


def definition_metadata(spec: PipelineSpec, columns: Columns) -> dict[str, Value]:
    """What is known of a table before any run."""
    files: list[dg.LocalFileCodeReference | dg.UrlCodeReference] = (
        [] if spec.spec_file is None else [_file(spec.spec_file)]
    )
    if (schema := spec.schema_file()) is not None:
        files.append(_file(schema))
    return {
        "dagster/table_name": spec.id,
        "dagster/storage_kind": spec.sink.kind,
        "dagster/uri": spec.sink_path(),
        "path": dg.MetadataValue.path(spec.sink_path()),
        "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=files),
        "dagster/column_schema": declared_schema(columns, spec.metadata),
        "dagster/column_lineage": lineage(spec, [c.name for c in columns.columns]),
    }


def _file(path: Path) -> dg.LocalFileCodeReference:
    return dg.LocalFileCodeReference(file_path=str(path), line_number=1, label=path.name)


def telling(context: dg.AssetExecutionContext) -> Callable[[Progress], None]:
    """What begins to be read, for the run's log; that it is committed says its event."""

    def progress(at: Progress) -> None:
        begins = at.beginning()
        if begins is not None:
            context.log.info("%s", begins)

    return progress


def warn_of_processes(context: dg.AssetExecutionContext) -> None:
    """Dagster's default executor begins a process for each step, which loads all that
    it stands on anew, and starts its own Spark.
    """
    if context.job_def.executor_def.name in {"multi_or_in_process_executor", "multiprocess"}:
        context.log.info(
            "Each step of this run has its own process and its own Spark:"
            " executor=dg.in_process_executor saves their start"
        )


def request_id(context: dg.AssetExecutionContext) -> str:
    """The same for all retries of a run: they continue what it asked for, they don't ask again."""
    return context.run.root_run_id or context.run.run_id


def reported(
    context: dg.AssetExecutionContext, pipeline: Pipeline, result: Result, *, last: bool = True
) -> dict[str, Value]:
    """The receipt, and what is known beside it now.

    `last`: the run goes on to no later window, so that what is beyond this one is unread.

    The window is committed: a broker that doesn't answer now costs some figures, not the run.
    """
    spec, behind, state, size = pipeline.spec, None, None, dict[str, Value]()
    if result.published is not None and result.published.failed:
        context.log.warning(
            "Group %s was not told: %s", result.published.group, "; ".join(result.published.why)
        )
    try:
        behind, state = (
            _lag(pipeline, result.committed.receipt) if last else None,
            _state(pipeline, result.committed.receipt),
        )
        size = _size(pipeline) if last else size
    except WindrowError as error:
        context.log.warning("Not all figures are shown: %s", error)
    return window_metadata(spec, pipeline.columns(), result, behind, state) | size


def _size(pipeline: Pipeline) -> dict[str, Value]:
    """The whole table's, which the asset's page shows of its newest event."""
    known = pipeline.sink.size() if isinstance(pipeline.sink, Sized) else None
    if known is None:
        return {}
    rows, size = known
    return {"dagster/row_count": rows, "dagster/size_bytes": size}


def _lag(pipeline: Pipeline, receipt: Receipt) -> Lag | None:
    """What is unread now; None of an older window: what is beyond its stop is in the
    windows after it, or about to be.
    """
    spec = pipeline.spec
    if pipeline.ledger.recorded(spec.id, 1)[-1].window != receipt.window:
        return None
    reached = next_start_after(pipeline.ledger, receipt)
    return lag(pipeline.broker, spec.source.origin(spec.window.grid), reached, pipeline.now())


def _state(pipeline: Pipeline, receipt: Receipt) -> WindowState | None:
    if pipeline.spec.window.is_batch:
        return None
    return judged(pipeline, NEWEST, [receipt]).windows[receipt.window.key]


@contextmanager
def errors_reported(
    context: dg.AssetExecutionContext,
    spec: PipelineSpec,
    what: str,
    tell_refused: Callable[[RefusedError], None] | None = None,
) -> Iterator[None]:
    """Windrow's errors in Dagster's words: only what may pass by itself is worth a retry, never a bug.

    `tell_refused`: what lets the schedule leave alone what is refused for its data. A
    window that isn't closed yet isn't, nor one that was refused for a wrong ledger,
    table or schema: once that is fixed, it is asked for again.
    """  # noqa: E501
    try:
        yield
    except Exception as error:  # raised again, as a bug if nobody foresaw it  # noqa: BLE001
        if isinstance(error, WindrowError):
            error.do = with_spec(error.do, spec.spec_file)
        if tell_refused is not None and isinstance(error, RefusedError) and not error.of_setting:
            tell_refused(error)
        raise again_or_failure(what, error, RETRY, context.retry_number) from None
