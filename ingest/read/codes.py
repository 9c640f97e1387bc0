"""librdkafka's and Kafka's error codes, sorted by what a reader does about them."""
# ruff: noqa: SLF001  # the names of librdkafka's own errors begin with an underscore; they are public

from __future__ import annotations

import re

from confluent_kafka import KafkaError

END = KafkaError._PARTITION_EOF

DENIED = frozenset({
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM,
})  # fmt: skip
"""The cluster does not let this client in, or not to this topic."""

GONE = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
})  # fmt: skip
"""The topic is not there, or not any more, or is another; also for a moment after a change of leaders."""

LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
"""The offset that was asked for is not in the log, or not under the leader epoch that was given with it."""

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()


def is_truncation(error: KafkaError) -> bool:
    """Whether the cluster said that the log was cut off below the position since it reached it.

    librdkafka checks the leader epoch that it is assigned with. Where `auto.offset.reset` is "error" it reports what it finds as a refused
    reset, and its own name for a truncation, as it stands in this version of it, is in the text only.
    """
    return error.code() == KafkaError._LOG_TRUNCATION or (error.code() == KafkaError._AUTO_OFFSET_RESET and _TRUNCATION in error.str())


PASSING = frozenset({
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
})  # fmt: skip
"""What librdkafka mends by itself. Any other error may stand for messages that it skipped, such as a checksum that does not match."""

_UNTRUSTED = re.compile(r"SSL routines::[^:]*(?:certificate|unknown ca)")


def untrusted(text: str) -> bool:
    """Whether a text of the client says that one side doesn't accept the other's certificate. It comes as _SSL or as _TRANSPORT."""
    return _UNTRUSTED.search(text) is not None
