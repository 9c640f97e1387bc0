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
    from ingest.ports.dead_letters import DeadLetters
    from ingest.ports.sink import Sink
    from ingest.schema.columns import Columns
    from ingest.sinks.kind import Rows


def assemble(spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
    """Everything a pipeline stands on, untouched yet. Without an engine: a local Spark session, started when there is something to read.

    Raises:
        SpecError: the schema can't be loaded or stored, or the ledger's or the table's place makes no sense.
    """
    columns = _columns(spec)
    return _pipeline(spec, lambda: columns, columns.arrow_schema, engine)


def assemble_to_look(spec: PipelineSpec) -> Pipeline:
    """The same for who looks and writes nothing: the schema is loaded at the first write, and so is what is wrong with it told then.

    Raises:
        SpecError: the ledger's or the table's place makes no sense.
    """
    columns = cache(lambda: _columns(spec))
    return _pipeline(spec, columns, lambda: columns().arrow_schema, None)


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


def open_table(spec: PipelineSpec) -> tuple[Sink, DeadLetters]:
    """The pipeline's table and its dead letters, for who reads them: that takes neither ledger nor schema.

    Raises:
        SpecError: no table can lie there.
    """
    return _sink(spec, lambda: _columns(spec).arrow_schema)


def _pipeline(spec: PipelineSpec, columns: Callable[[], Columns], rows: Rows, engine: Engine | None) -> Pipeline:
    from ingest.engine.local import local_session
    from ingest.engine.spark import SparkEngine
    from ingest.ledger.sql import open_ledger

    broker, reader = connect(spec)
    sink, dead_letters = _sink(spec, rows)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=lambda: _decoder(spec),
        broker=broker,
        reader=reader,
        ledger=open_ledger(spec.state_url()),
        sink=sink,
        dead_letters=dead_letters,
        engine=engine or SparkEngine(local_session),
    )


def _columns(spec: PipelineSpec) -> Columns:
    from ingest.schema.columns import Columns
    from ingest.schema.load import load_model

    return Columns.of(load_model(spec.decode.schema_, spec.folder))


def _decoder(spec: PipelineSpec) -> JsonDecoder:
    from ingest.decode.json.decoder import JsonDecoder

    return JsonDecoder(spec.decode.schema_, spec.folder, on_null=spec.decode.on_null, unknown=spec.decode.unknown)


def _sink(spec: PipelineSpec, rows: Rows) -> tuple[Sink, DeadLetters]:
    from ingest.sinks.kinds import sink_kind

    kind = sink_kind(spec.sink.kind)
    return kind.make(spec.sink, rows, spec.metadata, spec.folder), kind.dead_letters(spec.sink, spec.folder)
