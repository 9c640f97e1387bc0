"""Secrets that have a name in a windrow.yaml, and pipelines that name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.test_logins import CANARY, LOGINS, SPEC
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.settings.logins import TokenLogin
from windrow.ingest.settings.secrets import InCommand, InEnvironment, InFile
from windrow.resources.kafka import KafkaSource
from windrow.resources.table import LedgerState, Table

COMMAND = {"command": ["print-password", "orders"], "env": ["ROLE"], "lifetime_seconds": 600}
SECRETS: dict[str, Any] = {"database": COMMAND, "kafka": {"file": "kafka.txt"}, "aws": {"env": "X"}}
NAMED = {"secret": "database"}
PASSWORD = InCommand(("print-password", "orders"), ("ROLE",), 600)
SOURCE = {"topic": "shop.orders", "bootstrap_servers": "one:9092"}
POSTGRES = {"kind": "postgres", "url": "postgresql://me@db/shop", "table": "t", "staging": "s"}


def to_yaml(values: object) -> str:
    """Writes YAML without anchors, which PyYAML makes for a value that is there twice."""
    text: str = yaml.safe_dump(json.loads(json.dumps(values)))
    return text


def load(folder: Path, shared: object = None, **sections: object) -> PipelineSpec:
    """Loads a spec two folders below a windrow.yaml."""
    inner = folder / "pipelines" / "orders"
    inner.mkdir(parents=True, exist_ok=True)
    (folder / "windrow.yaml").write_text(
        to_yaml({"secrets": SECRETS} if shared is None else shared)
    )
    (inner / "defs.yaml").write_text(to_yaml({**SPEC, "source": SOURCE, **sections}))
    return load_spec(inner / "defs.yaml")


def refused(folder: Path, shared: object = None, **sections: object) -> str:
    """Returns the error about such a spec."""
    with pytest.raises(SpecError) as error:
        load(folder, shared, **sections)
    assert CANARY not in str(error.value)
    return str(error.value)


def test_a_spec_names_secrets_wherever_it_may_refer_to_one(tmp_path: Path) -> None:
    """A name stands for its reference: of a database, a cluster, a registry, a catalog, a service.

    A file's path is relative to the windrow.yaml. A mapping that is no reference stays one.
    """
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    sources: list[dict[str, Any]] = [
        {"sql": "mysql://me@db/x", "relation": "r", "password": NAMED},
        {
            "http": "https://service/{id}",
            "schema": "a.b:C",
            "token": NAMED,
            "headers": {"secret": {"env": "X"}},
        },
        {"table": "n.t", "catalog": {"uri": "http://c", "token": {"secret": "aws"}}},
    ]
    steps = [
        {"lookup": f"l{n}", "key": {"id": "id"}, "take": {"x": f"x{n}"}, "from": source}
        for n, source in enumerate(sources)
    ]
    spec = load(
        tmp_path,
        source={
            **SOURCE,
            "client": {**client, "sasl.password": {"secret": "kafka"}},
            "registry": {"url": "https://registry", "token": NAMED},
        },
        sink={**POSTGRES, "password": NAMED},
        state="postgresql://me@db/ledger",
        state_password=NAMED,
        decode={"format": "avro-confluent", "schema": "my.schemas:Order"},
        transform={"schema": "my.schemas:Order", "steps": steps},
    )
    in_sql, in_http, in_table = (step.from_ for step in spec.transform.steps)  # type: ignore[union-attr, attr-defined]
    registry = spec.stated_registry
    assert registry is not None
    assert spec.cluster.client["sasl.password"] == InFile(f"{tmp_path}/kafka.txt")
    named = (spec.state_password, spec.sink.password, in_sql.password, in_http.token)  # type: ignore[attr-defined]
    assert {*named, registry.token} == {PASSWORD}
    assert in_http.headers == {"secret": InEnvironment("X")}
    assert in_table.catalog["token"] == InEnvironment("X")
    assert "print-password" not in repr(spec)


def test_dagsters_resources_have_the_secret_by_reference(tmp_path: Path) -> None:
    """Table and ledger get the reference; of a cluster only its own address gets a command."""
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    spec = load(
        tmp_path,
        source={**SOURCE, "client": {**client, "sasl.password": NAMED}},
        sink={**POSTGRES, "password": NAMED},
        state="postgresql://me@db/ledger",
        state_password={"file": "ledger.txt"},
    )
    assert Table.of(spec).settings["password"] == COMMAND
    assert LedgerState.of(spec).password == {"file": f"{tmp_path}/pipelines/orders/ledger.txt"}
    cluster = KafkaSource.of(spec.cluster)
    assert "sasl.password" not in cluster.client
    assert cluster.reading(spec).cluster().client["sasl.password"] == PASSWORD
    with pytest.raises(SpecError, match="must be a reference"):
        LedgerState(url="postgresql://me@db/ledger", password={"evn": "X"}).ledger()


def test_a_cluster_names_secrets_of_its_file(tmp_path: Path) -> None:
    """Secrets of a cluster and of its login can have names, too."""
    client: dict[str, Any] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    client["oauth"] = {**LOGINS["file"], "token": NAMED}
    clusters = {"prod": {"bootstrap_servers": "one:9092", "client": client}}
    source = {"topic": "t", "cluster": "prod"}
    spec = load(tmp_path, {"secrets": SECRETS, "clusters": clusters}, source=source)
    login = spec.cluster.client["oauth"]
    assert isinstance(login, TokenLogin)
    assert login.token == PASSWORD


def test_a_command_in_a_spec_is_refused_and_the_advice_works(tmp_path: Path) -> None:
    """The error says where the command belongs and what is written instead; so it loads."""
    message = refused(tmp_path, sink={**POSTGRES, "password": COMMAND})
    assert "sink.password: belongs into a windrow.yaml" in message
    assert "as secrets: {NAME: {command: [...]}} there" in message
    assert "is named here as {secret: NAME}" in message
    shared = {"secrets": {"NAME": COMMAND}}
    spec = load(tmp_path, shared, sink={**POSTGRES, "password": {"secret": "NAME"}})
    assert spec.sink.password == PASSWORD  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        ({"secrets": {"databse": COMMAND}}, "has no secret database: there are databse; did you"),
        ({"clusters": {}}, "secrets: is missing: nothing says what secret database is"),
        ({"secrets": {"database": CANARY}}, "line 2: secrets.database: must be a reference"),
        ({"secrets": {"database": {"comand": CANARY}}}, "secrets.database: must be a reference"),
        ({"secrets": {"database": NAMED}}, "secrets.database: can't be named here"),
        ({"secrets": {"database": {"env": "{{ env.NOT_SET }}"}}}, "NOT_SET is not set"),
        ({"secrets": {"a b": COMMAND, "database": COMMAND}, "scrts": 1}, "scrts: unknown key"),
    ],
)
def test_a_name_without_a_secret(shared: object, words: str, tmp_path: Path) -> None:
    """The error names file and secret, and quotes no value."""
    message = refused(tmp_path, shared, sink={**POSTGRES, "password": NAMED})
    assert words in message
    assert f"{tmp_path}/windrow.yaml" in message


def test_other_secrets_of_the_file_are_not_read(tmp_path: Path) -> None:
    """A machine needs only the secrets and clusters that its pipelines name."""
    shared = {
        "secrets": {"database": COMMAND, "other": {"env": "{{ env.NOT_SET }}"}},
        "clusters": {"prod": {"bootstrap_servers": "{{ env.NOT_SET }}"}},
    }
    assert load(tmp_path, shared, state="postgresql://me@db/x", state_password=NAMED)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"sink": {**POSTGRES, "password": CANARY}}, "sink.password: must be a reference: {env"),
        ({"sink": {**POSTGRES, "password": {"secret": ["database"]}}}, "has no secret"),
        (
            {"sink": {**POSTGRES, "password": NAMED, "url": "postgresql://me:{{ env.PW }}@db/x"}},
            "sink.password: has a password",
        ),
        (
            {"source": {**SOURCE, "client": {"sasl.password": {"secret": "kafak"}}}},
            "source.client.sasl.password: ",
        ),
        ({"state_password": CANARY}, "state_password: must be a reference"),
    ],
)
def test_a_mistake_in_a_spec(
    sections: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is a reference, is said once, and isn't quoted; the mistake has its line."""
    monkeypatch.setenv("PW", CANARY)
    message = refused(tmp_path, **sections)
    assert words in message
    assert "1 mistake in" in message
