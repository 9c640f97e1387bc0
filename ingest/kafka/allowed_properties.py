"""The properties of librdkafka that a user may set, and the reasons against the others.

This is an allow-list, because librdkafka has properties that load libraries
(`plugin.library.paths`), run shell commands (`sasl.kerberos.kinit.cmd`), switch off
verification, and log secrets (`debug`). Kafka's own clients had to learn this from
CVE-2023-25194.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from windrow.ingest.kafka.oauth import TokenSource

Value = str | int | bool | TokenSource
Parse = Callable[[object], Value]
"""Returns a value in its own type, or raises a ValueError.

The error's text describes the allowed values. It never quotes the refused value, which may
be a secret.
"""


WHERE_TO_SET = "under client, in the spec's source or in windrow.yaml"
"""Where a user writes properties, for errors that don't know the exact place."""


@dataclass(frozen=True)
class Property:
    """A property that a user may set.

    Attributes:
        parse: checks and converts a value.
        consumer: True if only consumers have the property.
        secret: True if the value is a secret.
    """

    parse: Parse
    consumer: bool = False
    secret: bool = False


def _integer(low: int, high: int) -> Parse:
    def parse(value: object) -> Value:
        try:
            number = (
                value if isinstance(value, int) and not isinstance(value, bool) else int(str(value))
            )
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def _flag(value: object) -> Value:
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def _choice(*names: str) -> Parse:
    def parse(value: object) -> Value:
        matches = [
            name for name in names if isinstance(value, str) and name.lower() == value.lower()
        ]
        if not matches:
            raise ValueError(f"must be one of {', '.join(names)}")
        return matches[0]

    return parse


def _mechanism(value: object) -> Value:
    if str(value).upper() == "GSSAPI":
        raise ValueError(
            "can't be GSSAPI: confluent-kafka's wheel is built without Kerberos. Use SCRAM,"
            " OAUTHBEARER or a client's certificate"
        )
    return _choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")(value)


def _text(value: object) -> Value:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text that is not empty")
    return value


ABSOLUTE = "must name its file by an absolute path, the same on every machine"


def _path(value: object) -> Value:
    path = _text(value)
    if not PurePosixPath(str(path)).is_absolute() and path != "probe":  # librdkafka looks for it
        raise ValueError(ABSOLUTE)
    return path


_BYTES_MAX = 1_000_000_000

ALLOWED: Mapping[str, Property] = MappingProxyType(
    {
        # the client's name and place
        "client.id": Property(_text),
        "client.rack": Property(_text),
        # connections
        "broker.address.family": Property(_choice("any", "v4", "v6")),
        "broker.address.ttl": Property(_integer(0, 86_400_000)),
        "client.dns.lookup": Property(
            _choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
        ),
        "connections.max.idle.ms": Property(_integer(0, 2_147_483_647)),
        "enable.metrics.push": Property(_flag),
        "log.connection.close": Property(_flag),
        "metadata.max.age.ms": Property(_integer(1, 86_400_000)),
        "reconnect.backoff.max.ms": Property(_integer(0, 3_600_000)),
        "reconnect.backoff.ms": Property(_integer(0, 3_600_000)),
        "retry.backoff.max.ms": Property(_integer(1, 300_000)),
        "retry.backoff.ms": Property(_integer(1, 300_000)),
        "socket.connection.setup.timeout.ms": Property(_integer(1_000, 2_147_483_647)),
        "socket.keepalive.enable": Property(_flag),
        "socket.nagle.disable": Property(_flag),
        "socket.receive.buffer.bytes": Property(_integer(0, 100_000_000)),
        "socket.send.buffer.bytes": Property(_integer(0, 100_000_000)),
        "socket.timeout.ms": Property(_integer(1_000, 300_000)),
        # security
        "sasl.mechanism": Property(_mechanism),
        "sasl.password": Property(_text, secret=True),
        "sasl.username": Property(_text),
        "security.protocol": Property(_choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "ssl.ca.location": Property(_path),
        "ssl.ca.pem": Property(_text),
        "ssl.certificate.location": Property(_path),
        "ssl.certificate.pem": Property(_text),
        "ssl.cipher.suites": Property(_text),
        "ssl.crl.location": Property(_path),
        "ssl.curves.list": Property(_text),
        "ssl.key.location": Property(_path),
        "ssl.key.password": Property(_text, secret=True),
        "ssl.key.pem": Property(_text, secret=True),
        "ssl.keystore.location": Property(_path),
        "ssl.keystore.password": Property(_text, secret=True),
        "ssl.sigalgs.list": Property(_text),
        # how much is fetched ahead
        "fetch.error.backoff.ms": Property(_integer(0, 300_000), consumer=True),
        "fetch.max.bytes": Property(_integer(1_000_000, _BYTES_MAX), consumer=True),
        "fetch.message.max.bytes": Property(_integer(1, _BYTES_MAX), consumer=True),
        "fetch.min.bytes": Property(_integer(1, 100_000_000), consumer=True),
        "fetch.queue.backoff.ms": Property(_integer(0, 300_000), consumer=True),
        "fetch.wait.max.ms": Property(_integer(0, 300_000), consumer=True),
        "queued.max.messages.kbytes": Property(_integer(1, 2_097_151), consumer=True),
        "queued.min.messages": Property(_integer(1, 10_000_000), consumer=True),
    }
)


DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {
        "client.id": "windrow",
        "enable.metrics.push": False,
        "log.connection.close": False,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 10_000,
        "socket.keepalive.enable": True,
        # timeout of one request; librdkafka's 60 s would be as long as the whole stall limit
        "socket.timeout.ms": 20_000,
        # limit of one answer, over all partitions; a task reads one partition at a time
        "fetch.max.bytes": 50 * 1024 * 1024,
        # in compressed bytes: 4 MiB of a well compressed topic took 160 MiB more memory and
        # were no faster
        "fetch.message.max.bytes": 1024 * 1024,
        "fetch.min.bytes": 1,  # the broker answers at once: a bounded read needs no wait
        # librdkafka's 1000 stalls a bounded read for a second whenever the queue is full
        "fetch.queue.backoff.ms": 2,
        # the time that the broker holds back the answer "end of the log", for which the next
        # split waits: 100 ms cost each split 100 ms
        "fetch.wait.max.ms": 1,
        # limit of a read's memory: 64 MB took 100 MB more and were no faster
        "queued.max.messages.kbytes": 16 * 1024,
        # limit for small messages: 100,000 took 40 MB more memory
        "queued.min.messages": 20_000,
    }
)

FORCED: Mapping[str, tuple[Value, str]] = MappingProxyType(
    {
        "allow.auto.create.topics": (False, "reading must not create a topic"),
        "auto.offset.reset": (
            "error",
            (
                "a lost start must fail, not move; source.start says where the first window begins,"
                " and source.on_loss what becomes of messages that are gone"
            ),
        ),
        "check.crcs": (True, "a message that was damaged on its way must not become a row"),
        "enable.auto.commit": (False, "the sink says what was read, never a consumer group"),
        "enable.auto.offset.store": (False, "the sink says what was read, never a consumer group"),
        "enable.partition.eof": (
            True,
            "the end of a split is decided on positions, for which the end of the log must be seen",
        ),
        "group.id": (
            "windrow",
            (
                "nothing is ever committed to it; source.start takes the offsets of a group, and"
                " source.offsets_group names one that is told how far windows are"
            ),
        ),
    }
)
"""Values of consumers' properties that can't be changed, with the reasons."""

OAUTH = "oauth"
"""Key of the login by token among a cluster's client properties (`ingest.settings.logins`)."""

_OAUTH = f"under client.{OAUTH}, of a cluster in a windrow.yaml"
_NO_CODE = "it makes the client load or run code"
_NO_TRUST = "it switches a check of the broker's identity off"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "bootstrap.servers": "the source has a field of its own for it",
        "metadata.broker.list": "the source has a field of its own for it",
        "isolation.level": "set source.isolation",
        "debug": "it may write secrets and payloads into logs",
        "enable.sasl.oauthbearer.unsecure.jwt": _NO_TRUST,
        "enable.ssl.certificate.verification": _NO_TRUST,
        "ssl.endpoint.identification.algorithm": _NO_TRUST,
        "plugin.library.paths": _NO_CODE,
        "sasl.jaas.config": "it belongs to Java clients; use sasl.username and sasl.password",
        "max.partition.fetch.bytes": "write it as fetch.message.max.bytes",
        "sasl.mechanisms": "write it as sasl.mechanism",
        "topic.metadata.refresh.interval.ms": "write it as metadata.max.age.ms",
        "receive.message.max.bytes": "it follows fetch.max.bytes by itself",
        # names of Java clients
        "default.api.timeout.ms": "it belongs to Java clients; use socket.timeout.ms",
        "fetch.max.wait.ms": "write it as fetch.wait.max.ms",
        "key.deserializer": "decode.key says what keys are",
        "receive.buffer.bytes": "write it as socket.receive.buffer.bytes",
        "request.timeout.ms": "write it as socket.timeout.ms",
        "send.buffer.bytes": "write it as socket.send.buffer.bytes",
        "value.deserializer": "decode.format says what values are",
        **dict.fromkeys(
            ("max.poll.interval.ms", "max.poll.records"),
            "nothing is polled: window.max_records says how many messages a micro-batch has, and"
            " source.tuning.batch_messages how many are decoded at once",
        ),
        **dict.fromkeys(
            (
                "auto.commit.enable",
                "auto.commit.interval.ms",
                "group.instance.id",
                "group.protocol",
                "heartbeat.interval.ms",
                "partition.assignment.strategy",
                "session.timeout.ms",
            ),
            "no consumer group reads, and none says what was read: source.offsets_group names one"
            " that is told how far windows are",
        ),
    }
)
"""Well-known properties that are refused, each with its reason."""

REFUSED_PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "sasl.kerberos.": "its values become part of a shell command",
        "https.ca.": f"write it as ca, {_OAUTH}",
        "sasl.oauthbearer.": f"write it {_OAUTH}",
        "ssl.engine.": _NO_CODE,
        "ssl.keystore.certificate.": "write it as ssl.certificate.pem",
        "ssl.keystore.key": "write it as ssl.key.pem",
        "ssl.keystore.type": "ssl.keystore.location names a PKCS#12 file",
        "ssl.providers": _NO_CODE,
        "ssl.truststore.": "it belongs to Java clients; ssl.ca.location names a file of PEM",
    }
)
