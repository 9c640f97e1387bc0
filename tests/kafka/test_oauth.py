"""Tokens of logins: how long they are valid, how they are signed, and what librdkafka is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import confluent_kafka as ck
import pytest
from confluent_kafka import KafkaError

from tests.config.test_logins import BEARER, LOGINS
from tests.kafka.listener import TLS
from tests.kafka.oidc import CLIENT, SECRET, Provider
from tests.kafka.tokens import TokenIssuer
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties, scrub
from windrow.ingest.kafka.error_codes import is_denied, is_login_refused
from windrow.ingest.kafka.identity import denied_error, is_client_refused
from windrow.ingest.kafka.oauth import TokenSource, login_properties
from windrow.ingest.kafka.producers import kind_of
from windrow.ingest.kafka.shared_clients import Client
from windrow.ingest.model.plan import Split
from windrow.ingest.settings.logins import MskLogin, TokenLogin, parse_login
from windrow.ingest.settings.secrets import InFile

CANARY = "C4nary-of-a-token"


@pytest.mark.parametrize("name", ["secret", "key", "signed file", "azure"])
def test_librdkafka_takes_a_login(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka knows the properties of each login that it handles itself, and no secret of them
    is in its texts.
    """
    monkeypatch.setenv("X", CANARY)
    (tmp_path / "file").write_text(CANARY)
    login = {**LOGINS[name], "ca": "/etc/ssl/certs"} if "ca" in LOGINS[name] else LOGINS[name]
    if name == "key":
        login = {**login, "assertion": {**login["assertion"], "key": {"file": f"{tmp_path}/file"}}}
    properties = consumer_properties("127.0.0.1:1", BEARER | {"oauth": login})
    ck.Consumer({**properties, "log_level": 0}).close()
    assert properties["sasl.oauthbearer.method"] == "oidc"
    if name in {"secret", "key"}:
        assert scrub(f"bad {CANARY}", properties) == "bad ***"


@pytest.mark.parametrize("name", ["secret", "azure"])
def test_wrong_certificates_beside_a_login_are_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that isn't there is told. librdkafka itself ends the process, with no error."""
    monkeypatch.setenv("X", CANARY)
    login = {**LOGINS[name], "ca": str(TLS / "broker.pem")} if name == "secret" else LOGINS[name]
    user = BEARER | {"ssl.ca.location": "/nowhere/ca.pem", "oauth": login}
    with pytest.raises(SpecError, match=r"ssl\.ca\.location failed"):
        KafkaBroker("127.0.0.1:1", user).names()


def test_without_ca_the_systems_certificates_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider gets librdkafka's request if the system trusts its certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "broker.pem"))
    monkeypatch.setenv("X", SECRET)
    with Provider(TokenIssuer(tmp_path), 3600).running() as provider:
        secret = {"client_id": CLIENT, "client_secret": {"env": "X"}}
        login = {"method": "oidc", "token_url": provider.token_url, **secret}
        properties = consumer_properties("127.0.0.1:1", BEARER | {"oauth": login})
        with closing(ck.Consumer({**properties, "log_level": 0})) as client:
            deadline = time.monotonic() + 30
            while not provider.scopes:
                assert time.monotonic() < deadline
                client.poll(0.05)


HANDSHAKE_FAILED = "mechanism handshake failed: Broker: Request not valid in current SASL state"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("Failed to acquire SASL OAUTHBEARER token: Could not connect to server", False),
        ('Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}', True),
        ('SASL authentication error: {"status":"invalid_token"}', True),
        (f"SASL OAUTHBEARER {HANDSHAKE_FAILED}", False),
        (f"SASL SCRAM-SHA-256 {HANDSHAKE_FAILED}", True),
        (
            "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: after 0ms",
            False,
        ),
    ],
)
def test_a_provider_without_an_answer_is_no_refusal(text: str, refused: bool) -> None:
    """Driver, reader and producer call a client refused by the same rule: an old token may be
    valid while the provider of tokens doesn't answer, and a second login within a second passes,
    as does a connection that breaks during a login.
    """
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert is_client_refused(error) is is_login_refused(error) is is_denied(error) is refused
    assert kind_of(error) == ("denied" if refused else "failed")


def test_a_token_that_the_cluster_refuses_leads_to_the_login() -> None:
    """Driver and reader send the user to the login by token: no other property is at fault."""
    text = 'SASL authentication error: {"status":"invalid_token"}'
    error, properties = KafkaError(KafkaError._AUTHENTICATION, text), {"bootstrap.servers": "a:1"}
    questions = Questions("a:1", Client(properties), 1)
    for told in (
        questions.error_for("the topics", None, error),
        denied_error(Split("t", 0, 0, 1), error, properties),
    ):
        assert "client.oauth" in told.advice


def test_azure_is_asked_for_a_resource() -> None:
    """The machine's metadata service gets the resource and the identity, escaped."""
    login = parse_login({**LOGINS["azure"], "identity": "a&b"})
    assert login_properties(login)["sasl.oauthbearer.config"] == (
        "query=api-version=2018-02-01&resource=https%3A%2F%2Fshop.servicebus.windows.net"
        "&client_id=a%26b"
    )


def test_how_long_a_token_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JWT says it; of another token the settings do; a token that is over is refused."""
    issuer, file, now = TokenIssuer(tmp_path), tmp_path / "token", 1_000_000.0
    monkeypatch.setattr("windrow.ingest.kafka.oauth.time.time", lambda: now)
    source = TokenSource(TokenLogin(token=InFile(str(file)), extensions={"logicalCluster": "l"}))
    file.write_text(token := issuer.issue(60))
    assert source() == (token, now + 60, "windrow", {"logicalCluster": "l"})
    file.write_text(issuer.issue(-1))
    with pytest.raises(SpecError, match="expired at 1970-01-12T13:46:39Z"):
        source()
    for opaque in (CANARY, f"{CANARY}.e30.x", f"{CANARY}.?.x"):
        file.write_text(opaque)
        with pytest.raises(SpecError, match=r"Set client\.oauth\.lifetime_seconds") as unknown:
            source()
        assert CANARY not in str(unknown.value)
    lasting = TokenSource(TokenLogin(token=InFile(str(file)), lifetime_seconds=90))
    assert lasting()[1] == now + 90


def test_a_token_for_msk_is_signed_as_aws_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is a URL whose signature is Signature Version 4's for kafka-cluster:Connect,
    computed here once more from AWS's description of it.
    """
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": "session/token+",
    }.items():
        monkeypatch.setenv(name, value)
    token = TokenSource(MskLogin(region="eu-central-1"))()[0]
    assert "=" not in token
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (parts.scheme, parts.netloc) == ("https", "kafka.eu-central-1.amazonaws.com")
    assert (query["Action"], query["X-Amz-Expires"]) == ("kafka-cluster:Connect", "900")
    assert CANARY not in url
    signature = query.pop("X-Amz-Signature")
    del query["User-Agent"]  # added after the signature, as AWS's signers do
    day = query["X-Amz-Date"][:8]
    scope = f"{day}/eu-central-1/kafka-cluster/aws4_request"
    assert query["X-Amz-Credential"] == f"AKIDEXAMPLE/{scope}"
    canonical = "&".join(
        f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items())
    )
    request = f"GET\n/\n{canonical}\nhost:{parts.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    key = f"AWS4{CANARY}".encode()
    for part in (day, "eu-central-1", "kafka-cluster", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    assert hmac.digest(key, text.encode(), "sha256").hex() == signature
