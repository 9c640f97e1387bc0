"""Connections to Kafka's brokers, for requests that librdkafka has no call for.

librdkafka can't send batches of records that are encoded already. Connections, TLS,
logins and the encoding of requests are kafka-python's. The caller chooses the requests
and interprets the answers.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError

from windrow.ingest.kafka.codes import LOGIN
from windrow.ingest.kafka.properties import Value
from windrow.ingest.model.boundary import TopicPartition

_LOG = logging.getLogger("kafka")
if _LOG.level == logging.NOTSET:  # else somebody has chosen a level
    # kafka-python logs payloads at a low level; each step here raises its own errors
    _LOG.setLevel(logging.CRITICAL + 1)
_SETTINGS = {
    "client.id": "client_id",
    "client.dns.lookup": "client_dns_lookup",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "security.protocol": "security_protocol",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
}
"""kafka-python's name of each of librdkafka's properties."""

_TLS = frozenset({"ssl.ca.location", "ssl.ca.pem"})
_WITHOUT_EFFECT = frozenset(
    {
        "bootstrap.servers",
        "allow.auto.create.topics",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "log.connection.close",
        "log_level",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
    }
)
"""Properties that change nothing for these connections.

They are passed in another way, or are about consumers, or about connections that live
longer than these.
"""

_BOOTSTRAP_SECONDS = 5.0
"""Seconds in which one bootstrap server is asked for the brokers before the next one is."""

_PAUSE_SECONDS = 0.002
_CLOSE_SECONDS = 5.0


class WireError(Exception):
    """A request that was refused, or had no answer; `code` is Kafka's error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code

    @property
    def error(self) -> KafkaError:
        """The same as an error of librdkafka."""
        return KafkaError(self.code, str(self))


def reachable(properties: Mapping[str, Value]) -> bool:
    """Returns whether kafka-python can reach a cluster by these properties.

    It doesn't know all of librdkafka's properties, and none of the user's is ignored.
    """
    return not properties.keys() - _SETTINGS.keys() - _TLS - _WITHOUT_EFFECT


class Wire:
    """Connections to the brokers of a cluster.

    Used by one thread. The network has a thread of its own, so that Ctrl-C is raised in
    the thread that waits, and not inside kafka-python.

    Args:
        properties: an AdminClient's properties, for which `reachable` is true.
        patience: how long to wait for an answer at most, in seconds.
    """

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        self._properties, self._patience = properties, patience
        self.net: Any = None
        self.manager: Any = None

    def ask(self, request: Any, node: int | None = None, *, seconds: float | None = None) -> Any:
        """Sends a request and waits for its answer.

        Args:
            request: kafka-python's request.
            node: the broker's number; None: any broker.
            seconds: how long to wait, if not for the whole patience.

        Raises:
            WireError: no answer in time.
        """
        future = self.send(request, node, seconds=seconds)
        self.wait([future], seconds)
        return answer_of(future)

    def send(self, request: Any, node: int | None = None, *, seconds: float | None = None) -> Any:
        """Sends a request behind those that were sent before; returns its future.

        `wait` waits for the future, `answer_of` gives its answer.

        Raises:
            WireError: the cluster doesn't answer.
        """
        self._bootstrap(seconds)
        sent = self.manager.call_soon(self._send, request, node)
        self.wait([sent], seconds)
        [future] = answer_of(sent)
        return future

    async def _send(self, request: Any, node: int | None) -> list[Any]:
        """Sends a request in the network's thread; returns its future, in a list.

        A connection that is paused, by a quota or a full buffer, would refuse the
        request, so this waits until it is not. The list keeps kafka-python from waiting
        for the future as well.
        """
        chosen = self.manager.least_loaded_node() if node is None else node
        connection = self.manager.get_connection(chosen)
        while connection.paused and not connection.closed:
            await self.net.sleep(_PAUSE_SECONDS)
        return [connection.send_request(request)]

    def wait(self, futures: Iterable[Any], seconds: float | None = None) -> None:
        """Waits until each future has an answer or an error.

        Raises:
            WireError: it takes longer than `seconds`, or than the whole patience.
        """
        deadline = time.monotonic() + (self._patience if seconds is None else seconds)
        for future in futures:
            answered = threading.Event()
            future.add_both(lambda *_, answered=answered: answered.set())
            if not answered.wait(max(0.0, deadline - time.monotonic())):
                raise WireError(KafkaError._TIMED_OUT, "no answer in time")

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Numbers of the leaders of the topics' partitions, where there is a leader.

        Raises:
            WireError: a topic doesn't exist, or this client may not see it.
        """
        from kafka.protocol.metadata import MetadataRequest

        asked = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in topics]
        found = self.ask(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False, max_version=8)
        )
        leaders: dict[TopicPartition, int] = {}
        for topic in found.topics:
            raise_error(topic.error_code, f"the topic {topic.name}")
            leaders |= {
                TopicPartition(topic.name, p.partition_index): int(p.leader_id)
                for p in topic.partitions
                if p.leader_id >= 0
            }
        return leaders

    def coordinator(self, name: str, seconds: float) -> int:
        """Number of the broker that coordinates the transactions of an id.

        Args:
            name: the transactional id.
            seconds: how long that may take.

        Raises:
            WireError: there is no coordinator yet, or this client may not ask for it.
        """
        from kafka.protocol.metadata import FindCoordinatorRequest

        found = self.ask(
            FindCoordinatorRequest(key=name, key_type=1, max_version=2), seconds=seconds
        )
        raise_error(found.error_code, "the coordinator of transactions")
        return int(found.node_id)

    def close(self) -> None:
        """Closes the connections; requests that are under way get no answer."""
        if self.manager is None:
            return
        with suppress(WireError):
            # In this order: whoever loses a connection asks for the brokers again, unless
            # the manager is closed.
            self.wait(
                [
                    self.manager.call_soon(self.manager.close),
                    self.manager.call_soon(self._disconnect),
                ],
                _CLOSE_SECONDS,
            )
        self.net.stop(timeout_ms=int(_CLOSE_SECONDS * 1000))
        self.net.close()
        self.manager = None

    def _disconnect(self) -> None:
        """Closes all connections with an error, so that none waits to send its buffer."""
        from kafka.errors import Cancelled

        # kafka-python has no public name for all of its connections
        connections = list(self.manager._conns.values())  # noqa: SLF001
        for connection in connections:
            connection.close(Cancelled())

    def _bootstrap(self, seconds: float | None) -> None:
        """Asks the bootstrap servers for the brokers, once.

        A server that is silent doesn't use up the time of the others.

        Raises:
            WireError: no server answers; or one refuses the login, and another try
                could lock the account.
        """
        if self.manager is None:
            self.net, self.manager = self._connections()
        deadline = time.monotonic() + (
            self._patience if seconds is None else min(seconds, self._patience)
        )
        while not self.manager.bootstrapped:
            left = min(_BOOTSTRAP_SECONDS, max(0.1, deadline - time.monotonic()))
            future = self.manager.bootstrap_async(timeout_ms=int(left * 1000))
            try:
                self.wait([future], left + 1)
                answer_of(future)
            except WireError as failed:
                with suppress(WireError):
                    self.wait([self.manager.call_soon(self._disconnect)], _CLOSE_SECONDS)
                if failed.code in LOGIN or time.monotonic() >= deadline:
                    raise

    def _connections(self) -> tuple[Any, Any]:
        """Starts kafka-python's network thread; returns it, and its manager of connections."""
        from kafka.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
        from kafka.net.manager import KafkaConnectionManager
        from kafka.net.selector import NetworkSelector

        class Connections(KafkaConnectionManager):  # type: ignore[misc]  # untyped
            """kafka-python's connections, which don't repeat a login that was refused."""

            refused: Exception | None = None

            def get_connection(self, *asked: Any, **options: Any) -> Any:
                if self.refused is not None:
                    raise self.refused
                connection = super().get_connection(*asked, **options)
                connection.init_future.add_errback(self._note_refusal)
                return connection

            def _note_refusal(self, error: Exception) -> None:
                if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
                    self.refused = error

            async def _build_transport(self, *asked: Any, **options: Any) -> Any:
                """Makes a transport that loses no answer to the end of the connection.

                A broker that refuses a login answers and closes the connection at once.
                kafka-python 3.0 reads as much as it can; where it reads both, it drops
                the answer, takes the refusal for a broken connection, and logs in again.
                Here the answer is read first, and the end with the next read.
                """
                transport = await super()._build_transport(*asked, **options)
                receive = transport._sock_recv  # noqa: SLF001

                def received() -> tuple[bytes, Exception | None]:
                    data, error = receive()
                    return data, None if data else error

                transport._sock_recv = received  # noqa: SLF001
                return transport

        settings: dict[str, Any] = {
            _SETTINGS[name]: value for name, value in self._properties.items() if name in _SETTINGS
        }
        if str(settings.get("security_protocol", "")).endswith("SSL"):
            settings["ssl_context"] = tls_context(self._properties)
        servers = str(self._properties["bootstrap.servers"]).split(",")
        net = NetworkSelector(slow_task_threshold_secs=0)
        net.start()
        return net, Connections(net, bootstrap_servers=servers, **settings)


def answer_of(future: Any) -> Any:
    """Returns the answer of a future that is done.

    Raises:
        WireError: it has an error instead.
    """
    error = future.exception
    if error is None:
        return future.value
    code = getattr(type(error), "errno", None)
    if not isinstance(code, int) or code <= 0:
        code = KafkaError._TRANSPORT
    raise WireError(code, type(error).__name__)


def raise_error(code: int, what: str) -> None:
    """Raises the error that an answer has, if it has one.

    Raises:
        WireError: the code isn't 0.
    """
    if code:
        raise WireError(code, f"{what}: {KafkaError(code).str()}")


def tls_context(properties: Mapping[str, Value]) -> ssl.SSLContext:
    """Makes the TLS settings that librdkafka would have.

    The broker's certificate must be signed by the authority, for the broker's host name.

    Raises:
        WireError: the authority's certificate can't be used.
    """
    where, text = (properties.get(f"ssl.ca.{name}") for name in ("location", "pem"))
    # "probe" is librdkafka's word for the system's certificates
    place = None if where in {None, "probe"} else str(where)
    folder = place if place is not None and Path(place).is_dir() else None
    try:
        context = ssl.create_default_context(
            cafile=None if folder else place,
            capath=folder,
            cadata=None if text is None else str(text),
        )
    except (OSError, ValueError) as why:  # ssl's own errors are OSErrors
        what = f"the file or text of ssl.ca.location or ssl.ca.pem: {type(why).__name__}"
        raise WireError(KafkaError._SSL, what) from None
    # Python has this flag by default from 3.13 on, librdkafka hasn't
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
