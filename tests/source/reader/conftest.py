"""Fixtures of a real cluster for tests of readers."""

from __future__ import annotations

import pytest

from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs
from windrow.ingest.kafka.broker import KafkaBroker


@pytest.fixture
def broker(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {})


@pytest.fixture
def logs(kafka: str) -> Logs:
    return Logs(KafkaCluster(kafka))
