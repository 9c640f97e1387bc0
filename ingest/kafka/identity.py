"""Checks that a cluster and its topics are those that the plan was made for.

The check runs before a read, and again if a read fails for no clear reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from windrow.ingest.errors import (
    IdentityError,
    OwnerError,
    SpecError,
    UnreachableError,
    WindrowError,
    format_count,
)
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.client_properties import scrub
from windrow.ingest.kafka.error_codes import (
    FORBIDDEN,
    LOGIN_ADVICE,
    MISSING_TOPIC,
    is_denied,
    lacks_token,
    login_advice,
    untrusted,
)
from windrow.ingest.kafka.rights import Right, lacking_error
from windrow.ingest.kafka.shared_clients import Client
from windrow.ingest.model.plan import Split

_ADVICE = (
    "The plan's offsets mean nothing in another topic: restore the old one, or see with windrow"
    " rebase SPEC what it would mean to go on with this one."
)
# syslog's "error": an AdminClient would log a warning for each property that only
# consumers know
_QUIET = 3


class IdentityCheck:
    """Compares a cluster's id and its topics' ids with the plan's, by its own client."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Connects lazily.

        Raises:
            SpecError: the properties can't be used.
        """
        self._properties = properties
        self._identity_by_topic: dict[str, _Identity] = {}
        self._client = Client({**properties, "log_level": _QUIET})

    def check(
        self, split: Split, cluster_id: str, topic_id: str, seconds: float, *, anew: bool = False
    ) -> None:
        """Checks the plan of a split against the cluster; asks once for each topic.

        Args:
            split: the split.
            cluster_id: the id of the cluster that the plan was made on.
            topic_id: the id of the topic that the plan was made for.
            seconds: timeout of the request.
            anew: True to ask again.

        Raises:
            OwnerError: the cluster is another one.
            IdentityError: the topic has another id, or the topic or partition is gone.
            SpecError: the cluster refuses this client.
            UnreachableError: no answer within `seconds`.
        """
        if anew or split.topic not in self._identity_by_topic:
            self._identity_by_topic[split.topic] = self._ask(split, seconds)
        identity = self._identity_by_topic[split.topic]
        if identity.cluster_id != cluster_id:
            raise OwnerError(
                f"this is cluster {identity.cluster_id}, the plan was made on {cluster_id}",
                "read",
                _ADVICE,
                split.topic,
                split.partition,
            )
        if identity.topic_id != topic_id:
            raise IdentityError(
                f"topic {split.topic} has id {identity.topic_id}, the plan was made for {topic_id}",
                "read",
                _ADVICE,
                split.topic,
                split.partition,
            )
        if split.partition >= identity.partitions:
            raise IdentityError(
                f"topic {split.topic} has {format_count(identity.partitions, 'partition')}",
                "read",
                _ADVICE,
                split.topic,
                split.partition,
            )

    def close(self) -> None:
        """Frees the client."""
        del self._client

    def _ask(self, split: Split, seconds: float) -> _Identity:
        began, admin = time.monotonic(), self._client.admin
        questions = Questions(str(self._properties["bootstrap.servers"]), self._client, seconds)
        cluster = admin.describe_cluster(request_timeout=seconds)
        topics = admin.describe_topics(TopicCollection([split.topic]), request_timeout=seconds)
        try:
            topic = questions.result(topics[split.topic])
            description = questions.result(cluster)
            return _Identity(description.cluster_id, str(topic.topic_id), len(topic.partitions))
        except (KafkaException, TimeoutError) as failure:
            error = (
                failure.args[0]
                if isinstance(failure, KafkaException)
                else KafkaError(KafkaError._TIMED_OUT)
            )
            errors = [error for _, error in self._client.errors_since(began)]
            raise refusal_of(split, error, errors, self._properties) from None


class _Identity(msgspec.Struct, frozen=True):
    """A cluster's id, and a topic's id and number of partitions."""

    cluster_id: str
    topic_id: str
    partitions: int


def is_client_refused(error: KafkaError) -> bool:
    """Returns whether the cluster refuses this client, or a certificate was not accepted."""
    return is_denied(error) or untrusted(error.str())


def denied_error(split: Split, error: KafkaError, properties: Mapping[str, Any]) -> SpecError:
    """Makes the error for a cluster that refuses this client, or doesn't let it read."""
    if error.code() in FORBIDDEN:
        rights, bootstrap = [Right("Read", "topic", split.topic)], properties["bootstrap.servers"]
        return lacking_error(rights, str(bootstrap), "read", split.topic, split.partition)
    reason = scrub(error.str(), properties)
    message = f"the cluster refuses to let this client read: {reason}"
    advice = login_advice(reason, "Check the credentials.")
    if lacks_token(reason):
        message = f"the login has no token where the task runs: {reason}"
    elif untrusted(reason):
        message = f"the TLS certificate is not accepted where the task runs: {reason}"
        advice = (
            "See that ssl.ca.location (or ssl.ca.pem) under client names the CA of the brokers'"
            " certificates there too."
        )
    return SpecError(message, "read", advice, split.topic, split.partition)


def unreachable(split: Split, message: str, offset: int | None = None) -> UnreachableError:
    """Makes the error for a read that had no answer for too long."""
    return UnreachableError(
        message,
        "read",
        LOGIN_ADVICE
        if lacks_token(message)
        else "See that the brokers can be reached from where the tasks run, then run the window"
        " again.",
        split.topic,
        split.partition,
        offset,
    )


def refusal_of(
    split: Split, error: KafkaError, errors: list[KafkaError], properties: Mapping[str, Any]
) -> WindrowError:
    """Makes the user's error for a failed request, also from the client's other errors."""
    refused = next((e for e in (*errors, error) if is_client_refused(e)), None)
    if refused is not None:
        return denied_error(split, refused, properties)
    if error.code() in MISSING_TOPIC:
        return IdentityError(
            f"topic {split.topic} is gone", "read", _ADVICE, split.topic, split.partition
        )
    return unreachable(
        split, f"the cluster did not answer: {scrub((errors or [error])[-1].str(), properties)}"
    )
