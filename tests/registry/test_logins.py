"""The logins of a registry, on a real HTTPS server, and the provider that gives tokens."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contracts.registry_contract import named
from tests.kafka.listener import TLS, server_context
from tests.kafka.oidc import CLIENT, SECRET, Provider
from tests.kafka.tokens import TokenIssuer
from tests.registry.server import Fault, RegistryServer
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError, UnreachableError, WindrowError
from windrow.ingest.registry.client import Registry
from windrow.ingest.registry.settings import RegistrySpec, registry_of
from windrow.ingest.settings import secrets
from windrow.ingest.settings.logins import OidcLogin
from windrow.ingest.settings.secrets import InCommand, InEnvironment, InFile, read

CA = str(TLS / "broker.pem")
SPEC = {
    "id": "things",
    "source": {"topic": "things"},
    "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z"},
    "decode": {"format": "avro-confluent", "schema": "a.b:C"},
    "sink": {"path": "table"},
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry by HTTPS with one schema."""
    with RegistryServer(tls=server_context()) as server:
        server.register("s", named("R"))
        yield server


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def running_provider(tokens: TokenIssuer) -> Iterator[Provider]:
    """A provider whose tokens are valid for an hour."""
    with Provider(tokens, 3600).running() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: Provider) -> Provider:
    """The provider, which has given no token yet."""
    running_provider.scopes.clear()
    return running_provider


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's secret."""
    monkeypatch.setenv("CLIENT_SECRET", SECRET)


def test_a_clients_certificate(tmp_path: Path) -> None:
    """A registry gets the client's certificate, from files beside the spec.

    Without it, TLS fails before any HTTP request.
    """
    for name in ("broker.pem", "broker.key.pem"):
        (tmp_path / name).write_bytes((TLS / name).read_bytes())
    with RegistryServer(tls=server_context(asks_clients=True)) as server:
        server.register("s", named("R"))
        settings = {"url": server.url, "ca": "broker.pem", "retries": 0, "timeout": "5s"}
        own = {"certificate": "broker.pem", "key": "broker.key.pem"}
        with pytest.raises(UnreachableError, match="no answer"):
            registry_of(RegistrySpec.model_validate(settings), tmp_path).schema("1")
        assert server.requested_paths == []
        assert registry_of(RegistrySpec.model_validate(settings | own), tmp_path).schema("1")


def test_a_token_that_is_renewed(server: RegistryServer, tmp_path: Path) -> None:
    """A token in a file is the newest one at each request; the registry of Confluent Cloud hears
    for which cluster and identity pool it is, and no error and no pickle has it.
    """
    file = tmp_path / "token"
    registry = registry_of(
        RegistrySpec.model_validate(
            {
                "url": server.url,
                "ca": CA,
                "token": {"file": "token"},
                "logical_cluster": "lsrc-1",
                "identity_pool": "pool-2",
            }
        ),
        tmp_path,
    )
    for token in ("first-canary", "second-canary"):
        file.write_text(f"{token}\n")
        server.authorization = f"Bearer {token}"
        assert registry.schema("1")
        assert server.last_headers["target-sr-cluster"] == "lsrc-1"
        assert server.last_headers["confluent-identity-pool-id"] == "pool-2"
        assert token.encode() not in pickle.dumps(registry)
    server.faults = {
        "/schemas/ids/2": Fault(400, b'{"error_code": 42, "message": "no second-canary"}')
    }
    with pytest.raises(WindrowError, match=r"400: no \*\*\*") as refused:
        registry.schema("2")
    assert "canary" not in f"{refused.value}{registry!r}{registry.reveal()!r}"
    server.faults, server.authorization = {}, "Bearer third"
    server.requested_paths.clear()
    with pytest.raises(SpecError, match="Check how windrow signs in"):
        registry.schema("2")
    assert server.requested_paths == ["/schemas/ids/2"]  # the file has no other token


def test_a_refused_token_of_a_command(server: RegistryServer, tmp_path: Path) -> None:
    """The program runs again, once for each schema, and what it prints then is sent."""
    program = tmp_path / "token.py"
    program.write_text(
        "from pathlib import Path\nfile = Path('count')\n"
        "count = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(count))\nprint('t%d' % count)\n".replace(
            "'count'", repr(str(tmp_path / "count"))
        )
    )
    command = InCommand((sys.executable, str(program)), (), 300)
    registry = Registry(server.url, ca=CA, token=command)
    server.authorization = "Bearer t2"
    assert registry.schema("1")
    assert server.requested_paths == ["/schemas/ids/1"] * 2
    server.authorization = "Bearer never"
    with pytest.raises(SpecError, match="answered 401"):
        registry.schema("2")
    assert (tmp_path / "count").read_text() == "3"


def test_a_token_of_a_command_that_is_nearly_over(tokens: TokenIssuer, tmp_path: Path) -> None:
    """A JWT is kept until a minute before its end, however long the command's own lifetime is."""
    file = tmp_path / "token"
    command = InCommand((sys.executable, "-c", f"print(open({str(file)!r}).read())"), (), 300)
    for first_seconds, is_kept in ((30, False), (200, True)):
        first = tokens.issue(first_seconds)
        file.write_text(first)
        assert read(command, "token", renewed=True) == first
        file.write_text(tokens.issue(3600))
        assert (read(command, "token") == first) is is_kept


def oidc(provider: Provider, **more: Any) -> OidcLogin:
    secret = InEnvironment("CLIENT_SECRET")
    settings = {"token_url": provider.token_url, "client_id": CLIENT, "client_secret": secret}
    return OidcLogin(**settings | {"ca": CA} | more)


def test_a_provider_of_tokens(
    server: RegistryServer, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is kept for four fifths of its lifetime; one that the registry refuses is
    replaced by a new one, once.
    """
    sent: list[str] = []
    monkeypatch.setattr(
        server, "answer", lambda *_: sent.append(server.last_headers["authorization"]) or (404, {})
    )
    registry = Registry(server.url, ca=CA, oauth=oidc(provider, scope="registry"))

    def ask() -> str:
        with pytest.raises(UnreachableError, match="404"):
            registry.schema("1")
        return sent[-1]

    first = ask()
    assert first.startswith("Bearer ")
    assert (ask(), provider.scopes) == (first, ["registry"])
    clock = time.monotonic() + 0.8 * 3600
    with monkeypatch.context() as later:
        later.setattr(secrets, "time", SimpleNamespace(monotonic=lambda: clock))
        registry.reveal()
    assert len(provider.scopes) == 2
    server.authorization = "Bearer never"
    with pytest.raises(SpecError, match="answered 401"):
        registry.schema("1")
    assert len(provider.scopes) == 3


def test_a_provider_that_refuses(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong secret is an error of the settings. An untrusted server is sent no secret."""
    monkeypatch.setenv("CLIENT_SECRET", "C4nary-wrong")
    registry = Registry("https://127.0.0.1:1", oauth=oidc(provider), retries=0)
    with pytest.raises(SpecError, match="refuses the login: invalid_client") as refused:
        registry.reveal()
    assert "C4nary" not in str(refused.value)
    with pytest.raises(UnreachableError, match="its certificate isn't trusted"):
        replace(registry, oauth=oidc(provider, ca=None)).reveal()
    with pytest.raises(UnreachableError, match="gives no token: it answered 307"):
        replace(registry, oauth=oidc(provider, token_url=provider.redirecting_url)).reveal()
    assert provider.scopes == []


HOSTILE = {
    "a redirect with a token": (
        Fault(302, b'{"access_token": "x"}', {"Location": "https://169.254.169.254/"}),
        "it answered 302",
    ),
    "down": (Fault(503), "it answered 503"),
    "a page": (Fault(200, b"<html>sign in</html>"), "ValueError"),
    "a list": (Fault(200, b'["access_token"]'), "Error"),
    "no token": (Fault(200, b"{}"), "ValidationError"),
    "an empty token": (Fault(200, b'{"access_token": ""}'), "ValidationError"),
    "a token for no time": (
        Fault(200, b'{"access_token": "x", "expires_in": -1}'),
        "ValidationError",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_provider(name: str) -> None:
    """It gives no token, and its answer is in no error."""
    fault, reason = HOSTILE[name]
    retries = 1 if name == "down" else 0
    with RegistryServer(tls=server_context()) as server:
        server.faults = {"/token": fault}
        login = OidcLogin(
            token_url=f"{server.url}/token",
            client_id=CLIENT,
            client_secret=InEnvironment("CLIENT_SECRET"),
            ca=CA,
        )
        registry = Registry("https://127.0.0.1:1", oauth=login, timeout=0.2, retries=retries)
        with pytest.raises(UnreachableError, match=f"gives no token: .*{reason}") as refused:
            registry.reveal()
        assert "sign in" not in str(refused.value)
        assert server.requested_paths == ["/token"] * (retries + 1)


def write_shared(folder: Path, registry: str) -> None:
    (folder / "windrow.yaml").write_text(
        f"clusters:\n  prod:\n    bootstrap_servers: kafka:9092\n    registry: {registry}\n"
    )


def test_a_provider_in_a_windrow_yaml(tmp_path: Path) -> None:
    """The cluster's registry has the login, with files beside the spec. It may have commands."""
    oauth = (
        "{method: oidc, token_url: 'https://idp/token', client_id: me, client_secret: {file: s},"
        " ca: ca.pem}"
    )
    spec = SPEC | {"source": {"topic": "things", "cluster": "prod"}}
    write_shared(tmp_path, f"{{url: 'https://registry', oauth: {oauth}}}")
    registry = parse_spec(spec, tmp_path).registry
    assert registry is not None
    assert registry.oauth == OidcLogin(
        token_url="https://idp/token",
        client_id="me",
        client_secret=InFile(str(tmp_path / "s")),
        ca=str(tmp_path / "ca.pem"),
    )
    write_shared(tmp_path, "{url: 'https://registry', token: {command: [get-token]}}")
    registry = parse_spec(spec, tmp_path).registry
    assert registry == Registry("https://registry", token=InCommand(("get-token",), (), 300))


OAUTH = {
    "method": "oidc",
    "token_url": "https://idp/token",
    "client_id": "me",
    "client_secret": {"env": "S"},
}
COMMAND = {"command": ["touch", "canary"]}
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PLAIN = BEARER | {"sasl.mechanism": "PLAIN", "sasl.username": "me"}


@pytest.mark.parametrize(
    ("path", "section"),
    [
        ("source.registry.oauth", {"source": {"registry": {"url": "https://r", "oauth": OAUTH}}}),
        (
            "source.registry.token",
            {"source": {"registry": {"url": "https://r", "token": COMMAND}}},
        ),
        ("source.client.oauth", {"source": {"client": BEARER | {"oauth": OAUTH}}}),
        ("source.client.sasl.password", {"source": {"client": PLAIN | {"sasl.password": COMMAND}}}),
        (
            "transform.steps.0.from.token",
            {
                "transform": {
                    "steps": [
                        {
                            "lookup": "geo",
                            "key": {"ip": "ip"},
                            "take": {"n": "n"},
                            "from": {
                                "http": "https://geo/{ip}",
                                "schema": "a.b:C",
                                "token": COMMAND,
                            },
                        }
                    ]
                }
            },
        ),
    ],
)
def test_a_spec_runs_no_program_and_names_no_provider(
    path: str, section: dict[str, Any], tmp_path: Path
) -> None:
    """Who may write a spec gets a sentence that says where such a setting stands."""
    source = {"topic": "things", "bootstrap_servers": "kafka:9092"}
    written = SPEC | section | {"source": source | section.get("source", {})}
    with pytest.raises(SpecError) as refused:
        parse_spec(written, tmp_path)
    assert f"{path}: belongs into a windrow.yaml" in str(refused.value)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        (
            {"token": {"env": "T"}, "username": "me", "password": {"env": "P"}},
            "registry.token: can't be combined with password",
        ),
        ({"oauth": OAUTH, "token": {"env": "T"}}, "registry.oauth: can't be combined with token"),
        ({"url": "http://r", "token": {"env": "T"}}, "would send the token unencrypted"),
        ({"url": "http://r", "oauth": OAUTH}, "would send the token unencrypted"),
        ({"token": "canary"}, "registry.token: is written out"),
        ({"identity_pool": "pool-1"}, "registry.identity_pool: goes with token or oauth"),
        ({"oauth": OAUTH | {"token_url": "http://idp"}}, "token_url must begin with https://"),
        (
            {"oauth": OAUTH | {"client_secret": "canary"}},
            "registry.oauth: is no login: client_secret is a secret",
        ),
        ({"oauth": {"method": "aws_msk_iam", "region": "x"}}, "must be {method: oidc"),
        ({"oauth": OAUTH | {"extensions": {"logicalCluster": "l"}}}, "must be {method: oidc"),
        ({"oauth": "canary"}, "registry.oauth: is no login"),
    ],
)
def test_mistakes_in_a_login(registry: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Each is told when the file is read, without what may be secret."""
    section = {"url": "https://r", **registry}
    (tmp_path / "windrow.yaml").write_text(
        repr({"clusters": {"prod": {"bootstrap_servers": "kafka:9092", "registry": section}}})
    )
    with pytest.raises(SpecError) as refused:
        parse_spec(SPEC | {"source": {"topic": "things", "cluster": "prod"}}, tmp_path)
    assert message in str(refused.value)
    assert "canary" not in str(refused.value)
