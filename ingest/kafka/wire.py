"""Kafka's own requests, each to its broker: librdkafka has no call for batches of records that are encoded already.

Connections, TLS, logins and the form of requests are kafka-python's; which requests there are, and what answers mean, the caller says.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError

from ingest.kafka.properties import Value

_LOG = logging.getLogger("kafka")
_LOG.setLevel(logging.CRITICAL + 1)  # it would write payloads into the log of who asks for all details; errors are told by each step
_LIBRARY = {
    "client.id": "client_id", "client.dns.lookup": "client_dns_lookup", "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms", "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms", "sasl.mechanism": "sasl_mechanism", "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username", "security.protocol": "security_protocol",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms", "socket.timeout.ms": "request_timeout_ms",
}  # fmt: skip
"""What librdkafka's properties are called there."""

_TLS = frozenset({"ssl.ca.location", "ssl.ca.pem"})
_WITHOUT = frozenset({
    "bootstrap.servers", "allow.auto.create.topics", "client.rack", "enable.metrics.push", "log.connection.close", "retry.backoff.max.ms",
    "retry.backoff.ms", "socket.keepalive.enable", "socket.nagle.disable", "log_level",
})  # fmt: skip
"""What changes nothing here: told in another way, or about what isn't done."""

_SLICE_SECONDS = 0.05


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
    """Whether a cluster can be reached like this: kafka-python doesn't know all that librdkafka does, and nothing is ignored."""
    return not properties.keys() - _LIBRARY.keys() - _TLS - _WITHOUT


class Wire:
    """Connections to the brokers of a cluster. Used by one thread.

    Args:
        properties: an AdminClient's; they are `reachable`.
        patience: for how long an answer is waited for at most, in seconds.
    """

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        from kafka.net.manager import KafkaConnectionManager  # noqa: PLC0415  # loaded where it is used
        from kafka.net.selector import NetworkSelector  # noqa: PLC0415

        told: dict[str, Any] = {_LIBRARY[name]: value for name, value in properties.items() if name in _LIBRARY}
        if str(told.get("security_protocol", "")).endswith("SSL"):
            told["ssl_context"] = _tls(properties)
        self._patience = patience
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._manager = KafkaConnectionManager(self._net, bootstrap_servers=str(properties["bootstrap.servers"]).split(","), **told)

    def ask(self, request: Any, node: int | None = None, *, seconds: float | None = None) -> Any:
        """The answer to a request. `node`: the broker's number; None: whichever.

        Raises:
            WireError: there is none in time.
        """
        asked = self.sent(request, node)
        self.wait([asked], seconds)
        return answer_of(asked)

    def sent(self, request: Any, node: int | None = None) -> Any:
        """A request that is on its way; `answer_of` what `wait` waits for.

        Raises:
            WireError: the cluster doesn't answer.
        """
        self._begin()
        return self._manager.call_soon(self._sending, request, node)

    async def _sending(self, request: Any, node: int | None) -> Any:
        return await self._manager.send(request, node)

    def wait(self, asked: Iterable[Any], seconds: float | None = None) -> None:
        """Until each has its answer, or none can come any more.

        Raises:
            WireError: it takes longer than that.
        """
        left, deadline = [one for one in asked if not one.is_done], time.monotonic() + (self._patience if seconds is None else seconds)
        while left:
            self._net.poll(timeout_ms=int(_SLICE_SECONDS * 1000), future=left[0])
            left = [one for one in left if not one.is_done]
            if left and time.monotonic() > deadline:
                raise WireError(KafkaError._TIMED_OUT, "no answer in time")  # noqa: SLF001  # public

    def leaders(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Per topic-partition the number of its leader.

        Raises:
            WireError: a topic isn't there, may not be seen, or has no leader.
        """
        from kafka.protocol.metadata import MetadataRequest  # noqa: PLC0415

        asked = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in topics]
        found = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False, max_version=8))
        leaders = {}
        for topic in found.topics:
            refuse(topic.error_code, f"the topic {topic.name}")
            for partition in topic.partitions:
                refuse(partition.error_code, f"{topic.name}[{partition.partition_index}]")
                leaders[topic.name, partition.partition_index] = int(partition.leader_id)
        return leaders

    def coordinator(self, name: str) -> int:
        """The number of the broker that keeps the transactions of a transactional id.

        Raises:
            WireError: nobody does yet, or this client may not know.
        """
        from kafka.protocol.metadata import FindCoordinatorRequest  # noqa: PLC0415

        found = self.ask(FindCoordinatorRequest(key=name, key_type=1, max_version=2))
        refuse(found.error_code, "the coordinator of transactions")
        return int(found.node_id)

    def close(self) -> None:
        """Close the connections; what is on its way gets no answer."""
        with suppress(Exception):
            self._manager.close()
            self._net.poll(timeout_ms=0)
        with suppress(Exception):
            self._net.close()

    def _begin(self) -> None:
        """Ask who the brokers are, once."""
        if self._manager.bootstrapped:
            return
        begun = self._manager.bootstrap_async(timeout_ms=int(self._patience * 1000))
        self.wait([begun])
        answer_of(begun)


def answer_of(asked: Any) -> Any:
    """What was answered.

    Raises:
        WireError: nothing was.
    """
    error = asked.exception
    if error is None:
        return asked.value
    code = getattr(type(error), "errno", None)
    raise WireError(code if isinstance(code, int) and code > 0 else KafkaError._TRANSPORT, type(error).__name__)  # noqa: SLF001  # public


def refuse(code: int, what: str) -> None:
    """See that an answer isn't an error.

    Raises:
        WireError: it is.
    """
    if code:
        raise WireError(code, f"{what}: {KafkaError(code).str()}")


def _tls(properties: Mapping[str, Value]) -> ssl.SSLContext:
    """As librdkafka does it: the broker's certificate must be signed, and be for the name that it is reached by."""
    where, text = (properties.get(f"ssl.ca.{name}") for name in ("location", "pem"))
    return ssl.create_default_context(cafile=None if where is None else str(where), cadata=None if text is None else str(text))
