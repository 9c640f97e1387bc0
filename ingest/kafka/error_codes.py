"""Error codes of Kafka and librdkafka, grouped by what windrow does about them.

The codes of librdkafka's own errors begin with an underscore, and are public.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""There is no such topic or partition.

Kafka calls this retriable, because a broker may not know a new topic yet. But windrow
doesn't retry it for long: a misspelled name must not cost half a minute.
"""

MISSING_TOPIC = UNKNOWN | {KafkaError.INCONSISTENT_TOPIC_ID}
"""Errors of a reader whose topic doesn't exist, was deleted, or was created again.

These errors also come for a moment after a change of leaders.
"""

_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

FORBIDDEN = _DENIED | {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""This client has no right to send the request."""

LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
"""The cluster refuses the login; another try could lock the account."""

UNSEEN = UNKNOWN | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
"""Errors about a single topic, topic-partition or group, among several in one request."""

OCCUPIED = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
)
"""Answers of a group to a commit from outside while it has active consumers."""

_UNSTABLE = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
    }
)
"""The leader moves, or the network broke."""

PASSING = _UNSTABLE | {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""A consumer recovers from such an error by itself, or isn't affected by it.

librdkafka asks for the coordinator of a consumer's group, although windrow assigns
topic-partitions and commits nothing. So a consumer needs no right on its group. Any other
error of a consumer may mean skipped messages, for example a wrong checksum.
"""

RETRIABLE = _UNSTABLE | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._NOENT,
    KafkaError._WAIT_CACHE,
    KafkaError._WAIT_COORD,
}
"""A request is worth another try.

In list_offsets, _NOENT means that a partition has no leader. UNSTABLE_OFFSET_COMMIT means
that a transaction is about to change a group's offsets.
"""

LOST_OFFSETS = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""A consumer's offset is not in the log, or not under the leader epoch given with it."""

UNREADABLE = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
"""A batch that the log has can't be unpacked, or is damaged."""

END = KafkaError._PARTITION_EOF
"""A consumer has reached the end of the log; under read_committed, the stable end."""

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()


def is_truncation(error: KafkaError) -> bool:
    """Returns whether the error reports that the log was truncated below the position.

    librdkafka checks the leader epoch that it is assigned with. With `auto.offset.reset`
    "error", it reports a truncation as a refused reset. Only the error's text then names
    the truncation.
    """
    return error.code() == KafkaError._LOG_TRUNCATION or (
        error.code() == KafkaError._AUTO_OFFSET_RESET and _TRUNCATION in error.str()
    )


_UNTRUSTED = re.compile(r"SSL routines::[^:]*(?:certificate|unknown ca)")


def untrusted(text: str) -> bool:
    """Returns whether a client's error means that one side rejects the other's certificate.

    The error's code is _SSL or _TRANSPORT.

    Args:
        text: the text of the error.
    """
    return _UNTRUSTED.search(text) is not None and not lacks_token(text)


_PASSING_LOGINS = re.compile(
    "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state"
    "|mechanism handshake failed: Local: Broker transport failure"
)
"""Words of a login's errors that pass by themselves.

A broker takes one login a second (KIP-368), and a token that ends within that second makes the
client log in again; other logins meet this where a listener has none. Or the connection broke
before the broker answered.
"""
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - words of an error
"""librdkafka's words for a login by token that has no token."""

LOGIN_ADVICE = (
    "Look at client.oauth of the cluster in the windrow.yaml (windrow help logins): here and where"
    " tasks run, what its tokens are from must answer, be trusted (ca), accept this client, and"
    " give tokens that are for this cluster and haven't expired."
)


def lacks_token(text: str) -> bool:
    """Returns whether an error says that there is no token for the login."""
    return _NO_TOKEN in text


def login_advice(text: str, other_login: str) -> str:
    """Returns what to do about a login that was refused.

    Args:
        text: the text of the error.
        other_login: what to do if it wasn't a login by token.
    """
    return LOGIN_ADVICE if lacks_token(text) or '"invalid_token"' in text else other_login


def is_login_refused(error: KafkaError) -> bool:
    """Returns whether the cluster, or the provider of tokens, refuses this client.

    A provider that can't be reached isn't a refusal: librdkafka asks it again, and an old
    token may still be valid. A provider that refuses says so by `error` (RFC 6749, 5.2).
    """
    text = error.str()
    return (
        error.code() in LOGIN
        and not _PASSING_LOGINS.search(text)
        and (not lacks_token(text) or '"error"' in text)
    )


def is_denied(error: KafkaError) -> bool:
    """Returns whether this client is refused: its login, or its right to read or to write."""
    return error.code() in _DENIED or is_login_refused(error)
