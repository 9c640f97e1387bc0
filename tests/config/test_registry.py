"""The schema registry in a spec: its own, or that of a cluster, without secrets in wrong places."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.registry.client import Registry
from windrow.ingest.settings.secrets import InEnvironment, InFile

URL = "https://registry.example:8081"
AVRO = {"format": "avro-confluent", "schema": "a.b:C"}


def attributes(registry: Any = None, decode: Any = AVRO, **source: Any) -> dict[str, Any]:
    """Returns a spec with a registry."""
    registry_section = {} if registry is None else {"registry": registry}
    where = source or {"bootstrap_servers": "127.0.0.1:9"}
    return {
        "id": "things",
        "source": {"topic": "things", **where, **registry_section},
        "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
        "decode": decode,
        "sink": {"path": "table"},
    }


def test_a_registry_of_its_own(tmp_path: Path) -> None:
    """Paths of files are relative to the spec, and secrets are in no repr."""
    section = {
        "url": URL + "/",
        "username": "me",
        "password": "hunter2",
        "ca": "ca.pem",
        "certificate": "me.pem",
        "key": "/k.pem",
        "key_password": "hunter3",
        "timeout": "500ms",
        "retries": 0,
    }
    spec = parse_spec(attributes(section), tmp_path)
    assert spec.registry == Registry(
        URL,
        "me",
        "hunter2",
        str(tmp_path / "ca.pem"),
        str(tmp_path / "me.pem"),
        "/k.pem",
        "hunter3",
        timeout=0.5,
        retries=0,
    )
    assert "hunter" not in repr(spec) + repr(spec.registry) + repr(spec.cluster)


def test_a_password_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password by reference is resolved only where it is used; a pickled registry has the
    reference.

    The revealed registry knows its secrets, so that errors can mask them.
    """
    section: dict[str, object] = {
        "url": URL,
        "username": "me",
        "password": {"env": "REGISTRY_PASSWORD"},
    }
    section |= {"certificate": "me.pem", "key_password": {"file": "lock"}}
    registry = parse_spec(attributes(section), tmp_path).registry
    assert registry is not None
    assert (registry.password, registry.key_password) == (
        InEnvironment("REGISTRY_PASSWORD"),
        InFile(str(tmp_path / "lock")),
    )
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    (tmp_path / "lock").write_text("hunter3")
    assert {"hunter2", "hunter3"} <= {*registry.reveal().secrets}
    assert b"hunter" not in pickle.dumps(registry)


def test_the_clusters_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's registry is in windrow.yaml; a registry in the spec replaces all of it."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    (tmp_path / "windrow.yaml").write_text(
        f"clusters:\n  prod:\n    bootstrap_servers: kafka:9092\n    registry: {{url: '{URL}',"
        " username: me, password: '{{ env.REGISTRY_PASSWORD }}'}\n"
    )
    assert parse_spec(attributes(cluster="prod"), tmp_path).registry == Registry(
        URL, "me", "hunter2"
    )
    assert parse_spec(
        attributes({"url": "http://other"}, cluster="prod"), tmp_path
    ).registry == Registry("http://other")
    assert (
        parse_spec(attributes(decode={"schema": "a.b:C"}, cluster="prod"), tmp_path).registry
        is None
    )


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        (None, "decode.format: asks a schema registry: say which one as source.registry"),
        ({}, "source.registry.url: is missing"),
        (
            {"url": "registry:8081"},
            "source.registry.url: must be http://HOST:PORT or https://HOST:PORT",
        ),
        ({"url": "ftp://registry"}, "source.registry.url: must be http"),
        ({"url": "http://a,http://b"}, "source.registry.url: must be http"),
        (
            {"url": "https://me:hunter2@registry"},
            "source.registry.url: must not have a user or a password",
        ),
        ({"url": "https://registry?key=hunter2"}, "source.registry.url: must be http"),
        ({"url": "http://[hunter2"}, "source.registry.url: "),
        (
            {"url": URL, "username": "me"},
            "source.registry.password: is missing: username and password go together",
        ),
        ({"url": URL, "password": "hunter2"}, "source.registry.username: is missing"),
        (
            {"url": "http://registry", "username": "me", "password": "hunter2"},
            "source.registry.url: would send the password unencrypted",
        ),
        (
            {"url": "http://registry", "ca": "ca.pem"},
            "source.registry.ca: would be ignored: url must be https",
        ),
        ({"url": URL, "key": "k.pem"}, "source.registry.key: goes with certificate"),
        ({"url": URL, "timeout": "6m"}, "source.registry.timeout: must be 100ms to 5m"),
        ({"url": URL, "retries": 11}, "source.registry.retries: must be less than or equal to 10"),
        (
            {"url": URL, "pasword": "hunter2"},
            "source.registry.pasword: unknown key; did you mean password?",
        ),
    ],
)
def test_a_registry_that_will_not_do(registry: Any, message: str, tmp_path: Path) -> None:
    """Each mistake is reported at its place, without a value that may be secret."""
    with pytest.raises(SpecError) as refused:
        parse_spec(attributes(registry), tmp_path)
    assert message in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_password_on_this_machine(tmp_path: Path) -> None:
    """A password without TLS is accepted for a registry on this machine."""
    assert (
        parse_spec(
            attributes({"url": "http://localhost:8081", "username": "me", "password": "x"}),
            tmp_path,
        ).registry
        is not None
    )


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ({"schema": "a.b:C"}, "source.registry: would not be asked"),
        ({**AVRO, "format": "json-schema-confluent"}, "source.registry: would not be asked"),
        ({**AVRO, "other_records": "filter"}, "decode.records: is missing"),
        ({**AVRO, "subject_name_strategy": "record"}, "decode.records: is missing"),
    ],
)
def test_settings_without_an_effect(decode: Any, message: str, tmp_path: Path) -> None:
    """A registry that no format uses, and names that no strategy uses, are refused."""
    with pytest.raises(SpecError) as refused:
        parse_spec(attributes({"url": URL}, decode), tmp_path)
    assert message in str(refused.value)


def test_a_key_that_asks_a_registry(tmp_path: Path) -> None:
    """A key's format uses the registry, too."""
    decode = {"schema": "a.b:C", "key": {"format": "avro-confluent", "fields": ["id"]}}
    with pytest.raises(SpecError, match=r"decode\.key\.format: asks a schema registry"):
        parse_spec(attributes(None, decode), tmp_path)
    assert parse_spec(attributes({"url": URL}, decode), tmp_path).registry is not None


SINK = {
    "kind": "kafka",
    "topic": "out",
    "staging": "staging",
    "value": {"format": "avro-confluent"},
}


@pytest.mark.parametrize(
    ("source", "sink", "url"),
    [
        ({"registry": {"url": URL}}, {}, URL),
        ({"registry": {"url": URL}}, {"registry": {"url": "http://other"}}, None),
        ({}, {"registry": {"url": "http://other"}}, "http://other"),
        ({}, {"cluster": "far"}, "http://far"),
        ({}, {"cluster": "far", "registry": {"url": "http://other"}}, "http://other"),
        (
            {},
            {"bootstrap_servers": "far:9092", "registry": {"url": "http://other"}},
            "http://other",
        ),
        ({"registry": {"url": URL}}, {"bootstrap_servers": "far:9092"}, None),
        ({}, {"bootstrap_servers": "far:9092"}, None),
        ({}, {}, None),
    ],
)
def test_the_registry_of_what_is_written(
    source: Any, sink: Any, url: str | None, tmp_path: Path
) -> None:
    """A sink uses its own registry, or that of its cluster; a missing or unused one is refused."""
    (tmp_path / "windrow.yaml").write_text(
        "clusters:\n  far:\n    bootstrap_servers: far:9092\n    registry: {url: 'http://far'}\n"
    )
    written = attributes(source.get("registry"), {"schema": "a.b:C"}) | {"sink": SINK | sink}
    if url is None:
        with pytest.raises(
            SpecError,
            match=(
                r"sink\.value\.format: asks a schema registry|source\.registry: would not be asked"
            ),
        ):
            parse_spec(written, tmp_path)
        return
    section: Any = parse_spec(written, tmp_path).reached_sink
    assert section.registry.url == url


def test_a_password_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry's password may be a template."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    (tmp_path / "defs.yaml").write_text(
        "id: things\nsource:\n  bootstrap_servers: 127.0.0.1:9\n  topic: things\n  registry:"
        f" {{url: '{URL}', username: me, password: '{{{{ env.REGISTRY_PASSWORD }}}}'}}\nwindow:"
        " {grid: hourly, start: 2026-01-05T00:00:00Z}\ndecode: {format: avro-confluent, schema:"
        " 'a.b:C'}\nsink: {path: table}\n"
    )
    registry = load_spec(tmp_path / "defs.yaml").registry
    assert registry is not None
    assert registry.password == "hunter2"
