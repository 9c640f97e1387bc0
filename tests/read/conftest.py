"""A real cluster, as tests of readers ask it and write to it."""

from __future__ import annotations

import pytest

from ingest.kafka.broker import KafkaBroker
from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs


@pytest.fixture
def broker(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {})


@pytest.fixture
def logs(kafka: str) -> Logs:
    return Logs(KafkaCluster(kafka))
