"""Topics as assets: several topics, a pattern, some partitions, and a topic of two pipelines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import dagster as dg
import msgspec
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from tests.assets.ticks import ask
from tests.assets.world import TOPIC, MemorySource, World, hour, ranges
from windrow.assets.columns import lineage
from windrow.assets.component import KafkaTable
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY, kafka_key, upstream_keys
from windrow.assets.topic import topic_assets
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.source.enumerator.topics import LogOffsets
from windrow.ingest.source.reader.reader import KafkaReader
from windrow.resources.kafka import KafkaSource
from windrow.resources.table import LedgerState

HERE = Path(__file__).parent
OTHER = "shop.others"
SERVERS = {"bootstrap_servers": "127.0.0.1:9"}


def two_topics(tmp_path: Path, instance: dg.DagsterInstance, **source: object) -> World:
    """Returns a pipeline with this source, on a cluster with two topics."""
    world = World(tmp_path, instance, source={**SERVERS, **source})
    world.broker.create_topic(OTHER, partitions=3)
    for i in range(6):
        world.send(0, i, b'{"id": 1}', i % 3, OTHER)
    world.fill(2)
    for p in range(3):
        world.send(1, 1, b'{"id": 1}', p, OTHER)
    return world


def observe(world: World) -> dict[str, dg.AssetObservation]:
    """Observes all sources of the pipeline, and returns the observations by asset."""
    keys = upstream_keys(world.spec)
    defs = dg.Definitions(topic_assets(world.spec), resources=world.topic_resources(MemorySource))
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=world.instance, asset_selection=keys)
    observations = [
        e.asset_observation_data.asset_observation for e in result.get_asset_observation_events()
    ]
    return {o.asset_key.to_user_string(): o for o in observations}


def deps_of(defs: dg.Definitions, table: str = "things") -> set[str]:
    [spec] = [s for s in defs.resolve_all_asset_specs() if s.key == dg.AssetKey([table])]
    return {d.asset_key.to_user_string() for d in spec.deps}


def test_each_named_topic_is_an_asset(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Each topic of a table is an asset, is observed separately, and is in the columns' lineage."""
    world = two_topics(tmp_path, instance, topic=[TOPIC, OTHER])
    assert deps_of(world.defs) == {f"kafka/{TOPIC}", f"kafka/{OTHER}"}
    observations = observe(world)
    assert {key: o.metadata["messages"].value for key, o in observations.items()} == {
        f"kafka/{TOPIC}": 120,
        f"kafka/{OTHER}": 9,
    }
    assert world.run(0).success
    shown = world.metadata(0)
    assert {(r.data["topic"], r.data["partition"]) for r in shown["offsets"].records} == {
        (TOPIC, 0),
        (TOPIC, 1),
        *((OTHER, p) for p in range(3)),
    }
    assert ranges(shown["offsets"]) == {
        TOPIC: {"0": [0, 30], "1": [0, 30]},
        OTHER: {str(p): [0, 2] for p in range(3)},
    }
    upstream = shown["dagster/column_lineage"].value.deps_by_column["id"]
    assert {d.asset_key.to_user_string() for d in upstream} == {f"kafka/{TOPIC}", f"kafka/{OTHER}"}
    assert (
        sum(r.data["read"] for r in shown["offsets"].records) == shown["messages_read"].value == 66
    )


def test_a_snapshot_is_what_an_observation_shows(world: World) -> None:
    """A source's snapshot has the start, the stable end and the end of each log.

    The observation of the topic's asset shows the same.
    """
    world.fill(1)
    world.broker.delete_records(TopicPartition(TOPIC, 0), 3)
    with world.broker.transaction() as open_one:
        world.broker.produce(
            TopicPartition(TOPIC, 1), b"1", timestamp=hour(0), transaction=open_one
        )
        snapshot = MemorySource(world).reading(world.spec).snapshot_offsets()
        [observation] = observe(world).values()
    assert snapshot.logs == {
        TopicPartition(TOPIC, 0): LogOffsets(3, 30, 30),
        TopicPartition(TOPIC, 1): LogOffsets(0, 30, 31),
    }
    assert [
        {name: line.data[name] for name in ("partition", "earliest", "stable", "latest")}
        for line in observation.metadata["offsets"].records
    ] == [
        {"partition": tp.partition, **msgspec.to_builtins(log)} for tp, log in snapshot.logs.items()
    ]
    assert observation.metadata["messages"].value == 57


def test_lag_and_head_are_numbers_of_each_observation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observation has the topic's end and the table's lag as numbers, which Dagster plots.

    Without a ledger, or with a ledger that contradicts a committed window, the lag is left out.
    """
    world.fill(3)
    head_and_lag = []
    for n in (None, 0, 2):
        assert n is None or world.run(n).success
        [event] = observe(world).values()
        head_and_lag.append([event.metadata[name].value for name in ("head", "lag_records")])
    assert head_and_lag == [[180, 180], [180, 120], [180, 0]]
    file = world.spec.state_url().removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, isolation_level=None)) as ledger:
        ledger.execute(
            "UPDATE windrow_ledger_2 SET value = replace(value, '\"offset\":90', '\"offset\":91')"
            " WHERE kind = 'boundary'"
        )
    [event] = observe(world).values()
    assert ("lag_records" in event.metadata, event.metadata["head"].value) == (False, 180)
    monkeypatch.setattr(LedgerState, "ledger", away)
    [event] = observe(world).values()
    assert ("lag_records" in event.metadata, event.metadata["head"].value) == (False, 180)


def away(_: LedgerState) -> NoReturn:
    raise UnreachableError("The ledger is away", "plan", "Wait.")


def test_a_pattern_is_one_asset(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A pattern is one asset, whose observation lists all matching topics.

    A new topic doesn't change the data version.
    """
    world = two_topics(tmp_path, instance, topic_pattern=r"shop\..*")
    assert deps_of(world.defs) == {"kafka/pattern/topics-of-things"}
    [first] = observe(world).values()
    assert [r.data["topic"] for r in first.metadata["topics"].value.records] == [OTHER, TOPIC]
    assert first.metadata["partitions"].value == 5
    world.broker.create_topic("shop.new")
    world.broker.create_topic("shopping")
    [second] = observe(world).values()
    assert [r.data["topic"] for r in second.metadata["topics"].value.records] == [
        "shop.new",
        OTHER,
        TOPIC,
    ]
    assert second.data_version == first.data_version
    assert world.run(0).success
    lineage = world.metadata(0)["dagster/column_lineage"].value.deps_by_column
    assert lineage["_offset"] == [
        dg.TableColumnDep(dg.AssetKey(["kafka", "pattern", "topics-of-things"]), "offset")
    ]


def test_some_partitions_are_their_topics(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Chosen partitions depend on their topics, which are observed as a whole."""
    world = two_topics(tmp_path, instance, partitions={TOPIC: [1], OTHER: [0, 2]})
    assert deps_of(world.defs) == {f"kafka/{TOPIC}", f"kafka/{OTHER}"}
    assert observe(world)[f"kafka/{OTHER}"].metadata["partitions"].value == 3
    assert world.run(0).success
    assert ranges(world.metadata(0)["offsets"]) == {
        TOPIC: {"1": [0, 30]},
        OTHER: {"0": [0, 2], "2": [0, 2]},
    }


def test_two_pipelines_on_one_topic_merge_by_hand(world: World) -> None:
    """Two pipelines of one topic can be merged, and share the topic's asset."""
    other_spec = world.spec.model_copy(update={"id": "others"})
    merged = dg.Definitions.merge(world.defs, kafka_table(other_spec, {SPARK_KEY: world.tasks}))
    dg.Definitions.validate_loadable(merged)
    keys = [s.key.to_user_string() for s in merged.resolve_all_asset_specs()]
    tables = {"others", "things"}
    assert set(keys) == {f"kafka/{TOPIC}", *tables, *(f"{table}_dead" for table in tables)}
    assert deps_of(merged, "others") == deps_of(merged) == {f"kafka/{TOPIC}"}


@pytest.mark.parametrize("source", [{"topic": TOPIC}, {"topic": [TOPIC, OTHER]}])
def test_two_component_files_on_one_topic(source: dict[str, object]) -> None:
    """Two component files of one topic load together, and share the topic's asset."""
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        for name, topic_source in (("one", source), ("two", {"topic": TOPIC})):
            attributes = {
                "id": name,
                "source": {**SERVERS, **topic_source},
                "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
                "decode": {"schema": "tests.assets.things:Thing"},
                "sink": {"path": f"lake/{name}"},
            }
            contents = {"type": "windrow.dagster.KafkaTable", "attributes": attributes}
            sandbox.scaffold_component(
                component_cls=KafkaTable, defs_path=name, defs_yaml_contents=contents
            )
        with sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            keys = [s.key.to_user_string() for s in defs.resolve_all_asset_specs()]
            assert keys.count(f"kafka/{TOPIC}") == 1
            assert {"one", "two"} <= set(keys)
            assert deps_of(defs, "two") == {f"kafka/{TOPIC}"}


def test_the_resource_is_told_all_that_the_spec_says(world: World) -> None:
    """Isolation, tuning and client properties of a spec reach the KafkaSource and its client."""
    source_section = {
        **SERVERS,
        "topic": TOPIC,
        "isolation": "read_uncommitted",
        "tuning": {"batch_messages": 5},
    }
    spec = World.spec_of(
        Path("/tmp"), source={**source_section, "client": {"client.id": "me", "client.rack": "a"}}
    )
    source = KafkaSource.of(spec.cluster)
    assert dict(source.client) == {"client.id": "me", "client.rack": "a"}
    assert dict(source.tuning) == {"batch_messages": 5}
    _, reader = source.connect(spec.source.isolation)
    kafka_reader = reader(ReadPlan("c", {}, "fail"))
    assert isinstance(kafka_reader, KafkaReader)
    expected = {
        "isolation.level": "read_uncommitted",
        "client.rack": "a",
        "client.id": "me",
    }
    assert {name: kafka_reader.properties[name] for name in expected} == expected
    with pytest.raises(
        SpecError, match=r"the resource KafkaSource:\n  tuning\.stall_timeout: must be a duration"
    ):
        KafkaSource(bootstrap_servers="127.0.0.1:9", tuning={"stall_timeout": "soon"}).connect(
            "read_committed"
        )


def test_a_columns_lineage_leads_to_its_part_of_the_message(tmp_path: Path) -> None:
    """A column's lineage is the key, the headers or the value of the message.

    A column that may be in the key and the value has both.
    """
    decode = {"schema": "a.b:C", "key": {"fields": ["shop", "id"]}, "headers": {"trace": "x-trace"}}
    columns = ["shop", "id", "trace", "amount"]
    for more, of_key in (({}, ["key", "value"]), ({"fields_include": "except_key"}, ["key"])):
        shown = lineage(World.spec_of(tmp_path, decode={**decode, **more}), columns).deps_by_column
        parts = {name: [dep.column_name for dep in shown[name]] for name in columns}
        assert parts == {"shop": of_key, "id": of_key, "trace": ["headers"], "amount": ["value"]}


LOOKUP = {"lookup": "s", "key": {"id": "id"}, "from": {"table": "nowhere"}}
"""A lookup step without `take`."""


def test_a_columns_lineage_goes_through_a_lookup(tmp_path: Path) -> None:
    """The lineage of a looked-up column is the lineage of its key.

    The lookup table isn't read for it.
    """
    step = {
        "lookup": "s",
        "key": {"id": "id"},
        "take": {"city": "city"},
        "from": {"table": "nowhere"},
    }
    decode = {"schema": "tests.assets.things:Thing"}
    spec = World.spec_of(tmp_path, decode=decode, transform={"steps": [step]})
    shown = lineage(spec, ["id", "name", "city"]).deps_by_column
    assert {n: [dep.column_name for dep in shown[n]] for n in ("id", "city")} == {
        "id": ["value"],
        "city": ["value"],
    }


def test_a_table_that_is_not_made_yet_can_be_looked_up_in(tmp_path: Path) -> None:
    """Definitions load without the lookup table if a schema gives the columns.

    Another pipeline may make the table later.
    """
    step = {
        "lookup": "s",
        "key": {"id": "id"},
        "take": {"name": "nick"},
        "from": {"table": "nowhere"},
    }
    decode = {"schema": "tests.assets.things:Thing"}
    steps = {"steps": [step], "schema": "tests.assets.things:Thing"}
    definitions = kafka_table(World.spec_of(tmp_path, decode=decode, transform=steps))
    assert definitions.assets
    says = r"neither a Delta table nor a Parquet file.* transform\.steps\.0 looks up s there\. Name"
    with pytest.raises(SpecError, match=says):
        kafka_table(World.spec_of(tmp_path, decode=decode, transform={"steps": [step]}))


def test_metadata_columns_go_by_their_names(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The table's columns and their lineage have the names of the spec's metadata section."""
    names = {"offset": "at", "headers": "headers", "value-size": "size", "timestamp": "none"}
    world = World(tmp_path, instance, metadata=names)
    world.fill(2)
    assert world.run(0).success
    shown = world.metadata(0)
    columns = {c.name: c.type for c in shown["dagster/column_schema"].value.columns}
    assert columns["at"] == "int64"
    assert set(columns) == {
        "id",
        "name",
        "_topic",
        "_partition",
        "at",
        "headers",
        "size",
        "_window",
    }
    deps = {
        name: [d.column_name for d in column_deps]
        for name, column_deps in shown["dagster/column_lineage"].value.deps_by_column.items()
    }
    assert deps == {
        "id": ["value"],
        "name": ["value"],
        "_topic": ["topic"],
        "_partition": ["partition"],
        "at": ["offset"],
        "headers": ["headers"],
        "size": ["value"],
    }
    [table] = [s for s in world.defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["things"])]
    assert {c.name for c in table.metadata["dagster/column_schema"].columns} == set(columns)


def test_a_schedule_observes_the_topics(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Each tick requests a run that observes all topics, but not while one is running."""
    world = two_topics(tmp_path, instance, topic=[TOPIC, OTHER])
    [request] = ask(world, "things_topics", hour(1))
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == "2026-01-05T01:00:00Z"
    on_broker = dg.Definitions(
        world.defs.assets,
        jobs=world.defs.jobs,
        resources={
            kafka_key(world.spec): MemorySource(world),
            "spark": None,
            "things_ledger": None,
            "things_sink": None,
        },
    )
    result = on_broker.resolve_job_def("things_topics").execute_in_process(instance=world.instance)
    observed_keys = {
        e.asset_observation_data.asset_observation.asset_key.to_user_string()
        for e in result.get_asset_observation_events()
    }
    assert observed_keys == {f"kafka/{TOPIC}", f"kafka/{OTHER}"}
    assert world.plain_events() == []
    world.instance.create_run_for_job(
        world.defs.resolve_job_def("things_topics"), status=dg.DagsterRunStatus.STARTED
    )
    assert ask(world, "things_topics", hour(1, 15)) == "The previous observation is still going."


def test_lineage_goes_through_sql(tmp_path: Path) -> None:
    """A computed column's lineage has the parts of the message that its expressions read.

    A constant has none.
    """
    decode = {"headers": {"trace": "x-trace"}}
    steps = [
        {"sql": "SELECT id AS number, note || trace AS words, 1 AS one FROM rows"},
        {"sql": "SELECT number + 1 AS number, words, one, _topic AS source FROM rows"},
    ]
    (tmp_path / "noted.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Noted(pa.DataFrameModel):\n"
        "    id: pl.Int64\n    note: pl.String = pa.Field(nullable=True)\n"
        "    trace: pl.String = pa.Field(nullable=True)\n"
    )
    spec = World.spec_of(
        tmp_path,
        decode={"schema": str(tmp_path / "noted.py") + ":Noted", **decode},
        transform={"steps": steps},
    )
    shown = lineage(spec, ["number", "words", "one", "source"]).deps_by_column
    parts = {name: sorted(dep.column_name for dep in deps) for name, deps in shown.items()}
    assert {name: parts[name] for name in ("number", "words", "one", "source")} == {
        "number": ["value"],
        "words": ["headers", "value"],
        "one": [],
        "source": ["topic"],
    }
