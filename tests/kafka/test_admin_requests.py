"""The broker's requests to an address without a server, and their arithmetic."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import ConfigResource, ListOffsetsResultInfo
from hypothesis import given
from hypothesis import strategies as st

from tests.heard import hear_waits
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka import shared_clients
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.broker import KafkaBroker, first_millisecond, topic_id_of
from windrow.ingest.kafka.shared_clients import Clients
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import OffsetAndEpoch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TP = TopicPartition("t", 0)


@pytest.fixture
def nobody() -> KafkaBroker:
    """A broker at port 1 of this machine, where nothing listens."""
    return KafkaBroker("127.0.0.1:1", {}, patience_seconds=0.5)


def questions(patience_seconds: float = 0.5) -> Questions:
    """Returns requests to port 1 with their own client."""
    client = Clients().of({"bootstrap.servers": "127.0.0.1:1"})
    return Questions("127.0.0.1:1", client, patience_seconds)


class Silent:
    """An AdminClient that reports no error."""

    def poll(self, _seconds: float) -> int:
        return 0


def answered_by(monkeypatch: pytest.MonkeyPatch, admin: object, **client: object) -> KafkaBroker:
    """Returns a broker with this object as its AdminClient."""
    monkeypatch.setattr("windrow.ingest.kafka.broker.CLIENTS", Clients())
    monkeypatch.setattr(shared_clients, "AdminClient", lambda _properties: admin)
    return KafkaBroker("127.0.0.1:1", client, patience_seconds=0.5)


@pytest.mark.slow
def test_an_unreachable_cluster_is_told_with_the_reason(
    nobody: KafkaBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each request to an unreachable cluster raises UnreachableError with address and reason.

    Nothing is written to stderr.
    """
    for ask in (
        nobody.cluster_id,
        lambda: nobody.topic("t"),
        lambda: nobody.log_starts([TP]),
        lambda: nobody.stable_ends([TP]),
        lambda: nobody.first_at_or_after([TP], EPOCH),
        lambda: list(nobody.stamps(TP, 0, 1)),
        nobody.names,
        lambda: nobody.topics(["t"]),
        lambda: nobody.ends([TP]),
        lambda: nobody.committed_offsets("g", [TP]),
    ):
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
            ask()
    captured = capfd.readouterr()
    assert "rdkafka" not in captured.err + captured.out


def test_offsets_that_a_group_refuses_are_told_and_not_raised(nobody: KafkaBroker) -> None:
    """An unreachable cluster gives a refusal for each topic-partition, not an exception."""
    other_tp = TopicPartition("t", 1)
    refusals = nobody.alter_offsets("g", {TP: 1, other_tp: 2})
    assert refusals.keys() == {TP, other_tp}
    assert all(reason is not None and "127.0.0.1:1" in reason for reason in refusals.values())


@pytest.mark.slow
def test_retriable_errors_are_tried_again_and_others_are_not() -> None:
    """A moving leader is asked again, and a missing right is not."""
    codes = [KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION]

    def answered() -> str:
        if codes:
            raise KafkaException(KafkaError(codes.pop()))
        return "answer"

    patient = questions(patience_seconds=30)
    assert patient.ask("it", "t", answered) == "answer"
    codes = [KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(SpecError, match="lacks Read on the topic t ") as caught:
        patient.ask("it", "t", answered)
    assert codes == [KafkaError.OFFSET_NOT_AVAILABLE]
    assert "--operation Read --topic t" in caught.value.advice


def test_who_lets_one_wait_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow request logs the address and what is asked for. A fast request logs nothing."""
    with hear_waits() as heard:
        assert questions().ask("its id", None, lambda: 1) == 1
        monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.0)
        message = questions().ask("its offsets", None, lambda: heard.get(timeout=30).getMessage())
    assert message == "Waiting for 127.0.0.1:1 to tell its offsets: no answer yet"


def test_a_broker_that_is_down_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first log message about an unreachable broker has the reason, long before the timeout."""
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 3.0)
    requests = questions(patience_seconds=60)
    with hear_waits() as heard, ThreadPoolExecutor(1) as pool:

        def hear_message() -> str:
            # No client connects without a request.
            requests.admin.describe_cluster(request_timeout=60)
            return requests.result(pool.submit(lambda: heard.get(timeout=30).getMessage()))

        message = requests.ask("the cluster's id", None, hear_message)
    assert message.startswith("Waiting for 127.0.0.1:1 to tell the cluster's id: ")
    assert "Connection refused" in message


def failed_future(code: int, text: str = "") -> Future[str]:
    future: Future[str] = Future()
    future.set_exception(KafkaException(KafkaError(code, text)))
    return future


def answered(value: object) -> Future[object]:
    future: Future[object] = Future()
    future.set_result(value)
    return future


def test_what_one_topic_lacks_says_nothing_of_the_others() -> None:
    """A missing, forbidden or invalid topic is an error among the results.

    Any other failure is an error of the whole request.
    """
    requests = questions()
    for code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
    ):
        result_by_key = requests.results(
            {"a": answered("yes"), "b": failed_future(code), "c": answered("too")}
        )
        assert (result_by_key["a"], result_by_key["c"]) == ("yes", "too")
        assert isinstance(result_by_key["b"], KafkaException)
    for code in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        with pytest.raises(KafkaException):
            requests.results({"a": answered("yes"), "b": failed_future(code)})


def test_a_topic_that_may_not_be_seen_is_not_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing right to describe a topic is named, and not taken for a missing topic.

    This holds for requests about several topics too.
    """
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED

    class Admin(Silent):
        def describe_topics(
            self, topics: TopicCollection, **_: object
        ) -> dict[str, Future[object]]:
            futures = {"hidden": failed_future(denied), "closed": answered("described")}
            return {name: futures[name] for name in topics.topic_names}  # type: ignore[attr-defined]

        def describe_configs(
            self, resources: list[ConfigResource], request_timeout: float
        ) -> dict[ConfigResource, Future[str]]:
            assert [resource.name for resource in resources] == ["closed"]
            return {resources[0]: failed_future(denied)}

    broker = answered_by(monkeypatch, Admin())
    with pytest.raises(SpecError, match="lacks DescribeConfigs on the topic closed"):
        broker.topics(["hidden", "closed"])
    for name, right in (("hidden", "Read"), ("closed", "DescribeConfigs")):
        with pytest.raises(SpecError, match=f"lacks {right} on the topic {name}") as caught:
            broker.topic(name)
        assert caught.value.topic == name


def test_a_refusal_of_one_topic_partition_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reasons for topic-partitions have their secrets removed, as errors have.

    A group that may not be written is a reason too.
    """
    secret = "canary-77aa"
    user = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": secret,
    }
    refusal = KafkaError(KafkaError.INVALID_COMMIT_OFFSET_SIZE, f"said {secret}")

    class Admin(Silent):
        def alter_consumer_group_offsets(
            self, groups: list[ConsumerGroupTopicPartitions], request_timeout: float
        ) -> dict[str, object]:
            if groups[0].group_id == "closed":
                return {"closed": failed_future(KafkaError.GROUP_AUTHORIZATION_FAILED)}
            parts = SimpleNamespace(
                topic_partitions=[SimpleNamespace(topic="t", partition=0, offset=1, error=refusal)]
            )
            return {"g": answered(parts)}  # type: ignore[arg-type]

    broker = answered_by(monkeypatch, Admin(), **user)
    assert broker.alter_offsets("g", {TP: 1}) == {TP: "said ***"}
    assert "lacks Read on the group closed" in (broker.alter_offsets("closed", {TP: 1})[TP] or "")


def test_a_failed_answer_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset -1 means "none", where "none" is possible; a missing end is refused.

    librdkafka gives another negative offset, and no error, if the connection broke. The request
    is then sent again.
    """
    offsets = [-1, -1, -1001, 7]

    class Admin(Silent):
        def describe_topics(self, topics: TopicCollection, **_: object) -> object:
            return {"t": answered(SimpleNamespace(partitions=[0]))}

        def list_offsets(self, specs: dict[object, object], **options: object) -> object:
            listed = ListOffsetsResultInfo(offsets.pop(0), -1, -1)
            return {tp: answered(listed) for tp in specs}

    broker = answered_by(monkeypatch, Admin())
    assert broker.first_at_or_after([TP], EPOCH) == {TP: None}
    with pytest.raises(UnreachableError, match="an end of the log"):
        broker.ends([TP])
    assert broker.first_at_or_after([TP], EPOCH) == {TP: OffsetAndEpoch(7, None)}


def test_a_cluster_without_topic_ids_is_refused() -> None:
    """A cluster without topic ids is refused.

    A recreated topic would have the same zero id.
    """
    with pytest.raises(SpecError, match="no id"):
        topic_id_of("t", "AAAAAAAAAAAAAAAAAAAAAA")
    assert topic_id_of("t", "O3AoAyNKTluGS3PUToqsVg") == "O3AoAyNKTluGS3PUToqsVg"


@given(
    st.datetimes(
        min_value=datetime(1960, 1, 1),  # noqa: DTZ001
        max_value=datetime(2200, 1, 1),  # noqa: DTZ001
        timezones=st.just(UTC),
    )
)
def test_milliseconds_are_the_first_at_or_after_the_instant(moment: datetime) -> None:
    """An instant becomes the least millisecond that isn't before it.

    It is never negative, because negative numbers have a special meaning in Kafka.
    """
    milliseconds = first_millisecond(moment)
    assert milliseconds >= 0
    assert EPOCH + timedelta(milliseconds=milliseconds) >= moment
    assert milliseconds == 0 or EPOCH + timedelta(milliseconds=milliseconds - 1) < moment


def test_files_that_can_not_be_used_are_a_spec_error() -> None:
    """A missing certificate file raises SpecError when the client is made.

    The error has the property's name.
    """
    with pytest.raises(SpecError, match=r"ssl\.ca\.location"):
        KafkaBroker(
            "127.0.0.1:1", {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}
        )


def test_the_clients_log_does_not_propagate() -> None:
    """librdkafka's log reaches only handlers of its own logger."""
    assert not logging.getLogger("windrow.librdkafka").propagate


@pytest.mark.slow
def test_a_topic_that_is_unknown_for_a_moment_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unknown topic is asked for again for a short time, without a log message.

    The reason is that the news of a topic takes time. After that the topic counts as missing.
    """
    ask_count = 0

    def unknown() -> str:
        nonlocal ask_count
        ask_count += 1
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def known_now() -> str:
        return "it" if ask_count > 2 else unknown()

    patient = questions(patience_seconds=300)
    with monkeypatch.context() as patched:
        patched.setattr("windrow.ingest.kafka.admin_requests.NEW_TOPIC_SECONDS", 30.0)
        assert patient.ask("the topic", "t", known_now) == "it"
    with pytest.raises(SpecError, match="no such topic"):
        patient.ask("the topic", "t", unknown)
    assert ask_count > 3
