"""Logins by token: what a windrow.yaml may say of them, and that nothing else may."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from windrow.assets.dependencies import pipeline_of
from windrow.assets.names import kafka_key, ledger_key, sink_key, spark_key
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.load import load_spec, named_cluster, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.client_properties import consumer_recipe
from windrow.ingest.settings.logins import parse_login, to_mapping
from windrow.ingest.settings.secrets import InCommand
from windrow.resources.kafka import KafkaSource
from windrow.resources.spark import Spark
from windrow.resources.table import LedgerState, Table

CANARY = "C4nary-of-a-login"
PROVIDER = "https://login.example/token"
LOGINS: dict[str, dict[str, Any]] = {
    "secret": {
        "method": "oidc",
        "token_url": PROVIDER,
        "client_id": "orders",
        "client_secret": {"env": "X"},
        "scope": "kafka",
        "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
        "ca": "/etc/ca.pem",
    },
    "key": {
        "method": "oidc",
        "token_url": PROVIDER,
        "assertion": {"key": {"file": "/run/key.pem"}, "issuer": "orders"},
    },
    "signed file": {
        "method": "oidc",
        "token_url": PROVIDER,
        "assertion": {"token_file": "/var/run/secrets/token"},
    },
    "azure": {"method": "azure_imds", "resource": "https://shop.servicebus.windows.net"},
    "file": {"method": "token", "token": {"file": "/var/run/secrets/token"}},
    "command": {
        "method": "token",
        "token": {"command": ["token", "--fresh"], "env": ["ROLE"], "lifetime_seconds": 60},
        "lifetime_seconds": 900,
    },
    "msk": {"method": "aws_msk_iam", "region": "eu-central-1"},
}
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
SPEC = {
    "id": "orders",
    "source": {"topic": "shop.orders", "cluster": "prod"},
    "window": {"grid": "batch"},
    "decode": {"schema": "my.schemas:Order"},
    "sink": {"path": "lake"},
}


def load(folder: Path, client: object, **sections: object) -> PipelineSpec:
    """Loads a spec whose cluster has these client properties, in a windrow.yaml."""
    cluster = {"bootstrap_servers": "one:9092", "client": client}
    (folder / "windrow.yaml").write_text(yaml.safe_dump({"clusters": {"prod": cluster}}))
    (folder / "defs.yaml").write_text(yaml.safe_dump({**SPEC, **sections}))
    return load_spec(folder / "defs.yaml")


@pytest.mark.parametrize("name", LOGINS)
def test_a_cluster_has_a_login_by_token(name: str, tmp_path: Path) -> None:
    """Source, Kafka sink and dead letters get the login that their cluster has in windrow.yaml."""
    spec = load(
        tmp_path,
        BEARER | {"oauth": LOGINS[name]},
        sink={"kind": "kafka", "topic": "out", "staging": "s", "cluster": "prod"},
        dead_letters={"topic": "dead", "cluster": "prod"},
    )
    login = parse_login(LOGINS[name])
    dead = spec.dead_cluster
    assert dead is not None
    for client in (spec.cluster.client, spec.reached_sink.client, dead.client):  # type: ignore[attr-defined]
        assert client["oauth"] == login
        assert consumer_recipe("one:9092", client)["oauth"] == login
    assert parse_login(to_mapping(login)) == login
    resource = KafkaSource.of(spec.cluster)
    assert "oauth" not in resource.client
    assert resource.reading(spec).cluster().client["oauth"] == login


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    """Each windrow.yaml on the page about logins is right, and a pipeline names its secrets."""
    page = (Path(__file__).parents[2] / "docs" / "logins.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        (tmp_path / "windrow.yaml").write_text(example)
        for name in yaml.safe_load(example).get("clusters", ()):
            assert isinstance(named_cluster(name, tmp_path), ClusterSpec)
    (secrets,) = (example for example in examples if example.startswith("secrets:"))
    (tmp_path / "windrow.yaml").write_text(secrets)
    (sections,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    spec = parse_spec(
        {**SPEC, "source": {"topic": "t", "bootstrap_servers": "a:1"}} | sections, tmp_path
    )
    assert isinstance(spec.state_password, InCommand)
    assert spec.sink.password == spec.state_password  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "kerberos"}, "$.method"),
        ({"scpe": "kafka"}, "unknown field `scpe`"),
        ({"client_secret": CANARY}, "client_secret is a secret: write {env: NAME}"),
        ({"client_secret": None}, "exactly one of client_secret and assertion"),
        ({"client_id": None}, "client_secret goes with client_id"),
        ({"token_url": f"http://{CANARY}/token"}, "token_url must begin with https://"),
        ({"token_url": f"https://me:{CANARY}@login/token"}, "must not hold a user or a password"),
        ({"extensions": ["a"]}, "$.extensions"),
    ],
)
def test_a_mistake_in_a_login(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A wrong login is refused with its line, and no value of it is quoted."""
    login = {k: v for k, v in {**LOGINS["secret"], **change}.items() if v is not None}
    with pytest.raises(SpecError) as refused:
        load(tmp_path, BEARER | {"oauth": login})
    assert "clusters.prod.client.oauth: is no login" in str(refused.value)
    assert words in str(refused.value)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (BEARER, "sasl.mechanism: OAUTHBEARER needs oauth too"),
        (
            BEARER | {"security.protocol": "SASL_PLAINTEXT", "oauth": LOGINS["file"]},
            "sends the token in clear text: use SASL_SSL",
        ),
        (
            BEARER | {"oauth": LOGINS["file"], "sasl.username": "me"},
            "sasl.username: would be ignored",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": {"env": "X"},
                "oauth": LOGINS["file"],
            },
            "oauth: would be ignored: sasl.mechanism must be OAUTHBEARER",
        ),
        (
            BEARER | {"sasl.mechanism": "GSSAPI"},
            "wheel is built without Kerberos",
        ),
        (BEARER | {"sasl.oauthbearer.method": "oidc"}, "write it under client.oauth"),
        *(
            (BEARER | {"oauth": {**LOGINS["secret"], **change}}, f"same on every machine: {file}")
            for change, file in (
                ({"client_secret": {"file": "secret"}}, "client_secret.file"),
                ({"ca": "ca.pem"}, "ca"),
                ({"client_secret": None, "assertion": {"token_file": "t"}}, "assertion.token_file"),
            )
        ),
    ],
)
def test_properties_that_do_not_fit_a_login(
    client: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """A login that would be ignored, be incomplete or be sent in clear is refused."""
    with pytest.raises(SpecError) as refused:
        load(tmp_path, client)
    assert words in str(refused.value)


@pytest.mark.parametrize("section", ["source", "sink", "dead_letters"])
@pytest.mark.parametrize(
    "client",
    [{"oauth": LOGINS["command"]}, {"sasl.password": {"command": ["sh", "-c", "evil"]}}],
    ids=["login", "command"],
)
def test_a_spec_runs_no_program(section: str, client: dict[str, Any], tmp_path: Path) -> None:
    """Who may write a spec can't make windrow run a program: neither has a place there."""
    sections: dict[str, Any] = {
        "source": SPEC["source"],
        "sink": {"kind": "kafka", "topic": "out", "staging": "s", "cluster": "prod"},
        "dead_letters": {"topic": "dead", "cluster": "prod"},
    }
    sections[section] = {**sections[section], "client": client}
    with pytest.raises(SpecError, match=rf"{section}\.client\.\S+ belongs into a windrow\.yaml"):
        load(tmp_path, BEARER | {"oauth": LOGINS["file"]}, **sections)


def test_a_run_config_adds_no_login_and_leads_none_elsewhere(tmp_path: Path) -> None:
    """A run's config can change a resource's fields: it adds no program, and another address gets
    no token.
    """
    spec = load(tmp_path, BEARER | {"oauth": LOGINS["file"]})
    for client in ({"oauth": LOGINS["command"]}, {"sasl.password": {"command": ["evil"]}}):
        changed = KafkaSource(bootstrap_servers="one:9092", client=client)
        with pytest.raises(SpecError, match=r"belongs into a windrow\.yaml"):
            changed.reading(spec).cluster()
    elsewhere = KafkaSource(bootstrap_servers="evil:9092", client=BEARER)
    assert "oauth" not in elsewhere.reading(spec).cluster().client


def test_the_dead_letters_of_a_run_in_dagster_log_in(tmp_path: Path) -> None:
    """The resource of a cluster makes the dead-letter topic with the login of windrow.yaml."""
    (tmp_path / "token").write_text(CANARY)
    login = {"method": "token", "token": {"file": str(tmp_path / "token")}, "lifetime_seconds": 9}
    spec = load(
        tmp_path,
        BEARER | {"oauth": login},
        dead_letters={"topic": "dead"},
        decode={"schema": "tests.integration.things:Thing"},
    )
    resources = {
        kafka_key(spec): KafkaSource.of(spec.cluster),
        ledger_key(spec): LedgerState(url=spec.state_url()),
        sink_key(spec): Table.of(spec),
        spark_key(spec): Spark(),
    }
    assert pipeline_of(spec, SimpleNamespace(**resources)).dead_topic is not None
