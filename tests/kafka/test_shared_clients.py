"""A process has one client for each cluster and login."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.forked import fork
from windrow.ingest.assemble import connect
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import UnreachableError
from windrow.ingest.kafka import shared_clients
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import admin_properties
from windrow.ingest.kafka.shared_clients import MAX_CLIENTS, Clients

SHARED = """\
clusters:
  prod: {bootstrap_servers: "127.0.0.1:1", client: {client.id: us}}
  other: {bootstrap_servers: "127.0.0.1:2"}
"""


class Fake:
    """An AdminClient that records its creation."""

    created: list[dict[str, Any]]

    def __init__(self, properties: dict[str, Any]) -> None:
        type(self).created.append(properties)


@pytest.fixture
def created_clients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The properties of each client that was created, in a process without earlier clients."""
    Fake.created = []
    monkeypatch.setattr(shared_clients, "AdminClient", Fake)
    monkeypatch.setattr("windrow.ingest.kafka.broker.CLIENTS", Clients())
    return Fake.created


def pipeline(folder: Path, name: str, **source: object) -> PipelineSpec:
    """Returns a pipeline whose cluster is in windrow.yaml."""
    (folder / "windrow.yaml").write_text(SHARED)
    attributes = {
        "id": name,
        "window": {"grid": "batch"},
        "decode": {"schema": "a.b:C"},
        "sink": {"path": name},
    }
    return parse_spec(
        {**attributes, "source": {"cluster": "prod", "topic": name, **source}}, folder
    )


def test_fifty_pipelines_have_one_client(
    tmp_path: Path, created_clients: list[dict[str, Any]]
) -> None:
    """Fifty pipelines share one client, at any isolation level.

    Another cluster or another login has its own client.
    """
    for n in range(50):
        for isolation in ("read_committed", "read_uncommitted"):
            connect(pipeline(tmp_path, f"p{n}", isolation=isolation))
    assert [properties["bootstrap.servers"] for properties in created_clients] == ["127.0.0.1:1"]
    for _ in range(2):
        connect(pipeline(tmp_path, "else", cluster="other"))
        connect(pipeline(tmp_path, "mine", client={"client.id": "me"}))
    assert [(p["bootstrap.servers"], p["client.id"]) for p in created_clients[1:]] == [
        ("127.0.0.1:2", "windrow"),
        ("127.0.0.1:1", "me"),
    ]


def test_threads_that_ask_at_once_get_one(created_clients: list[dict[str, Any]]) -> None:
    """Threads that ask at the same time get one client.

    Dagster ticks of many pipelines are threads.
    """
    barrier, shared, clients = threading.Barrier(8), Clients(), []

    def ask() -> None:
        barrier.wait(30)
        clients.append(shared.of({"bootstrap.servers": "a:1"}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(created_clients) == 1
    assert len({id(client) for client in clients}) == 1


def test_those_that_nobody_asked_for_longest_go(created_clients: list[dict[str, Any]]) -> None:
    """A bounded number of clients is kept: those that were asked for last."""
    shared = Clients()
    first = shared.of({"bootstrap.servers": "a:0"})
    for n in range(1, MAX_CLIENTS):
        shared.of({"bootstrap.servers": f"a:{n}"})
    assert shared.of({"bootstrap.servers": "a:0"}) is first
    shared.of({"bootstrap.servers": "a:more"})
    assert shared.of({"bootstrap.servers": "a:0"}) is first
    assert len(created_clients) == MAX_CLIENTS + 1
    shared.of({"bootstrap.servers": "a:1"})
    assert len(created_clients) == MAX_CLIENTS + 2
    shared.close()
    assert shared.of({"bootstrap.servers": "a:0"}) is not first


def test_one_that_failed_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure the next request uses a new client.

    librdkafka doesn't repeat the reason of a refused login.
    """
    monkeypatch.setattr("windrow.ingest.kafka.broker.CLIENTS", shared := Clients())
    monkeypatch.setattr("windrow.ingest.kafka.admin_requests.CLIENTS", shared)
    # This broker uses the client `first` below.
    broker = KafkaBroker("127.0.0.1:1", {}, patience_seconds=0.2)
    properties = admin_properties("127.0.0.1:1", {})
    first = shared.of(properties)
    with pytest.raises(UnreachableError):
        broker.cluster_id()
    assert shared.of(properties) is not first


def test_a_question_hears_what_was_said_since_it_was_put(
    created_clients: list[dict[str, Any]],
) -> None:
    """A request gets only errors that its client reported since the request began.

    Earlier errors may belong to another pipeline.
    """
    client = Clients().of({"bootstrap.servers": "a:1"})
    created_clients[0]["error_cb"](KafkaError(KafkaError._TRANSPORT, "before"))
    (error_time, _), *_ = client.errors_since(0)
    created_clients[0]["error_cb"](KafkaError(KafkaError._TRANSPORT, "after"))
    assert [error.str() for _, error in client.errors_since(0)] == ["before", "after"]
    assert [
        error.str() for when, error in client.errors_since(error_time) if when > error_time
    ] == ["after"]


def test_a_forked_child_has_its_own(
    created_clients: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child has its own client, even if a thread held the lock during the fork."""
    shared = shared_clients.CLIENTS
    parents = shared.of({"bootstrap.servers": "fork:1"})
    in_lock, goes_on = threading.Event(), threading.Event()

    class Slow(Fake):
        def __init__(self, properties: dict[str, Any]) -> None:
            super().__init__(properties)
            in_lock.set()
            goes_on.wait(60)

    def child() -> None:
        shared_clients.AdminClient = Fake  # type: ignore[misc]  # nothing is connected
        assert shared.of({"bootstrap.servers": "fork:1"}) is not parents

    monkeypatch.setattr(shared_clients, "AdminClient", Slow)
    other_thread = threading.Thread(target=shared.of, args=({"bootstrap.servers": "fork:2"},))
    other_thread.start()
    assert in_lock.wait(30)
    process = fork(child)
    goes_on.set()
    other_thread.join(30)
    process.join(60)
    assert process.exitcode == 0
    assert shared.of({"bootstrap.servers": "fork:1"}) is parents
    for number in (1, 2):
        shared.drop(shared.of({"bootstrap.servers": f"fork:{number}"}))
