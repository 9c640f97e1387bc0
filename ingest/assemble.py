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
    from ingest.ports.dead_letters import DeadLetters
    from ingest.ports.decoder import Decoder
    from ingest.ports.sink import Sink
    from ingest.ports.transform import Transform
    from ingest.schema.columns import Columns
    from ingest.sinks.kind import Rows


def assemble(spec: PipelineSpec, engine: Engine | None = None, transform: Transform | None = None) -> Pipeline:
    """Everything a pipeline stands on, untouched yet.

    Args:
        spec: what a user wrote.
        engine: where tasks run; None: a local Spark session, started when there is something to read.
        transform: what becomes of decoded rows, in the place of the rules of the spec's schema. The table has the columns that it gives.

    Raises:
        SpecError: the schema can't be loaded or stored, or the ledger's or the table's place makes no sense.
    """
    columns = table_columns(spec, transform)
    return _pipeline(spec, lambda: columns, columns.arrow_schema, engine, transform)


def assemble_to_look(spec: PipelineSpec) -> Pipeline:
    """The same for who looks and writes nothing: the schema is loaded at the first write, and so is what is wrong with it told then.

    Raises:
        SpecError: the ledger's or the table's place makes no sense.
    """
    columns = cache(lambda: table_columns(spec))
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
    return _sink(spec, lambda: table_columns(spec).arrow_schema)


def table_columns(spec: PipelineSpec, transform: Transform | None = None) -> Columns:
    """The columns of the pipeline's table, but for the metadata columns: what becomes of the decoded ones. `transform`: see `assemble`.

    Raises:
        SpecError: the schema can't be loaded.
    """
    return (_rules(spec) if transform is None else transform).columns(_decoder(spec).columns)


def _pipeline(
    spec: PipelineSpec, columns: Callable[[], Columns], rows: Rows, engine: Engine | None, transform: Transform | None = None
) -> Pipeline:  # fmt: skip
    from ingest.engine.local import local_session
    from ingest.engine.spark import SparkEngine
    from ingest.ledger.sql import open_ledger

    broker, reader = connect(spec)
    sink, dead_letters = _sink(spec, rows)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=lambda: _decoder(spec),
        transform=lambda: _rules(spec) if transform is None else transform,
        broker=broker,
        reader=reader,
        ledger=open_ledger(spec.state_url()),
        sink=sink,
        dead_letters=dead_letters,
        engine=engine or SparkEngine(local_session),
    )


def _decoder(spec: PipelineSpec) -> Decoder:
    from ingest.decode.formats import make_decoder

    return make_decoder(spec.decode, spec.folder)


def _rules(spec: PipelineSpec) -> Transform:
    """The rules of the spec's schema; none, where its format takes a spec without one."""
    from ingest.transform.chain import Chain
    from ingest.transform.validate import Validate

    reference = spec.decode.schema_
    return Chain(() if reference is None else (Validate(reference, spec.folder),))


def _sink(spec: PipelineSpec, rows: Rows) -> tuple[Sink, DeadLetters]:
    from ingest.sinks.kinds import sink_kind

    kind = sink_kind(spec.sink.kind)
    return kind.make(spec.sink, rows, spec.metadata, spec.folder), kind.dead_letters(spec.sink, spec.folder)
