"""Makes a pipeline from a spec: the only module where interfaces meet implementations.

Each part is loaded when it is needed: loading the schema, with pandera and polars,
takes longer than a look at a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, checked_answer
from windrow.ingest.model.source import Isolation
from windrow.ingest.observers.prometheus import observer_of
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.engine import DataFrameEngine, Engine
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import DataFrameTransform, Pipeline
from windrow.ingest.schema.user_code import FunctionReference, ModelReference, load_model
from windrow.ingest.sinks.kinds import make_table
from windrow.ingest.transform.spark.kind import SparkSection

if TYPE_CHECKING:
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

    `table` takes the columns of the rows, without the metadata columns. `dead_topic`: None
    if the spec has none.
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
    """Makes a pipeline from a spec. Nothing is asked or written yet.

    Args:
        spec: the pipeline's spec.
        engine: the engine that runs the tasks; None: a local Spark, started
            when there is something to read.
        transform: takes the place of the rules of the spec's schema. The table has the
            columns of its result.
        on: takes the place of all that the spec names, and of `engine`.

    Raises:
        SpecError: `spec` is none; the schema can't be loaded or stored, or the place of the
            ledger or of the table is invalid.
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
    """Refuses what is no spec, such as the path of its file.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(spec, PipelineSpec):
        raise SpecError(
            f"A spec is needed, and this is a {type(spec).__name__}",
            "spec",
            "Write load_spec(PATH), of `from windrow import load_spec`.",
        )


def assemble_to_look(spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
    """Makes a pipeline for a caller that only reads, or looks before it writes.

    The schema is loaded before the first write, and its errors are raised then.

    Raises:
        SpecError: the place of the ledger or of the table is invalid.
    """
    columns = cache(lambda: table_columns(spec))
    return _pipeline(spec, _dependencies(spec, engine), columns, lambda: columns().arrow_schema)


def connect(spec: PipelineSpec) -> Connection:
    """Reaches the pipeline's cluster: enough to look at its topics."""
    return reach(spec.cluster, spec.source.isolation)


def reach(cluster: ClusterSpec, isolation: Isolation) -> Connection:
    """Reaches a cluster at an isolation level. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used, or a secret doesn't exist at its
            reference.
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
    """Reaches a topic of a cluster for dead letters. Nothing is asked yet.

    Raises:
        SpecError: the client properties can't be used.
    """
    from windrow.ingest.kafka.dead_topic import KafkaDeadTopic

    return KafkaDeadTopic(cluster.bootstrap_servers, cluster.client, topic)


def open_table(spec: PipelineSpec) -> tuple[Sink, DeadLetters]:
    """Opens the pipeline's table and its dead letters for reading.

    Neither the ledger nor the schema is needed.

    Raises:
        SpecError: the table's place is invalid.
    """
    return _table(spec, lambda: table_columns(spec).arrow_schema)


def _table(spec: PipelineSpec, rows: Rows) -> tuple[Sink, DeadLetters]:
    return make_table(spec.reached_sink, rows, spec.metadata, spec.folder)


def table_columns(spec: PipelineSpec, transform: Transform | None = None) -> Columns:
    """Returns the columns of the pipeline's table, without the metadata columns.

    They are the decoded columns, changed by the transforms of each message's rows, by a
    `spark` step, whose own schema says what it gives, and by what is behind it.

    Raises:
        SpecError: a schema can't be loaded, or a step can't be used with its columns.
    """
    from windrow.ingest.schema.columns import Columns  # loads Arrow

    decoder = _decoder(spec, transform)
    decoded = checked_answer(decoder, decoder.columns, Columns)
    columns = _message_chain(spec, transform).columns(decoded)
    function = _dataframe_transform(spec, transform)
    if function is None:
        return columns
    from windrow.ingest.runner.dataframe_transform import refuse_other_key
    from windrow.ingest.schema.metadata_types import refuse_wrong

    input_schema, output_columns = columns.arrow_schema, function.columns(columns)
    # the function sees the metadata columns beside its own
    refuse_wrong(sorted({*input_schema.names, *output_columns.arrow_schema.names}), spec.metadata)
    refuse_other_key(
        spec.sink.key.deletes if spec.sink.key else (), input_schema, output_columns.arrow_schema
    )
    return function.behind().columns(output_columns)


def column_sources(spec: PipelineSpec) -> Mapping[str, frozenset[ColumnSource]]:
    """The decoded columns, and the metadata columns, that each column depends on.

    What it takes from a lookup is there as the lookup's name and the column there.

    Empty with a `spark` step, whose function nobody can look into.

    Raises:
        SpecError: a schema can't be loaded, or a step can't be used.
    """
    if _dataframe_transform(spec, None) is not None:
        return {}
    names = [column.name for column in _decoder(spec, None).columns.columns]
    return _message_chain(spec, None).column_sources(names)


def declared_columns(spec: PipelineSpec) -> Columns:
    """Returns the columns of `table_columns`, as far as the spec's own files say them.

    Where `transform.schema` says them, no source of a lookup is asked: its table may be made by
    another pipeline that is defined beside this one, and hasn't run yet.

    Raises:
        SpecError: as `table_columns`.
        UnreachableError: a source of a lookup doesn't answer, and no schema says its columns.
    """
    if spec.transform is None or spec.transform.schema_ is None:
        return table_columns(spec)
    from windrow.ingest.schema.columns import Columns

    return Columns.of(load_model(ModelReference(spec.transform.schema_, spec.folder)))


def _dependencies(spec: PipelineSpec, engine: Engine | None = None) -> Dependencies:
    """Makes what the spec names."""
    from windrow.ingest.ledger.sql import open_ledger
    from windrow.ingest.runner.spark.cluster import launch_early, spark_context
    from windrow.ingest.runner.spark.engine import SparkEngine

    return Dependencies(
        reach(spec.cluster, spec.source.isolation),
        open_ledger(spec.state_url()),
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
    """Returns the function of DataFrames, and what becomes of its rows.

    First come the rules of its own schema, else of the schema that the rows were decoded
    by; then the steps behind it, and the rules of their schema.
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
        return Chain(
            (
                _rules(own_schema or decoded, spec.folder),
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
    """Checks that table and engine can be used with the steps.

    Raises:
        SpecError: they can't.
    """
    if spec.transform is None:
        return
    part, steps = sink.capabilities.atomic, enumerate(spec.transform.steps)
    changing = [f"transform.steps.{number}" for number, step in steps if not step.repeats]
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


def _decoder(spec: PipelineSpec, transform: Transform | None) -> Decoder:
    from windrow.ingest.formats.kinds import make_decoder
    from windrow.ingest.ports.schema_registry import UsesSchemas

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


def _message_chain(spec: PipelineSpec, transform: Transform | None) -> Chain:
    """Returns what becomes of each message's rows.

    First the rules of the spec's schema, or `transform` in their place; then the steps, and
    the rules of their schema. Of a `spark` step and those behind it see
    `_dataframe_transform`.
    """
    from windrow.ingest.transform.chain import Chain

    transforms = [_rules(spec.decode.schema_, spec.folder) if transform is None else transform]
    steps = spec.transform
    if steps is not None:
        transforms += _make_transforms(spec, range(steps.spark_at))
        transforms += (
            [_rules(steps.schema_, spec.folder)] if steps.spark_at == len(steps.steps) else []
        )
    return Chain(tuple(transforms))


def _make_transforms(
    spec: PipelineSpec, numbers: Iterable[int], *, behind_spark: bool = False
) -> list[Transform]:
    """Makes some steps of the spec."""
    from windrow.ingest.schema.metadata_arrays import of_message
    from windrow.ingest.transform.kind import StepPlace

    assert spec.transform is not None
    key, steps = spec.sink.key, spec.transform.steps
    return [
        checked_answer(
            steps[number],
            steps[number].transform(
                StepPlace(
                    f"transform.steps.{number}",
                    spec.folder,
                    of_message(spec.metadata),
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
    """Returns the rules of a schema; none without one."""
    from windrow.ingest.transform.chain import Chain
    from windrow.ingest.transform.validate import Validate

    return Chain(() if schema is None else (Validate(ModelReference(schema, folder)),))
