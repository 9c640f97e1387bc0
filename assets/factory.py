"""From one spec: the topics, the table, its checks, its schedule, and the resources they need."""

from __future__ import annotations

import dagster as dg

from assets.batches import batch_asset
from assets.checks import receipts_check
from assets.health import health_checks
from assets.names import kafka_key, ledger_key
from assets.reporting import Assemble
from assets.schedule import job_of, schedule_of, topics_job_of, topics_schedule_of
from assets.table import window_asset
from assets.topic import topic_assets
from ingest.assemble import assemble as from_spec
from ingest.assemble import table_columns
from ingest.spec.pipeline import PipelineSpec
from resources.kafka import KafkaSource
from resources.ledger import LedgerState
from resources.spark import Spark

SPARK = Spark()
"""One for all pipelines of a code location: a Spark session belongs to a process."""


def kafka_table(spec: PipelineSpec, assemble: Assemble = from_spec) -> dg.Definitions:
    """All of a pipeline's definitions. Reads the schema, asks nothing of Kafka or the table.

    `assemble` opens the pipeline for a run; another one than windrow's own gives it other steps to stand on.

    Raises:
        SpecError: the schema can't be loaded, or holds a type that the table can't.
    """
    columns = table_columns(spec)
    table = (batch_asset if spec.window.is_batch else window_asset)(spec, columns, assemble)
    job, topics = job_of(spec, table), topics_job_of(spec)
    kafka, ledger = KafkaSource.of(spec.source), LedgerState(url=spec.state_url())
    return dg.Definitions(
        assets=[*topic_assets(spec), table],
        asset_checks=[receipts_check(spec, assemble), *health_checks(spec, assemble)],
        jobs=[job, topics],
        schedules=[schedule_of(spec, job), topics_schedule_of(spec, topics)],
        resources={"spark": SPARK, kafka_key(spec): _hidden(kafka), ledger_key(spec): _hidden(ledger)},
    )


def _hidden(resource: KafkaSource | LedgerState) -> dg.ResourceDefinition:
    """The resource without its configuration, which the UI would show: a password may be in it."""
    return dg.ResourceDefinition.hardcoded_resource(resource)
