"""`windrow init` and `windrow infer`: their files, output and exit codes."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import START, Stage, hour
from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import framed
from tests.registry.server import Fault, RegistryServer
from windrow.ingest.model.boundary import TopicPartition

AT = ("--bootstrap", "127.0.0.1:1")
LOG_OF_AVRO = TopicPartition("shop.avro", 0)


def next_commands(output: str) -> list[list[str]]:
    """Returns the commands that the output advises, as words after `windrow`."""
    return [line.split()[1:] for line in output.splitlines() if line.startswith("  windrow ")]


def test_what_infer_says_can_be_typed(stage: Stage, tmp_path: Path) -> None:
    """The commands that `infer` advises work.

    If too few messages fit, it ends with 1 and advises only a check, which ends with 1, too. If
    the sample fits, it advises `plan` and `run`, which commit the first window.
    """
    result = stage.call("infer", "shop.things", str(tmp_path / "new"), *AT)
    assert result.exit_code == 1, result.output
    assert "2 columns of format json, guessed from 10 messages" in result.stdout
    assert "Of 12 sampled messages of shop.things 10 would fit" in result.stdout
    assert "2: not_json" in result.stdout
    assert "Don't run it yet" in result.stdout
    (check,) = next_commands(result.stdout)
    assert check[:2] == ["infer", "--check"]
    assert stage.call(*check).exit_code == 1
    spec = tmp_path / "new" / "defs.yaml"
    spec.write_text(spec.read_text().replace("max_dead_ratio: 0.01", "max_dead_ratio: 0.6"))
    assert stage.call(*check).exit_code == 0
    stage.broker.create_topic("shop.fine", partitions=1, retention_ms=None)
    for i in range(4):
        value = b'{"id": 1, "f": {}, "m": {"n": 1, "e": {}}}'
        stage.broker.produce(
            TopicPartition("shop.fine", 0), value, timestamp=START + timedelta(hours=i)
        )
    result = stage.call("infer", "shop.fine", str(tmp_path / "fine"), *AT)
    assert result.exit_code == 0, result.output
    assert "Left out: 'f': only objects without fields were sampled." in result.stdout
    assert "Left out: 'm.e': only objects without fields were sampled." in result.stdout
    plan, run = next_commands(result.stdout)
    assert (plan[0], run[0]) == ("plan", "run")
    assert stage.call(*plan).exit_code == 0
    (window,) = stage.json(*run)["windows"]
    assert window["committed"]["receipt"]["counts"]["valid"] == 1
    assert (tmp_path / "fine" / "data" / "shop_fine").is_dir()


@pytest.mark.parametrize("topic", [[], ["--topic", "nowhere"]])
def test_init_is_a_template(stage: Stage, tmp_path: Path, topic: list[str]) -> None:
    """`init` asks no broker, so the topic may be missing.

    The files are valid, and the output calls them an example.
    """
    result = stage.call("init", str(tmp_path / "new"), *topic)
    assert result.exit_code == 0, result.output
    assert "The columns are an example" in result.stdout
    assert (topic[1] if topic else "my-topic") in (tmp_path / "new" / "defs.yaml").read_text()
    assert stage.call("show", str(tmp_path / "new" / "defs.yaml")).exit_code == 0


def test_a_topic_that_is_not_there(stage: Stage, tmp_path: Path) -> None:
    """A topic that doesn't exist ends with 2 and a similar name; nothing is written."""
    result = stage.call("infer", "shop.thing", str(tmp_path / "new"), *AT)
    assert result.exit_code == 2
    assert "There is no topic shop.thing" in result.stderr
    assert "Is shop.things meant?" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_topic_without_messages(stage: Stage, tmp_path: Path) -> None:
    """A topic without messages ends with 2 and advice; nothing is written."""
    stage.broker.create_topic("shop.none", partitions=1, retention_ms=None)
    result = stage.call("infer", "shop.none", str(tmp_path / "new"), *AT)
    assert result.exit_code == 2
    for expected_text in (
        "No message of topic shop.none can be sampled",
        "--registry https://HOST:PORT",
        "windrow init --topic TOPIC",
    ):
        assert expected_text in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_topic_without_messages_that_a_registry_knows(
    stage: Stage, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """For a topic without messages, a registry's schema is enough."""
    stage.broker.create_topic("shop.none", partitions=1, retention_ms=None)
    schema_registry.register(
        "shop.none-value",
        '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}',
    )
    document = stage.json(
        "infer", "shop.none", str(tmp_path / "new"), *AT, "--registry", schema_registry.url
    )
    assert (document["format"], document["columns"], document["sampled"]) == (
        "avro-confluent",
        1,
        0,
    )
    assert stage.call("show", document["spec"]).exit_code == 0


def test_a_cluster_of_windrow_yaml(
    stage: Stage, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """A cluster of windrow.yaml brings its registry.

    The spec has the cluster's name, and neither address nor registry.
    """
    clusters = {
        "prod": {"bootstrap_servers": "127.0.0.1:1", "registry": {"url": schema_registry.url}}
    }
    (tmp_path / "windrow.yaml").write_text(json.dumps({"clusters": clusters}))
    schema_registry.register(
        "shop.new-value",
        '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}',
    )
    stage.broker.create_topic("shop.new", partitions=1, retention_ms=None)
    document = stage.json("infer", "shop.new", str(tmp_path / "a" / "new"), "--cluster", "prod")
    spec = Path(document["spec"])
    assert 'cluster: "prod"' in spec.read_text()
    assert "127.0.0.1" not in spec.read_text()
    assert stage.call("show", str(spec)).exit_code == 0


def test_a_registry_that_is_down(
    stage: Stage, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """If the registry doesn't answer, `infer` ends with 3 and doesn't guess."""
    stage.broker.create_topic("shop.none", partitions=1, retention_ms=None)
    schema_registry.faults["/subjects/shop.none-value/versions"] = Fault(404, b"no registry")
    result = stage.call(
        "infer", "shop.none", str(tmp_path / "new"), *AT, "--registry", schema_registry.url
    )
    assert result.exit_code == 3
    assert not (tmp_path / "new").exists()


def test_a_registry_that_is_not_needed(
    stage: Stage, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """A registry that the format doesn't use is reported and left out of the spec.

    A spec with an unused registry would be refused.
    """
    document = stage.json(
        "infer",
        "shop.things",
        str(tmp_path / "new"),
        *AT,
        "--registry",
        schema_registry.url,
        code=1,
    )
    assert any("won't be asked" in note for note in document["notes"])
    assert stage.call("show", document["spec"]).exit_code == 0


def test_the_cluster_is_asked_for(stage: Stage, tmp_path: Path) -> None:
    """Without a cluster, `infer` ends immediately and says how to name one.

    It doesn't wait half a minute for a default address.
    """
    result = stage.call("infer", "shop.things", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert "by --bootstrap HOST:PORT or --cluster NAME" in " ".join(
        result.output.replace("│", "").split()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["infer"],
        ["infer", "a b", "new", *AT],
        ["infer", "shop.things", "new", "--grid", "weekly", *AT],
        ["infer", "shop.things", "new", "--id", "..", *AT],
        ["infer", "--check", "things.yaml", "--registry", "http://127.0.0.1:1"],
        ["infer", "shop.things", "new", "--bootstrap", "nowhere"],
        ["infer", "shop.things", "new", "--registry", "nowhere", *AT],
        ["infer", "shop.things", "new", "--cluster", "nowhere"],
        ["infer", "shop.things", "new", "--format", "xml", *AT],
        ["infer", "shop.things", "new", "--cluster", "a", "--bootstrap", "a:1"],
        ["infer", "shop.things", "new", "--columns", "a,b", *AT],
        ["infer", "shop.things", "new", "--format", "csv", "--columns", "a,a", *AT],
        ["infer", "shop.things", "new", "--check", "things.yaml"],
        ["infer", "--check", "things.yaml", "--id", "x"],
        ["infer", "--check", "nowhere.yaml"],
        ["infer", "other", "--check", "things.yaml"],
        ["infer", "--check", "things.yaml", "--update", "things.yaml"],
        ["infer", "--check", "things.yaml", "--yes"],
        ["infer", "--update", "things.yaml", "--id", "x"],
        ["infer", "--check", "things.yaml", "--registry", "nowhere"],
        ["init", "new", "--id", "a b"],
        ["init", "new", "--bootstrap", "nowhere"],
        ["init", "new", "--topic", "a b"],
    ],
)
def test_wrong_words_are_usage(stage: Stage, tmp_path: Path, arguments: list[Any]) -> None:
    """Arguments that are wrong, or have no effect, end with 2, and nothing is written."""
    assert stage.call(*arguments).exit_code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [["init"], ["infer", "shop.things", *AT]])
def test_files_that_are_there_stay(stage: Stage, tmp_path: Path, command: list[str]) -> None:
    """Existing files stay as the user changed them, and the command ends with 2."""
    command = [*command[:2], str(tmp_path / "new"), *command[2:]]
    stage.call(*command)
    schema = tmp_path / "new" / "schema.py"
    schema.write_text("mine")
    result = stage.call(*command)
    assert result.exit_code == 2
    assert "already" in result.stderr
    assert schema.read_text() == "mine"


# --------------------------------------------------------------------------------------------------


def files(folder: Path) -> set[str]:
    """Returns all paths in a folder, without Python's caches."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def test_a_check_writes_nothing(stage: Stage, tmp_path: Path) -> None:
    """A check writes no ledger, table or file.

    Messages that don't fit are reported; within the limits they are no failure.
    """
    files_before = files(tmp_path)
    document = stage.json("infer", "--check", stage.spec)
    assert files(tmp_path) == files_before
    assert (document["sampled"], document["fitting"]) == (12, 10)
    (poison,) = document["refused"]
    assert (poison["stage"], poison["reason"], poison["messages"], poison["topic"]) == (
        "value",
        "not_json",
        2,
        "shop.things",
    )
    assert {finding["level"] for finding in document["findings"]} == {"info"}
    assert "secret" not in json.dumps(document)


def test_a_check_finds_what_no_longer_fits(stage: Stage, tmp_path: Path) -> None:
    """A check uses the decoder and rules of a run, and ends with 1 if too few messages fit.

    Each kind of mistake has its place in the document, its count and its first message.
    """
    schema = tmp_path / "schema.py"
    schema.write_text(
        schema.read_text().replace(
            "id: pl.Int64",
            "id: pl.Int64 = pa.Field(ge=0)\n    gone: pl.String = pa.Field(nullable=True)",
        )
    )
    stage.produce(5, *[b'{"id": "text", "more": 1.5}'] * 10, *[b'{"id": -1}'] * 6)
    document = stage.json("infer", "--check", stage.spec, "--sample", "8", code=1)
    assert {
        (refusal["stage"], refusal["reason"], refusal["messages"])
        for refusal in document["refused"]
    } == {
        ("schema", "wrong_type", 10),
        ("rules", "check:id:greater_than_or_equal_to", 6),
    }
    output = stage.call("infer", "shop.things", "--check", stage.spec, "--sample", "8").stdout
    assert (
        "wrong     messages: 10 of 16 would be dead letters, schema wrong_type: $.id expected int,"
        " got str; first shop.things[0]@" in output
    )
    assert (
        "info      messages: Field 'more' of 16 sampled documents has no column. It could be a"
        " column, nullable: pl.Float64" in output
    )
    assert "Column gone is null" in output


def test_limits_say_what_is_wrong(stage: Stage) -> None:
    """A check fails only above the limits of a window, in total or for one stage."""
    spec = Path(stage.spec)
    for limits in ("max_dead_ratio: 0.1", "max_dead_ratio: null, value: {max_dead_ratio: 0.1}"):
        spec.write_text(spec.read_text().replace("max_dead_ratio: 0.6", limits))
        assert stage.json("infer", "--check", stage.spec, code=1)["findings"][0]["level"] == "wrong"
        spec.write_text(spec.read_text().replace(limits, "max_dead_ratio: 0.6"))


def test_a_check_of_an_empty_topic(stage: Stage) -> None:
    """A check of an empty topic says so and doesn't fail; a missing topic fails."""
    stage.broker.create_topic("shop.none", partitions=1, retention_ms=None)
    stage.write("topic: shop.none")
    assert "No message can be sampled" in stage.call("infer", "--check", stage.spec).stdout
    stage.write("topic: nowhere")
    assert stage.call("infer", "--check", stage.spec).exit_code == 2


AVRO = """\
id: things
source: {bootstrap_servers: "127.0.0.1:1", topic: shop.avro, registry: {url: "URL"}}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {format: avro-confluent, schema: "schema.py:Thing"}
sink: {path: lake/things}
"""


@pytest.fixture
def of_avro(stage: Stage, schema_registry: RegistryServer) -> Stage:
    """A pipeline on a topic with one Avro message."""
    Path(stage.spec).write_text(AVRO.replace("URL", schema_registry.url))
    stage.broker.create_topic("shop.avro", partitions=1, retention_ms=None)
    register(schema_registry, id="long")
    stage.broker.produce(LOG_OF_AVRO, framed(1, varint(1)), timestamp=1_767_600_000_000)
    return stage


def register(registry: RegistryServer, **fields: Any) -> None:
    """Registers a version of the topic's schema."""
    parts = [{"name": name, "type": kind} for name, kind in fields.items()]
    registry.register(
        "shop.avro-value", json.dumps({"type": "record", "name": "R", "fields": parts})
    )


def test_an_update_by_the_newest_schema(of_avro: Stage, schema_registry: RegistryServer) -> None:
    """The newest schema's fields come into the model before any message has them, a null is no
    type, and a field that is gone stays in the model.
    """
    lines = {"type": "array", "items": {"type": "record", "name": "L", "fields": [
        {"name": "sku", "type": "string"}
    ]}}  # fmt: skip
    register(schema_registry, id=["null", "int"], note="string", lines=lines, never="null")
    update = of_avro.json("infer", "--update", of_avro.spec, "--yes")
    assert update["changes"] == [
        "note: pl.String",
        'lines: pl.List(pl.Struct({"sku": pl.String}))',
    ]
    lines["items"]["fields"].append({"name": "count", "type": "int"})  # type: ignore[index]
    register(schema_registry, id="long", lines=lines)
    update = of_avro.json("infer", "--update", of_avro.spec, "--yes")
    assert update["changes"] == ["lines[].count: pl.Int32"]
    schema = (of_avro.folder / "schema.py").read_text()
    assert "note: pl.String = pa.Field(nullable=True)" in schema
    assert of_avro.json("infer", "--update", of_avro.spec)["diff"] == ""


VERSIONS: dict[str, tuple[dict[str, Any], int, str]] = {
    "the same": ({"id": "long"}, 0, "1 would fit"),
    "a narrower type": ({"id": "int"}, 0, "1 would fit"),
    "another type": (
        {"id": "string"},
        1,
        "wrong     registry: A column can't come from schema id 2",
    ),
    "a field more": (
        {"id": "long", "note": ["null", "string"]},
        0,
        "Field 'note' of schema id 2 (the newest of subject shop.avro-value) has no column",
    ),
    "a field less": ({"note": "string"}, 1, "Column id can't be null, and no field of schema id 2"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_newest_schema_counts_before_its_messages(
    of_avro: Stage, schema_registry: RegistryServer, name: str
) -> None:
    """The newest schema of the registry is compared with the model before its messages come.

    A column that it can't fill any more is wrong; a new field is reported.
    """
    fields, code, expected_text = VERSIONS[name]
    register(schema_registry, **fields)
    result = of_avro.call("infer", "--check", of_avro.spec)
    assert (result.exit_code, expected_text in result.stdout) == (code, True), result.output


def test_schemas_that_can_not_be_had(of_avro: Stage, schema_registry: RegistryServer) -> None:
    """If the registry doesn't answer, the check ends with 3.

    An unknown id is wrong if it would refuse windows.
    """
    spec = Path(of_avro.spec).read_text()
    Path(of_avro.spec).write_text(
        spec.replace("format: avro-confluent", "format: avro-confluent, unknown_id: fail")
    )
    of_avro.broker.produce(LOG_OF_AVRO, framed(9, text("x")), timestamp=1_767_600_000_000)
    document = of_avro.json("infer", "--check", of_avro.spec, code=1)
    assert document["fitting"] is None
    assert document["findings"][0]["what"].endswith(
        "doesn't know schema id 9, which a message's value names; first shop.avro[0]@1"
    )
    schema_registry.faults["/subjects/shop.avro-value/versions"] = Fault(404, b"no registry")
    schema_registry.register("other", '"string"')
    schema_registry.faults["/schemas/ids/9"] = Fault(404, b"no registry")
    levels = {
        finding["level"]
        for finding in of_avro.json("infer", "--check", of_avro.spec, code=3)["findings"]
    }
    assert levels == {"unchecked"}


def test_another_kind_of_schema(of_avro: Stage, schema_registry: RegistryServer) -> None:
    """A topic whose newest schema is of another format is reported."""
    schema_registry.register("shop.avro-value", '{"type": "object"}', "JSON")
    assert (
        "is of kind JSON, and the spec's format is avro-confluent"
        in of_avro.call("infer", "--check", of_avro.spec).stdout
    )


def test_a_window_is_as_the_check_said(of_avro: Stage) -> None:
    """A run commits what the check accepted."""
    assert of_avro.json("infer", "--check", of_avro.spec)["fitting"] == 1
    (window,) = of_avro.json("run", of_avro.spec, "--window", hour(8))["windows"]
    assert window["committed"]["receipt"]["counts"]["valid"] == 1


def test_topics_of_a_pattern_are_pipelines_of_one_file(stage: Stage, tmp_path: Path) -> None:
    """`infer PATTERN` writes one spec, whose topics differ where their messages do.

    It names the topics that it leaves out, and overwrites nothing. Its pipelines run.
    """
    contents = {"shop.a": b'{"n": 1}', "shop.b": b'{"n": 1}', "shop.eu.c": b'{"t": "x"}'}
    for topic, content in {**contents, "shop.empty": b"", "other.a": b"{}"}.items():
        stage.broker.create_topic(topic, partitions=1, retention_ms=None)
        for i in range(3 if content else 0):
            late = timedelta(days=30 * (topic == "shop.a"), hours=2 - i)
            stage.broker.produce(TopicPartition(topic, 0), content, timestamp=START - late)
    stage.broker.produce(TopicPartition("shop.eu.c", 0), None, timestamp=START)
    words = ("infer", "shop[.]([abe].*)", str(tmp_path / "shop"), *AT)
    document = stage.json(*words)
    assert [*document["topics"]] == [*contents]
    assert [*document["left_out"]] == ["shop.empty"]
    assert "begin with a template: windrow init" in document["left_out"]["shop.empty"]
    schemas = [inferred["schema"] for inferred in document["topics"].values()]
    assert schemas == [str(tmp_path / "shop" / f"{name}.py") for name in ("a", "b", "eu.c")]
    spec = tmp_path / "shop" / "defs.yaml"
    assert spec.read_text().splitlines()[3:] == [
        "  for_each:",
        '    topic_pattern: "shop[.]([abe].*)"',
        "    topics:",
        '      "shop.a": {window: {start: "2025-12-05T22:00:00Z"}}',
        '      "shop.b":',
        '      "shop.eu.c": {decode: {on_null: drop}}',
        '  id: "{name}"',
        '  source: {bootstrap_servers: "127.0.0.1:1"}',
        '  window: {grid: hourly, start: "2026-01-04T22:00:00Z", delay: "5m"}',
        '  decode: {format: json, schema: "{name}.py:Row", on_null: dead, unknown: ignore}',
        "  limits: {max_dead_ratio: 0.01}",
        '  sink: {path: "./data/{name}"}',
    ]
    assert {file.name for file in spec.parent.iterdir()} == {
        *("a.py", "b.py", "eu.c.py", "defs.yaml"),
    }
    assert stage.json(*words, code=2)["error"]["message"].startswith(f"{spec} exists already")
    ran = stage.json("run", str(spec), "--window", hour(-1))["pipelines"]
    counts = {name: ran[name]["windows"][0]["committed"]["receipt"]["counts"] for name in ran}
    assert {name: counts[name]["rows"] for name in counts} == {"a": 0, "b": 1, "eu.c": 1}
    assert (tmp_path / "shop" / "data" / "eu.c").is_dir()


def test_what_a_pattern_says_of_each_topic(stage: Stage, tmp_path: Path) -> None:
    """Notes and fields that are left out are below their topic, and the next commands run."""
    for topic in ("shop.a", "shop.b"):
        stage.broker.create_topic(topic, partitions=1, retention_ms=None)
        stage.broker.produce(
            TopicPartition(topic, 0), b'{"n": 1, "N": 2, "none": null}', timestamp=START
        )
    said = stage.call("infer", "shop[.]([ab])", str(tmp_path / "shop"), *AT).stdout
    for topic in ("shop.a", "shop.b"):
        below = said[said.index(f"{topic}: ") :].splitlines()[1:3]
        assert below[0].startswith("  Left out: 'N': ")
        assert below[1].startswith("  Note: column 'none': only null was sampled")
    commands = [line.split()[1:] for line in said.splitlines() if line.startswith("  windrow ")]
    assert [command[0] for command in commands] == ["due", "run"]
    assert [stage.call(*command).exit_code for command in commands] == [0, 0]


def test_a_topic_that_comes_later_joins_a_file(stage: Stage, tmp_path: Path) -> None:
    """As the page says: inferred alone by the pattern, with its name in the group."""
    for name in ("a", "later"):
        topic, folder = f"shop.{name}", tmp_path / name
        stage.broker.create_topic(topic, partitions=1, retention_ms=None)
        stage.broker.produce(TopicPartition(topic, 0), b'{"n": 1}', timestamp=START)
        stage.json("infer", f"shop[.]({name})", str(folder), *AT)
    spec = tmp_path / "a" / "defs.yaml"
    (tmp_path / "later" / "later.py").rename(spec.parent / "later.py")
    text = spec.read_text().replace("shop[.](a)", "shop[.](.*)")
    spec.write_text(text.replace('"shop.a":', '"shop.a":\n      "shop.later":'))
    assert [*stage.json("run", str(spec), "--due")["pipelines"]] == ["a", "later"]
