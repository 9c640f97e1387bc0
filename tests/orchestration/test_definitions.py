"""What Dagster loads: the orders pipeline, the component, and wrong YAML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from assets.component import Attributes, KafkaTable
from assets.definitions import defs
from assets.names import topic_key
from assets.topic import topic_assets
from ingest.errors import SpecError
from ingest.source import Selection
from ingest.spec import load_spec
from resources.kafka import Snapshot, snapshot
from tests.orchestration.world import TOPIC, World

PROJECT = Path(__file__).parents[2]


def test_orders_load() -> None:
    """The project's definitions hold the topic, the table downstream of it, its check, its job and its schedule."""
    loaded = defs()
    specs = {s.key.to_user_string(): s for s in loaded.resolve_all_asset_specs()}
    assert set(specs) == {"kafka/shop.orders", "orders"}
    assert [d.asset_key.to_user_string() for d in specs["orders"].deps] == ["kafka/shop.orders"]
    assert {"kafka", "spark", "delta"} <= set(specs["orders"].kinds)
    assert loaded.resolve_schedule_def("orders_closed").cron_schedule == "1 * * * *"
    dg.Definitions.validate_loadable(loaded)


def test_the_yaml_is_the_commands_spec() -> None:
    """Dagster and the command read the same pipeline out of the same file."""
    file = PROJECT / "assets" / "defs" / "orders" / "defs.yaml"
    tree = dg.ComponentTree.for_project(PROJECT)
    component = tree.load_component("orders")
    parts = getattr(component, "components", [component])
    assert [p.spec for p in parts] == [load_spec(file)]


def test_yaml_schema_knows_the_specs_keys() -> None:
    """Editors and `dg check yaml` get the spec's own schema, without what the user doesn't write."""
    schema = Attributes.model_json_schema()
    assert {"id", "source", "window", "decode", "sink"} == set(schema["required"])
    assert "folder" not in schema["properties"]
    assert schema["additionalProperties"] is False


def test_wrong_yaml_shows_all_mistakes(tmp_path: Path) -> None:
    """All mistakes of a spec come in one error."""
    source, window = {"bootstrap_servers": "nowhere", "topic": "t"}, {"grid": "weekly", "start": "2026-01-05T00:00:00Z"}
    wrong = {"id": "a b", "source": source, "window": window}
    with pytest.raises(SpecError) as caught:
        KafkaTable.from_attributes_dict(attributes=wrong)
    for place in ("id", "source.bootstrap_servers", "window.grid", "decode", "sink"):
        assert place in str(caught.value)


@pytest.mark.slow
def test_dg_checks_yaml() -> None:
    """`dg check yaml` and `dg list defs` take the project as it stands."""
    dg_command = str(Path(sys.executable).with_name("dg"))
    checked = subprocess.run([dg_command, "check", "yaml"], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = subprocess.run([dg_command, "list", "defs", "--json"], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "orders_closed" in listed.stdout


def test_wrong_yaml_fails_dg_check_with_its_place() -> None:
    """A component file with a wrong key is refused with the key and its place."""
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        contents = {"type": "assets.component.KafkaTable", "attributes": {"id": "x", "windows": {"grid": "hourly"}}}
        folder = sandbox.scaffold_component(component_cls=KafkaTable, defs_path="x", defs_yaml_contents=contents)
        assert folder.exists()
        with pytest.raises(Exception) as caught, sandbox.load_component_and_build_defs(defs_path=folder):
            pass
    chain = [str(caught.value), str(caught.value.__cause__)]
    assert any("windows: unknown key; did you mean window?" in text for text in chain), chain


@pytest.mark.parametrize(("one", "other"), [("pay-x", "pay_x"), ("pay", "pay")])
def test_ids_that_become_one_name_are_refused(one: str, other: str) -> None:
    """Two pipelines whose ids Dagster would write alike, or that have one id, are refused with both files, not with a name of ours."""
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        folders = []
        for place, name in (("first", one), ("second", other)):
            attributes = {
                "id": name,
                "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC},
                "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
                "decode": {"schema": "tests.orchestration.things:Thing"},
                "sink": {"path": f"lake/{place}"},
            }
            contents = {"type": "assets.component.KafkaTable", "attributes": attributes}
            folders.append(sandbox.scaffold_component(component_cls=KafkaTable, defs_path=place, defs_yaml_contents=contents))
        with pytest.raises(Exception) as caught, sandbox.build_all_defs():
            pass
    chain = f"{caught.value} {caught.value.__cause__}"
    for said in (*(str(folder / "defs.yaml") for folder in folders), one, other, "Give one of them another id"):
        assert said in chain


def test_client_properties_never_reach_the_ui(world: World) -> None:
    """Resources are shown without configuration: a password may be among a client's properties."""
    from assets.factory import kafka_table

    secret = world.spec.model_copy(update={"source": world.spec.source.model_copy(update={"client": {"sasl.password": "tell-no-one"}})})
    loaded = kafka_table(secret, world.assemble)
    resources = loaded.resources or {}
    shown = [repr(getattr(r, "config_schema", None)) + repr(getattr(r, "description", "")) for r in resources.values()]
    assert "tell-no-one" not in "".join(shown) + repr([s.metadata for s in loaded.resolve_all_asset_specs()])


def test_topic_is_observable(world: World) -> None:
    """An observation says which topic it is (its data version) and what it holds; more messages don't make it another one."""
    seen, key = [], topic_key(TOPIC)
    observed = dg.Definitions(topic_assets(world.spec), resources={"things_kafka": Source(world)})
    job = observed.resolve_implicit_global_asset_job_def()
    for hours in (2, 1):
        world.fill(hours, first=len(seen) * 2)
        result = job.execute_in_process(instance=world.instance, asset_selection=[key])
        [event] = result.get_asset_observation_events()
        seen.append(event.asset_observation_data.asset_observation)
    assert seen[0].data_version == seen[1].data_version
    assert [o.metadata["messages"].value for o in seen] == [120, 180]
    assert seen[0].metadata["end_offsets_digest"] != seen[1].metadata["end_offsets_digest"]
    assert seen[0].metadata["partitions"].value == 2


class Source:
    """A KafkaSource on the broker in memory."""

    def __init__(self, world: World) -> None:
        self.broker = world.broker

    def snapshot(self, selection: Selection) -> Snapshot:
        return snapshot(self.broker, selection)
