"""The events of a run: one for each window, with the version of the committed data."""

# No postponed annotations here, because Dagster reads those of the decorated function.

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from tests.assets.world import TOPIC, MemorySource, World, of_table
from windrow.assets.dagster_internals import range_tags
from windrow.assets.partitions import partitions_of
from windrow.assets.topic import topic_assets
from windrow.ingest.model.boundary import TopicPartition

VERSION, INPUT = "dagster/data_version", f"dagster/input_data_version/kafka/{TOPIC}"


def events(world: World) -> list[dg.AssetMaterialization]:
    """Returns all materializations of the table, the oldest first."""
    records = world.instance.fetch_materializations(dg.AssetKey(["things"]), limit=1000).records[
        ::-1
    ]
    return [r.asset_materialization for r in records if r.asset_materialization is not None]


def observe(world: World) -> str:
    """Observes the topic, and returns its data version."""
    defs = dg.Definitions(topic_assets(world.spec), resources=world.topic_resources(MemorySource))
    job = defs.resolve_implicit_global_asset_job_def()
    [event] = job.execute_in_process(instance=world.instance).get_asset_observation_events()
    return str(event.asset_observation_data.asset_observation.data_version)


def status(world: World) -> str:
    """Returns the first window's status in the UI: FRESH, or STALE, which the UI shows
    as unsynced.
    """
    graph = world.defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(
        world.instance, graph, LoadingContextForTest(world.instance)
    )
    return resolver.get_status(dg.AssetKey(["things"]), world.key(0)).value


def test_each_window_of_a_range_has_one_event(world: World) -> None:
    """A run over several windows shows each of them once, in the order of time."""
    world.fill(3)
    result = world.run(0, 2)
    assert result.success
    assert [e.partition for e in of_table(result)] == [world.key(n) for n in range(3)]
    assert [e.partition for e in events(world)] == [world.key(n) for n in range(3)]


def test_each_batch_of_a_run_has_one_event(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A run shows each of its micro-batches once, also the last one."""
    world = World(tmp_path, instance, window={"grid": "batch", "max_records": 20})
    world.fill(1)
    assert world.run_batches().success
    assert [s["batch"] for s in world.plain_events()] == [0, 1, 2]


@pytest.mark.parametrize("last", [0, 2])
def test_what_is_downstream_in_the_same_run_goes_on(world: World, last: int) -> None:
    """An asset downstream of the table is made in the same run."""
    world.fill(3)
    summed_keys = []

    @dg.asset(
        deps=["things"],
        partitions_def=partitions_of(world.spec),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def hourly_sum(context: dg.AssetExecutionContext) -> None:
        summed_keys.extend(context.partition_keys)

    defs = dg.Definitions.merge(world.defs, dg.Definitions(assets=[hourly_sum]))
    job = defs.resolve_implicit_global_asset_job_def()
    tags, selected_keys = (
        range_tags(dg.PartitionKeyRange(world.key(0), world.key(last))),
        [
            dg.AssetKey(["things"]),
            dg.AssetKey(["hourly_sum"]),
        ],
    )
    assert job.execute_in_process(
        instance=world.instance, asset_selection=selected_keys, tags=tags
    ).success
    assert summed_keys == [world.key(n) for n in range(last + 1)]


def test_the_version_is_what_was_committed(world: World) -> None:
    """A window that is only reported again keeps its data version; a replaced one gets a new one.

    So nothing downstream becomes stale without a change.
    """
    world.fill(2)
    for config in ({}, {}, {"on_committed": "replace"}):
        assert world.run(0, 1, **config).success
    versions = [e.tags[VERSION] for e in events(world) if e.partition == world.key(0)]
    assert versions[0] == versions[1] != versions[2]
    assert len({e.tags[VERSION] for e in events(world)}) == 4


def test_the_code_version_says_what_made_the_rows(world: World) -> None:
    """A window's code version is the version of schema and decoding that its rows were made with.

    A window that is only reported keeps it, and becomes stale if the spec decodes differently.
    The limits of a spec don't change it.
    """
    world.fill(1)
    assert world.run(0).success
    [first] = events(world)
    specs = {spec.key: spec for spec in world.defs.resolve_all_asset_specs()}
    assert first.tags["dagster/code_version"] == specs[first.asset_key].code_version
    assert status(world) == "FRESH"
    original_spec = world.spec
    tuned = original_spec.limits.model_copy(update={"max_dead_ratio": 0.1})
    world.spec = original_spec.model_copy(update={"limits": tuned})
    world.load()
    assert status(world) == "FRESH"
    decode = original_spec.decode.model_copy(update={"on_null": "drop"})
    world.spec = original_spec.model_copy(update={"decode": decode})
    world.load()
    assert status(world) == "STALE"
    assert world.run(0).success
    assert status(world) == "STALE"
    assert world.run(0, on_committed="replace").success
    assert status(world) == "FRESH"
    versions = [event.tags["dagster/code_version"] for event in events(world)]
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize("source_key", ["topic", "topic_pattern"])
def test_a_window_is_stale_only_once_its_topic_is_made_anew(
    tmp_path: Path, instance: dg.DagsterInstance, source_key: str
) -> None:
    """A window that was made before its topic's first observation stays fresh.

    It becomes stale when the topic is deleted and made again. With a pattern it stays fresh,
    because the version is the cluster's id.
    """
    world = World(
        tmp_path, instance, source={"bootstrap_servers": "127.0.0.1:9", source_key: TOPIC}
    )
    world.fill(1)
    assert world.run(0).success
    assert status(world) == "FRESH"
    observation = observe(world)
    assert status(world) == "FRESH"
    world.broker.delete_topic(TOPIC)
    world.broker.create_topic(TOPIC, partitions=2)
    assert (observe(world) == observation) == (source_key == "topic_pattern")
    assert status(world) == ("FRESH" if source_key == "topic_pattern" else "STALE")


def test_a_table_of_two_topics_names_both(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The event names each topic that the table reads."""
    world = World(
        tmp_path,
        instance,
        source={"bootstrap_servers": "127.0.0.1:9", "topic": [TOPIC, "shop.others"]},
    )
    world.broker.create_topic("shop.others")
    world.fill(1)
    world.broker.produce(TopicPartition("shop.others", 0), b'{"id": 1}', timestamp=world.now)
    assert world.run(0).success
    [event] = events(world)
    assert {name for name in event.tags if name.startswith("dagster/input_data_version/")} == {
        INPUT,
        f"{INPUT[: -len(TOPIC)]}shop.others",
    }
