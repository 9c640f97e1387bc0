"""The definitions that Dagster loads: the orders pipeline, the component, and wrong YAML."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox
from jsonschema import Draft202012Validator

from tests.assets.world import TOPIC, MemorySource, World
from tests.config.test_settings import FIELDS
from windrow import open_pipeline
from windrow.assets.component import Attributes, KafkaTable
from windrow.assets.definitions import defs
from windrow.assets.factory import kafka_table
from windrow.assets.names import topic_key
from windrow.assets.topic import topic_assets
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import SpecError
from windrow.ingest.lookups.kinds import SOURCES
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.sinks.kinds import KINDS

PROJECT = Path(__file__).parents[2]

SCHEMA = Draft202012Validator(Attributes.model_json_schema())
"""The JSON schema that `dg check yaml` and editors use."""


def test_orders_load() -> None:
    """The project's definitions have the topics, their tables, checks, jobs and schedules."""
    loaded = defs()
    specs = {s.key.to_user_string(): s for s in loaded.resolve_all_asset_specs()}
    tables, topics = {"orders", "customers"}, {"kafka/shop.orders", "kafka/shop.customers"}
    assert set(specs) == tables | topics | {f"{table}_dead" for table in tables}
    assert [d.asset_key.to_user_string() for d in specs["orders"].deps] == ["kafka/shop.orders"]
    assert {"kafka", "spark", "deltalake"} <= set(specs["orders"].kinds)
    assert loaded.resolve_schedule_def("orders_closed").cron_schedule == "1 * * * *"
    dg.Definitions.validate_loadable(loaded)


def test_the_yaml_is_the_commands_spec() -> None:
    """Dagster and the command read the same pipeline from the same file."""
    file = PROJECT / "windrow" / "assets" / "defs" / "orders" / "defs.yaml"
    tree = dg.ComponentTree.for_project(PROJECT)
    component = tree.load_component("orders")
    parts = getattr(component, "components", [component])
    assert [spec for part in parts for spec in part.specs] == [load_spec(file)]


def test_yaml_schema_knows_the_specs_keys() -> None:
    """`dg check yaml` and editors get the schema of the spec, without fields that users
    don't write.
    """
    schema = Attributes.model_json_schema()
    assert {"id", "source", "window", "decode", "sink"} == set(schema["required"])
    assert "folder" not in schema["properties"]
    assert schema["additionalProperties"] is False


def test_wrong_yaml_shows_all_mistakes(tmp_path: Path) -> None:
    """One error lists all mistakes of a spec."""
    source, window = (
        {"bootstrap_servers": "nowhere", "topic": "t"},
        {
            "grid": "weekly",
            "start": "2026-01-05T00:00:00Z",
        },
    )
    bad_attributes = {"id": "a b", "source": source, "window": window}
    with pytest.raises(SpecError) as caught:
        KafkaTable.from_attributes_dict(attributes=bad_attributes)
    for setting in ("id", "source.bootstrap_servers", "window.grid", "decode", "sink"):
        assert setting in str(caught.value)


@pytest.mark.long
def test_dg_checks_yaml() -> None:
    """`dg check yaml` and `dg list defs` accept the project."""
    dg_command = str(Path(sys.executable).with_name("dg"))
    checked = subprocess.run(
        [dg_command, "check", "yaml"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = subprocess.run(
        [dg_command, "list", "defs", "--json"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "orders_closed" in listed.stdout


COMPONENT = """\
type: windrow.dagster.KafkaTable
attributes:
  id: things
  source: {bootstrap_servers: "127.0.0.1:9", SOURCE}
  window: {grid: hourly, start: 2026-01-05T00:00:00Z}
  decode: {schema: "things.py:Thing"}
  sink: {path: lake}
"""


@contextmanager
def component_file(source: str) -> Iterator[tuple[DefsFolderSandbox, Path]]:
    """Yields a Dagster project with one component file that has this source."""
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        folder = sandbox.scaffold_component(
            component_cls=KafkaTable, defs_path="x", defs_yaml_contents={"type": "x"}
        )
        (folder / "things.py").write_text((Path(__file__).parent / "things.py").read_text())
        (folder / "defs.yaml").write_text(COMPONENT.replace("SOURCE", source))
        yield sandbox, folder


def chain(error: BaseException | None) -> list[str]:
    """Returns the messages of an error and of its causes."""
    return [] if error is None else [str(error), *chain(error.__cause__)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("topik: a", "line 4: source.topik: unknown key; did you mean topic?"),
        ("topic: 010", "line 4: source.topic: YAML reads 010 as the number 8"),
        ("topic: a, topic: b", "line 4: source.topic: is there twice, first in line 4"),
        (
            "topic: \"{{ 'a' * 10**11 }}\"",
            "line 4: source.topic: is not a template that can be used here",
        ),
        (
            'topic: "{{ env.NOT_SET_HERE }}"',
            "line 4: source.topic: the environment variable NOT_SET_HERE is not set",
        ),
    ],
)
def test_a_mistake_is_told_as_the_command_tells_it(source: str, message: str) -> None:
    """A mistake in a component file has the command's message, with file and line."""
    with component_file(source) as (sandbox, folder):
        with pytest.raises(SpecError) as command_error:
            load_spec(folder / "defs.yaml")
        with (
            pytest.raises(Exception, match="x") as caught,
            sandbox.load_component_and_build_defs(defs_path=folder),
        ):
            pass
    assert message in str(command_error.value)
    assert f"in {folder}/defs.yaml:" in str(command_error.value)
    assert str(command_error.value) in chain(caught.value)


def specs(sandbox: DefsFolderSandbox, folder: Path) -> list[PipelineSpec]:
    """Returns the pipelines that Dagster loads from a folder."""
    with sandbox.build_component_tree() as tree:
        component = tree.load_component(folder)
        parts = getattr(component, "components", [component])
        return [spec for part in parts for spec in part.specs]


@pytest.mark.parametrize("topic", ["0x10", "1e3", "010", "None", "True", "1.10", "1_000"])
def test_a_name_is_the_same_to_both(topic: str) -> None:
    """A quoted name is the same to Dagster and to the command.

    Dagster's own templates would make a Python value of it.
    """
    with component_file(f'topic: "{topic}"') as (sandbox, folder):
        assert specs(sandbox, folder) == [load_spec(folder / "defs.yaml")]
        assert specs(sandbox, folder)[0].source.topic == topic


def test_several_components_in_a_file() -> None:
    """Several documents in one file are several pipelines, and a mistake in the second
    has its line.
    """
    with component_file("topic: a") as (sandbox, folder):
        file, second_document = (
            folder / "defs.yaml",
            COMPONENT.replace("SOURCE", "topic: b").replace("id: things", "id: others"),
        )
        file.write_text(f"{file.read_text()}---\n{second_document}")
        assert [spec.id for spec in specs(sandbox, folder)] == ["things", "others"]
        file.write_text(file.read_text().replace("topic: b", "topik: b"))
        with pytest.raises(Exception, match="x") as caught:
            specs(sandbox, folder)
    assert "line 12: source.topik: unknown key; did you mean topic?" in "".join(chain(caught.value))


FORMS: dict[str, list[object]] = {
    "source.topic": ["t", ["a", "b"], 7],
    "source.start": [
        "label",
        {"committed": "g"},
        {"timestamp": 1},
        {"timestamp": "2026-01-01T00:00:00Z"},
        {"offsets": {"0": 42}},
    ],
    "source.split_records": [5, "none", None],
    "source.offsets_group": ["g", "none"],
    "source.tuning.batch_bytes": ["16MiB", 512],
    "source.tuning.stall_timeout": ["100ms", 1],
    "dead_letters.client": [{"sasl.password": "{{ env.X }}"}],
    "source.client": [{"sasl.password": "{{ env.X }}", "socket.timeout.ms": 1000}],
    "window.delay": ["1h30m", 300],
    "window.max_records": [5, "none"],
    "window.stop": ["latest", None, {"timestamp": 1}, {"offsets": {"0": 42}}],
    "limits.max_dead_ratio": [0.5, None],
    "limits.max_dead_count": [5, None],
    "metadata": [{"timestamp": "none"}],
    "state": ["state.db", None],
    "for_each.topics": [["a", 7], {"a": None, "b": {"window": {"grid": "daily", "delay": None}}}],
}


CSV = {"format": "csv"}
PROTOBUF = {"format": "protobuf", "descriptor": "x.proto", "message": "X"}
CHANGES = {"format": "debezium-json"}
NAMED = {"format": "avro-confluent"}
BESIDE: dict[str, dict[str, object]] = {
    "delimiter": CSV,
    "quote": CSV,
    "escape": CSV,
    "null_literal": CSV,
    "writer_schema": {"format": "avro"},
    "descriptor": PROTOBUF,
    "message": PROTOBUF,
    "database_include": {"format": "canal-json"},
    "table_include": {"format": "canal-json"},
    "envelope": CHANGES,
    "flattened": CHANGES,
    "unavailable": CHANGES,
    "records": NAMED,
    "written_with": NAMED,
    "other_records": {**NAMED, "records": ["R"]},
    "subject_name_strategy": {**NAMED, "records": ["R"]},
    "unknown_id": NAMED,
}
"""Other settings that a setting of one format needs."""


SINKS: dict[str, dict[str, object]] = {
    "delta": {"path": "lake"},
    "files": {"path": "lake"},
    "iceberg": {"table": "a.b", "warehouse": "lake"},
    "kafka": {"topic": "t", "staging": "lake"},
    "postgres": {"url": "postgresql://h/d", "table": "t", "staging": "lake"},
    "sqlite": {"path": "shop.sqlite", "table": "t"},
    "routes": {"by": "topic", "tables": [{"sink": {"path": "lake"}}], "other": {"path": "lake"}},
}
"""Settings that each kind of sink needs."""


LOOKED_UP_IN: dict[str, dict[str, object]] = {
    "table": {"table": "lake"},
    "sql": {"sql": "sqlite:///a", "relation": "t"},
    "http": {"http": "https://a/{b}", "schema": "a.py:A"},
}
"""Settings that each kind of lookup source needs."""


NEEDED: dict[str, dict[str, object]] = {
    "sink.key": {"columns": ["id"]},
    "dead_letters": {"topic": "a.dead"},
    "for_each": {"topics": ["a"]},
}
"""Settings that a section needs."""


STEPS_ALONE = {"transform.steps.sql", "transform.steps.spark"}
"""Settings of a step that need no other setting."""


def sink_with(setting: str) -> dict[str, object]:
    """Returns a section of the first kind of sink that has a setting."""
    kinds = {name: section_at(kind) for name, kind in KINDS.items()}
    names = {
        kind: {field.alias or name for name, field in section.model_fields.items()}
        for kind, section in kinds.items()
    }
    kind = next(kind for kind in SINKS if setting in names[kind])
    return {"kind": kind, **SINKS[kind]}


@pytest.mark.parametrize("name", sorted({*FORMS, *FIELDS} - {"source.partitions"}))
def test_dg_takes_what_the_command_takes(name: str) -> None:
    """The JSON schema allows each form of a setting, and a template instead of its value."""
    for value in FORMS.get(name, []) + (
        []
        if name in {"source.client", "dead_letters.client", "metadata"}
        else ["{{ env('X', 'y') }}"]
    ):
        attributes = yaml.safe_load(
            COMPONENT.replace("SOURCE", "topic: a").replace(
                "2026-01-05T00:00:00Z", "'2026-01-05T00:00:00Z'"
            )
        )["attributes"]
        section = attributes
        *above, last = name.split(".")
        if above[:1] == ["window"] and [*above, last][1] in MicroBatches.model_fields:
            attributes["window"] = {"grid": "batch"}
        if above[:1] == ["sink"]:
            attributes["sink"] = sink_with([*above, last][1])
        for part in above:
            below = section.setdefault(part, [{}] if part in {"steps", "partition_by"} else {})
            section = below[0] if isinstance(below, list) else below
        if above[:1] == ["decode"]:
            section.update(
                BESIDE.get(last, {}), **({"fields": ["id"]} if above[1:] == ["key"] else {})
            )
        if above[-1:] == ["registry"]:
            section["url"] = "http://127.0.0.1:8081"
        section.update(NEEDED.get(".".join(above), {}))
        if above == ["transform"]:
            section["steps"] = [{"spark": "newest.py:newest"}]
        if above == ["transform", "steps"] and last in {"python", "schema", "on_error"}:
            section.update({"python": "a.py:f", "schema": "a.py:A"})
        elif above[:2] == ["transform", "steps"] and name not in STEPS_ALONE:
            step = attributes["transform"]["steps"][0]
            is_lookup_source, (first, *_) = above[2:3] == ["from"], [*above[3:], last]
            kinds = [
                k
                for k in LOOKED_UP_IN
                if first in section_at(SOURCES[k]).known_keys() and is_lookup_source
            ]
            source = dict(LOOKED_UP_IN[(kinds or ["table"])[0]])
            step.update({"lookup": "a", "key": {"a": "b"}, "take": {"a": "b"}, "from": source})
            section = source if is_lookup_source else step
            for part in above[3:]:
                section = section.setdefault(part, {})
        section[last] = value
        assert [error.message for error in SCHEMA.iter_errors(attributes)] == []


@pytest.mark.parametrize(
    ("first_id", "second_id", "key", "remedy", "mended"),
    [
        ("pay-x", "pay_x", None, "one of them another id", ("second", "more", None)),
        ("pay", "pay", None, "one of them another id", ("second", "more", None)),
        ("pay", "pay", "bank/pay", "one of them another id", ("second", "more", "bank/pay")),
        ("pay", "fee", "pay", "{second} another dagster.key", ("second", "fee", "fees")),
        ("a", "b", "a_dead", "{first} another dagster.key", ("first", "a", "c")),
    ],
)
def test_ids_that_become_one_name_are_refused(
    first_id: str, second_id: str, key: str | None, remedy: str, mended: tuple[str, str, str | None]
) -> None:
    """Two pipelines with the same id or asset key, as Dagster writes them, are refused.

    The message names both files, and its advice helps.
    """
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:

        def pipeline(folder_name: str, name: str, key: str | None) -> Path:
            attributes = {
                "id": name,
                "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC},
                "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
                "decode": {"schema": "tests.assets.things:Thing"},
                "sink": {"path": f"lake/{folder_name}"},
                "dagster": {"key": key},
            }
            contents = {"type": "windrow.dagster.KafkaTable", "attributes": attributes}
            return sandbox.scaffold_component(
                component_cls=KafkaTable, defs_path=folder_name, defs_yaml_contents=contents
            )

        folders = [pipeline("first", first_id, None), pipeline("second", second_id, key)]
        files = {folder.name: str(folder / "defs.yaml") for folder in folders}
        with pytest.raises(Exception) as caught, sandbox.build_all_defs():
            pass
        chain = f"{caught.value} {caught.value.__cause__}"
        advice = f"Give {remedy.format(**files)}, or a code location of its own."
        for phrase in (*files.values(), first_id, (key or second_id).removeprefix("bank/"), advice):
            assert phrase in chain
        shutil.rmtree(Path(files[mended[0]]).parent)
        pipeline(*mended)
        with sandbox.build_all_defs() as built:
            dg.Definitions.validate_loadable(built)


@pytest.mark.parametrize("make", [kafka_table, open_pipeline])
def test_the_path_of_a_spec_is_none_yet(make: Callable[[Any], object]) -> None:
    """If a path is given instead of a spec, the error says how to load a spec."""
    path = PROJECT / "windrow" / "assets" / "defs" / "orders" / "defs.yaml"
    with pytest.raises(
        SpecError, match=r"^A spec is needed, and this is a str\. .*load_spec\(PATH\)"
    ):
        make(str(path))
    assert make(load_spec(str(path)))


def test_client_properties_never_reach_the_ui(world: World) -> None:
    """Dagster shows no configuration of resources, because a client's properties may be secret."""
    secret = world.spec.model_copy(
        update={
            "source": world.spec.source.model_copy(
                update={"client": {"sasl.password": "tell-no-one"}}
            )
        }
    )
    loaded = kafka_table(secret)
    resources = loaded.resources or {}
    shown = [
        repr(getattr(r, "config_schema", None)) + repr(getattr(r, "description", ""))
        for r in resources.values()
    ]
    assert "tell-no-one" not in "".join(shown) + repr(
        [s.metadata for s in loaded.resolve_all_asset_specs()]
    )


def test_topic_is_observable(world: World) -> None:
    """An observation of a topic has the topic's id as data version, and its number of messages.

    New messages don't change the data version.
    """
    observations, key = [], topic_key(TOPIC)
    observed = dg.Definitions(
        topic_assets(world.spec), resources=world.topic_resources(MemorySource)
    )
    job = observed.resolve_implicit_global_asset_job_def()
    for hours in (2, 1):
        world.fill(hours, first=len(observations) * 2)
        result = job.execute_in_process(instance=world.instance, asset_selection=[key])
        [event] = result.get_asset_observation_events()
        observations.append(event.asset_observation_data.asset_observation)
    assert observations[0].data_version == observations[1].data_version
    assert [o.metadata["messages"].value for o in observations] == [120, 180]
    assert observations[0].metadata["partitions"].value == 2


def test_no_secret_reaches_dagster(world: World, tmp_path: Path) -> None:
    """A password of the cluster is in no event, metadata, tag, config or snapshot of a run."""
    secret = "hunter2-C4nary"
    sasl = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": secret,
    }
    secret_world = World(
        tmp_path,
        world.instance,
        source={"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC, "client": sasl},
    )
    secret_world.fill(2)
    secret_world.send(1, 59, b"poison")
    secret_world.relax(max_dead_ratio=0.0)
    secret_world.load()
    assert secret_world.run(0).success
    assert not secret_world.run(1).success
    runs = world.instance.get_runs()
    texts = [str(entry) for run in runs for entry in world.instance.all_logs(run.run_id)]
    texts += [
        repr(run) + repr(world.instance.get_job_snapshot(str(run.job_snapshot_id))) for run in runs
    ]
    texts += [repr(spec) for spec in secret_world.defs.resolve_all_asset_specs()] + [
        repr(secret_world.defs.get_repository_def().get_top_level_resources())
    ]
    assert len(texts) > 20
    assert [text for text in texts if secret in text] == []


@pytest.mark.filterwarnings("error::dagster.BetaWarning")
def test_a_pipeline_warns_of_nothing(world: World) -> None:
    """windrow's use of Dagster's beta features raises no warning."""
    assert kafka_table(world.spec).schedules


def test_a_scaffold_that_is_refused_leaves_nothing() -> None:
    """A refused scaffold prints one sentence and removes its folder, so the next try works."""
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        with pytest.raises(click.ClickException, match="nowhere"):
            sandbox.scaffold_component(
                component_cls=KafkaTable,
                defs_path="p",
                scaffold_params={"topic": "t", "cluster": "nowhere"},
            )
        assert not (sandbox.defs_folder_path / "p").exists()


def test_a_scaffolded_pipeline_loads() -> None:
    """`dg scaffold defs` writes a valid pipeline with the folder's name as id.

    The JSON schema refuses an empty pipeline.
    """
    with create_defs_folder_sandbox(project_name="sandbox") as sandbox:
        folder = sandbox.scaffold_component(component_cls=KafkaTable, defs_path="payments")
        spec = load_spec(folder / "defs.yaml")
        assert spec.id == "payments"
        assert dg.AssetKey(["payments"]) in kafka_table(spec).resolve_all_asset_keys()
        assert "# the first window" in (folder / "defs.yaml").read_text()
    missing = [error.message for error in SCHEMA.iter_errors({})]
    assert "'sink' is a required property" in missing


def test_a_file_of_many_topics_is_one_component() -> None:
    """Each topic has its table, schedules and checks; the pattern's check is of the first one."""
    with component_file("REST") as (sandbox, folder):
        file = folder / "defs.yaml"
        topics = "for_each: {topics: [shop.a, shop.b], topic_pattern: 'shop[.](.*)'}\n  id: "
        text = file.read_text().replace(", REST", "").replace("id: things", topics + '"{name}"')
        file.write_text(text.replace("lake", '"lake/{name}"'))
        with sandbox.build_all_defs() as defs:
            keys = {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
            assert keys == {"kafka/shop.a", "kafka/shop.b", "a", "a_dead", "b", "b_dead"}
            assert {"a_closed", "b_closed"} <= {schedule.name for schedule in defs.schedules or ()}
            checked = {
                key.asset_key.to_user_string()
                for check in defs.asset_checks or ()
                for key in check.check_keys
                if key.name == "new_topics"
            }
            assert checked == {"a"}
