"""A run uses the given resources for all that it reads, writes and keeps."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import msgspec
import pytest
from dagster._core.remote_representation.external_data import ResourceSnap
from pyspark.sql import SparkSession

from tests.assets.world import TOPIC, MemorySource, MemoryTable, World, hour, ranges
from tests.contracts.engine_contract import SPLITS
from tests.runner.spark.tasks import Name
from tests.sinks.with_dead_letters import MemoryBoth
from windrow.assets.component import refuse_two_clusters
from windrow.assets.dagster_internals import range_tags
from windrow.assets.dependencies import Clock, keys_of
from windrow.assets.factory import kafka_table, standing_on
from windrow.assets.names import (
    SPARK_KEY,
    dead_replay_job_name,
    job_name,
    kafka_key,
    ledger_key,
    sink_key,
    topics_name,
)
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import GridError, SpecError, UnreachableError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.source import Isolation
from windrow.ingest.testing.dead_topic import MemoryDeadTopic
from windrow.resources.kafka import KafkaSource
from windrow.resources.spark import Spark
from windrow.resources.table import LedgerState

pytestmark = pytest.mark.some(12, of="tests")

CLUSTERS = """\
clusters:
  prod:
    bootstrap_servers: "127.0.0.1:9"
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: me
      sasl.password: "{{ env.CANARY }}"
  staging: {bootstrap_servers: "127.0.0.1:8"}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment variable with the password."""
    monkeypatch.setenv("CANARY", "hunter2-C4nary")


def on_cluster(folder: Path, name: str, **source: object) -> PipelineSpec:
    """Returns a pipeline on a cluster of a windrow.yaml."""
    (folder / "windrow.yaml").write_text(CLUSTERS)
    attributes = {
        "id": name,
        "source": {"cluster": "prod", "topic": TOPIC, **source},
        "window": {"grid": "hourly", "start": hour(0), "delay": "5m"},
        "decode": {"schema": "tests.assets.things:Thing"},
        "sink": {"path": name},
        "state": "state.db",
    }
    return parse_spec(attributes, folder)


class Noted(MemorySource):
    """A source that remembers the isolation levels of its connections."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.isolations: list[Isolation] = []

    def connect(self, isolation: Isolation) -> Any:
        self.isolations.append(isolation)
        return super().connect(isolation)


def run_of(
    world: World, defs: dg.Definitions, key: str, job: str = "things_windows"
) -> dg.ExecuteInProcessResult:
    """Runs one partition with these definitions."""
    return defs.resolve_job_def(job).execute_in_process(
        instance=world.instance, partition_key=key, raise_on_error=False
    )


def test_a_run_reads_what_its_source_has(world: World, tmp_path: Path) -> None:
    """With another source, the table has that source's messages.

    The metadata has the offsets of the plan.
    """
    source_world = World(tmp_path, world.instance)
    source_world.fill(2, per_hour=10)
    world.fill(2)
    source = Noted(source_world)
    defs = standing_on(world.defs, {kafka_key(world.spec): source})
    assert run_of(world, defs, world.key(0)).success
    receipt, shown = world.receipt_of(0), world.metadata(0)
    assert (receipt.counts.read, shown["messages_read"].value) == (10, 10)
    assert receipt.plan.stop.cluster_id == source_world.broker.cluster_id()
    assert ranges(shown["offsets"]) == {
        TOPIC: {str(s.partition): [s.start, s.stop] for s in receipt.plan.splits}
    }
    assert [split for reader in source_world.readers for split in reader.splits] == list(
        receipt.plan.splits
    )
    assert set(source.isolations) == {"read_committed"}


class Halving(MemorySource):
    """A source that cuts each split in two, and remembers its splits.

    With `complete` False, it leaves the last offset of each split out.
    """

    def __init__(self, world: World, *, complete: bool) -> None:
        super().__init__(world)
        self.complete = complete
        self.splits_by_window: dict[Window, list[Split]] = {}

    def enumerate_splits(self, window: Window) -> Sequence[Split]:
        self.splits_by_window[window] = []
        for split in MemorySource.enumerate_splits(self, window):
            middle, stop = split.start + 3, split.stop - (not self.complete)
            self.splits_by_window[window].append(msgspec.structs.replace(split, stop=middle))
            self.splits_by_window[window].append(
                msgspec.structs.replace(split, start=middle, stop=stop)
            )
        return self.splits_by_window[window]


def test_a_run_reads_the_splits_that_its_source_enumerates(world: World) -> None:
    """Each window is planned with the splits that its source enumerates.

    These splits are read, are in the receipt, and make the offsets that Dagster shows.
    """
    world.fill(2)
    source = Halving(world, complete=True)
    defs = standing_on(world.defs, {kafka_key(world.spec): source})
    tags = range_tags(dg.PartitionKeyRange(world.key(0), world.key(1)))
    job = defs.resolve_job_def("things_windows")
    assert job.execute_in_process(instance=world.instance, tags=tags).success
    for n in (0, 1):
        window = Window("things", hour(n), hour(n + 1))
        assert list(world.receipt_of(n).plan.splits) == source.splits_by_window[window]
        assert len(source.splits_by_window[window]) == 4
        splits = MemorySource(world).reading(world.spec).enumerate_splits(window)
        assert list(splits) == source.splits_by_window[window]
        shown = {TOPIC: {str(p): [30 * n, 30 * n + 30] for p in range(2)}}
        assert ranges(world.metadata(n)["offsets"]) == shown
    assert [split for reader in world.readers for split in reader.splits] == [
        split for splits in source.splits_by_window.values() for split in splits
    ]


class CountedLedger:
    """The pipeline's ledger, which counts the calls."""

    def __init__(self, world: World) -> None:
        self._ledger, self.call_counts = (
            open_ledger(world.spec.state_url()),
            Counter[tuple[Any, ...]](),
        )

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any, **options: Any) -> Any:
            self.call_counts[
                name,
                *(argument for argument in arguments if isinstance(argument, Window | datetime)),
            ] += 1
            return getattr(self._ledger, name)(*arguments, **options)

        return ask


def test_a_run_asks_its_ledger_for_a_window_once(world: World) -> None:
    """A run asks its ledger once for the plan of each window, and once for each boundary.

    The source that enumerates splits gets them from the run.
    """
    world.fill(3)
    counted = CountedLedger(world)
    resource = SimpleNamespace(ledger=lambda: counted)
    defs = standing_on(world.defs, {ledger_key(world.spec): resource})
    tags = range_tags(dg.PartitionKeyRange(world.key(0), world.key(2)))
    job = defs.resolve_job_def("things_windows")
    assert job.execute_in_process(instance=world.instance, tags=tags).success
    of_windows = [n for (name, *_), n in counted.call_counts.items() if name in {"plan", "pins"}]
    of_labels = [n for (name, *_), n in counted.call_counts.items() if name == "boundary"]
    assert of_windows == [1, 1, 1]
    assert of_labels == [1, 1, 1, 1]


def test_splits_that_leave_messages_out_are_refused(world: World) -> None:
    """A window whose splits leave messages out is refused, and nothing is frozen."""
    world.fill(1)
    defs = standing_on(world.defs, {kafka_key(world.spec): Halving(world, complete=False)})
    failed = run_of(world, defs, world.key(0))
    [message] = [
        e.step_failure_data.error.message
        for e in failed.all_events
        if e.is_step_failure and e.step_failure_data.error
    ]
    assert "are not exactly the offsets between its boundaries" in message
    assert world.receipt_of(0) is None
    assert world.run(0).success


def test_a_source_enumerates_for_the_pipeline_that_it_is_told(world: World) -> None:
    """A source enumerates the splits of a window without a plan, like a run, and freezes nothing.

    A window off the grid is refused. A source that doesn't know its pipeline raises SpecError.
    """
    world.fill(1)
    source = MemorySource(world).reading(world.spec)
    window = Window("things", hour(0), hour(1))
    assert [(s.partition, s.start, s.stop) for s in source.enumerate_splits(window)] == [
        (0, 0, 30),
        (1, 0, 30),
    ]
    assert open_ledger(world.spec.state_url()).newest("things") == []
    with pytest.raises(GridError, match="is not one hourly window of things"):
        source.enumerate_splits(Window("things", hour(0), hour(2)))
    untold = KafkaSource(bootstrap_servers="127.0.0.1:9")
    for ask in (lambda: untold.enumerate_splits(window), untold.snapshot_offsets):
        with pytest.raises(SpecError, match=r"wasn't told which pipeline"):
            ask()


def test_an_asset_of_a_user_s_own_asks_the_source(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example on the docs page works, downstream of the table."""
    world.fill(2)
    assert world.run(1).success
    world.broker.delete_records(TopicPartition(TOPIC, 0), 40)
    monkeypatch.setattr("windrow.load_spec", lambda path: world.spec)
    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text(encoding="utf-8")
    [typed] = re.findall(r"## Asking the source\n.*?```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    code = compile(typed.replace("payments", "things"), "dagster.md", "exec", dont_inherit=True)
    exec(code, names)
    resources = {"things_kafka": MemorySource(world)}
    run = dg.materialize(
        [names["still_in_kafka"]],
        partition_key=world.key(1),
        resources=resources,
        instance=world.instance,
        selection=["still_in_kafka"],
    )
    [event] = run.get_asset_materialization_events()
    shown = event.step_materialization_data.materialization.metadata
    assert (shown["offsets"].value, shown["left"].value) == (60, 50)


def test_a_run_keeps_and_writes_where_its_resources_are(world: World, tmp_path: Path) -> None:
    """A run writes to the ledger and the table that are given as resources, and nowhere else."""
    world.fill(2)
    elsewhere = str(tmp_path / "other.db")
    table = MemoryTable(world)
    table.instead = MemoryBoth("elsewhere", world.columns.arrow_schema, world.spec.metadata)
    own_resources = {
        ledger_key(world.spec): LedgerState(url=elsewhere),
        sink_key(world.spec): table,
    }
    assert run_of(world, standing_on(world.defs, own_resources), world.key(0)).success
    assert [r.counts.read for r in open_ledger(elsewhere).recorded_receipts("things", 9)] == [60]
    assert open_ledger(world.spec.state_url()).recorded_receipts("things", 9) == []
    assert [c.receipt.counts.valid for c in table.instead.receipts()] == [60]
    assert list(world.sink.receipts()) == []


def test_checks_and_observations_stand_on_the_same(world: World, tmp_path: Path) -> None:
    """The checks read the run's table, and the observation is of the given source's topic."""
    source_world = World(tmp_path, world.instance)
    source_world.fill(1)
    source = Noted(source_world)
    defs = standing_on(world.defs, {kafka_key(world.spec): source})
    assert {
        c.check_name: c.passed
        for c in run_of(world, defs, world.key(0)).get_asset_check_evaluations()
    }["receipts"]
    connects_of_run = len(source.isolations)
    events = (
        defs.resolve_job_def("things_topics")
        .execute_in_process(instance=world.instance)
        .get_asset_observation_events()
    )
    [observed] = [e.asset_observation_data.asset_observation for e in events]
    assert observed.metadata["messages"].value == 60
    assert connects_of_run >= 4  # of the run, and of its checks
    assert len(source.isolations) == connects_of_run + 2  # of the snapshot, and of the lag


def test_pipelines_of_a_cluster_share_its_resource(tmp_path: Path) -> None:
    """Pipelines of one cluster share one resource, with the cluster's name.

    A pipeline with client properties of its own has its own resource. All definitions merge.
    """
    specs = [
        on_cluster(tmp_path, "one"),
        on_cluster(tmp_path, "two"),
        on_cluster(tmp_path, "three", client={"client.rack": "a"}),
    ]
    merged = dg.Definitions.merge(*map(kafka_table, specs))
    dg.Definitions.validate_loadable(merged)
    assert [kafka_key(spec) for spec in specs] == ["prod_cluster", "prod_cluster", "three_kafka"]
    assert {key for key in merged.resources or {} if key.endswith(("_cluster", "_kafka"))} == {
        "prod_cluster",
        "three_kafka",
    }


def test_a_job_has_the_resources_of_its_pipeline_alone(tmp_path: Path) -> None:
    """A job has only its pipeline's resources.

    Dagster stores a job's resources with it. With all resources in each job, that would grow
    with the square of the number of pipelines.
    """
    client = {"client.rack": "a"}
    specs = [on_cluster(tmp_path, name, topic=name, client=client) for name in ("one", "two")]
    repository = dg.Definitions.merge(*map(kafka_table, specs)).get_repository_def()
    for spec in specs:
        for job in (job_name(spec), dead_replay_job_name(spec)):
            resource_keys = set(repository.get_job(job).resource_defs)
            assert resource_keys == keys_of(spec) | {"io_manager"}
        observes = set(repository.get_job(topics_name(spec)).resource_defs)
        assert observes == {kafka_key(spec), ledger_key(spec), "io_manager"}


def test_a_staging_cluster_is_one_other_resource(world: World, tmp_path: Path) -> None:
    """All pipelines of a cluster use the resource that is given under the cluster's key."""
    world.fill(2)
    specs = [on_cluster(tmp_path, name) for name in ("one", "two")]
    merged = dg.Definitions.merge(
        *(kafka_table(spec, clock=Clock(lambda: world.now, world.sleep)) for spec in specs)
    )
    staging = {"prod_cluster": MemorySource(world), SPARK_KEY: world.tasks}
    on_staging = standing_on(merged, staging)
    for name in ("one", "two"):
        assert run_of(world, on_staging, world.key(0), f"{name}_windows").success
        [shown] = world.instance.fetch_materializations(dg.AssetKey([name]), limit=1).records
        assert shown.asset_materialization is not None
        assert shown.asset_materialization.metadata["messages_read"].value == 60
        assert (tmp_path / name / "_delta_log").is_dir()


def test_a_resource_that_nothing_asks_for_is_refused(world: World) -> None:
    """A resource with a wrong key is refused, because the real cluster would be used instead."""
    with pytest.raises(SpecError, match="No definition requires a resource thing_kafka") as caught:
        kafka_table(world.spec, {"thing_kafka": MemorySource(world)})
    assert "spark, things_kafka, things_ledger, things_sink" in caught.value.advice


def test_a_resource_of_another_kind_is_refused(world: World) -> None:
    """A resource of the wrong kind fails the run with its key and type, and isn't called a bug."""
    for key, resource in (
        (kafka_key(world.spec), LedgerState(url="x")),
        (ledger_key(world.spec), "state.db"),
        (SPARK_KEY, None),
    ):
        failed = run_of(world, standing_on(world.defs, {key: resource}), world.key(0))
        [message] = [
            e.step_failure_data.error.message
            for e in failed.all_events
            if e.is_step_failure and e.step_failure_data.error
        ]
        assert (
            f"The resource under the key {key} is a {type(resource).__name__}, which can't be used"
            in message
        )


def test_dead_letters_go_to_the_source_that_is_given(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Dead letters go to a topic of the given source; a source without such topics is refused."""
    world, topic = (
        World(tmp_path, instance, dead_letters={"topic": "things.dead"}),
        MemoryDeadTopic("things.dead"),
    )
    world.fill(1)
    world.send(0, 59, b"poison")
    world.send(2, 0, b'{"id": 1}')

    class HasTopic(MemorySource):
        def dead_topic(self, name: str) -> MemoryDeadTopic:
            assert name == topic.name
            return topic

    failed = run_of(world, world.defs, world.key(0))
    [message] = [
        e.step_failure_data.error.message
        for e in failed.all_events
        if e.is_step_failure and e.step_failure_data.error
    ]
    assert "which can't be used" in message
    assert run_of(
        world, standing_on(world.defs, {kafka_key(world.spec): HasTopic(world)}), world.key(0)
    ).success
    assert [letter["value"] for letter in topic.letters] == [b"poison"]
    assert (
        KafkaSource(bootstrap_servers="127.0.0.1:9").dead_topic("things.dead").name == "things.dead"
    )


def test_what_a_given_resource_sets_up_is_there_until_the_end(world: World) -> None:
    """A user's own KafkaSource is set up before its use, and torn down after it."""
    calls = []

    class Tunnelled(KafkaSource):
        def setup_for_execution(self, context: dg.InitResourceContext) -> None:
            calls.append("set up")

        def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
            calls.append("torn down")

    key = kafka_key(world.spec)
    resources = (
        kafka_table(world.spec, {key: Tunnelled(bootstrap_servers="127.0.0.1:9")}).resources or {}
    )
    with dg.build_resources({"it": resources[key]}) as opened:
        assert (opened.it.bootstrap_servers, calls) == ("127.0.0.1:9", ["set up"])
    assert calls == ["set up", "torn down"]


def test_a_resource_s_repr_holds_no_secret() -> None:
    """A resource's repr shows addresses, but no secrets."""
    shown = repr(
        [
            KafkaSource(bootstrap_servers="a:1", client={"sasl.password": "hunter2"}),
            LedgerState(url="postgresql://me:hunter2@db"),
        ]
    )
    assert "a:1" in shown
    assert "hunter2" not in shown


def shown_resources(defs: dg.Definitions) -> dict[str, Any]:
    """Returns the resources as Dagster's UI gets them."""
    repository = defs.get_repository_def()
    return {
        name: ResourceSnap.from_def(resource, name, {}, {}, {}, {}, {}, {})
        for name, resource in repository.get_top_level_resources().items()
    }


def test_the_ui_shows_a_cluster_s_fields_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's UI shows a cluster's fields, including references to passwords.

    If a password itself is given, or an unknown property, no field is shown, and the resource
    says why. Environment variables are resolved later.
    """
    monkeypatch.setenv("STAGING", "127.0.0.1:7")
    spec, staging = on_cluster(tmp_path, "one"), dg.EnvVar("STAGING")
    for client in ({"sasl.password": "hunter2-C4nary"}, {"sasl.pasword": "hunter2-C4nary"}):
        cluster = KafkaSource(bootstrap_servers=staging, client=client)
        for defs in (kafka_table(spec), kafka_table(spec, {"prod_cluster": cluster})):
            shown = shown_resources(defs)
            assert "hunter2" not in repr(shown) + repr(defs.resources) + repr(spec)
            assert shown["prod_cluster"].configured_values == {}
            described = shown["prod_cluster"].resource_snapshot.description
            assert "a reference, `{env: NAME}` or `{file: PATH}`" in described

    class Tunnelled(KafkaSource):
        ssh_password: str = "hunter2-C4nary"

    defs = kafka_table(spec, {"prod_cluster": Tunnelled(bootstrap_servers=staging)})
    assert "hunter2" not in repr(shown_resources(defs))
    client = {"client.id": "me", "sasl.password": {"env": "CANARY"}}
    cluster = KafkaSource(bootstrap_servers=staging, client=client)
    defs = kafka_table(spec, {"prod_cluster": cluster})
    shown = shown_resources(defs)["prod_cluster"]
    assert shown.configured_values["bootstrap_servers"].name == "STAGING"
    assert json.loads(shown.configured_values["client"]) == client
    assert shown.resource_type == "windrow.resources.kafka.KafkaSource"
    with dg.build_resources({"it": (defs.resources or {})["prod_cluster"]}) as opened:
        assert (opened.it.bootstrap_servers, dict(opened.it.client)) == ("127.0.0.1:7", client)


@pytest.mark.parametrize(
    "password_reference", [{"env": "KAFKA_PASSWORD"}, {"file": "/run/secrets/kafka-password"}]
)
def test_a_password_by_reference_stays_one(
    tmp_path: Path, password_reference: dict[str, str]
) -> None:
    """A password that is a reference stays a reference in the definitions; it is not read."""
    (tmp_path / "schema.py").write_text(
        (Path(__file__).parents[1] / "integration" / "things.py").read_text()
    )
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": password_reference,
    }
    spec = parse_spec(
        {
            "id": "secret",
            "source": {"bootstrap_servers": "127.0.0.1:1", "topic": TOPIC, "client": client},
            "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
            "decode": {"schema": "schema.py:Thing"},
            "sink": {"path": "lake"},
        },
        tmp_path,
    )
    assert kafka_key(spec) in (kafka_table(spec).resources or {})
    source = KafkaSource.of(spec.cluster)
    assert source.client["sasl.password"] == password_reference
    assert source.cluster().client == spec.cluster.client


def test_two_clusters_of_one_name_are_told_with_both_files(tmp_path: Path) -> None:
    """Two windrow.yaml of one code location can't use one name for two clusters.

    The error names both specs.
    """
    specs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        specs.append(on_cluster(tmp_path / name, name))
    refuse_two_clusters(specs)
    (tmp_path / "two" / "windrow.yaml").write_text(CLUSTERS.replace("127.0.0.1:9", "127.0.0.1:7"))
    changed = parse_spec(
        {
            "id": "two",
            "source": {"cluster": "prod", "topic": TOPIC},
            "window": {"grid": "batch"},
            "decode": {"schema": "a.b:C"},
            "sink": {"path": "x"},
        },
        tmp_path / "two",
    )
    with pytest.raises(
        SpecError, match="read from a cluster called prod, which is another"
    ) as caught:
        refuse_two_clusters([specs[0], changed])
    assert all(
        str(tmp_path / name / "defs.yaml") in caught.value.message for name in ("one", "two")
    )


@pytest.mark.parametrize(
    "more", [{"master": "local[1]"}, {"spark_config": {"spark.driver.memory": "1g"}}]
)
def test_a_server_has_a_master_of_its_own(more: dict[str, Any]) -> None:
    """A master or Spark properties besides the address of a Spark server are refused."""
    with pytest.raises(ValueError, match="connect excludes master and spark_config"):
        Spark(connect="sc://localhost:15002", **more)


def test_properties_of_a_location_reach_its_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The early started Java and the Spark context both get the master and spark_config."""
    spark_arguments: list[tuple[str, Any]] = []

    def refuse(*arguments: Any) -> None:
        spark_arguments.append(arguments)
        raise UnreachableError("no Spark here", "setup", "Nothing.")

    for name in ("spark_context", "launch_early"):
        monkeypatch.setattr(f"windrow.resources.spark.{name}", refuse)
    engine = Spark(master="local[1]", spark_config={"spark.executor.memory": "3g"}).engine()
    engine.start()  # the first job raises the error
    with pytest.raises(UnreachableError, match="no Spark here"):
        next(engine.run(Name(), SPLITS))
    assert spark_arguments == [("local[1]", {"spark.executor.memory": "3g"})] * 2


@pytest.mark.spark
def test_a_session_that_was_there_stays(spark: SparkSession) -> None:
    """A run doesn't stop a Spark session that it didn't make, because others may have
    jobs on it.
    """
    with dg.build_resources({"spark": Spark()}) as resources:
        assert resources.spark.spark_session.range(2).count() == 2
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_run_on_a_spark_that_is_up(spark_server: str) -> None:
    """Tasks run on the Spark server of the resource; the session ends with the run, the
    server doesn't.
    """
    for _ in range(2):
        with dg.build_resources({"spark": Spark(connect=spark_server)}) as resources:
            engine = resources.spark.engine()
            assert [result.split for result in engine.run(Name(), SPLITS)] == SPLITS
            assert resources.spark.spark_session.range(3).count() == 3
