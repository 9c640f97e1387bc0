"""Kafka's own requests, each to its broker: librdkafka has no call for batches of
records that are encoded already.

Connections, TLS, logins and the form of requests are kafka-python's; which requests
there are, and what answers mean, the caller says.
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

_LOG = logging.getLogger("kafka")
if _LOG.level == logging.NOTSET:  # else somebody has said what to hear of it
    # it would write payloads into the log of who hears all; errors are told by each
    # step
    _LOG.setLevel(logging.CRITICAL + 1)
_LIBRARY = {
    "client.id": "client_id",
    "client.dns.lookup": "client_dns_lookup",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "security.protocol": "security_protocol",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
}
"""What librdkafka's properties are called there."""

_TLS = frozenset({"ssl.ca.location", "ssl.ca.pem"})
_WITHOUT = frozenset(
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
"""What changes nothing here: told in another way, about what isn't done, or about
connections that live longer than these.
"""

_BEGIN_SECONDS = 5.0
"""So long one of the servers that are named is asked who the brokers are, before another one is."""

_PAUSE_SECONDS = 0.002
_CLOSE_SECONDS = 5.0


class WireError(Exception):
    """A request that was not answered, or refused. `code`: Kafka's."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code

    @property
    def error(self) -> KafkaError:
        """As librdkafka has it."""
        return KafkaError(self.code, str(self))


def reachable(properties: Mapping[str, Value]) -> bool:
    """Whether a cluster can be reached like this: kafka-python doesn't know all that
    librdkafka does, and nothing is ignored.
    """
    return not properties.keys() - _LIBRARY.keys() - _TLS - _WITHOUT


class Wire:
    """Connections to the brokers of a cluster.

    Used by one thread; a thread of its own speaks with the brokers.

    So whatever interrupts the thread that waits, as Ctrl-C does, is raised there, and
    not in the middle of the library.

    Args:
        properties: an AdminClient's; they are `reachable`.
        patience: for how long an answer is waited for at most, in seconds.
    """

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        self._properties, self._patience = properties, patience
        self._net: Any = None
        self._manager: Any = None

    def ask(self, request: Any, node: int | None = None, *, seconds: float | None = None) -> Any:
        """The answer to a request.

        `node`: the broker's number; None: whichever. `seconds`: less patience than else.

        Raises:
            WireError: there is none in time.
        """
        asked = self.sent(request, node, seconds=seconds)
        self.wait([asked], seconds)
        return answer_of(asked)

    def sent(self, request: Any, node: int | None = None, *, seconds: float | None = None) -> Any:
        """A request that is on its way, behind all that were sent before it: what
        `wait` waits for, and `answer_of` has the answer of.

        Raises:
            WireError: the cluster doesn't answer.
        """
        self._begin(seconds)
        handed_over = self._manager.call_soon(self._hand_over, request, node)
        self.wait([handed_over], seconds)
        [asked] = answer_of(handed_over)
        return asked

    async def _hand_over(self, request: Any, node: int | None) -> list[Any]:
        """The request's own future.

        A connection that is paused, by a quota or a full buffer, would refuse it: it is waited for.
        """
        chosen = self._manager.least_loaded_node() if node is None else node
        connection = self._manager.get_connection(chosen)
        while connection.paused and not connection.closed:
            await self._net.sleep(_PAUSE_SECONDS)
        return [connection.send_request(request)]

    def wait(self, asked: Iterable[Any], seconds: float | None = None) -> None:
        """Until each has its answer, or none can come any more.

        Raises:
            WireError: it takes longer than that.
        """
        deadline = time.monotonic() + (self._patience if seconds is None else seconds)
        for one in asked:
            answered = threading.Event()
            one.add_both(lambda *_, answered=answered: answered.set())
            if not answered.wait(max(0.0, deadline - time.monotonic())):
                raise WireError(KafkaError._TIMED_OUT, "no answer in time")  # public  # noqa: SLF001

    def leaders(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Per topic-partition that has one the number of its leader.

        Raises:
            WireError: a topic isn't there, or may not be seen.
        """
        from kafka.protocol.metadata import MetadataRequest

        asked = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in topics]
        found = self.ask(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False, max_version=8)
        )
        leaders: dict[tuple[str, int], int] = {}
        for topic in found.topics:
            refuse(topic.error_code, f"the topic {topic.name}")
            leaders |= {
                (topic.name, p.partition_index): int(p.leader_id)
                for p in topic.partitions
                if p.leader_id >= 0
            }
        return leaders

    def coordinator(self, name: str, seconds: float) -> int:
        """The number of the broker that keeps the transactions of a transactional id.

        `seconds`: how long that may take.

        Raises:
            WireError: nobody does yet, or this client may not know.
        """
        from kafka.protocol.metadata import FindCoordinatorRequest

        found = self.ask(
            FindCoordinatorRequest(key=name, key_type=1, max_version=2), seconds=seconds
        )
        refuse(found.error_code, "the coordinator of transactions")
        return int(found.node_id)

    def close(self) -> None:
        """Close the connections; what is on its way gets no answer."""
        if self._manager is None:
            return
        with suppress(WireError):
            # In this order: who loses a connection asks for the brokers anew, unless all is closed.
            self.wait(
                [
                    self._manager.call_soon(self._manager.close),
                    self._manager.call_soon(self._hang_up),
                ],
                _CLOSE_SECONDS,
            )
        self._net.stop(timeout_ms=int(_CLOSE_SECONDS * 1000))
        self._net.close()
        self._manager = None

    def _hang_up(self) -> None:
        """With an error, so that nobody waits until what is written is sent."""
        from kafka.errors import Cancelled

        for connection in list(
            self._manager._conns.values()  # noqa: SLF001
        ):  # it has no other word for all of them
            connection.close(Cancelled())

    def _begin(self, seconds: float | None) -> None:
        """Ask who the brokers are, once.

        One server that is silent doesn't take all the time that there is.

        Raises:
            WireError: none of the servers says it; or one refuses the login, which
                asking again would only lock.
        """
        if self._manager is None:
            self._net, self._manager = self._connections()
        deadline = time.monotonic() + (
            self._patience if seconds is None else min(seconds, self._patience)
        )
        while not self._manager.bootstrapped:
            left = min(_BEGIN_SECONDS, max(0.1, deadline - time.monotonic()))
            begun = self._manager.bootstrap_async(timeout_ms=int(left * 1000))
            try:
                self.wait([begun], left + 1)
                answer_of(begun)
            except WireError as failed:
                with suppress(WireError):
                    self.wait([self._manager.call_soon(self._hang_up)], _CLOSE_SECONDS)
                if failed.code in LOGIN or time.monotonic() >= deadline:
                    raise

    def _connections(self) -> tuple[Any, Any]:
        from kafka.errors import (
            SaslAuthenticationFailedError,
            UnsupportedSaslMechanismError,
        )  # loaded where it is used
        from kafka.net.manager import KafkaConnectionManager
        from kafka.net.selector import NetworkSelector

        class Connections(KafkaConnectionManager):  # type: ignore[misc]  # untyped
            """Those of the library, which would try a refused login again and again."""

            refused: Exception | None = None

            def get_connection(self, *asked: Any, **options: Any) -> Any:
                if self.refused is not None:
                    raise self.refused
                made = super().get_connection(*asked, **options)
                made.init_future.add_errback(self._noted)
                return made

            def _noted(self, error: Exception) -> None:
                if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
                    self.refused = error

        told: dict[str, Any] = {
            _LIBRARY[name]: value for name, value in self._properties.items() if name in _LIBRARY
        }
        if str(told.get("security_protocol", "")).endswith("SSL"):
            told["ssl_context"] = tls_context(self._properties)
        net = NetworkSelector(slow_task_threshold_secs=0)
        net.start()
        return net, Connections(
            net, bootstrap_servers=str(self._properties["bootstrap.servers"]).split(","), **told
        )


def answer_of(asked: Any) -> Any:
    """What was answered.

    Raises:
        WireError: nothing was.
    """
    error = asked.exception
    if error is None:
        return asked.value
    code = getattr(type(error), "errno", None)
    raise WireError(
        code if isinstance(code, int) and code > 0 else KafkaError._TRANSPORT,  # noqa: SLF001
        type(error).__name__,
    )  # public


def refuse(code: int, what: str) -> None:
    """See that an answer isn't an error.

    Raises:
        WireError: it is.
    """
    if code:
        raise WireError(code, f"{what}: {KafkaError(code).str()}")


def tls_context(properties: Mapping[str, Value]) -> ssl.SSLContext:
    """As librdkafka does it: the broker's certificate must be signed, and be for the
    name that it is reached by.

    Raises:
        WireError: the authority's certificate can't be used.
    """
    where, text = (properties.get(f"ssl.ca.{name}") for name in ("location", "pem"))
    # librdkafka's word for those of the system
    place = None if where in {None, "probe"} else str(where)
    folder = place if place is not None and Path(place).is_dir() else None
    try:
        context = ssl.create_default_context(
            cafile=None if folder else place,
            capath=folder,
            cadata=None if text is None else str(text),
        )
    except (OSError, ValueError) as why:  # ssl's own errors are of the first kind
        raise WireError(
            KafkaError._SSL,  # noqa: SLF001
            f"ssl.ca.location or ssl.ca.pem: {type(why).__name__}",
        ) from None  # public
    # which Python has by default from 3.13 on, and librdkafka hasn't
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
