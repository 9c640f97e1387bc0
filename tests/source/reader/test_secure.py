"""Reading by TLS and a login, on a real broker that requires both, with each client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs, Sent
from tests.contracts.reader_contract import messages_in, plan_of
from tests.contracts.reading import batches_of
from tests.kafka.listener import TLS
from tests.kafka.secure import SecureBroker, certificate, client
from tests.source.reader.clients import WAYS
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.kafka.embedded.server import find_jars
from windrow.ingest.kafka.identity import is_client_refused
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.source.reader.fetching import Start
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as server:
        assert isinstance(server, SecureBroker)
        yield server


def write_log(server: SecureBroker) -> tuple[Logs, TopicPartition]:
    """Writes a log without TLS, and returns it."""
    logs = Logs(KafkaCluster(server.bootstrap))
    tp = logs.partition()
    logs.send(tp, *[Sent(b"value %d" % n * 50, b"key", headers=(("h", b"1"),)) for n in range(500)])
    return logs, tp


@pytest.mark.parametrize("client_name", WAYS)
def test_messages_through_tls_and_a_login(client_name: str, server: SecureBroker) -> None:
    """All messages arrive by TLS and a login."""
    logs, tp = write_log(server)
    broker = KafkaBroker(server.secure, client())
    reader = KafkaReader(
        consumer_properties(server.secure, client()),
        plan_of(broker, tp),
        fetching=WAYS[client_name],
    )
    assert messages_in(batches_of(reader, Split(tp.topic, 0, 0, 500))) == logs.visible_messages(
        tp, 0, 500
    )


@pytest.mark.parametrize("form", ["files", "texts", "PKCS#12"])
@pytest.mark.parametrize("client_name", WAYS)
def test_messages_by_a_certificate(client_name: str, form: str, server: SecureBroker) -> None:
    """A client with a certificate instead of a login reads all messages."""
    logs, tp = write_log(server)
    user = certificate(form)
    plan = plan_of(KafkaBroker(server.mutual, user), tp)
    reader = KafkaReader(consumer_properties(server.mutual, user), plan, fetching=WAYS[client_name])
    assert messages_in(batches_of(reader, Split(tp.topic, 0, 0, 500))) == logs.visible_messages(
        tp, 0, 500
    )


@pytest.mark.parametrize("client_name", WAYS)
def test_a_wrong_password_where_the_task_runs(client_name: str, server: SecureBroker) -> None:
    """A wrong password raises SpecError where the task runs, without the password."""
    _, tp = write_log(server)
    plan = plan_of(KafkaBroker(server.secure, client()), tp)
    reader = KafkaReader(
        consumer_properties(server.secure, client("hunter2")), plan, fetching=WAYS[client_name]
    )
    with pytest.raises(SpecError, match="refuses to let this client read") as refused:
        batches_of(reader, Split(tp.topic, 0, 0, 500))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("client_name", WAYS)
@pytest.mark.parametrize(
    "wrong_properties", [client("hunter2"), client(ca=TLS / "other.pem")], ids=["password", "ca"]
)
def test_a_client_that_is_turned_away_says_why(
    client_name: str, wrong_properties: dict[str, object], server: SecureBroker
) -> None:
    """A client that is refused gets an error or an event that says so, also if its first
    request was accepted.
    """
    heard: list[KafkaError] = []
    deadline = time.monotonic() + 30
    with closing(
        WAYS[client_name](
            consumer_properties(server.secure, wrong_properties),
            Start("t", 0, 0, None),
            heard.append,
        )
    ) as fetcher:
        while not any(map(is_client_refused, heard)):
            assert time.monotonic() < deadline, heard
            heard.extend(error for error, _ in fetcher.poll(10, 10).events)
