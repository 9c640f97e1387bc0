"""The contract suites on every kind of sink but Kafka's, which has its own module."""

from __future__ import annotations

import pytest

from tests.contracts.sweep_contract import SweepContract
from tests.sinks.delta.world import DeltaKeyedWorld, DeltaWorld
from tests.sinks.files.world import FilesWorld
from tests.sinks.iceberg.world import IcebergWorld
from tests.sinks.memory import MemoryWorld
from tests.sinks.of_a_world import OfAWorld
from tests.sinks.postgres.world import PostgresKeyedWorld, PostgresWorld
from tests.sinks.routes.world import InMemoryWorld, RoutesWorld
from tests.sinks.sqlite.world import SqliteWorld
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.testing.contracts.dead_letters import DeadLettersContract
from windrow.ingest.testing.contracts.sink import SinkContract
from windrow.ingest.testing.contracts.sink_audit import SinkAuditContract
from windrow.ingest.testing.contracts.sink_checksums import SinkChecksumsContract
from windrow.ingest.testing.contracts.sink_grids import SinkGridsContract
from windrow.ingest.testing.contracts.sink_keyed import SinkKeyedContract
from windrow.ingest.testing.contracts.sink_metadata import SinkMetadataContract

_delta, _files, _postgres, _routes = (pytest.mark.some(1) for _ in range(4))
"""A case that several classes with one of these have is run by one of them."""


class _Appends(
    OfAWorld,
    SinkContract,
    SweepContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    pass


class TestMemory(_Appends):
    """The twin in memory."""

    world = MemoryWorld()


@pytest.mark.slow
@pytest.mark.some(1)
class TestDelta(_Appends):
    """On real Delta tables."""

    world = DeltaWorld()


@pytest.mark.slow
@_delta
class TestDeltaKeyed(
    OfAWorld, SinkKeyedContract, SweepContract, SinkGridsContract, DeadLettersContract
):
    """With a primary key: where no two rows have one key, it is as any other table."""

    world = DeltaKeyedWorld()


class TestDeltaMarked(TestDeltaKeyed):
    """Where what is deleted stays as its key."""

    world = DeltaKeyedWorld(marks=True)


@pytest.mark.slow
@_files
class TestParquet(_Appends):
    """On a real disk."""

    world = FilesWorld()


@pytest.mark.slow
@_files
class TestJsonLines(OfAWorld, SinkAuditContract, SinkChecksumsContract, SinkMetadataContract):
    """What depends on how rows are written."""

    world = FilesWorld("jsonl")


@pytest.mark.slow
@pytest.mark.some(1)
class TestIceberg(_Appends):
    """With its catalog in SQLite."""

    world = IcebergWorld()


@pytest.mark.some(1)
class TestSqlite(_Appends):
    """In a file."""

    world = SqliteWorld()


@pytest.mark.slow
@_postgres
class TestPostgres(_Appends):
    """On a real server."""

    world = PostgresWorld()


@pytest.mark.slow
@_postgres
class TestPostgresKeyed(
    OfAWorld,
    SinkKeyedContract,
    SweepContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """With a primary key."""

    world = PostgresKeyedWorld()


class TestPostgresMarked(TestPostgresKeyed):
    """Where what is deleted stays as its key."""

    world = PostgresKeyedWorld(marks=True)


@_routes
class TestRoutesInMemory(_Appends):
    """Three tables in memory as one sink: rows become visible table by table."""

    world = InMemoryWorld()
    capabilities = Capabilities(atomic="table")


@pytest.mark.slow
@_routes
class TestRoutes(_Appends):
    """A Delta table, one of SQLite, and another Delta table for the rest."""

    world = RoutesWorld()
    capabilities = Capabilities(atomic="table")
