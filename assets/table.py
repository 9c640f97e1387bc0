"""The table asset: its partitions are the windows; a run commits each of them exactly once and shows the receipts."""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.metadata import Value, declared_schema, lag, lineage_to, window_metadata
from assets.names import table_key, topic_key
from assets.partitions import partitions_of, windows_of
from assets.schedule import refused_tag
from ingest.decode.columns import Columns
from ingest.errors import RefusedError, UnreachableError, WindrowError
from ingest.pipeline import Pipeline, Request, Result, run
from ingest.ports import Engine
from ingest.spec import PipelineSpec
from resources.kafka import snapshot
from resources.spark import Spark

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""For what may pass by itself; refused data is not tried again."""

Assemble = Callable[[PipelineSpec, Engine | None], Pipeline]


class OnCommitted(dg.Config):
    """What a run does with windows that are committed already."""

    on_committed: Literal["report", "replace"] = Field(
        default="report", description="report: show the receipt, write nothing. replace: read the same offsets again, replace the rows."
    )
    accept_fewer: bool = Field(default=False, description="Let a replacement go on although it sees fewer messages than were read before.")

    def request(self, context: dg.AssetExecutionContext) -> Request:
        """The same for all retries of a run: they continue one replacement, they don't begin another."""
        root = context.run.root_run_id or context.run.run_id
        return Request(root, replace=self.on_committed == "replace", accept_fewer=self.accept_fewer)


def table_asset(spec: PipelineSpec, columns: Columns, assemble: Assemble) -> dg.AssetsDefinition:
    """The asset of a pipeline's table. `columns`: of its schema."""

    @dg.asset(
        key=table_key(spec),
        partitions_def=partitions_of(spec.window),
        deps=[topic_key(spec.source.topic)],
        kinds={"kafka", "spark", "delta"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        retry_policy=RETRY,
        metadata=_definition_metadata(spec, columns),
        description=f"{spec.source.topic}, one {spec.window.grid} window at a time, exactly once",
    )
    def table(context: dg.AssetExecutionContext, config: OnCommitted, spark: Spark) -> dg.MaterializeResult[None]:
        request = config.request(context)
        pipeline = assemble(spec, spark.engine())
        for key, window in windows_of(spec, context.partition_keys):
            with _told(context, spec, key):
                result = run(pipeline, window, request)
            _show(context, key, window_metadata(result) | _lag(context, pipeline, result))
        return dg.MaterializeResult()

    return table


def _lag(context: dg.AssetExecutionContext, pipeline: Pipeline, result: Result) -> dict[str, Value]:
    """How far the topic is ahead. The window is committed: a broker that doesn't answer now costs these figures, not the run."""
    try:
        now = snapshot(pipeline.broker, pipeline.spec.source.topic)
    except WindrowError as error:
        context.log.warning("No lag is shown: %s", error)
        return {}
    return lag(result.committed.receipt.plan.stop, now, datetime.now(UTC))


def _definition_metadata(spec: PipelineSpec, columns: Columns) -> dict[str, Value]:
    return {
        "dagster/table_name": spec.id, "dagster/storage_kind": spec.sink.kind, "path": dg.MetadataValue.path(spec.sink_path()),
        "dagster/column_schema": declared_schema(columns),
        "dagster/column_lineage": lineage_to([spec.source.topic], [c.name for c in columns.columns]),
    }  # fmt: skip


def _show(context: dg.AssetExecutionContext, key: str, metadata: Mapping[str, Value]) -> None:
    """Show a window at once, so that it stays green if the run is killed later; the event that ends the step says the same again."""
    context.add_asset_metadata(metadata, partition_key=key)
    if len(context.partition_keys) > 1:
        context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata=metadata))


@contextmanager
def _told(context: dg.AssetExecutionContext, spec: PipelineSpec, key: str) -> Iterator[None]:
    """Windrow's errors in Dagster's words: only what may pass by itself is worth a retry."""
    try:
        yield
    except WindrowError as error:
        if isinstance(error, RefusedError):
            context.instance.add_run_tags(context.run.run_id, refused_tag(spec, key))
        raise dg.Failure(
            f"Window {key}: {error}",
            metadata={"window": key, "kind": type(error).__name__, "exit_code": error.exit_code},
            allow_retries=isinstance(error, UnreachableError),
        ) from None
