"""Logins by token on a real broker: each client gets a new one before the old one is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs, Sent
from tests.contracts.reader_contract import plan_of
from tests.contracts.reading import batches_of
from tests.kafka.listener import TLS
from tests.kafka.oidc import CLIENT, SECRET, Provider
from tests.kafka.produce import create_topic
from tests.kafka.secure import SESSION_MS, SecureBroker
from tests.kafka.tokens import bearer
from tests.source.reader.clients import WAYS
from windrow.ingest.errors import SpecError, UnreachableError, WindrowError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import (
    admin_properties,
    consumer_properties,
    consumer_recipe,
)
from windrow.ingest.kafka.embedded.server import find_jars
from windrow.ingest.kafka.producers import ProducerMessage, TransactionalProducer
from windrow.ingest.model.plan import Split
from windrow.ingest.source.reader.fetching import Start
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = [pytest.mark.broker, pytest.mark.some(2, of="tests")]

TOKEN_SECONDS = 5
Use = Callable[[], object]
"""Uses a client once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as server:
        assert isinstance(server, SecureBroker)
        yield server


@contextmanager
def reading(fetching: str, server: SecureBroker, user: dict[str, object]) -> Iterator[Use]:
    """A reader; a call sends it a message, and waits for that."""
    logs = Logs(KafkaCluster(server.bootstrap))
    tp = logs.partition()
    errors: list[object] = []
    with closing(
        WAYS[fetching](
            consumer_properties(server.bearer, user), Start(tp.topic, 0, 0, None), errors.append
        )
    ) as fetcher:

        def read() -> None:
            logs.send(tp, Sent(b"value"))
            deadline = time.monotonic() + 30
            while not fetcher.poll(10, 1_000).count:
                assert time.monotonic() < deadline, errors

        yield read


@contextmanager
def producing(server: SecureBroker, user: dict[str, object]) -> Iterator[Use]:
    """Opens a producer; a use writes a message in a transaction."""
    topic = create_topic(server.bootstrap, 1)
    producer = TransactionalProducer(admin_properties(server.bearer, user), f"id-{topic}", 30)
    producer.fence(topic)

    def write() -> None:
        producer.begin()
        producer.write(topic, [ProducerMessage(None, b"value", ())])
        producer.commit()

    yield write
    producer.leave()


@contextmanager
def asking(server: SecureBroker, user: dict[str, object]) -> Iterator[Use]:
    """Opens a driver's client; a use asks for the topics."""
    yield KafkaBroker(server.bearer, user).names


CLIENTS = {
    **{f"reads with {name}": partial(reading, name) for name in WAYS},
    "writes": producing,
    "asks": asking,
}


def test_clients_go_on_after_their_first_token(server: SecureBroker, tmp_path: Path) -> None:
    """A client that was idle until its first token was over works on, by the file's new one."""
    file = tmp_path / "token"
    user = bearer(method="token", token={"file": str(file)})
    with server.tokens.renewing(file, TOKEN_SECONDS), ExitStack() as stack:
        uses = [stack.enter_context(client(server, user)) for client in CLIENTS.values()]
        use_beyond_a_token(uses)


@pytest.fixture(scope="module")
def provider(server: SecureBroker) -> Iterator[Provider]:
    """A provider whose tokens the broker believes."""
    with Provider(server.tokens, TOKEN_SECONDS).running() as provider:
        yield provider


@pytest.mark.parametrize("by", ["secret", "assertion"])
def test_librdkafka_renews_the_tokens_of_a_provider(
    by: str,
    server: SecureBroker,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients log in by OpenID Connect, and again before each token is over."""
    (tmp_path / "key.pem").write_bytes(provider.assertion_key.as_pem(private=True))
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    how = {
        "secret": {
            "client_id": CLIENT,
            "client_secret": {"env": "CLIENT_SECRET"},
            "scope": "kafka",
        },
        "assertion": {
            "assertion": {
                "key": {"file": str(tmp_path / "key.pem")},
                "issuer": CLIENT,
                "subject": "reader",
                "audience": provider.token_url,
            }
        },
    }[by]
    user = bearer(method="oidc", token_url=provider.token_url, ca=str(TLS / "broker.pem"), **how)
    with ExitStack() as stack:
        uses = [stack.enter_context(client(server, user)) for client in CLIENTS.values()]
        use_beyond_a_token(uses)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"client_secret": {"env": "WRONG"}},
            SpecError,
            "has no token: .*invalid_client",
        ),
        ({"token_url": "https://127.0.0.1:9/token"}, UnreachableError, "Failed to connect"),
        ({"ca": str(TLS / "other.pem")}, UnreachableError, "certificate"),
        ({"token_url": ""}, UnreachableError, "Response is not JSON"),
    ],
    ids=["secret", "address", "ca", "redirection"],
)
def test_a_provider_that_gives_no_token(
    change: dict[str, Any],
    error: type[WindrowError],
    words: str,
    server: SecureBroker,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error has the provider's words, names the setting to look at, and quotes no secret; a
    redirection isn't followed.
    """
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    monkeypatch.setenv("WRONG", "C4nary-wrong")
    login = {
        "method": "oidc",
        "token_url": provider.token_url,
        "ca": str(TLS / "broker.pem"),
        "client_id": CLIENT,
        "client_secret": {"env": "CLIENT_SECRET"},
        **change,
    }
    user = bearer(**{**login, "token_url": login["token_url"] or provider.redirecting_url})
    with pytest.raises(error, match=words) as failed:
        KafkaBroker(server.bearer, user, patience_seconds=15).cluster_id()
    assert "client.oauth" in failed.value.advice
    assert SECRET not in str(failed.value)
    assert "C4nary-wrong" not in str(failed.value)


def test_a_certificate_that_is_over_and_one_that_takes_its_place(
    server: SecureBroker, tmp_path: Path
) -> None:
    """An expired certificate is refused in a sentence that names it. Once its files are replaced,
    the same process logs in with the new one.
    """
    user = server.certificates.issue(tmp_path, -1) | {"ssl.ca.location": str(TLS / "broker.pem")}
    logs = Logs(KafkaCluster(server.bootstrap))
    tp = logs.partition()
    logs.send(tp, Sent(b"value"))
    plan = plan_of(KafkaBroker(server.bootstrap, {}), tp)
    reader = KafkaReader(consumer_recipe(server.mutual, user), plan)

    def read() -> None:
        assert len(batches_of(reader, Split(tp.topic, 0, 0, 1))) == 1

    for use in (KafkaBroker(server.mutual, user).cluster_id, read):
        with pytest.raises(SpecError, match="certificate is not accepted"):
            use()
    server.certificates.issue(tmp_path, 1)
    for use in (KafkaBroker(server.mutual, user).cluster_id, read):
        use()


def use_beyond_a_token(uses: Sequence[Use]) -> None:
    """Uses clients, leaves them idle until their token and session are over, uses them again."""
    for use in uses:
        use()
    over = threading.Event()
    over.wait(TOKEN_SECONDS + SESSION_MS / 1000)
    for use in uses:
        use()
