"""Brokers on a real cluster that record their requests and consumers."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from windrow.ingest.kafka import shared_clients
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.shared_clients import Clients


class Counted:
    """An AdminClient that records the names of its calls."""

    def __init__(self, admin: AdminClient, calls: list[str]) -> None:
        self._real, self._noted = admin, calls

    def __getattr__(self, name: str) -> object:
        if name != "poll":
            self._noted.append(name)
        return getattr(self._real, name)


def counted_broker(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[KafkaBroker, list[str]]:
    """Returns a broker with its own client, and the names of its AdminClient's calls."""
    calls: list[str] = []
    make_broker = _make_broker_alone(monkeypatch)
    monkeypatch.setattr(
        shared_clients, "AdminClient", lambda properties: Counted(AdminClient(properties), calls)
    )
    return make_broker(bootstrap), calls


def with_consumers(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[KafkaBroker, list[ck.Consumer]]:
    """Returns a broker with its own client, and the consumers that it makes."""
    consumers: list[ck.Consumer] = []

    def noted(properties: dict[str, object]) -> ck.Consumer:
        consumers.append(ck.Consumer(properties))
        return consumers[-1]

    make_broker = _make_broker_alone(monkeypatch)
    monkeypatch.setattr(shared_clients, "Consumer", noted)
    return make_broker(bootstrap), consumers


def _make_broker_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], KafkaBroker]:
    monkeypatch.setattr("windrow.ingest.kafka.broker.CLIENTS", Clients())
    return lambda bootstrap: KafkaBroker(bootstrap, {})
