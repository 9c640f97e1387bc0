"""`KafkaBroker` fulfils the contract of brokers on real Kafka."""

from __future__ import annotations

import pytest

from tests.contracts.broker_contract import BrokerContract
from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs
from windrow.ingest.kafka.broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def broker(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {})


@pytest.fixture
def dirty(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {}, isolation="read_uncommitted")


@pytest.fixture
def logs(kafka: str) -> Logs:
    return Logs(KafkaCluster(kafka))


class TestKafkaBroker(BrokerContract):
    """Real Kafka, which answers as the broker in memory."""
