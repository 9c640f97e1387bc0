"""Transactions by Kafka's own requests, on a real broker: fenced, ended and found as
librdkafka's are, and beside those.
"""

from __future__ import annotations

import gc
import signal
import ssl
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from kafka.net.transport import KafkaSSLTransport

from tests.kafka.listener import TLS
from tests.kafka.produce import create_topic
from tests.kafka.secure import SecureBroker, client
from tests.sinks.kafka.world import committed
from windrow.ingest.kafka.client import admin_properties
from windrow.ingest.kafka.embedded.server import find_jars
from windrow.ingest.kafka.record_batch import Batching, Messages
from windrow.ingest.kafka.transaction import LibrdkafkaTransaction, TransactionError
from windrow.ingest.kafka.wire import answer_of, reachable, tls_context
from windrow.ingest.kafka.wire_transaction import SentBatch, WireTransaction
from windrow.ingest.model.boundary import TopicPartition

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TIMEOUT_MS = 60_000


def begun(bootstrap: str, name: str, *, user: dict[str, object] | None = None) -> WireTransaction:
    """One that has its id."""
    made = WireTransaction(admin_properties(bootstrap, user or {}), name, TIMEOUT_MS, 30.0)
    made.fence("")
    made.begin()
    return made


def send(
    transaction: WireTransaction, topic: str, values: Sequence[bytes], partition: int = 0
) -> list[SentBatch]:
    """Messages, and where they are."""
    n = len(values)
    messages = Messages(
        pa.array(values, pa.binary()),
        pa.nulls(n, pa.binary()),
        [],
        [],
        np.full(n, 1_767_603_600_000),
    )
    tp = TopicPartition(topic, partition)
    transaction.add([tp])
    for batch in Batching(1 << 20).batches(messages, np.arange(n)):
        transaction.send(tp, batch)
    return transaction.sent()


def seen(bootstrap: str, topic: str) -> list[bytes | None]:
    """What readers of committed messages see, once nothing is open."""
    return [message.value() for message in committed(bootstrap, topic)]


@pytest.fixture
def topic(kafka: str) -> str:
    """One topic-partition of a test's own, whose name is its transactional id, too."""
    return create_topic(kafka, 1)


def test_batches_follow_each_other(kafka: str, topic: str) -> None:
    """More requests than wait beside each other, in their order, and where each lies is told."""
    one = begun(kafka, topic)
    written = [place for n in range(12) for place in send(one, topic, [b"%d" % n] * 3)]
    one.write(topic, [(b"k", b"record"), (b"gone", None)], [("h", b"x")])
    one.commit()
    one.leave()
    assert [(w.first, w.last) for w in written] == [(3 * n, 3 * n + 2) for n in range(12)]
    assert seen(kafka, topic) == [b"%d" % n for n in range(12) for _ in range(3)] + [
        b"record",
        None,
    ]


def test_records_where_batches_are_packed_anew(kafka: str) -> None:
    """Parts of a long record: a batch of them is held to max.message.bytes also as the
    broker stores it, which may be without LZ4.
    """
    topic = create_topic(
        kafka, 1, {"compression.type": "uncompressed", "cleanup.policy": "compact"}
    )
    one, parts = begun(kafka, topic), [b"%d" % n + b"long" * 125_000 for n in range(4)]
    one.write(topic, [(b"k%d" % n, part) for n, part in enumerate(parts)], [])
    one.commit()
    one.leave()
    assert seen(kafka, topic) == parts


@pytest.mark.some(2)
@pytest.mark.parametrize("step", ["send", "add", "commit"])
@pytest.mark.parametrize("by", ["itself", "librdkafka"])
def test_who_is_fenced_can_do_nothing_more(kafka: str, topic: str, step: str, by: str) -> None:
    """1 A sends.  2 B takes the id.  3 Whatever A does next is refused as of one that
    was fenced, and B's alone is visible.
    """
    one = begun(kafka, topic)
    send(one, topic, [b"A"])
    two = begun(kafka, topic) if by == "itself" else librdkafka(kafka, topic)
    steps = {
        "send": lambda: send(one, topic, [b"A again"]),
        "add": lambda: one.add([TopicPartition(create_topic(kafka, 1), 0)]),
        "commit": one.commit,
    }
    with pytest.raises(TransactionError) as refused:
        steps[step]()
    assert refused.value.kind == "fenced"
    one.leave()
    two.write(topic, [(b"k", b"B")], [])
    two.commit()
    two.leave()
    assert seen(kafka, topic) == [b"B"]


def librdkafka(bootstrap: str, name: str) -> LibrdkafkaTransaction:
    """One of librdkafka's that has its id."""
    made = LibrdkafkaTransaction(
        {**admin_properties(bootstrap, {}), "transaction.timeout.ms": TIMEOUT_MS}, name, 30.0
    )
    made.fence(name)
    made.begin()
    return made


def test_it_fences_librdkafka(kafka: str, topic: str) -> None:
    """An older run, or one that goes message by message, is fenced by it as by its own kind."""
    one = librdkafka(kafka, topic)
    one.write(topic, [(b"k", b"A")], [])
    two = begun(kafka, topic)
    with pytest.raises(TransactionError) as refused:
        one.commit()
    assert refused.value.kind == "fenced"
    one.leave()
    send(two, topic, [b"B"])
    two.commit()
    two.leave()
    assert seen(kafka, topic) == [b"B"]


def test_what_is_given_up_holds_no_reader_back(kafka: str, topic: str) -> None:
    """Who leaves before the commit ends the transaction, so what another one writes
    behind it is seen at once.
    """
    one = begun(kafka, topic)
    send(one, topic, [b"given up"])
    one.leave()
    plain = Producer({"bootstrap.servers": kafka})
    plain.produce(topic, b"behind")
    assert plain.flush(30) == 0
    assert seen(kafka, topic) == [b"behind"]


def test_what_a_dead_one_left_is_ended_by_the_next(kafka: str, topic: str) -> None:
    """Its connections are gone, and nobody has ended what it had open."""
    one = begun(kafka, topic)
    send(one, topic, [b"open"])
    one.wire.close()
    two = begun(kafka, topic)
    send(two, topic, [b"next"])
    two.commit()
    two.leave()
    assert seen(kafka, topic) == [b"next"]


def test_what_is_not_there_is_refused(kafka: str, topic: str) -> None:
    """A topic-partition that nobody has."""
    one = begun(kafka, topic)
    with pytest.raises(TransactionError) as refused:
        send(one, topic, [b"lost"], partition=7)
    assert refused.value.kind == "failed"
    one.leave()


def refusal(transaction: WireTransaction) -> tuple[str, str]:
    """What is said where it can't even be begun: the kind, and the words."""
    with pytest.raises(TransactionError) as refused:
        transaction.fence("")
    transaction.leave()
    return refused.value.kind, refused.value.text


@pytest.fixture
def unconnected() -> Iterator[None]:
    """kafka-python leaves sockets that never came to connect to the garbage collector,
    which would say so in another test.
    """
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        yield
        gc.collect()


@pytest.mark.usefixtures("unconnected")
def test_nobody_answers() -> None:
    """It is told in time, not waited for."""
    kind, _ = refusal(
        WireTransaction(admin_properties("127.0.0.1:1", {}), "nobody", TIMEOUT_MS, 0.5)
    )
    assert kind == "failed"


class Interrupted(BaseException):
    """As the command raises it where Ctrl-C is pressed."""


def test_an_interrupt_is_raised_where_it_waits(kafka: str, topic: str) -> None:
    """1 The broker is silent.  2 Ctrl-C is pressed.  3 The run ends by it, at once, and
    no step is said to have failed instead.
    """
    one = begun(kafka, topic)

    def interrupted(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupted)
    try:
        one.wire.wait(
            [
                one.wire.manager.call_soon(
                    lambda: [c.pause("a test") for c in one.wire.manager._conns.values()]  # noqa: SLF001
                )
            ]
        )
        # to the thread that waits, as Ctrl-C: a signal to another one doesn't wake it
        main = threading.main_thread().ident
        threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        with pytest.raises(Interrupted):
            send(one, topic, [b"never"])
    finally:
        signal.signal(signal.SIGUSR1, before)
        one.wire.close()


def test_a_paused_connection_is_waited_for(kafka: str, topic: str) -> None:
    """A quota, or a network that is slower than what is sent, ends no transaction; the
    order stays.
    """
    one = begun(kafka, topic)
    send(one, topic, [b"first"])
    wire = one.wire

    def pause() -> None:
        for connection in wire.manager._conns.values():  # noqa: SLF001
            connection.pause("a test")
            wire.net.call_later(0.3, lambda c=connection: c.unpause("a test"))

    paused = wire.manager.call_soon(pause)
    wire.wait([paused])
    answer_of(paused)
    send(one, topic, [b"second"])
    send(one, topic, [b"third"])
    one.commit()
    one.leave()
    assert seen(kafka, topic) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("where", ["probe", "a folder"])
def test_authorities_are_found_where_librdkafka_finds_them(where: str, tmp_path: Path) -> None:
    """In a folder, or where the system has them."""
    context = tls_context({"ssl.ca.location": where if where == "probe" else str(tmp_path)})
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_an_authority_that_is_not_there_fails_as_a_step(tmp_path: Path) -> None:
    """So the other way of publishing is tried, and says what is wrong."""
    properties = admin_properties("127.0.0.1:1", client(ca=tmp_path / "none.pem"))
    kind, text = refusal(WireTransaction(properties, "x", TIMEOUT_MS, 0.5))
    assert kind == "failed"
    assert "ssl.ca.location" in text


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker that asks for TLS and a login."""
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("ca", ["location", "pem"])
def test_tls_and_a_login(secure: SecureBroker, mechanism: str, ca: str) -> None:
    """It comes in by the properties that librdkafka comes in by."""
    topic = create_topic(secure.bootstrap, 1)
    user = client() | {"sasl.mechanism": mechanism}
    if ca == "pem":
        user = {name: value for name, value in user.items() if name != "ssl.ca.location"} | {
            "ssl.ca.pem": (TLS / "broker.pem").read_text()
        }
    one = begun(secure.secure, topic, user=user)
    send(one, topic, [b"in"])
    one.commit()
    one.leave()
    assert seen(secure.bootstrap, topic) == [b"in"]


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize(
    "wrong", [{"sasl.password": "another"}, {"ssl.ca.location": str(TLS / "other.pem")}]
)
def test_who_may_not_come_in_says_no_secret(secure: SecureBroker, wrong: dict[str, object]) -> None:
    """Another authority's certificate ends it in time, a wrong password at once, for
    asking again may lock the account; none is told.
    """
    login, began = "sasl.password" in wrong, time.monotonic()
    kind, text = refusal(
        WireTransaction(
            admin_properties(secure.secure, client() | wrong),
            "x",
            TIMEOUT_MS,
            60.0 if login else 1.0,
        )
    )
    assert kind == ("denied" if login else "failed")
    assert time.monotonic() - began < 30
    assert "another" not in text


def test_a_refused_login_is_seen_where_the_broker_hangs_up(
    secure: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 The broker refuses the login and closes the connection.  2 The client is slow
    and receives both at once.  3 It doesn't log in a second time.
    """
    connections = set[KafkaSSLTransport]()

    def late(self: KafkaSSLTransport) -> tuple[bytes, Exception | None]:
        connections.add(self)
        time.sleep(0.5)
        received: tuple[bytes, Exception | None] = receive(self)
        return received

    receive = KafkaSSLTransport._sock_recv  # noqa: SLF001
    monkeypatch.setattr(KafkaSSLTransport, "_sock_recv", late)
    user = admin_properties(secure.secure, client(password="another"))
    kind, _ = refusal(WireTransaction(user, "x", TIMEOUT_MS, 20.0))
    assert kind == "denied"
    assert len(connections) == 1


def test_what_it_does_not_know_is_left_to_librdkafka() -> None:
    """A property that kafka-python has no word for isn't ignored: the cluster is
    reached by librdkafka alone.
    """
    assert reachable(admin_properties("b:1", client()))
    assert reachable(admin_properties("b:1", {}))
    for more in (
        {"ssl.crl.location": "x"},
        {"ssl.certificate.location": "x"},
        {"broker.address.family": "v4"},
    ):
        assert not reachable(admin_properties("b:1", client() | more))
