"""Makes a pipeline from a spec. No other module connects interfaces with implementations.

Each part is imported only when it is needed. The import of the schema, with pandera and
polars, takes longer than a look at a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, check_output
from windrow.ingest.model.source import Isolation
from windrow.ingest.observers.prometheus import observer_of
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.engine import DataFrameEngine, Engine
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import DataFrameTransform, Pipeline
from windrow.ingest.schema.user_code import FunctionReference, ModelReference, load_model
from windrow.ingest.settings.secrets import in_folder
from windrow.ingest.sinks.kinds import make_table
from windrow.ingest.transform.spark.kind import SparkSection

if TYPE_CHECKING:
    from windrow.ingest.formats.routed import Route
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.dead_topic import DeadTopic
    from windrow.ingest.ports.decoder import Decoder
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.ports.transform import ColumnSource, Transform
    from windrow.ingest.schema.columns import Columns
    from windrow.ingest.sinks.kind import Rows
    from windrow.ingest.transform.chain import Chain


Connection: TypeAlias = tuple[Broker, Callable[[ReadPlan], Reader]]
"""A broker that planning asks, and a function that makes readers for tasks."""


@dataclass(frozen=True)
class Dependencies:
    """Everything that a pipeline needs besides its spec and schema.

    Attributes:
        connection: the broker, and the function that makes readers.
        ledger: the ledger.
        table: makes the table and its dead letters. It takes the columns of the rows,
            without the metadata columns.
        engine: the engine that runs the tasks.
        dead_topic: the topic for dead letters; None if the spec has none.
    """

    connection: Connection
    ledger: Ledger
    table: Callable[[Rows], tuple[Sink, DeadLetters]]
    engine: Engine
    dead_topic: DeadTopic | None = None


def assemble(
    spec: PipelineSpec,
    engine: Engine | None = None,
    transform: Transform | None = None,
    on: Dependencies | None = None,
) -> Pipeline:
    """Makes a pipeline from a spec. Asks no cluster and writes nothing yet.

    Args:
        spec: the pipeline's spec.
        engine: the engine that runs the tasks; None: a local Spark, started when there is
            something to read.
        transform: replaces the rules of the spec's schema. The table has the columns of its
            result.
        on: replaces every dependency that the spec names, and `engine`.

    Raises:
        SpecError: `spec` isn't a PipelineSpec; the schema can't be loaded or stored; or the
            path or URL of the ledger or of the table is invalid.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        print(windrow.preview_window(pipeline, window).splits)
    """
    refuse_no_spec(spec)
    columns = table_columns(spec, transform)
    return _pipeline(
        spec,
        on or _dependencies(spec, engine),
        lambda: columns,
        columns.arrow_schema,
        transform,
    )


def refuse_no_spec(spec: object) -> None:
    """Refuses an argument that isn't a spec, such as the path of a spec's file.

    Raises:
        SpecError: it isn't a PipelineSpec.
    """
    if not isinstance(spec, PipelineSpec):
        raise SpecError(
            f"A spec is needed, and this is a {type(spec).__name__}",
            "spec",
            "Write load_spec(PATH), of `from windrow import load_spec`.",
        )


def assemble_to_look(spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
    """Makes a pipeline for a caller that only reads, or that reads before it writes.

    The schema is loaded before the first write, and its errors are raised then.

    Raises:
        SpecError: the path or URL of the ledger or of the table is invalid.
    """
    columns = cache(lambda: table_columns(spec))
    return _pipeline(spec, _dependencies(spec, engine), columns, lambda: columns().arrow_schema)


def connect(spec: PipelineSpec) -> Connection:
    """Makes the connection to the pipeline's cluster. It is enough for reading its topics."""
    return reach(spec.cluster, spec.source.isolation)


def reach(cluster: ClusterSpec, isolation: Isolation) -> Connection:
    """Makes a connection to a cluster at an isolation level. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used, or a reference to a secret leads to
            none.
    """
    from windrow.ingest.kafka.broker import KafkaBroker
    from windrow.ingest.kafka.client_properties import consumer_recipe

    servers, client = cluster.bootstrap_servers, cluster.client
    recipe = consumer_recipe(servers, client, isolation=isolation)

    def reader(plan: ReadPlan) -> Reader:
        from windrow.ingest.source.reader.reader import KafkaReader

        return KafkaReader(recipe, plan, **cluster.tuning.reader())

    return KafkaBroker(servers, client, isolation=isolation), reader


def dead_topic(cluster: ClusterSpec, topic: str) -> DeadTopic:
    """Makes the access to a cluster's topic for dead letters. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used.
    """
    from windrow.ingest.kafka.dead_topic import KafkaDeadTopic

    return KafkaDeadTopic(cluster.bootstrap_servers, cluster.client, topic)


def open_table(spec: PipelineSpec) -> tuple[Sink, DeadLetters]:
    """Opens the pipeline's table and its dead letters for reading.

    Neither the ledger nor the schema is needed.

    Raises:
        SpecError: the path or URL of the table is invalid.
    """
    return _table(spec, lambda: table_columns(spec).arrow_schema)


def open_ledger(spec: PipelineSpec) -> Ledger:
    """Opens the pipeline's ledger. Nothing is asked yet.

    Raises:
        SpecError: the path or URL of the ledger is invalid.
    """
    from windrow.ingest.ledger import sql

    return sql.open_ledger(spec.state_url(), in_folder(spec.state_password, spec.folder))


def _table(spec: PipelineSpec, rows: Rows) -> tuple[Sink, DeadLetters]:
    return make_table(spec.reached_sink, rows, spec.metadata, spec.folder)


def table_columns(spec: PipelineSpec, transform: Transform | None = None) -> Columns:
    """Returns the columns of the pipeline's table, without the metadata columns.

    They are the decoded columns, changed by the steps that work on each message's rows. A
    `spark` step then gives the columns of its own schema, and the steps after it change
    those.

    Raises:
        SpecError: a schema can't be loaded, or a step can't be used with its columns.
    """
    from windrow.ingest.schema.columns import Columns  # loads Arrow

    decoder = _decoder(spec, transform)
    decoded = check_output(decoder, decoder.columns, Columns)
    columns = _message_chain(spec, transform).columns(decoded)
    function = _dataframe_transform(spec, transform)
    if function is None:
        return columns
    from windrow.ingest.runner.dataframe_transform import refuse_other_key
    from windrow.ingest.schema.metadata_types import refuse_wrong

    input_schema, output_columns = columns.arrow_schema, function.columns(columns)
    # the step's function gets the metadata columns too, so its names must not equal theirs
    refuse_wrong(sorted({*input_schema.names, *output_columns.arrow_schema.names}), spec.metadata)
    refuse_other_key(
        spec.sink.key.deletes if spec.sink.key else (), input_schema, output_columns.arrow_schema
    )
    return function.later_transform().columns(output_columns)


def column_sources(spec: PipelineSpec) -> Mapping[str, frozenset[ColumnSource]]:
    """Returns the decoded columns and metadata columns that each table column depends on.

    For a value of a lookup, the source is the lookup's name and the name of the column
    there. With a `spark` step the result is empty, because the step's function can't be
    analysed; and so it is for several tables with rows of their own.

    Raises:
        SpecError: a schema can't be loaded, or a step can't be used.
    """
    if _dataframe_transform(spec, None) is not None or spec.route_specs:
        return {}
    names = [column.name for column in _decoder(spec, None).columns.columns]
    return _message_chain(spec, None).column_sources(names)


def declared_columns(spec: PipelineSpec) -> Columns:
    """Returns the columns of the table as the spec's own files declare them.

    With `transform.schema`, no source of a lookup is asked. The looked-up table may belong
    to another pipeline that is defined in the same project and hasn't run yet. Without it,
    this is `table_columns`.

    Raises:
        SpecError: the same cases as for `table_columns`.
        UnreachableError: a source of a lookup doesn't answer, and no schema declares its
            columns.
    """
    if spec.transform is None or spec.transform.schema_ is None or spec.route_specs:
        return table_columns(spec)
    from windrow.ingest.schema.columns import Columns

    columns = Columns.of(load_model(ModelReference(spec.transform.schema_, spec.folder)))
    has_rest = spec.decode.keeps_unknown and spec.transform.spark_at == len(spec.transform.steps)
    return columns.with_rest() if has_rest else columns


def _dependencies(spec: PipelineSpec, engine: Engine | None = None) -> Dependencies:
    """Makes the dependencies that the spec names."""
    from windrow.ingest.runner.spark.cluster import launch_early, spark_context
    from windrow.ingest.runner.spark.engine import SparkEngine

    return Dependencies(
        reach(spec.cluster, spec.source.isolation),
        open_ledger(spec),
        lambda rows: _table(spec, rows),
        engine or SparkEngine(spark_context, launch_early),
        (
            None
            if spec.dead_letters is None
            else dead_topic(spec.dead_cluster or spec.cluster, spec.dead_letters.topic)
        ),
    )


def _pipeline(
    spec: PipelineSpec,
    on: Dependencies,
    columns: Callable[[], Columns],
    rows: Rows,
    transform: Transform | None = None,
) -> Pipeline:
    broker, reader = on.connection
    sink, dead_letters = on.table(rows)
    function = _dataframe_transform(spec, transform)
    _refuse_unsuited(spec, sink, on.engine, function)
    return Pipeline(
        spec=spec,
        columns=columns,
        decoder=lambda: _decoder(spec, transform),
        transform=lambda: _message_chain(spec, transform),
        broker=broker,
        reader=reader,
        ledger=on.ledger,
        sink=sink,
        dead_letters=dead_letters,
        engine=on.engine,
        dead_topic=on.dead_topic,
        dataframe_transform=function,
        observer=observer_of(spec.id),
    )


def _dataframe_transform(
    spec: PipelineSpec, transform: Transform | None
) -> DataFrameTransform | None:
    """Returns the function of the `spark` step, and the transforms of the rows that it returns.

    The rows first meet the rules of the step's own schema, or else of the schema that they
    were decoded by. Then come the steps after the `spark` step, and the rules of
    `transform.schema`.
    """
    if spec.transform is None or spec.transform.spark_at == len(spec.transform.steps):
        return None
    spark_index, steps, schema = (
        spec.transform.spark_at,
        spec.transform.steps,
        spec.transform.schema_,
    )
    section, is_last = steps[spark_index], spark_index + 1 == len(steps)
    assert isinstance(section, SparkSection)
    own_schema = section.schema_ or (schema if is_last else None)
    decoded = spec.decode.schema_ if spark_index == 0 and transform is None else None

    def behind() -> Transform:
        from windrow.ingest.transform.chain import Chain

        later_transforms = _make_transforms(
            spec, range(spark_index + 1, len(steps)), behind_spark=True
        )
        last = None if is_last and own_schema == schema else schema
        keeps_rest = own_schema is None and spec.decode.keeps_unknown
        return Chain(
            (
                Chain((_rules(own_schema or decoded, spec.folder),), keeps_rest),
                *later_transforms,
                _rules(last, spec.folder),
            )
        )

    return DataFrameTransform(
        FunctionReference(section.spark, spec.folder),
        None if own_schema is None else ModelReference(own_schema, spec.folder),
        behind,
    )


def _refuse_unsuited(
    spec: PipelineSpec, sink: Sink, engine: Engine, function: DataFrameTransform | None
) -> None:
    """Refuses a table or an engine that can't be used with the spec's steps.

    Raises:
        SpecError: the table or the engine can't be used with a step.
    """
    part, specs = sink.capabilities.atomic, (spec, *spec.route_specs.values())
    transforms = [part_spec.transform for part_spec in specs if part_spec.transform is not None]
    if spec.route_specs and any(t.spark_at < len(t.steps) for t in transforms):
        raise SpecError(
            "A spark step makes rows of one schema, and tables of the routes have rows of their"
            " own",
            "spec",
            "Remove the step from the spec, or from each table its decode, its transform and its"
            " key.",
        )
    changing = [
        f"transform.steps.{number}"
        for transform in transforms
        for number, step in enumerate(transform.steps)
        if not step.is_repeatable
    ]
    if changing and part != "window":
        raise SpecError(
            f"{changing[0]} needs a table that shows a window as a whole, and {sink.identity}"
            f" shows it {part} by {part}: a second run after a crash would need exactly the same"
            " rows from the step",
            "spec",
            "Use another kind of table, or for a Kafka topic sink.atomic_window: true.",
        )
    if function is not None and not isinstance(engine, DataFrameEngine):
        raise SpecError(
            f"A spark step needs Spark, and {type(engine).__name__} has no DataFrames",
            "spec",
            "Run the pipeline on Spark, or remove the step from the spec.",
        )


def _routes(spec: PipelineSpec, transform: Transform | None) -> tuple[Route, ...]:
    """Returns the routes of several tables with rows of their own; empty for other tables.

    Raises:
        SpecError: a step can't be used, or two lookups have the same name.
    """
    from windrow.ingest.formats.routed import Route
    from windrow.ingest.ports.lookup import sources_of

    routes = [
        Route(name, _decoder(part, transform), _message_chain(part, transform))
        for name, part in spec.route_specs.items()
    ]
    lookups = [lookup for route in routes for lookup in sources_of([route.transform])]
    if len(set(lookups)) < len(lookups):
        raise SpecError(
            f"Two of the lookups {', '.join(lookups)} of sink.tables have the same name",
            "spec",
            "Name them apart: the receipt says by its name which version each one asked.",
        )
    return tuple(routes)


def _decoder(spec: PipelineSpec, transform: Transform | None) -> Decoder:
    from windrow.ingest.formats.kinds import make_decoder
    from windrow.ingest.ports.schema_registry import UsesSchemas

    if routes := _routes(spec, transform):
        from windrow.ingest.formats.routed import RoutedDecoder

        return RoutedDecoder(routes, spec.sink.router())
    key, registry = spec.sink.key, spec.registry
    decoder = make_decoder(
        spec.decode,
        spec.folder,
        () if key is None else key.deletes,
        keeps_unavailable=spec.keeps_unavailable and transform is None,
    )
    return (
        decoder.asking(registry)
        if registry is not None and isinstance(decoder, UsesSchemas)
        else decoder
    )


def _message_chain(spec: PipelineSpec, transform: Transform | None) -> Chain:
    """Returns the transforms of each message's rows, up to a `spark` step.

    First come the rules of the spec's schema, or `transform` if it is given. Then come the
    steps, and the rules of `transform.schema`. `_dataframe_transform` has the `spark` step
    and the steps after it.
    """
    from windrow.ingest.transform.chain import Chain

    if spec.route_specs:
        return Chain()  # the decoder has those of each route
    transforms = [_rules(spec.decode.schema_, spec.folder) if transform is None else transform]
    steps = spec.transform
    if steps is not None:
        transforms += _make_transforms(spec, range(steps.spark_at))
        transforms += (
            [_rules(steps.schema_, spec.folder)] if steps.spark_at == len(steps.steps) else []
        )
    return Chain(tuple(transforms), passes_rest=spec.decode.keeps_unknown)


def _make_transforms(
    spec: PipelineSpec, numbers: Iterable[int], *, behind_spark: bool = False
) -> list[Transform]:
    """Makes the transforms of the steps with these indexes in the spec."""
    from windrow.ingest.schema.columns import REST
    from windrow.ingest.schema.metadata_arrays import of_message
    from windrow.ingest.transform.kind import StepContext

    assert spec.transform is not None
    key, steps = spec.sink.key, spec.transform.steps
    is_kept = spec.decode.keeps_unknown and not behind_spark
    return [
        check_output(
            steps[number],
            steps[number].transform(
                StepContext(
                    f"transform.steps.{number}",
                    spec.folder,
                    of_message(spec.metadata) | ({REST: REST} if is_kept else {}),
                    () if key is None else key.columns,
                    versioned=key is not None and key.version is not None,
                    behind_spark=behind_spark,
                )
            ),
            "open",
        )
        for number in numbers
    ]


def _rules(schema: str | None, folder: Path) -> Transform:
    """Returns the rules of a schema; an empty chain if there is no schema."""
    from windrow.ingest.transform.chain import Chain
    from windrow.ingest.transform.validate import Validate

    return Chain(() if schema is None else (Validate(ModelReference(schema, folder)),))
