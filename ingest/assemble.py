"""A spec becomes a pipeline: the only place where interfaces meet their implementations.

Each part is loaded by who needs it: the schema, with pandera, polars and what these
bring, takes longer than a look at a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.engine import Engine, ReshapingEngine
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import Pipeline, Reshape
from windrow.ingest.schema.load import FunctionReference, ModelReference, model_now

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.dead_topic import DeadTopic
    from windrow.ingest.ports.decoder import Decoder
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.ports.transform import Transform
    from windrow.ingest.schema.columns import Columns
    from windrow.ingest.sinks.kind import Rows, SinkSection


Connection: TypeAlias = tuple[Broker, Callable[[ReadPlan], Reader]]
"""What planning asks a cluster, and what tasks read it with."""


@dataclass(frozen=True)
class Dependencies:
    """What a pipeline stands on besides its spec and schema.

    `table` is told the columns of the rows, without the metadata's.

    `dead_topic`: of a spec that has one.
    """

    connection: Connection
    ledger: Ledger
    table: Callable[[Rows], tuple[Sink, DeadLetters]]
    engine: Engine
    dead_topic: DeadTopic | None = None


def assemble(
    spec: PipelineSpec, engine: Engine | None = None, transform: Transform | None = None
) -> Pipeline:
    """Everything a pipeline stands on, untouched yet.

    Args:
        spec: what a user wrote.
        engine: where tasks run; None: a local Spark session, started when there is
            something to read.
        transform: what becomes of decoded rows, in the place of the rules of the spec's
            schema. The table has the columns that it gives.

    Raises:
        SpecError: the schema can't be loaded or stored, or the ledger's or the table's
            place makes no sense.
    """
    columns = table_columns(spec, transform)
    return _pipeline(spec, lambda: columns, columns.arrow_schema, _named(spec, engine), transform)


def assemble_on(spec: PipelineSpec, on: Dependencies) -> Pipeline:
    """The same on other foundations than those that the spec names.

    Raises:
        SpecError: the schema can't be loaded or stored.
    """
    columns = table_columns(spec)
    return _pipeline(spec, lambda: columns, columns.arrow_schema, on)


def assemble_to_look(spec: PipelineSpec) -> Pipeline:
    """The same for who looks and writes nothing: the schema is loaded at the first
    write, and so is what is wrong with it told then.

    Raises:
        SpecError: the ledger's or the table's place makes no sense.
    """
    columns = cache(lambda: table_columns(spec))
    return _pipeline(spec, columns, lambda: columns().arrow_schema, _named(spec, None))


def connect(spec: PipelineSpec) -> Connection:
    """The pipeline's cluster, and readers of its topics: all that a look at them needs."""
    return reach(spec.cluster, spec.source.isolation)


def reach(cluster: ClusterSpec, isolation: Isolation) -> Connection:
    """A cluster at an isolation level. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used, or a secret isn't where its reference says.
    """
    from windrow.ingest.kafka.broker import KafkaBroker
    from windrow.ingest.kafka.client import consumer_recipe

    servers, client, tuning = cluster.bootstrap_servers, cluster.client, cluster.tuning
    recipe = consumer_recipe(servers, client, isolation=isolation, tuning=tuning.client())

    def reader(plan: ReadPlan) -> Reader:
        from windrow.ingest.source.reader.reader import KafkaReader

        return KafkaReader(recipe, plan, **tuning.reader())

    return KafkaBroker(servers, client, isolation=isolation, tuning=tuning.client()), reader


def dead_topic(cluster: ClusterSpec, topic: str) -> DeadTopic:
    """A topic of a cluster that dead letters are published to. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used.
    """
    from windrow.ingest.kafka.dead_topic import KafkaDeadTopic

    return KafkaDeadTopic(
        cluster.bootstrap_servers, cluster.client, topic, tuning=cluster.tuning.client()
    )


def open_table(spec: PipelineSpec) -> tuple[Sink, DeadLetters]:
    """The pipeline's table and its dead letters, for who reads them: that takes neither ledger nor schema.

    Raises:
        SpecError: no table can lie there.
    """  # noqa: E501
    return make_table(
        spec.reached_sink, lambda: table_columns(spec).arrow_schema, spec.metadata, spec.folder
    )


def make_table(
    section: SinkSection, rows: Rows, metadata: Mapping[str, str], folder: Path
) -> tuple[Sink, DeadLetters]:
    """The table of a spec's section, and its dead letters.

    Args:
        section: what the spec says of it.
        rows: the columns of the rows without the metadata columns.
        metadata: these, name -> column.
        folder: what a relative path is relative to.

    Raises:
        SpecError: no table can lie there, or hold such columns.
    """
    from windrow.ingest.sinks.kinds import sink_kind

    kind = sink_kind(section.kind)
    return kind.make(section, rows, metadata, folder), kind.dead_letters(section, folder)


def table_columns(spec: PipelineSpec, transform: Transform | None = None) -> Columns:
    """The columns of the pipeline's table, but for the metadata columns: what becomes
    of the decoded ones.

    `transform`: see `assemble`.

    Where the spec's own transform says a schema, they are that one's.

    Raises:
        SpecError: the schema can't be loaded.
    """
    if spec.transform is not None and spec.transform.schema_ is not None:
        from windrow.ingest.schema.columns import Columns

        return Columns.of(model_now(ModelReference(spec.transform.schema_, spec.folder))[1])
    return (_rules(spec) if transform is None else transform).columns(
        _decoder(spec, transform).columns
    )


def _named(spec: PipelineSpec, engine: Engine | None) -> Dependencies:
    """Those that the spec names."""
    from windrow.ingest.ledger.sql import open_ledger
    from windrow.ingest.runner.spark.local import local_session
    from windrow.ingest.runner.spark.spark import SparkEngine

    return Dependencies(
        connect(spec),
        open_ledger(spec.state_url()),
        lambda rows: make_table(spec.reached_sink, rows, spec.metadata, spec.folder),
        engine or SparkEngine(local_session),
        (
            None
            if spec.dead_letters is None
            else dead_topic(spec.dead_cluster or spec.cluster, spec.dead_letters.topic)
        ),
    )


def _pipeline(
    spec: PipelineSpec,
    columns: Callable[[], Columns],
    rows: Rows,
    on: Dependencies,
    transform: Transform | None = None,
) -> Pipeline:
    broker, reader = on.connection
    sink, dead_letters = on.table(rows)
    reshape = _reshape(spec, transform)
    if reshape is not None:
        _refuse_unfit(sink, on.engine)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=lambda: _decoder(spec, transform),
        transform=lambda: _rules(spec) if transform is None else transform,
        broker=broker,
        reader=reader,
        ledger=on.ledger,
        sink=sink,
        dead_letters=dead_letters,
        engine=on.engine,
        dead_topic=on.dead_topic,
        reshape=reshape,
    )


def _reshape(spec: PipelineSpec, transform: Transform | None) -> Reshape | None:
    """The function of Spark's, and what its rows are held to: the rules of its own
    schema, else of that by which they were decoded.
    """
    if spec.transform is None:
        return None
    from windrow.ingest.transform.chain import Chain
    from windrow.ingest.transform.validate import Validate

    function = FunctionReference(spec.transform.spark, spec.folder)
    if spec.transform.schema_ is not None:
        return Reshape(
            function, Chain((Validate(ModelReference(spec.transform.schema_, spec.folder)),))
        )
    return Reshape(function, _rules(spec) if transform is None else Chain())


def _refuse_unfit(sink: Sink, engine: Engine) -> None:
    """What a function of Spark's needs of table and engine.

    Raises:
        SpecError: says what is missing.
    """
    if sink.capabilities.atomic != "window":
        what = (
            f"transform.spark needs a table that shows a window as a whole, and {sink.identity}"
            f" shows it {sink.capabilities.atomic} by "
        )
        what += (
            f"{sink.capabilities.atomic}: a run that dies halfway would have to get the very"
            " same rows of the function again"
        )
        raise SpecError(
            what,
            "spec",
            "Take another kind of table; a Kafka topic can with sink.atomic_window: true.",
        )
    if not isinstance(engine, ReshapingEngine):
        what = f"transform.spark needs Spark, and {type(engine).__name__} has no DataFrames"
        raise SpecError(
            what, "spec", "Run the pipeline on Spark, or take transform out of the spec."
        )


def _decoder(spec: PipelineSpec, transform: Transform | None) -> Decoder:
    from windrow.ingest.formats.kinds import make_decoder
    from windrow.ingest.ports.schemas import UsesSchemas

    key, registry = spec.sink.key, spec.registry
    decoder = make_decoder(
        spec.decode,
        spec.folder,
        () if key is None else key.deletes,
        keeps=spec.keeps and transform is None,
    )
    return (
        decoder.asking(registry)
        if registry is not None and isinstance(decoder, UsesSchemas)
        else decoder
    )


def _rules(spec: PipelineSpec) -> Transform:
    """The rules of the spec's schema; none, where its format takes a spec without one."""
    from windrow.ingest.transform.chain import Chain
    from windrow.ingest.transform.validate import Validate

    reference = spec.decode.schema_
    return Chain(() if reference is None else (Validate(ModelReference(reference, spec.folder)),))
