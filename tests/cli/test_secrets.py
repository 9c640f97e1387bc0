"""No output and no file has a secret.

The tests put one text into every setting that could hold a secret, and search for it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Stage, hour
from tests.commands import with_spec
from tests.config.test_settings import FIELDS
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.errors import SpecError, UnreachableError, WindrowError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.settings.paths import secret_part
from windrow.ingest.settings.secrets import masked
from windrow.ingest.sinks.kit.files.filesystem import Place

CANARY = "hunter2-C4nary"
SASL = (
    "security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me, sasl.password:"
    f" {CANARY}"
)
LOCAL = {"id": "things", "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"}}
GOOD: dict[str, Any] = {
    **LOCAL,
    "source": {"bootstrap_servers": "127.0.0.1:1", "topic": "shop.things"},
    "decode": {"schema": "schema.py:Thing"},
    "sink": {"path": "lake/things"},
}
WAYS = (["--json"], ["--debug"], [])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment variable that templates use."""
    monkeypatch.setenv("CANARY", CANARY)


def with_setting(setting_path: str, value: object) -> dict[str, Any]:
    """Returns the good spec with one more setting, given by its dotted path."""
    spec = json.loads(json.dumps(GOOD))
    section = spec
    *above, last = setting_path.split(".")
    for name in above:
        section = section.setdefault(name, {})
    section[last] = value
    return spec


REFUSED_PLACES = [
    ("sink.path", f"s3://key:{CANARY}@bucket/table"),
    ("sink.path", f"s3://{CANARY}@bucket/table"),
    ("sink.path", f"s3://key:a/{CANARY}@bucket/table"),
    ("sink.path", f"s3://key:a?{CANARY}@bucket/table"),
    ("sink.path", f"s3://bucket/table?secret_key={CANARY}"),
    ("sink.path", f"s3://bucket/table#{CANARY}"),
    ("sink.path", f"abfss://container:{CANARY}@account/table"),
    ("sink.path", f"abfss://container@account/table?sig={CANARY}"),
    ("sink.path", [CANARY]),
    ("source.bootstrap_servers", f"user:{CANARY}@host:9092"),
    ("source.bootstrap_servers", f"{CANARY}@host:9092"),
    ("source.bootstrap_servers", f"SASL_SSL://user:{CANARY}@host:9092"),
    ("state", [f"postgresql://me:{CANARY}@db/state"]),
    ("state", {"url": CANARY}),
    ("source.client", CANARY),
    ("source.client", {"sasl.password": [CANARY]}),
    ("source.client", {"sasl.pasword": CANARY}),
    ("source.client", {"ssl.key.password": CANARY}),
    ("source.client", {"sasl.oauthbearer.config": CANARY}),
]


@pytest.mark.parametrize(("setting_path", "value"), REFUSED_PLACES)
def test_what_may_not_hold_a_secret(stage: Stage, setting_path: str, value: object) -> None:
    """A secret in a setting that must not have one is refused with the setting's name
    and advice.
    """
    Path(stage.spec).write_text(yaml.safe_dump(with_setting(setting_path, value)))
    for output_options in WAYS:
        result = stage.call("plan", stage.spec, "--window", hour(0), *output_options)
        assert result.exit_code == 2, result.output
        assert setting_path in result.output
        assert CANARY not in result.output


def test_the_way_out_is_told(stage: Stage) -> None:
    """If a URL has credentials, the message says where they belong."""
    Path(stage.spec).write_text(yaml.safe_dump(with_setting("sink.path", "s3://a:b@c/d")))
    assert (
        "by the environment (AWS_ACCESS_KEY_ID"
        in stage.call("plan", stage.spec, "--window", hour(0)).output
    )
    Path(stage.spec).write_text(yaml.safe_dump(with_setting("source.bootstrap_servers", "a:b@c:1")))
    assert (
        "under client, as sasl.username and sasl.password"
        in stage.call("plan", stage.spec, "--window", hour(0)).output
    )


@pytest.mark.some(15)
@pytest.mark.parametrize("setting_path", FIELDS)
def test_what_a_template_gave(stage: Stage, setting_path: str) -> None:
    """A wrong value that came from a template is shown as the template."""
    for value in (
        "{{ env.CANARY }}",
        "- {{ env.CANARY }}: '",
        "partition:0;{{ env('CANARY') }}",
        "{{ env.CANARY }}.py:A",
    ):
        spec = with_setting(
            setting_path,
            {"ä": value}
            if setting_path in {"metadata", "source.client", "source.partitions"}
            else value,
        )
        Path(stage.spec).write_text(yaml.safe_dump(spec, allow_unicode=True))
        assert CANARY not in _mistakes(lambda: load_spec(Path(stage.spec))) + _mistakes(
            lambda spec=spec: parse_spec(spec, stage.folder)
        )


def _mistakes(read: Callable[[], object]) -> str:
    """Returns the mistakes of a spec as a text; "" if it can be read."""
    try:
        read()
    except SpecError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text",
    [
        "*{}",
        "&{}",
        "!{}",
        "%{}",
        "@{}",
        '"{}',
        "'{}",
        "[{}",
        "{{{}",
        "a: {}: b",
        "`{}",
        "|{}",
        '"\\{}"',
        "!!{} x",
        "<{}>: x: y",
    ],
)
def test_broken_yaml(stage: Stage, text: str) -> None:
    """Invalid YAML is reported by its line only, because it may be a password."""
    Path(stage.spec).write_text(f"{yaml.safe_dump(GOOD)}client: {text.format(CANARY)}\n")
    for output_options in WAYS:
        result = stage.call("plan", stage.spec, "--window", hour(0), *output_options)
        assert result.exit_code == 2, result.output
        assert CANARY not in result.output


def run_all_commands(stage: Stage) -> Iterator[tuple[int, str]]:
    """Yields the exit code and output of every command."""
    window_options = ("--window", hour(0))
    for arguments in (
        ("plan", *window_options),
        ("run", *window_options),
        ("run", *window_options),
        ("show",),
        ("dead", "show"),
        ("lag",),
        ("verify",),
        ("peek",),
        ("doctor",),
        ("replay", *window_options),
        ("rebase",),
        ("doctor", "--rebuild-ledger"),
    ):
        for output_options in WAYS:
            result = stage.call(*with_spec(arguments, stage.spec), *output_options)
            yield result.exit_code, result.output


@pytest.mark.parametrize(
    ("source", "setting_path"),
    [
        (f"client: {{{SASL}}}", "source.client.sasl.password"),
        (
            f"registry: {{url: 'https://registry', username: me, password: {CANARY}}}",
            "source.registry.password",
        ),
    ],
)
def test_a_password_that_is_written_out(stage: Stage, source: str, setting_path: str) -> None:
    """A password in the spec file is refused, and the message says how to refer to it."""
    stage.write(f"topic: shop.things, {source}")
    error = stage.json("plan", stage.spec, "--window", hour(0), code=2)["error"]["message"]
    assert (
        f"{setting_path}: is written out, and it is a secret: write {{env: NAME}}, {{file: PATH}}"
        in error
    )
    assert CANARY not in error


@pytest.mark.parametrize(
    ("setting_path", "value", "says"),
    [
        ("state", f"postgresql://me:{CANARY}@h/db", "or leave it out and set PGPASSWORD"),
        ("state", f"postgresql://me:a/{CANARY}@h/db", "or leave it out and set PGPASSWORD"),
        ("state", f"postgresql://h/db?sslmode=require&password={CANARY}", "a URL with a password"),
        ("sink.url", f"postgresql://me:{CANARY}@h/db", "a URL with a password"),
        ("sink.catalog.uri", f"postgresql://me:{CANARY}@h/db", "a URL with a password"),
        ("sink.catalog.uri", f"https://me:{CANARY}@h/c", "{{ env.NAME }}\n"),
        ("sink.catalog.credential", CANARY, "a secret: write {env: NAME}, {file: PATH} or"),
        ("sink.catalog.token", CANARY, "a secret: write {env: NAME}, {file: PATH} or"),
    ],
)
def test_a_password_of_a_store_that_is_written_out(
    stage: Stage, setting_path: str, value: str, says: str
) -> None:
    """A store's password in the spec file is refused, and accepted as a template."""
    spec = with_setting(setting_path, value)
    for name, sink in {
        "sink.url": {"kind": "postgres", "table": "t", "staging": "s"},
        "sink.catalog": {"kind": "iceberg", "table": "a.b"},
    }.items():
        if setting_path.startswith(name):
            spec["sink"] |= sink
            del spec["sink"]["path"]
    text = yaml.safe_dump(spec)
    Path(stage.spec).write_text(text)
    with pytest.raises(SpecError) as refused:
        load_spec(Path(stage.spec))
    assert f"{setting_path}: is " in str(refused.value)
    assert says in str(refused.value)
    assert "written out" in str(refused.value)
    assert CANARY not in str(refused.value)
    template = "{{ env.CANARY }}"
    templated_text = text.replace(f": {CANARY}", f": '{template}'").replace(CANARY, template)
    Path(stage.spec).write_text(templated_text)
    assert load_spec(Path(stage.spec)).id == "things"


def test_a_short_password_is_masked_where_it_stands_alone() -> None:
    """A short password is masked only as a whole word, so that messages stay readable."""
    server_message = (
        'connection to "host" failed: FATAL: no role "a", user=a password=post postgresql'
    )
    assert masked(server_message, ["a", "post", ""]) == (
        'connection to "host" failed: FATAL: no role "***", user=*** password=*** postgresql'
    )
    assert masked("x-hunter2-C4nary9z", ["hunter2-C4nary9"]) == "x-***z"


def test_a_secret_that_begins_with_another_is_masked_whole() -> None:
    """Of a password that begins with the user's secret name, no rest stays readable."""
    assert masked("login hunter-2024-C4nary", ["hunter", "hunter-2024-C4nary"]) == "login ***"


def test_a_pipeline_that_works(stage: Stage) -> None:
    """The password of a running pipeline is only in the spec.

    It is in no output, plan, receipt, ledger or log.
    """
    stage.write(f"topic: shop.things, client: {{{SASL}}}".replace(CANARY, '"{{ env.CANARY }}"'))
    codes = []
    for code, output in run_all_commands(stage):
        codes.append(code)
        assert CANARY not in output
    assert codes.count(0) > 20
    files = [
        file for file in stage.folder.rglob("*") if file.is_file() and file != Path(stage.spec)
    ]
    assert len(files) > 5
    assert [str(file) for file in files if CANARY.encode() in file.read_bytes()] == []


def test_a_ledger_that_does_not_answer(stage: Stage) -> None:
    """The password of a database that doesn't answer is in no output, also not in a stack trace."""
    stage.write()
    text = Path(stage.spec).read_text()
    for url in (
        '"postgresql://me:{{ env.CANARY }}@127.0.0.1:1/state"',
        '"postgresql://127.0.0.1:1/state?password={{ env.CANARY }}"',
    ):
        Path(stage.spec).write_text(f"{text}state: {url}\n")
        for code, output in run_all_commands(stage):
            assert code != 70
            assert CANARY not in output


def test_a_cluster_that_does_not_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """The password of a cluster that doesn't answer is in no error and no log of librdkafka."""
    client = yaml.safe_load(f"{{{SASL}}}")
    broker = KafkaBroker("127.0.0.1:1", client, patience_seconds=0.5)
    for ask in (
        broker.cluster_id,
        lambda: broker.topic("t"),
        lambda: broker.committed_offsets("g", [TopicPartition("t", 0)]),
    ):
        with pytest.raises(UnreachableError) as caught:
            ask()
        assert CANARY not in "".join(traceback.format_exception(caught.value))
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:{}@127.0.0.1:port/x",
        "postgresql://me:{}@[::1/x",
        "postgresql://me:p@{}@127.0.0.1:1/x",
        "postgresql://me:1/{}@127.0.0.1:1/a@b",
        "postgresql+nodriver://me:{}@h/x",
        "postgresql+asyncpg://me:{}@h/x",
        "postgresql://127.0.0.1:1/x?sslmode={}",
        "postgresql://127.0.0.1:1/x?service={}",
        "mysql://me:{}@h/x",
        "sqlite:///x.db?key={}",
        "sqlite://{}@host/x.db",
        "sqlite+aiosqlite:///{}.db",
        "postgresql://h\u0000/{}",
        "://{}",
        "postgresql://" + "a" * 70 + "/{}",
        "~{}/state.db",
    ],
)
def test_a_ledger_that_can_not_be(url: str) -> None:
    """An invalid URL of a ledger is a mistake of the spec, and its parts aren't shown."""
    with pytest.raises(WindrowError) as caught:
        open_ledger(url.format(CANARY)).identity()
    assert CANARY not in str(caught.value)
    assert caught.value.exit_code == (3 if "?s" in url else 2)


@pytest.mark.parametrize(
    "uri",
    [
        value
        for setting_path, value in REFUSED_PLACES
        if setting_path == "sink.path" and isinstance(value, str)
    ],
)
def test_a_table_by_python(uri: str) -> None:
    """A sink that is made in Python refuses a URL with a secret, too.

    The URL becomes part of plans and receipts.
    """
    with pytest.raises(SpecError, match=r"sink\.path is (s3|abfss)://.*, and holds") as caught:
        Place.normalized(uri)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/a@b",
        "abfss://container@account.dfs.core.windows.net/t",
        "hdfs://me@host:8020/t",
        "gs://b/t",
    ],
)
def test_a_table_by_python_without(uri: str) -> None:
    """A container, a user of HDFS and an @ in a path are no secrets.

    The error about an unsupported store names the supported ones.
    """
    assert secret_part(uri) is None
    if uri.startswith(("gs:", "abfss:")):
        with pytest.raises(SpecError, match=r"no table can be in (gs|abfss).*s3:// .*come later"):
            Place.normalized(uri)
    else:
        assert Place.normalized(uri).uri == uri
