"""The section `dagster` of a spec: each option has its effect on the assets and in a run."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from tests.assets.test_lookups import looking_up, shops
from tests.assets.world import TOPIC, World, hour
from tests.shape.readme import blocks, section
from windrow.assets.completeness import when_complete
from windrow.assets.component import KafkaTable
from windrow.assets.factory import kafka_table
from windrow.ingest.config.dagster import DagsterSpec
from windrow.ingest.errors import SpecError
from windrow.resources.spark import Spark

TABLE, DEAD = dg.AssetKey(["bank", "things"]), dg.AssetKey(["bank", "things_dead"])
TOPIC_KEY = dg.AssetKey(["kafka", TOPIC])
BLOCK = {
    "key": "bank/things",
    "group_name": "bank_cards",
    "owners": ["team:payments", "anna@bank.example"],
    "tags": {"domain": "cards", "pii": ""},
    "kinds": ["kafka", "polars"],
    "pool": "spark/heavy",
    "max_partitions_per_run": 2,
    "freshness_policy": {"fail_window": "3h", "warn_window": "2h"},
}


def specs_of(defs: dg.Definitions) -> dict[dg.AssetKey, dg.AssetSpec]:
    """Returns the asset specs by key, as Dagster resolves them."""
    return {spec.key: spec for spec in defs.resolve_all_asset_specs()}


def attributes(**block: Any) -> dict[str, Any]:
    """Returns the attributes of a component, with the section `dagster`."""
    return {
        "id": "things",
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC},
        "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
        "decode": {"schema": "tests.assets.things:Thing"},
        "sink": {"path": "lake/things"},
        "dagster": block,
    }


def test_the_options_are_on_the_assets(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The table's asset has the key, group, owners, tags, kinds, pool and policies of the section.

    The assets of its dead letters and its topic follow it. A run makes the table under its key.
    """
    world = World(tmp_path, instance, dagster=BLOCK)
    spec_by_key = specs_of(world.defs)
    table, dead, topic = spec_by_key[TABLE], spec_by_key[DEAD], spec_by_key[TOPIC_KEY]
    for asset_spec in (table, dead):
        assert (asset_spec.group_name, list(asset_spec.owners)) == ("bank_cards", BLOCK["owners"])
        assert BLOCK["tags"].items() <= dict(asset_spec.tags).items()
    assert (topic.group_name, set(topic.kinds)) == ("bank_cards", {"kafka"})
    assert set(table.kinds) == {"kafka", "polars"}
    assert table.freshness_policy == dg.FreshnessPolicy.time_window(
        timedelta(hours=3), timedelta(hours=2)
    )
    assert [dep.asset_key for dep in dead.deps] == [TABLE]
    assets_definition = world.defs.resolve_asset_graph().get(TABLE).assets_def
    assert assets_definition.op.pool == "spark/heavy"
    assert assets_definition.backfill_policy == dg.BackfillPolicy.multi_run(2)
    dg.Definitions.validate_loadable(world.defs)

    world.fill(2)
    assert world.run(0, 1).success
    assert instance.get_materialized_partitions(TABLE) == {world.key(0), world.key(1)}
    assert instance.get_materialized_partitions(DEAD) == {world.key(0), world.key(1)}
    rerun = world.run(0, 1)
    assert {e.check_name for e in rerun.get_asset_check_evaluations() if e.passed} >= {"receipts"}


def test_deadlines(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Freshness may have a deadline instead of a window.

    Without the section, the table has Dagster's defaults, and a backfill is one run.
    """
    plain = specs_of(world.defs)[dg.AssetKey(["things"])]
    assert (plain.freshness_policy, plain.group_name) == (None, "default")
    graph = world.defs.resolve_asset_graph()
    assert graph.get(plain.key).backfill_policy == dg.BackfillPolicy.single_run()
    policy = {"deadline_cron": "30 * * * *", "lower_bound_delta": "1h"}
    deadline_world = World(tmp_path, instance, dagster={"freshness_policy": policy})
    assert specs_of(deadline_world.defs)[plain.key].freshness_policy == dg.FreshnessPolicy.cron(
        "30 * * * *", timedelta(hours=1)
    )


@pytest.mark.parametrize("file", ["dagster_home/dagster.yaml", "deploy/dagster.yaml"])
def test_a_killed_run_gives_its_slot_of_a_pool_back(file: str) -> None:
    """The instances' settings let Dagster's daemon free a pool's slots after a run was killed."""
    settings = yaml.safe_load((Path(__file__).parents[2] / file).read_text(encoding="utf-8"))
    monitoring = settings["run_monitoring"]
    assert monitoring["enabled"]
    assert monitoring["free_slots_after_run_end_seconds"] == 30


@pytest.mark.parametrize(
    ("condition", "expected_times"),
    [("eager", [(11, 5), (12, 5)]), ("30 11,12 * * *", [(11, 30), (12, 30)])],
)
def test_automation_asks_for_closed_windows(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    condition: str,
    expected_times: list[tuple[int, int]],
) -> None:
    """Dagster's automation asks for each window once, after its end and `window.delay`.

    With a cron expression, it asks at the expression's times. It asks for no existing window.
    """
    world = World(tmp_path, instance, dagster={"automation_condition": condition})
    world.fill(13)
    table, cursor, requested = dg.AssetKey(["things"]), None, []
    for minute in range(10 * 60 + 58, 13 * 60, 2):
        moment = hour(0, minute)
        evaluation = dg.evaluate_automation_conditions(
            world.defs, instance, cursor=cursor, evaluation_time=moment
        )
        cursor = evaluation.cursor
        for key in evaluation.get_requested_partitions(table):
            requested.append((key, moment))
            world.now = moment
            assert world.run_range(key, key).success
    assert [key for key, _ in requested] == [world.key(10), world.key(11)]
    for (_, moment), (hours, minutes) in zip(requested, expected_times, strict=True):
        assert timedelta(0) <= moment - hour(hours, minutes) < timedelta(minutes=2)
    assert world.run_range(world.key(12), world.key(12)).success is False, "it isn't closed"


def test_the_runs_spark(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A pipeline with a section `spark` has a resource of its own.

    Spark's properties may be secrets, so Dagster doesn't show them. An address of another
    machine without TLS is refused.
    """
    world = World(tmp_path, instance)

    def resource(**spark: Any) -> Any:
        block = type(world.spec.dagster).model_validate({"spark": spark})
        resources = kafka_table(world.spec.model_copy(update={"dagster": block})).resources or {}
        assert "spark" not in resources
        return resources["things_spark"]

    server = resource(connect="sc://127.0.0.1:15002")
    assert isinstance(server, Spark)
    assert server.connect == "sc://127.0.0.1:15002"
    hidden = resource(master="local[2]", conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    with dg.build_resources({"spark": hidden}) as opened:
        assert opened.spark.master == "local[2]"
        assert opened.spark.spark_config == {"spark.hadoop.fs.s3a.secret.key": "hunter2"}
    assert "hunter2" not in repr(hidden.config_schema) + repr(hidden.__dict__)
    with pytest.raises(SpecError, match="would travel in the clear"):
        resource(connect="sc://spark.example:15002")


PAGE = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text(encoding="utf-8")


RUNBOOK = "https://wiki.example/payments"


class OwnedTable(KafkaTable):
    """The component from the docs page, importable as a project's class."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        [code] = [block for block in blocks("python", PAGE) if "BankTable" in block]
        names: dict[str, Any] = {}
        exec(compile(code, "dagster.md", "exec", dont_inherit=True), names)
        asset_spec: dg.AssetSpec = names["BankTable"](*self.specs).get_asset_spec(spec)
        return asset_spec


def test_the_pages_section_is_one(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The example on the page has all options of the section, and Dagster loads it."""
    [block] = [yaml.safe_load(b) for b in blocks("yaml", PAGE) if b.startswith("dagster:")]
    assert block["dagster"].keys() == DagsterSpec.model_fields.keys()
    world = World(tmp_path, instance, dagster=block["dagster"])
    assert specs_of(world.defs)[dg.AssetKey(["bank", "payments"])].group_name == "bank"


def test_the_page_lists_what_a_pipeline_makes(tmp_path: Path) -> None:
    """The page lists exactly the definitions that Dagster makes for a pipeline.

    Schedules and the sensor are off until a user switches them on.
    """
    shops(tmp_path, "Kyiv")
    sections = {
        "id": "payments",
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "bank.payments"},
        "transform": looking_up(tmp_path, asset="lake/shops"),
    }
    watched = {"topics": ["bank.payments"], "topic_pattern": "bank\\.(.*)"}
    nightly = {"schedule": "0 3 * * *"}
    spec = World.spec_of(tmp_path, **sections, maintain=nightly, for_each=watched)
    batches = World.spec_of(tmp_path, **sections, window={"grid": "batch"})
    sensor_defs = dg.Definitions(sensors=[when_complete(spec, "hourly_sales")])
    names, ticking = set[str](), list[Any](sensor_defs.sensors or ())
    for defs in (kafka_table(spec), kafka_table(batches)):
        names |= {key.to_user_string() for key in specs_of(defs)} | {*(defs.resources or {})}
        names |= {job.name for job in defs.jobs or ()}
        names |= {key.name for check in defs.asset_checks or () for key in check.check_keys}
        ticking += defs.schedules or ()
    names |= {ticker.name for ticker in ticking}
    names.remove("lake/shops")  # another team's asset
    page = section("What a pipeline makes in Dagster", PAGE).replace("NAME", "shops")
    rows = [row for row in page.splitlines() if row.startswith("| ")][2:]
    assert {name for row in rows for name in re.findall("`(.+?)`", row.split("|")[1])} == names
    assert {ticker.default_status.value for ticker in ticking} == {"STOPPED"}
    assert [row.split("|")[1].split()[0] for row in rows if row.endswith("| off |")] == [
        "job",
        "schedule",
        "schedule",
        "sensor",
    ]


def test_the_pages_run_config_is_of_the_tables_op(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """The run config on the page replaces windows, under the op name that Dagster
    derives from the key.
    """
    [config] = [yaml.safe_load(block) for block in blocks("yaml", PAGE) if "ops:" in block]
    for key, op in (("payments", "payments"), ("bank/pay-ments.eu", "bank__pay_ments_eu")):
        job = World(tmp_path, instance, dagster={"key": key}).defs.resolve_job_def("things_windows")
        dg.validate_run_config(job, {"ops": {op: config["ops"]["payments"]}})
        with pytest.raises(dg.DagsterInvalidConfigError):
            dg.validate_run_config(job, {"ops": {key: {"config": {"on_committed": "replaced"}}}})


class MovedTable(KafkaTable):
    """A component that gives its assets other keys, which is refused."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key=["elsewhere"])


def test_a_subclass_changes_what_dagster_knows() -> None:
    """A subclass's `get_asset_spec` can change the specs of the table and its dead letters.

    It can't change their keys, because runs use them.
    """
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        contents = {
            "type": f"{OwnedTable.__module__}.OwnedTable",
            "attributes": attributes(owners=["team:payments"]),
        }
        sandbox.scaffold_component(
            component_cls=OwnedTable, defs_path="things", defs_yaml_contents=contents
        )
        with sandbox.build_all_defs() as defs:
            spec_by_key = specs_of(defs)
            for key in (dg.AssetKey(["things"]), dg.AssetKey(["things_dead"])):
                assert list(spec_by_key[key].owners) == ["team:payments"]
                assert spec_by_key[key].metadata["runbook"] in (
                    RUNBOOK,
                    dg.TextMetadataValue(RUNBOOK),
                )
            assert defs.resolve_job_def("things_windows") is not None
    component = MovedTable.from_attributes_dict(attributes=attributes())
    with pytest.raises(SpecError, match="get_asset_spec gave no AssetSpec with the key things"):
        kafka_table(component.specs[0], get_asset_spec=component.get_asset_spec)
