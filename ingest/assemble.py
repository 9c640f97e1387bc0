"""A spec becomes a pipeline: the only place where interfaces meet their implementations.

Each part is loaded by who needs it: the schema, with pandera, polars and what these bring, takes longer than a look at a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from ingest.ports.broker import Broker
from ingest.ports.engine import Engine
from ingest.ports.reader import Reader, ReadPlan
from ingest.run.context import Pipeline
from ingest.spec.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ingest.decode.json.decoder import JsonDecoder
    from ingest.schema.columns import Columns
    from ingest.sinks.delta.sink import DeltaSink


def assemble(spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
    """Everything a pipeline stands on, untouched yet. Without an engine: a local Spark session, started when there is something to read.

    Raises:
        SpecError: the schema can't be loaded or stored, or the ledger's or the table's place makes no sense.
    """
    columns = _columns(spec)
    return _pipeline(spec, lambda: columns, engine)


def assemble_to_look(spec: PipelineSpec) -> Pipeline:
    """The same for who looks and writes nothing: the schema is loaded at the first write, and so is what is wrong with it told then.

    Raises:
        SpecError: the ledger's or the table's place makes no sense.
    """
    return _pipeline(spec, cache(lambda: _columns(spec)), None)


def connect(spec: PipelineSpec) -> tuple[Broker, Callable[[ReadPlan], Reader]]:
    """The pipeline's cluster, and readers of its topics: all that a look at them needs."""
    from ingest.kafka.broker import KafkaBroker
    from ingest.kafka.client import consumer_properties

    source, tuning = spec.source, spec.source.tuning
    properties = consumer_properties(source.bootstrap_servers, source.client, isolation=source.isolation, tuning=tuning.client())

    def reader(plan: ReadPlan) -> Reader:
        from ingest.read.confluent import KafkaReader

        return KafkaReader(properties, plan, **tuning.reader())

    return KafkaBroker(source.bootstrap_servers, source.client, isolation=source.isolation, tuning=tuning.client()), reader


def open_table(spec: PipelineSpec) -> DeltaSink:
    """The pipeline's table, for who reads it: receipts and dead letters take neither ledger nor schema.

    Raises:
        SpecError: no table can lie there.
    """
    return _sink(spec, lambda: _columns(spec))


def _pipeline(spec: PipelineSpec, columns: Callable[[], Columns], engine: Engine | None) -> Pipeline:
    from ingest.engine.local import local_session
    from ingest.engine.spark import SparkEngine
    from ingest.ledger.sql import open_ledger

    broker, reader = connect(spec)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=lambda: _decoder(spec),
        broker=broker,
        reader=reader,
        ledger=open_ledger(spec.state_url()),
        sink=_sink(spec, columns),
        engine=engine or SparkEngine(local_session),
    )


def _columns(spec: PipelineSpec) -> Columns:
    from ingest.schema.columns import Columns
    from ingest.schema.load import load_model
    from ingest.sinks.delta.columns import check_rows

    columns = Columns.of(load_model(spec.decode.schema_, spec.folder))
    check_rows(columns.arrow_schema, spec.metadata)
    return columns


def _decoder(spec: PipelineSpec) -> JsonDecoder:
    from ingest.decode.json.decoder import JsonDecoder

    return JsonDecoder(spec.decode.schema_, spec.folder, on_null=spec.decode.on_null, unknown=spec.decode.unknown)


def _sink(spec: PipelineSpec, columns: Callable[[], Columns]) -> DeltaSink:
    from ingest.sinks.delta.sink import DeltaSink

    return DeltaSink(spec.sink_path(), lambda: columns().arrow_schema, spec.metadata)
