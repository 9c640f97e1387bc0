"""Kafka's and librdkafka's error codes, sorted by what windrow does about them, whether
it asks, scans or reads.
"""

# the codes of librdkafka's own errors begin with an underscore,
# and are public

from __future__ import annotations

import re

from confluent_kafka import KafkaError

UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
"""There is no such topic or partition.

Kafka calls this retriable, for the news of one may be on its way; but a misspelt name
must not cost half a minute.
"""

GONE = UNKNOWN | {KafkaError.INCONSISTENT_TOPIC_ID}
"""What a reader is told of a topic that is not there, not any more, or another; also
for a moment after a change of leaders.
"""

FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
"""Asking again would only lock the account."""

DENIED = LOGIN | FORBIDDEN
"""The cluster does not let this client in, or not to this topic."""

UNSEEN = UNKNOWN | {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
"""What keeps one topic, or one topic-partition, from being seen, and says nothing of
the others in the same question.
"""

OCCUPIED = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
)
"""How a group answers a commit from outside while it has consumers."""

PASSING = frozenset(
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
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
    }
)
"""The leader moves, or the network broke: a consumer gets over it by itself, and a
question is worth another try.

Any other error of a consumer may stand for messages that it skipped, such as a checksum
that does not match.
"""

AGAIN = PASSING | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._NOENT,  # noqa: SLF001
    KafkaError._WAIT_CACHE,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
}
"""A question is worth another try. _NOENT is how list_offsets says that a partition has
no leader, UNSTABLE_OFFSET_COMMIT how a group says that a transaction is about to change
its offsets.
"""

LOST = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""What a consumer wanted is not in the log, or not under the leader epoch that was
given with it.
"""

END = KafkaError._PARTITION_EOF  # noqa: SLF001
"""A consumer has reached the end of the log: the stable one under read_committed."""

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001


def is_truncation(error: KafkaError) -> bool:
    """Whether the cluster said that the log was cut off below the position since it reached it.

    librdkafka checks the leader epoch that it is assigned with. Where
    `auto.offset.reset` is "error" it reports what it finds as a refused reset, and its
    own name for a truncation, as it stands in this version of it, is in the text only.
    """
    return error.code() == KafkaError._LOG_TRUNCATION or (  # noqa: SLF001
        error.code() == KafkaError._AUTO_OFFSET_RESET and _TRUNCATION in error.str()  # noqa: SLF001
    )


_UNTRUSTED = re.compile(r"SSL routines::[^:]*(?:certificate|unknown ca)")


def untrusted(text: str) -> bool:
    """Whether a text of the client says that one side doesn't accept the other's certificate.

    It comes as _SSL or as _TRANSPORT.
    """
    return _UNTRUSTED.search(text) is not None
