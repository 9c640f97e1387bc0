"""Is this the cluster, and are these the topics, that the plan was made for? Asked
before a read, and again when one fails strangely.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from windrow.ingest.errors import (
    IdentityError,
    OwnerError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.kafka.client import LOG, scrubbed
from windrow.ingest.kafka.codes import DENIED, GONE, untrusted
from windrow.ingest.kafka.properties import PLACE
from windrow.ingest.kafka.retry import HEAR_SECONDS, OTHERS_SECONDS
from windrow.ingest.model.plan import Split

_DO = (
    "Offsets of another topic mean nothing here: go back to the old one; windrow rebase SPEC shows"
    " what going on with this one would mean."
)
# syslog's "error": the admin client would warn of each property that only a consumer
# knows
_QUIET = 3


class IdentityCheck:
    """Asks a cluster, by a client of its own, who it and its topics are."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Connects lazily.

        Raises:
            SpecError: the properties can't be used.
        """
        self._properties, self._heard = properties, list[KafkaError]()
        self._seen: dict[str, _Seen] = {}
        settings: dict[str, Any] = {
            **properties,
            "log_level": _QUIET,
            "error_cb": self._heard.append,
            "logger": LOG,
        }
        try:
            self._admin: AdminClient | None = AdminClient(settings)
        except KafkaException as failure:
            what = (
                "the client properties can't be used where the task runs:"
                f" {scrubbed(failure.args[0].str(), properties)}"
            )
            raise SpecError(
                what, "read", f"Fix them {PLACE}; files that they name must be there too."
            ) from None

    def once(self, split: Split, cluster_id: str, topic_id: str, seconds: float) -> None:
        """Hold the split against the cluster, as it was when this asked for the first time.

        Raises:
            IdentityError: another cluster or topic id; the topic or the partition is gone.
            SpecError: the cluster refuses this client.
            UnreachableError: no answer within `seconds`.
        """
        if split.topic not in self._seen:
            self._seen[split.topic] = self._asked(split, seconds)
        seen = self._seen[split.topic]
        if seen.cluster_id != cluster_id:
            what = f"this is cluster {seen.cluster_id}, the plan was made on {cluster_id}"
            raise OwnerError(what, "read", _DO, split.topic, split.partition)
        if seen.topic_id != topic_id:
            what = f"topic {split.topic} has id {seen.topic_id}, the plan was made for {topic_id}"
            raise IdentityError(what, "read", _DO, split.topic, split.partition)
        if split.partition >= seen.partitions:
            raise IdentityError(
                f"topic {split.topic} has {seen.partitions} partitions",
                "read",
                _DO,
                split.topic,
                split.partition,
            )

    def again(self, split: Split, cluster_id: str, topic_id: str, seconds: float) -> None:
        """The same as the cluster is now: when a read fails strangely."""
        self._seen.pop(split.topic, None)
        self.once(split, cluster_id, topic_id, seconds)

    def close(self) -> None:
        """Give the client back."""
        self._admin = None

    def _asked(self, split: Split, seconds: float) -> _Seen:
        admin = self._admin
        assert admin is not None, "asked after it was closed"
        self._heard.clear()
        cluster = admin.describe_cluster(request_timeout=seconds)
        topics = admin.describe_topics(TopicCollection([split.topic]), request_timeout=seconds)
        try:
            _listen(admin, [cluster, topics[split.topic]], self._heard)
            topic = topics[split.topic].result(0)
            return _Seen(cluster.result(0).cluster_id, str(topic.topic_id), len(topic.partitions))
        except (KafkaException, TimeoutError) as failure:
            admin.poll(0)  # delivers to error_cb why there was no answer
            error = (
                failure.args[0]
                if isinstance(failure, KafkaException)
                else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
            )  # public
            raise refusal_of(split, error, self._heard, self._properties) from None


class _Seen(NamedTuple):
    """What a cluster said of itself and of a topic."""

    cluster_id: str
    topic_id: str
    partitions: int


def _listen(
    admin: AdminClient, futures: Sequence[Future[Any]], heard: Sequence[KafkaError]
) -> None:
    """Until the answers are there, which the client gives up by itself; but no longer
    than it can hope for one.
    """
    since: float | None = None
    while wait(futures, HEAR_SECONDS).not_done:
        admin.poll(0)
        if since is None and any(turned_away(e) for e in heard):
            since = time.monotonic()
        if since is not None and time.monotonic() - since > OTHERS_SECONDS:
            return


def turned_away(error: KafkaError) -> bool:
    """Whether an error says that the cluster doesn't let this client in, or that a
    certificate was not accepted.
    """
    return error.code() in DENIED or untrusted(error.str())


def denied(split: Split, why: str) -> SpecError:
    """The cluster does not let this client in, or not to this topic."""
    what = f"the cluster refuses to let this client read: {why}"
    do = "Check the credentials, and the client's rights to describe and read the topic."
    if untrusted(why):
        what = f"the TLS certificate is not accepted where the task runs: {why}"
        do = (
            "See that ssl.ca.location (or ssl.ca.pem) under client names the CA of the brokers'"
            " certificates there too."
        )
    return SpecError(what, "read", do, split.topic, split.partition)


def unreachable(split: Split, what: str, offset: int | None = None) -> UnreachableError:
    """Nothing came for too long."""
    do = "See that the brokers can be reached from where the tasks run, then run the window again."
    return UnreachableError(what, "read", do, split.topic, split.partition, offset)


def refusal_of(
    split: Split, error: KafkaError, heard: list[KafkaError], properties: Mapping[str, Any]
) -> WindrowError:
    """The error of a question about a topic's identity, by what the client has heard besides."""
    refused = next((e for e in (error, *heard) if turned_away(e)), None)
    if refused is not None:
        return denied(split, scrubbed(refused.str(), properties))
    if error.code() in GONE:
        return IdentityError(
            f"topic {split.topic} is gone", "read", _DO, split.topic, split.partition
        )
    return unreachable(
        split, f"the cluster did not answer: {scrubbed((heard or [error])[-1].str(), properties)}"
    )
