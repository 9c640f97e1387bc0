"""The spec: accepted forms, all mistakes together with lines, no secrets, no unused fields."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.limits import StageLimits
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import NOT_WRITTEN, PipelineSpec, SourceSpec
from windrow.ingest.config.position import PositionSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.kind import KEY_FORMATS
from windrow.ingest.formats.kinds import FORMATS
from windrow.ingest.model.grid import parse_windows
from windrow.ingest.model.source import parse_initializer
from windrow.ingest.ports.decoder import STAGES
from windrow.ingest.schema.message_part import WHOLE
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.settings.kinds import OfItsKind, section_at
from windrow.ingest.sinks.kinds import KINDS, TABLES

ROOT = Path(__file__).parents[2]

GOOD = """\
type: windrow.dagster.KafkaTable
attributes:
  id: orders
  source: {bootstrap_servers: "{{ env.BROKERS }}", topic: shop.orders, client: {}}
  window:
    grid: hourly
    start: "{{ env('ORDERS_START') }}"
    delay: 5m
  decode: {schema: "schema.py:Order", on_null: dead, unknown: ignore}
  limits: {max_dead_ratio: 0.01, max_dead_count: null}
  sink: {kind: delta, path: "{{ env('LAKE', 'lake') }}/orders"}
  state: null
"""


START = "\"{{ env('ORDERS_START') }}\""
SQLITE_SINK = {"kind": "sqlite", "path": "a.db", "table": "t"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables of the example, and removes those that say where the ledger is."""
    for name in ("DAGSTER_HOME", "WINDROW_STATE", "LAKE", "UNSET", "UNSET_TOO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BROKERS", "localhost:9092")
    monkeypatch.setenv("ORDERS_START", "2026-01-01T00:00:00Z")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a pipeline, with its schema."""
    (tmp_path / "schema.py").write_text("")
    return tmp_path


def load(folder: Path, text: str) -> PipelineSpec:
    """Returns the spec of this text."""
    (folder / "defs.yaml").write_text(text)
    return load_spec(folder / "defs.yaml")


def refused(folder: Path, text: str) -> str:
    """Returns the error about this text."""
    with pytest.raises(SpecError) as caught:
        load(folder, text)
    return str(caught.value)


def test_component_file_is_read(folder: Path) -> None:
    """A component file of Dagster is a spec, with envelope, templates, defaults and units."""
    spec = load(folder, GOOD)
    assert spec.source.bootstrap_servers == "localhost:9092"
    assert spec.window.start == datetime(2026, 1, 1, tzinfo=UTC)
    assert spec.window.delay == timedelta(minutes=5)
    assert spec.folder == folder
    assert spec.sink_path() == f"{folder}/lake/orders"


def test_plain_file_is_the_same(folder: Path) -> None:
    """A file without the envelope gives the same spec."""
    plain = "\n".join(line.removeprefix("  ") for line in GOOD.splitlines()[2:])
    assert load(folder, plain) == load(folder, GOOD)


def test_python_is_the_same(folder: Path) -> None:
    """Attributes from Python give the same spec as the file."""
    attributes = {
        "id": "orders",
        "source": {"bootstrap_servers": "localhost:9092", "topic": "shop.orders"},
        "window": {"grid": "hourly", "start": datetime(2026, 1, 1, tzinfo=UTC), "delay": 300},
        "decode": {"schema": "schema.py:Order"},
        "sink": {"path": "lake/orders"},
    }
    written = load(folder, GOOD)
    assert (
        parse_spec(attributes, folder).model_copy(update={"spec_file": written.spec_file})
        == written
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1500ms", 1.5),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1d", 86400),
    ],
)
def test_durations(folder: Path, text: str, seconds: float) -> None:
    """Durations are written as 5m, 1h30m or seconds."""
    assert load(folder, GOOD.replace("5m", text)).window.delay == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["5x", "-5", "5 m", "h", "true", "[5]", "1.5h"])
def test_wrong_durations(folder: Path, text: str) -> None:
    """Any other text as a duration is refused with its line."""
    assert "line 8: window.delay: must " in refused(folder, GOOD.replace("5m", text))


@pytest.mark.parametrize(
    "start", ["2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00+00:00"]
)
def test_starts_are_utc(folder: Path, start: str) -> None:
    """An instant with an offset is converted to UTC, with or without quotes."""
    for written in (start, f'"{start}"'):
        assert load(folder, GOOD.replace(START, written)).window.start == datetime(
            2026, 1, 1, tzinfo=UTC
        )


@pytest.mark.parametrize("start", ["2026-01-01T00:00:00", "2026-01-01 00:00:00", "2026-01-01"])
def test_a_start_without_a_time_zone(folder: Path, start: str) -> None:
    """An instant or a date without a time zone is refused with the right form.

    That holds for every instant in a spec and on the command line.
    """
    message = "has no time zone: write 2026-01-01"
    for written in (start, f'"{start}"'):
        assert f"line 7: window.start: {message}" in refused(folder, GOOD.replace(START, written))
    position = f"topic: shop.orders, start: {{timestamp: {start}}}"
    assert f"line 4: source.start.timestamp: {message}" in refused(
        folder, GOOD.replace("topic: shop.orders", position)
    )
    for text in (start, f"timestamp:{start}"):
        with pytest.raises(SpecError, match=r"has no time zone.*rite 2026-01-01"):
            (
                parse_initializer(text, ["a"])
                if ":" in text and text.startswith("t")
                else parse_windows("p", "hourly", text)
            )
    naive = {
        **GOOD_ATTRIBUTES,
        "window": {"grid": "hourly", "start": datetime.fromisoformat(start)},
    }
    with pytest.raises(SpecError, match="has no time zone: give the datetime a tzinfo"):
        parse_spec(naive, folder)


def test_all_mistakes_at_once(folder: Path) -> None:
    """All mistakes are reported together, each with its line and path, and a similar key
    if there is one.
    """
    text = """\
attributes:
  id: or ders
  source:
    bootstrap_servers: "{{ env.UNSET }}:{{ env('UNSET_TOO') }}"
    topic: a/b
    topic: b
  window: {grid: weekly, start: yesterday}
  decode:
    schma: "schema.py:Order"
    on_null: keep
  limits: {max_dead_ratio: 2, max_dead_count: -1}
  sink: here
  stat: x
colour: red
"""
    message = refused(folder, text)
    for line, setting, expected in [
        (2, "id", "must be 1 to 100 of"),
        (4, "source.bootstrap_servers", "the environment variable UNSET is not set"),
        (4, "source.bootstrap_servers", "the environment variable UNSET_TOO is not set"),
        (5, "source.topic", "must be a topic name"),
        (6, "source.topic", "is there twice, first in line 5"),
        (7, "window.grid", "must be the name of a grid, or a cron expression of five fields"),
        (7, "window.start", "is not an instant: write it like 2026-01-02T03:00:00Z"),
        (8, "decode.schema", "is missing"),
        (9, "decode.schma", "unknown key; did you mean schema?"),
        (10, "decode.on_null", "must be 'dead' or 'drop'"),
        (11, "limits.max_dead_ratio", "must be less than or equal to 1"),
        (11, "limits.max_dead_count", "must be greater than or equal to 0"),
        (12, "sink", "must be a mapping"),
        (13, "stat", "unknown key; did you mean state?"),
        (14, "colour", "unknown key beside attributes"),
    ]:
        assert f"  line {line}: {setting}: {expected}" in message
    assert message.startswith("15 mistakes in ")


@pytest.mark.parametrize(
    ("right", "misspelt", "says"),
    [
        ("grid: hourly", "grid: houry", "window.grid: {}; did you mean hourly?"),
        ("grid: hourly", "grid: bach", "window.grid: {}; did you mean batch?"),
        ("grid: hourly", "grid: 1h", "window.grid: {}; known are hourly, daily, batch"),
        (
            "kind: delta",
            "kind: detla",
            "sink.kind: there is no such kind here; did you mean delta?",
        ),
        (
            "max_dead_ratio: 0.01",
            "max_dead_ratio: 1%",
            "limits.max_dead_ratio: must be a valid number, not '1%'\n",
        ),
        (
            "decode: {",
            "decode: {format: protobuff, ",
            "decode.format: there is no such format here; did you mean protobuf?",
        ),
    ],
)
def test_what_was_meant_is_told(folder: Path, right: str, misspelt: str, says: str) -> None:
    """A misspelt grid, kind or format gets a similar one as advice, and a wrong number
    one clause.
    """
    text = GOOD.replace(right, misspelt)
    assert text != GOOD
    cron = (
        "must be the name of a grid, or a cron expression of five fields of digits, * , - and /,"
        " such as */15 * * * *"
    )
    assert says.format(cron) in refused(folder, text)


@pytest.mark.parametrize(
    ("key", "value", "says", "section"),
    [
        ("warn_dead_ratio", 0.1, "window.warn_dead_ratio: belongs under limits", "limits"),
        ("evolve", "widen", "window.evolve: belongs under sink", "sink"),
        ("client", {}, "window.client: belongs under source or dead_letters", "source"),
        ("state", "x.db", "window.state: belongs beside window, not into it", None),
    ],
)
def test_a_setting_of_another_section(
    folder: Path, key: str, value: object, says: str, section: str | None
) -> None:
    """A key of another section is reported with the section where it belongs, and works there."""
    misplaced = {**GOOD_ATTRIBUTES, "window": {**GOOD_ATTRIBUTES["window"], key: value}}
    with pytest.raises(SpecError) as caught:
        parse_spec(misplaced, folder)
    assert f"1 mistake in the spec:\n  {says}\n" in str(caught.value)
    well_placed = (
        {key: value}
        if section is None
        else {section: {**GOOD_ATTRIBUTES.get(section, {}), key: value}}
    )
    assert parse_spec({**GOOD_ATTRIBUTES, **well_placed}, folder)


SECTIONS = ("source", "window", "decode", "transform", "sink", "limits", "dead_letters", "dagster")
TWO_MEANINGS = {"zone": "decode", "partitions": "source", "path": "sink", "header": "limits"}
"""Names with another meaning in another section, each with the section that has it."""


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("key", TWO_MEANINGS)
def test_a_name_alone_sends_nowhere(folder: Path, key: str, section: str) -> None:
    """A key that means something else in another section isn't attributed to that section."""
    home = TWO_MEANINGS[key]
    if section == home:
        return
    misplaced = {**GOOD_ATTRIBUTES, section: {**GOOD_ATTRIBUTES.get(section, {}), key: "x"}}
    with pytest.raises(SpecError) as caught:
        parse_spec(misplaced, folder)
    (line,) = (ln for ln in str(caught.value).splitlines() if ln.startswith(f"  {section}.{key}:"))
    assert "belongs under" not in line
    if (section, key) == ("window", "zone"):
        assert line.endswith("window.zone: there is none: windows begin and end in UTC")
    else:
        assert f"{section}.{key}: unknown key; " in line


def test_a_misspelt_key_of_a_part_is_not_sent_elsewhere(folder: Path) -> None:
    """An unknown key within a part of a section gets the part's own keys as advice."""
    misspelt = {**GOOD_ATTRIBUTES, "sink": {"kind": "routes", "tables": [{"value": "a"}]}}
    with pytest.raises(SpecError, match=r"sink\.tables\.0\.value: .*did you mean values"):
        parse_spec(misspelt, folder)


def test_a_misspelt_envelope(folder: Path) -> None:
    """`attribute` instead of `attributes` is one mistake, not one for each missing key."""
    message = refused(folder, GOOD.replace("attributes:", "attribute:"))
    assert "1 mistake in " in message
    assert "  line 2: attribute: did you mean attributes?\n" in message


def test_start_beside_the_grid(folder: Path) -> None:
    """A start that is not on the grid is reported at its own line."""
    message = refused(
        folder, GOOD.replace("hourly", "daily").replace(START, "2026-01-01T01:00:00Z")
    )
    assert "line 7: window.start: 2026-01-01T01:00:00Z is not on the daily grid" in message


def test_missing_schema_file(folder: Path) -> None:
    """A missing schema file is reported with the other mistakes."""
    message = refused(folder, GOOD.replace("schema.py", "shema.py").replace("hourly", "weekly"))
    assert "line 9: decode.schema: there is no file shema.py" in message
    assert "line 6: window.grid" in message


@pytest.mark.parametrize("path", [".", "..", "lake/.."])
def test_the_specs_own_folder_is_no_table(folder: Path, path: str) -> None:
    """A table in the spec's own folder, or above it, is refused: a sweep would remove the spec."""
    message = refused(folder, GOOD.replace("{{ env('LAKE', 'lake') }}/orders", path))
    assert "sink.path: is the folder of this file, or one above it" in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id: a\n  b: c: d\n", 2),
        ("id: [1\nx: 2\n", 2),
        ("id: !!python/name:os.getcwd x\n", 1),
        ("id: a\0b\n", 1),
        ("\t id: 3\n", 1),
    ],
)
def test_broken_yaml(folder: Path, text: str, line: int) -> None:
    """Text that isn't YAML is refused with its line, and nothing in it is executed."""
    assert f"  line {line}: " in refused(folder, text)


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("{{ env.BROKERS }}", "localhost:9092"),
        ("{{ env('UNSET', 'b') }}:1", "b:1"),
    ],
)
def test_a_template_without_quotes(folder: Path, written: str, means: str) -> None:
    """A template without quotes, which YAML reads as a mapping, is one mistake with advice."""
    message = refused(folder, GOOD.replace('"{{ env.BROKERS }}"', written))
    assert message.startswith("1 mistake in ")
    assert 'a template must be in quotes, as in "{{ env.NAME }}"' in message
    quoted = GOOD.replace('"{{ env.BROKERS }}"', f'"{written}"')
    assert load(folder, quoted).source.bootstrap_servers == means


@pytest.mark.parametrize("text", ["id: &a [*a]\n", "id: *orders\n", "id: a\nsink: &b {}\n"])
def test_aliases_are_not_read(folder: Path, text: str) -> None:
    """An anchor or an alias is refused, with advice for a text that only looks like one."""
    message = refused(folder, text)
    assert "an anchor (&...) or an alias (*...) is not read: put a text that begins" in message
    assert "orders" not in message


@pytest.mark.parametrize("text", ["", "- 1\n", "attributes: 3\n", "plain"])
def test_not_a_mapping(folder: Path, text: str) -> None:
    """A file without a mapping is refused, and the message says that a spec is a mapping."""
    assert "a spec is a mapping" in refused(folder, text)


def test_unreadable_file(folder: Path) -> None:
    """A missing file is reported by its path."""
    with pytest.raises(SpecError, match=r"nowhere.yaml can't be read: No such file"):
        load_spec(folder / "nowhere.yaml")


@pytest.mark.parametrize(
    "template",
    ["{{ 1 + }}", "{{ env.X.__class__ }}", "{{ ''.__class__.__name__ }}", "{{ cycler }}{{ 1/0 }}"],
)
def test_templates_are_sandboxed(folder: Path, template: str) -> None:
    """A template can read environment variables and do nothing else."""
    assert "line 3: id: " in refused(folder, GOOD.replace("id: orders", f'id: "{template}"'))


def test_default_in_a_template(folder: Path) -> None:
    """A template can have its own default, by a call or a filter."""
    assert (
        load(
            folder,
            GOOD.replace(
                "id: orders", "id: \"{{ env('UNSET', 'a') }}{{ env.UNSET | default('b') }}\""
            ),
        ).id
        == "ab"
    )


def test_secrets_stay_out(folder: Path) -> None:
    """Client properties and the ledger's URL are in no repr and no error."""
    secret = "hunter2"
    url = f"postgresql://me:{secret}@db/state"
    client = {"sasl.password": secret}
    assert secret not in repr(SourceSpec(bootstrap_servers="a:1", topic="t", client=client))
    with pytest.raises(ValidationError) as direct:
        SourceSpec(bootstrap_servers="a:1", topic="t", client={"sasl.password": [secret]})  # type: ignore[dict-item]
    assert secret not in str(direct.value)
    good = parse_spec({**GOOD_ATTRIBUTES, "state": url}, folder)
    assert secret not in repr(good)
    assert good.state_url() == url
    bad_yaml = GOOD.replace(
        "client: {}", f"client: {{sasl.password: [{secret}], ssl.key.password: {{a: {secret}}}}}"
    )
    message = refused(folder, bad_yaml.replace("state: null", f"state: [{url}]"))
    assert "source.client.sasl.password: must be a text" in message
    assert "state: must be" in message
    assert secret not in message


def test_forbidden_client_property(folder: Path) -> None:
    """A client property that runs a command is refused with its line."""
    message = refused(folder, GOOD.replace("client: {}", "client: {sasl.kerberos.kinit.cmd: evil}"))
    assert "line 4: source.client.sasl.kerberos.kinit.cmd: is refused" in message
    assert "evil" not in message


GOOD_ATTRIBUTES = {
    "id": "orders",
    "source": {"bootstrap_servers": "localhost:9092", "topic": "shop.orders"},
    "window": {"grid": "hourly", "start": "2026-01-01T00:00:00Z"},
    "decode": {"schema": "schema.py:Order"},
    "sink": {"path": "lake/orders"},
}


def test_where_the_ledger_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is the spec's `state`, then WINDROW_STATE, then a file in the spec's folder.

    Dagster's home doesn't matter. The path is absolute, and nothing is created.
    """
    spec = parse_spec(GOOD_ATTRIBUTES, folder)
    assert spec.state_url() == f"{folder}/.windrow/state.db"
    assert not (folder / ".windrow").exists()
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "home"))
    assert spec.state_url() == f"{folder}/.windrow/state.db"
    monkeypatch.setenv("WINDROW_STATE", "postgresql://db/x")
    assert spec.state_url() == "postgresql://db/x"
    assert (
        parse_spec({**GOOD_ATTRIBUTES, "state": "../s.db"}, folder).state_url()
        == f"{folder.parent}/s.db"
    )


def test_url_of_a_sink_is_kept(folder: Path) -> None:
    """A table in an object store isn't relative to the spec's folder."""
    assert (
        parse_spec({**GOOD_ATTRIBUTES, "sink": {"path": "s3://lake/orders"}}, folder).sink_path()
        == "s3://lake/orders"
    )


def test_module_schema(folder: Path) -> None:
    """A schema may be in an installed module."""
    assert (
        parse_spec(
            {**GOOD_ATTRIBUTES, "decode": {"schema": "my.schemas:Order"}}, folder
        ).decode.schema_
        == "my.schemas:Order"
    )
    with pytest.raises(
        SpecError, match=r"decode.schema: must be FILE.py:Class or package.module:Class"
    ):
        parse_spec({**GOOD_ATTRIBUTES, "decode": {"schema": "my.schemas"}}, folder)


def test_spec_is_frozen(folder: Path) -> None:
    """A spec can't be changed after it was read."""
    with pytest.raises(ValidationError):
        parse_spec(GOOD_ATTRIBUTES, folder).id = "other"  # type: ignore[misc]


def test_mistakes_survive_pickling(folder: Path) -> None:
    """A pickled error keeps its text."""
    with pytest.raises(SpecError) as caught:
        parse_spec({}, folder)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "id: is missing" in str(caught.value)


def _fields(model: type[BaseModel], section: str) -> list[tuple[str, str]]:
    """Returns (section, field) for all fields of a model and its sections."""
    fields = []
    for name, info in model.model_fields.items():
        if name in NOT_WRITTEN:
            continue
        fields.append((section, name))
        kinds = OfItsKind.of(info)
        if kinds is not None and kinds.kinds is TABLES:
            continue  # checked as part of `sink`
        for below in _models(info.annotation) if kinds is None else kinds.sections().values():
            fields += _fields(
                below, {StageLimits: "limits", PositionSpec: "start"}.get(below, name)
            )
    return fields


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yields the models in an annotation, also inside of unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


SECTIONS = {
    "LimitsSpec": "limits",
    "MaintainSpec": "maintain",
    "PipelineSpec": "spec",
    "SourceSpec": "source",
    "TuningSpec": "tuning",
    "PositionSpec": "start",
    "KeySection": "key",
    "PartitionSection": "partition_by",
    "DeadLettersSpec": "dead_letters",
    "TransformSpec": "transform",
}
SECTIONS |= {
    base.__name__: "sink"
    for import_path in KINDS.values()
    for base in section_at(import_path).__mro__
}
OPTIONS = {
    base.__name__
    for import_path in (*FORMATS.values(), *KEY_FORMATS.values())
    for base in section_at(import_path).__mro__
}
"""The sections of formats and their base classes, which read their own options."""
ALIASES = {"in_time": "window", "grid": "window", "batches": "window", "route": "tables"}
"""Other names that the code has for a section whose kind it knows."""


def _reads(tree: ast.AST) -> set[tuple[str, str]]:
    """Returns the reads `x.y`, `a.x.y` and `getattr(x, "y", ...)` in a tree as (x, y)."""
    reads = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value
            if isinstance(owner, ast.Call):
                owner = owner.func
            name = (
                owner.attr
                if isinstance(owner, ast.Attribute)
                else owner.id
                if isinstance(owner, ast.Name)
                else ""
            )
            reads.add((ALIASES.get(name, name), node.attr))
        match node:
            case ast.Call(
                func=ast.Name("getattr"), args=[ast.Name(name), ast.Constant(str(field)), *_]
            ):
                reads.add((name, field))
    return reads


def _production_reads() -> set[tuple[str, str]]:
    """Returns all fields that the code reads, as (section, field).

    Within a section's own class, `self.y` is a read. Where formats and sinks are made,
    `section.y` is one.
    """
    reads: set[tuple[str, str]] = set()
    for top in ("ingest", "assets", "resources"):
        for file in (ROOT / top).rglob("*.py"):
            tree = ast.parse(file.read_text())
            reads |= _reads(tree)
            for folder, name in (("formats", "decode"), ("sinks", "sink")):
                if file.is_relative_to(ROOT / "ingest" / folder):
                    reads |= {(name, field) for owner, field in _reads(tree) if owner == "section"}
                    reads |= {
                        (part, field)
                        for owner, field in _reads(tree)
                        if owner == "options"
                        for part in (name, "key")
                    }
            if file.is_relative_to(ROOT / "ingest" / "sinks" / "kafka"):  # one section for both
                reads |= {
                    (part, field)
                    for owner, field in _reads(tree)
                    if owner == "section"
                    for part in ("key_", "value")
                }
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and node.name in SECTIONS:
                    reads |= {
                        (SECTIONS[node.name], field)
                        for owner, field in _reads(node)
                        if owner == "self"
                    }
                if isinstance(node, ast.ClassDef) and node.name in OPTIONS:
                    reads |= {
                        (section, field)
                        for owner, field in _reads(node)
                        if owner == "self"
                        for section in ("decode", "key")
                    }
    return reads


def test_no_field_is_ignored() -> None:
    """The code reads every field of a spec as `section.field`, so no option is ignored."""
    reads = _production_reads()
    assert [
        f"{section}.{name}"
        for section, name in [*_fields(PipelineSpec, "spec"), *_fields(ClusterSpec, "cluster")]
        if (section, name) not in reads
    ] == []


def test_a_spec_is_read_without_the_heavy_libraries() -> None:
    """Reading a spec loads neither librdkafka nor Arrow."""
    code = (
        "import sys, windrow.ingest.config.pipeline; print({'confluent_kafka', 'pyarrow',"
        " 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ({"key": {"fields": []}}, "decode.key.fields: "),
        ({"key": {}}, "decode.key.fields: is missing"),
        ({"key": {"fields": ["a", "a"]}}, "decode.key.fields: names a twice"),
        (
            {"key": {"fields": ["a"], "format": "xml"}},
            "decode.key.format: there is no such format here; known are json,",
        ),
        ({"key": {"fields": ["a"], "delimeter": ";"}}, "decode.key.delimeter: unknown key"),
        (
            {
                "key": {"fields": ["k_a", "b"], "fields_prefix": "k_"},
                "fields_include": "except_key",
            },
            "key.fields: b: every name",
        ),
        (
            {"key": {"fields": ["k_"], "fields_prefix": "k_"}, "fields_include": "except_key"},
            "key.fields: k_: every name",
        ),
        (
            {"key": {"fields": ["k_a"], "fields_prefix": "k_"}},
            "decode.key.fields_prefix: goes with fields_include: except_key",
        ),
        ({"fields_include": "all"}, "decode.fields_include: goes with decode.key"),
        (
            {"key": {"fields": ["a", "b"]}, "headers": {"b": "x"}},
            "decode.headers: b: comes from the key already",
        ),
        (
            {"format": "raw", "schema": None, "headers": {"b": "x"}},
            "decode.headers: goes with decode.schema",
        ),
        (
            {"format": "raw", "schema": None, "key": {"fields": ["b"]}},
            "decode.key: goes with decode.schema",
        ),
    ],
)
def test_key_value_and_headers_in_conflict(
    folder: Path, decode: dict[str, object], message: str
) -> None:
    """Settings of key, value and headers that exclude each other are refused at their place."""
    with pytest.raises(SpecError) as refused_spec:
        parse_spec({**GOOD_ATTRIBUTES, "decode": {"schema": "a.b:C", **decode}}, folder)
    assert message in refused_spec.value.message


@pytest.mark.parametrize(
    ("sink", "decode", "message"),
    [
        ({"mode": "upsert"}, {}, "sink.mode: upsert needs primary_key"),
        ({"primary_key": ["a"]}, {}, "sink.primary_key: goes with mode upsert or delete-aware"),
        ({"version": "v"}, {}, "sink.version: goes with mode upsert or delete-aware"),
        ({"buckets": 3}, {}, "sink.buckets: goes with mode upsert or delete-aware"),
        (
            {"mode": "delete-aware", "primary_key": ["a"], "version": "v"},
            {},
            "sink.version: goes with mode upsert: ",
        ),
        (
            {"mode": "upsert", "primary_key": ["a", "b", "a"]},
            {},
            "sink.primary_key: names a column twice",
        ),
        (
            {"mode": "upsert", "primary_key": ["a"], "version": "a"},
            {},
            "sink.version: is a column of primary_key",
        ),
        (
            {"mode": "upsert", "primary_key": ["a"]},
            {"headers": {"a": "x"}},
            "sink.primary_key: a: comes from a header",
        ),
        (
            {"mode": "upsert", "primary_key": ["a"]},
            {"key": {"fields": ["b", "a"]}, "on_null": "drop"},
            "decode.on_null: can't be said where",
        ),
        ({"mode": "merge"}, {}, "sink.mode: must be"),
        ({"mode": "upsert", "primary_key": []}, {}, "sink.primary_key: "),
    ],
)
def test_a_primary_key_in_conflict(
    folder: Path, sink: dict[str, object], decode: dict[str, object], message: str
) -> None:
    """Settings of a primary key are refused in a mode without one.

    `decode.on_null` is refused if messages without a value delete.
    """
    with pytest.raises(SpecError) as refused_spec:
        parse_spec(
            {
                **GOOD_ATTRIBUTES,
                "decode": {"schema": "a.b:C", **decode},
                "sink": {"path": "t", **sink},
            },
            folder,
        )
    assert message in refused_spec.value.message


@pytest.mark.parametrize("evolve", ["none", "add_columns", "widen"])
def test_what_may_become_of_columns(folder: Path, evolve: str) -> None:
    """`sink.evolve` works in every mode; its default is `add_columns`."""
    for keyed in ({}, {"mode": "upsert", "primary_key": ["a"]}):
        sink = {"path": "t", "evolve": evolve, **keyed}
        assert (
            parse_spec(
                {**GOOD_ATTRIBUTES, "decode": {"schema": "a.b:C"}, "sink": sink}, folder
            ).sink.model_dump()["evolve"]
            == evolve
        )
    assert (
        parse_spec({**GOOD_ATTRIBUTES, "sink": {"path": "t"}}, folder).sink.model_dump()["evolve"]
        == "add_columns"
    )
    with pytest.raises(SpecError, match=r"sink\.evolve: must be"):
        parse_spec({**GOOD_ATTRIBUTES, "sink": {"path": "t", "evolve": "merge"}}, folder)


@pytest.mark.parametrize(
    ("sink", "key"),
    [
        ({}, None),
        ({"mode": "append"}, None),
        ({"mode": "upsert", "primary_key": ["a", "b"]}, PrimaryKey(("a", "b"))),
        (
            {"mode": "upsert", "primary_key": ["a"], "version": "v", "buckets": 4},
            PrimaryKey(("a",), version="v", buckets=4),
        ),
        ({"mode": "delete-aware", "primary_key": ["a"]}, PrimaryKey(("a",), marks=True)),
    ],
)
def test_a_primary_key(folder: Path, sink: dict[str, object], key: PrimaryKey | None) -> None:
    """The primary key of a spec is that of its sink; `on_null` counts only if nothing
    is deleted.
    """
    on_null = {} if key is not None and key.deletes else {"on_null": "drop"}
    decode = {"schema": "a.b:C", "key": {"fields": ["a", "b"]}, **on_null}
    assert (
        parse_spec(
            {**GOOD_ATTRIBUTES, "decode": decode, "sink": {"path": "t", **sink}}, folder
        ).sink.key
        == key
    )


def test_a_key_beside_the_value(folder: Path) -> None:
    """Key, value and headers of a spec are decoded as written; by default the key isn't decoded."""
    written = {
        "schema": "a.b:C",
        "fields_include": "except_key",
        "key": {"fields": ["k_a"], "fields_prefix": "k_", "unknown": "dead"},
    }
    decode = parse_spec(
        {**GOOD_ATTRIBUTES, "decode": {**written, "headers": {"t": "x-trace"}}}, folder
    ).decode
    assert (decode.part.without, decode.part.only) == (("k_a", "t"), None)
    assert decode.key is not None
    assert (decode.key.format, decode.key.part.only, decode.key.part.prefix) == (
        "json",
        ("k_a",),
        "k_",
    )
    plain = parse_spec(GOOD_ATTRIBUTES, folder).decode
    assert (plain.key, plain.headers, plain.part) == (
        None,
        {},
        replace(WHOLE, is_named=True),
    )


@pytest.mark.parametrize(
    ("dead", "message"),
    [
        ({}, "dead_letters.topic: is missing"),
        ({"topic": "a b"}, "dead_letters.topic: must be a topic name"),
        (
            {"topic": "d", "client": {"security.protocol": "SSL"}},
            "dead_letters.client: goes with cluster or bootstrap_servers",
        ),
        (
            {"topic": "d", "bootstrap_servers": "b:1", "client": {"acks": "0"}},
            "dead_letters.client.acks: is not among the properties",
        ),
        (
            {"topic": "d", "cluster": "no"},
            "dead_letters.cluster: there is no windrow.yaml, which would say what cluster no is",
        ),
        (
            {"topic": "d", "cluster": "no", "bootstrap_servers": "b:1"},
            "dead_letters.bootstrap_servers: 'cluster' and 'bootstrap_servers'",
        ),
        (
            {"topic": "d", "bootstrap_servers": "me:hunter2@b:1"},
            "dead_letters.bootstrap_servers: must not hold a user or a password",
        ),
    ],
)
def test_a_topic_for_dead_letters_in_conflict(
    folder: Path, dead: dict[str, object], message: str
) -> None:
    """A topic for dead letters is refused if it can't work, has no effect, or would
    show a secret.
    """
    with pytest.raises(SpecError) as caught:
        parse_spec({**GOOD_ATTRIBUTES, "dead_letters": dead}, folder)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"transform": {}}, "transform.steps: is missing"),
        (
            {"transform": {"spark": "a.b:c"}},
            "transform.spark: is a step: write\n  transform:\n    steps:\n      - spark: a.b:c",
        ),
        (
            {"transform": {"steps": [{"spark": "a.b:c"}, {"sql": "x"}, {"spark": "a.b:d"}]}},
            "transform.steps.2: there is a spark step before it, and there is at most one",
        ),
        (
            {
                "transform": {
                    "steps": [
                        {"spark": "a.b:c"},
                        {"python": "a.b:c", "schema": "a.b:D", "on_error": "dead"},
                    ]
                }
            },
            "transform.steps.1.on_error: can't be dead behind a spark step: a row may be made of",
        ),
        (
            {
                "transform": {
                    "steps": [
                        {"spark": "a.b:c"},
                        {
                            "lookup": "a",
                            "key": {"b": "c"},
                            "take": {"d": "e"},
                            "from": {"table": "t"},
                            "on_miss": "dead",
                        },
                    ]
                }
            },
            "transform.steps.1.on_miss: can't be dead behind a spark step",
        ),
        (
            {"transform": {"steps": [{"sqk": "x"}]}},
            "transform.steps.0: must say one of sql, python, lookup, spark; did you mean sql?",
        ),
        (
            {"transform": {"steps": [{"sql": "x", "spark": "a.b:c"}]}},
            "transform.steps.0: must say one of sql, python, lookup, spark, and says sql and spark",
        ),
        (
            {
                "transform": {
                    "steps": [
                        {
                            "lookup": "a",
                            "key": {"b": "c"},
                            "take": {"d": "e"},
                            "from": {"table": "t"},
                        }
                    ]
                    * 2
                }
            },
            "transform.steps.1.lookup: a is the name of two lookups",
        ),
        (
            {"transform": {"steps": [{"spark": "newest"}]}},
            "transform.steps.0.spark: must be FILE.py:function or package.module:function",
        ),
        (
            {"transform": {"steps": [{"spark": "a.b:c"}], "schema": "a.py"}},
            "transform.schema: must be FILE.py:Class or package.module:Class",
        ),
        (
            {"metadata": {"timestamp": "none"}},
            "metadata.timestamp: can't be left out with a spark step",
        ),
        ({"metadata": {"ordinal": "_n"}}, "metadata.ordinal: can't go with a spark step"),
        ({"metadata": {"value-size": "_n"}}, "metadata.value-size: can't go with a spark step"),
    ],
)
def test_what_a_function_of_sparks_goes_with(
    folder: Path, over: dict[str, object], message: str
) -> None:
    """Settings that can't work with a spark step are refused."""
    with pytest.raises(SpecError) as caught:
        parse_spec(
            {**GOOD_ATTRIBUTES, "transform": {"steps": [{"spark": "a.b:c"}]}, **over}, folder
        )
    assert message in str(caught.value)
    assert "must not be empty" not in str(caught.value)  # about a list whose only step is wrong


def test_every_stage_has_limits(folder: Path) -> None:
    """Every stage at which a message can be refused has its own limits; by default
    there are none.
    """
    limits_by_stage = {
        stage: {"max_dead_count": n, "max_dead_ratio": n / 10} for n, stage in enumerate(STAGES)
    }
    limits = parse_spec({**GOOD_ATTRIBUTES, "limits": limits_by_stage}, folder).limits
    assert [limits.for_stage(stage) for stage in STAGES] == [
        StageLimits(**bounds) for bounds in limits_by_stage.values()
    ]
    assert {parse_spec(GOOD_ATTRIBUTES, folder).limits.for_stage(stage) for stage in STAGES} == {
        StageLimits()
    }


@pytest.mark.parametrize(
    ("sink", "is_refused"),
    [
        (SQLITE_SINK, True),
        ({"kind": "postgres", "url": "postgresql://h/d", "table": "t", "staging": "s"}, True),
        ({"kind": "files", "path": "t"}, False),
        ({"kind": "routes", "by": "topic", "tables": [], "other": SQLITE_SINK}, True),
        ({"kind": "routes", "by": "topic", "tables": [], "other": {"path": "t"}}, False),
    ],
)
def test_limits_that_a_table_does_not_have(
    folder: Path, sink: dict[str, object], is_refused: bool
) -> None:
    """Limits of maintenance that don't apply to a kind of table are refused, not ignored."""
    if sink["kind"] == "routes":
        route = {"values": ["a"], "sink": {**SQLITE_SINK, "table": "a"}}
        sink = {**sink, "tables": [route]}
    attributes = {**GOOD_ATTRIBUTES, "sink": sink, "maintain": {"keep_files": "2d"}}
    parse_spec(attributes, folder)
    limits = {"keep_versions": "8d", "file_size": "1MiB"}
    if not is_refused:
        parse_spec({**attributes, "maintain": limits}, folder)
        return
    with pytest.raises(SpecError) as refused_spec:
        parse_spec({**attributes, "maintain": limits}, folder)
    for name in limits:
        assert f"maintain.{name}: isn't for sink.kind {sink['kind']}" in refused_spec.value.message


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        ({"path": "t", "mode": "upsert", "primary_key": ["a"]}, "a row belongs to its key"),
        (
            {"kind": "routes", "by": "topic", "tables": [], "other": {"path": "t"}},
            "a window's rows are in several tables",
        ),
        (
            {"kind": "kafka", "topic": "t", "staging": "s"},
            "the topic's retention removes its messages",
        ),
        (SQLITE_SINK, None),
        ({"path": "t"}, None),
    ],
)
def test_rows_that_do_not_expire(folder: Path, sink: dict[str, object], reason: str | None) -> None:
    """`maintain.keep_rows` is refused, with the reason, for tables whose rows don't leave them
    with their window.
    """
    if "tables" in sink:
        sink = {**sink, "tables": [{"values": ["a"], "sink": {"path": "a"}}]}
    attributes = {**GOOD_ATTRIBUTES, "sink": sink, "maintain": {"keep_rows": "90d"}}
    if reason is None:
        assert parse_spec(attributes, folder).maintain.limits.keep_rows == timedelta(days=90)
        return
    with pytest.raises(SpecError) as refused_spec:
        parse_spec(attributes, folder)
    assert f"maintain.keep_rows: isn't for this table: {reason}" in refused_spec.value.message
