"""Kafka clusters with TLS and logins, and clusters whose brokers restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.listener import TLS
from tests.kafka.produce import create_topic
from tests.kafka.secure import SecureBroker, certificate, client
from tests.kafka.two_brokers import TwoBrokers
from tests.sinks.kafka.world import KafkaBoth, options_of, origin_of, read_committed
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.embedded.server import find_jars
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker that requires TLS, and a login or a certificate."""
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as broker:
        assert isinstance(broker, SecureBroker)
        yield broker


def sink_on(servers: str, user: dict[str, object], topic: str, folder: Path) -> Any:
    """Returns a sink for an existing topic."""
    connection = ClusterConnection(servers, user)  # type: ignore[arg-type]
    return KafkaBoth(connection, options_of(topic, str(folder / "staging")), ROWS)


@pytest.mark.some(1)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "files", "texts", "PKCS#12"])
def test_tls_with_a_login_or_a_certificate(
    secure: SecureBroker, tmp_path: Path, mechanism: str
) -> None:
    """A window is published with each login mechanism, and with each form of a client
    certificate.
    """
    login = mechanism in {"SCRAM-SHA-512", "PLAIN"}
    user = client() | {"sasl.mechanism": mechanism} if login else certificate(mechanism)
    topic = create_topic(secure.bootstrap, 2)
    sink = sink_on(secure.secure if login else secure.mutual, user, topic, tmp_path)
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0, dead=False)), Done)
    assert len(list(read_committed(secure.bootstrap, topic))) == 20


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ({"security.protocol": "SSL", "ssl.ca.location": str(TLS / "broker.pem")}, "certificate"),
        (certificate("files") | {"ssl.ca.location": str(TLS / "other.pem")}, "ssl.ca.location"),
    ],
    ids=["none", "of another authority"],
)
def test_a_certificate_that_is_missing_or_wrong(
    secure: SecureBroker, tmp_path: Path, user: dict[str, object], reason: str
) -> None:
    """A missing or wrong certificate raises SpecError before anything is published."""
    topic = create_topic(secure.bootstrap, 1)
    with pytest.raises(SpecError) as raised:
        sink_on(secure.mutual, user, topic, tmp_path).prepare()
    assert reason in str(raised.value)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_brokers_are_rolled_while_windows_are_published(tmp_path: Path) -> None:
    """Each message is there once after each broker was restarted, so that all topics and the
    transaction coordinator changed leaders.

    A run that couldn't reach a broker in time is run again, as its advice says.
    """
    with TwoBrokers(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        new = NewTopic("out", 2, 2, config={"retention.ms": "-1"})
        admin.create_topics([new])["out"].result(30)
        cluster.until_whole("out")
        sink, number = sink_on(cluster.bootstrap, {}, "out", tmp_path), 0
        sink.prepare()
        advices = list[str]()
        rolling = threading.Thread(target=cluster.roll)
        rolling.start()
        while rolling.is_alive():
            deadline = time.monotonic() + 300
            for retry in count():
                staged_window = staged_receipt(sink, number, 0, f"a{retry}", dead=False)
                try:
                    sink.commit(*staged_window)
                    break
                except UnreachableError as error:
                    advices.append(error.advice.lower())
                    assert time.monotonic() < deadline, f"window {number} can't be published"
            number += 1
        rolling.join(300)
        origins = [origin_of(message) for message in read_committed(cluster.bootstrap, "out")]
    assert len(origins) == len(set(origins)) == 20 * number > 0
    assert all("again" in advice for advice in advices), advices
