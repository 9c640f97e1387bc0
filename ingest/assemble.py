"""A spec becomes a pipeline: the only place where interfaces meet their implementations."""

from __future__ import annotations

from collections.abc import Callable

from ingest.broker.client import consumer_properties
from ingest.broker.kafka import KafkaBroker
from ingest.decode.columns import Columns
from ingest.decode.json import JsonDecoder
from ingest.decode.load import load_model
from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine
from ingest.ledger.sql import open_ledger
from ingest.parts import Pipeline
from ingest.ports import Broker, Engine, Reader, ReadPlan
from ingest.read.kafka import KafkaReader
from ingest.spec import PipelineSpec
from ingest.write.delta import DeltaSink


def assemble(spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
    """Everything a pipeline stands on, untouched yet. Without an engine: a local Spark session, started when there is something to read.

    Raises:
        SpecError: the schema can't be loaded or stored, or the ledger's or the table's place makes no sense.
    """
    columns = Columns.of(load_model(spec.decode.schema_, spec.folder))
    broker, reader = connect(spec)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=JsonDecoder(spec.decode.schema_, spec.folder, on_null=spec.decode.on_null, unknown=spec.decode.unknown),
        broker=broker,
        reader=reader,
        ledger=open_ledger(spec.state_url()),
        sink=DeltaSink(spec.sink_path(), columns.arrow_schema, spec.metadata),
        engine=engine or SparkEngine(local_session),
    )


def connect(spec: PipelineSpec) -> tuple[Broker, Callable[[ReadPlan], Reader]]:
    """The pipeline's cluster, and readers of its topics: all that a look at them needs."""
    source, tuning = spec.source, spec.source.tuning
    properties = consumer_properties(source.bootstrap_servers, source.client, isolation=source.isolation, tuning=tuning.client())

    def reader(plan: ReadPlan) -> Reader:
        return KafkaReader(properties, plan, **tuning.reader())

    return KafkaBroker(source.bootstrap_servers, source.client, isolation=source.isolation, tuning=tuning.client()), reader
