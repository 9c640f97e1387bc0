"""Is this the cluster, and are these the topics, that the plan was made for? Asked before a read, and again when one fails strangely."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from ingest.errors import IdentityError, SpecError, UnreachableError, WindrowError
from ingest.kafka.codes import DENIED, GONE, untrusted
from ingest.kafka.properties import PLACE
from ingest.model.plan import Split

_DO = (
    "Offsets of another topic mean nothing here: go back to the old one; windrow rebase SPEC shows what going on with this one would mean."
)
_SECRET = ("password", "secret", "key.pem")
"""How the names of properties end whose values no text may show."""

LOG = logging.getLogger("windrow.librdkafka")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False  # its lines may quote secrets, and a worker's stderr is kept in files
_HEAR_SECONDS = 0.05
_OTHERS_SECONDS = 2.0
"""How long other brokers have to answer once one has turned the client away, or its certificate was not accepted."""

_QUIET = 3  # syslog's "error": the admin client would warn of each property that only a consumer knows


def check_identity(properties: Mapping[str, Any], split: Split, cluster_id: str, topic_id: str, seconds: float) -> None:
    """Ask the cluster.

    Raises:
        IdentityError: another cluster or topic id; the topic or the partition is gone.
        SpecError: the cluster refuses this client.
        UnreachableError: no answer within `seconds`.
    """
    heard: list[KafkaError] = []
    settings: dict[str, Any] = {**properties, "log_level": _QUIET, "error_cb": heard.append, "logger": LOG}
    try:
        admin = AdminClient(settings)  # stays referenced while its futures run, or they fail
    except KafkaException as failure:
        what = f"the client properties can't be used where the task runs: {client_words(failure.args[0], properties)}"
        raise SpecError(what, "read", f"Mend them {PLACE}; files that they name must be there too.") from None
    cluster = admin.describe_cluster(request_timeout=seconds)
    topics = admin.describe_topics(TopicCollection([split.topic]), request_timeout=seconds)
    try:
        _listen(admin, [cluster, topics[split.topic]], heard)
        found = cluster.result(0).cluster_id
        topic = topics[split.topic].result(0)
    except (KafkaException, TimeoutError) as failure:
        admin.poll(0)  # delivers to error_cb why there was no answer
        error = failure.args[0] if isinstance(failure, KafkaException) else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001  # public
        raise _refusal(split, error, heard, properties) from None
    if found != cluster_id:
        raise IdentityError(f"this is cluster {found}, the plan was made on {cluster_id}", "read", _DO, split.topic, split.partition)
    if str(topic.topic_id) != topic_id:
        what = f"topic {split.topic} has id {topic.topic_id}, the plan was made for {topic_id}"
        raise IdentityError(what, "read", _DO, split.topic, split.partition)
    if split.partition >= len(topic.partitions):
        raise IdentityError(f"topic {split.topic} has {len(topic.partitions)} partitions", "read", _DO, split.topic, split.partition)


def _listen(admin: AdminClient, futures: Sequence[Future[Any]], heard: Sequence[KafkaError]) -> None:
    """Until the answers are there, which the client gives up by itself; but no longer than it can hope for one."""
    since: float | None = None
    while wait(futures, _HEAR_SECONDS).not_done:
        admin.poll(0)
        if since is None and any(turned_away(e) for e in heard):
            since = time.monotonic()
        if since is not None and time.monotonic() - since > _OTHERS_SECONDS:
            return


def turned_away(error: KafkaError) -> bool:
    """Whether an error says that the cluster doesn't let this client in, or that a certificate was not accepted."""
    return error.code() in DENIED or untrusted(error.str())


def client_words(error: KafkaError, properties: Mapping[str, Any]) -> str:
    """The client's words for an error, without the secrets that they might quote."""
    text = error.str()
    for name, value in properties.items():
        if name.endswith(_SECRET):
            text = text.replace(str(value), "***")
    return text


def denied(split: Split, why: str) -> SpecError:
    """The cluster does not let this client in, or not to this topic."""
    what = f"the cluster refuses to let this client read: {why}"
    do = "Check the credentials, and the client's rights to describe and read the topic."
    if untrusted(why):
        what = f"the TLS certificate is not accepted where the task runs: {why}"
        do = "See that ssl.ca.location (or ssl.ca.pem) under client names the CA of the brokers' certificates there too."
    return SpecError(what, "read", do, split.topic, split.partition)


def unreachable(split: Split, what: str, offset: int | None = None) -> UnreachableError:
    """Nothing came for too long."""
    do = "See that the brokers can be reached from where the tasks run, then run the window again."
    return UnreachableError(what, "read", do, split.topic, split.partition, offset)


def _refusal(split: Split, error: KafkaError, heard: list[KafkaError], properties: Mapping[str, Any]) -> WindrowError:
    refused = next((e for e in (error, *heard) if turned_away(e)), None)
    if refused is not None:
        return denied(split, client_words(refused, properties))
    if error.code() in GONE:
        return IdentityError(f"topic {split.topic} is gone", "read", _DO, split.topic, split.partition)
    return unreachable(split, f"the cluster did not answer: {client_words((heard or [error])[-1], properties)}")
