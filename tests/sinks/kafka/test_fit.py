"""Topics and clusters to which nothing can be written exactly once: a table's first run refuses
them before it makes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.produce import create_topic
from tests.sinks.kafka.world import KafkaBoth, options_of
from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.kafka import topics
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.testing.contracts.windows import ROWS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Refused = Callable[..., str]


@pytest.fixture
def refused(kafka: str, tmp_path: Path) -> Refused:
    """A function that runs a table for the first time, and returns the refusal.

    It asserts that no topic is made.
    """

    def topics_like(topic: str) -> set[str]:
        # other tests make topics of other names at the same time
        topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
        return {name for name in topics if topic in name}

    def refusal_message(topic: str, **more: Any) -> str:
        sink = KafkaBoth(ClusterConnection(kafka), options_of(topic, str(tmp_path), **more), ROWS)
        old_topics = topics_like(topic)
        with pytest.raises(SpecError, match="can't be written exactly once") as raised:
            sink.prepare()
        assert topics_like(topic) == old_topics
        return str(raised.value)

    return refusal_message


def test_transactions_longer_than_the_cluster_has_them(kafka: str, refused: Refused) -> None:
    """A transaction_timeout above the cluster's limit is refused.

    The error names windrow's setting and Kafka's.
    """
    message = refused(create_topic(kafka), timeout=timedelta(hours=1))
    assert (
        "sink.transaction_timeout is longer than the cluster's transaction.max.timeout.ms,"
        " 900000 ms" in message
    )


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact,delete"}])
def test_a_control_topic_that_would_lose_receipts(
    kafka: str, refused: Refused, config: dict[str, str]
) -> None:
    """A control topic with Kafka's default settings, or whose receipts would expire, is refused."""
    topic = create_topic(kafka)
    create_topic(kafka, name=f"{topic}.windrow", config=config)
    assert "must be compact, or receipts are lost" in refused(topic)


@pytest.mark.parametrize(
    ("verifies", "reason"),
    [({}, "older than Kafka 3.6"), ({topics.VERIFICATION: "false"}, "Set it to true")],
)
def test_brokers_that_let_late_messages_in(
    kafka: str,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    verifies: Mapping[str, str],
    reason: str,
) -> None:
    """Brokers without verification of transactions, or with it switched off, are refused."""
    settings = {"transaction.max.timeout.ms": "900000", **verifies}
    monkeypatch.setattr(
        topics,
        "broker_settings",
        lambda _: {name: SimpleNamespace(value=value) for name, value in settings.items()},
    )
    assert reason in refused(create_topic(kafka))
