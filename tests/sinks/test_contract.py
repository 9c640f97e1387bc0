"""The contract suites on every kind of sink except Kafka, which has its own module."""

from __future__ import annotations

import pytest

from tests.contracts.sweep_contract import SweepContract
from tests.sinks.delta.world import DeltaKeyedWorld, DeltaPartitionedWorld, DeltaWorld
from tests.sinks.files.world import FilesPartitionedWorld, FilesWorld
from tests.sinks.iceberg.world import IcebergKeyedWorld, IcebergPartitionedWorld, IcebergWorld
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

_delta, _files, _iceberg, _postgres, _routes, _partitioned = (pytest.mark.some(1) for _ in range(6))
"""Marks: a case that several classes with the same mark have is run by one of them."""


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
    """The contract on tables in memory."""

    world = MemoryWorld()


@pytest.mark.slow
@pytest.mark.some(1)
class TestDelta(_Appends):
    """The contract on Delta tables."""

    world = DeltaWorld()


@pytest.mark.slow
@_partitioned
class TestDeltaPartitioned(_Appends):
    """The contract on Delta tables that are partitioned by a column."""

    world = DeltaPartitionedWorld()


@pytest.mark.slow
@_partitioned
class TestIcebergPartitioned(_Appends):
    """The contract on Iceberg tables that are partitioned by a column."""

    world = IcebergPartitionedWorld()


@pytest.mark.slow
@_partitioned
class TestFilesPartitioned(_Appends):
    """The contract on tables of Parquet files that are partitioned by a column."""

    world = FilesPartitionedWorld()


@pytest.mark.slow
@_delta
class TestDeltaKeyed(
    OfAWorld, SinkKeyedContract, SweepContract, SinkGridsContract, DeadLettersContract
):
    """The contract on Delta tables with a primary key; rows with different keys behave as in
    other tables.
    """

    world = DeltaKeyedWorld()


class TestDeltaMarked(TestDeltaKeyed):
    """The contract on Delta tables in which deleted keys stay."""

    world = DeltaKeyedWorld(marks=True)


@pytest.mark.slow
@_files
class TestParquet(_Appends):
    """The contract on tables of Parquet files."""

    world = FilesWorld()


@pytest.mark.slow
@_files
class TestJsonLines(OfAWorld, SinkAuditContract, SinkChecksumsContract, SinkMetadataContract):
    """The suites that depend on the file format, on JSON lines."""

    world = FilesWorld("jsonl")


@pytest.mark.slow
@pytest.mark.some(1)
class TestIceberg(_Appends):
    """The contract on Iceberg tables, with the catalog in SQLite."""

    world = IcebergWorld()


@pytest.mark.slow
@_iceberg
class TestIcebergKeyed(
    OfAWorld, SinkKeyedContract, SweepContract, SinkGridsContract, DeadLettersContract
):
    """The contract on Iceberg tables with a primary key."""

    world = IcebergKeyedWorld()


class TestIcebergMarked(TestIcebergKeyed):
    """The contract on Iceberg tables in which deleted keys stay."""

    world = IcebergKeyedWorld(marks=True)


@pytest.mark.some(1)
class TestSqlite(_Appends):
    """The contract on SQLite tables."""

    world = SqliteWorld()


@pytest.mark.slow
@_postgres
class TestPostgres(_Appends):
    """The contract on PostgreSQL tables."""

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
    """The contract on PostgreSQL tables with a primary key."""

    world = PostgresKeyedWorld()


class TestPostgresMarked(TestPostgresKeyed):
    """The contract on PostgreSQL tables in which deleted keys stay."""

    world = PostgresKeyedWorld(marks=True)


@_routes
class TestRoutesInMemory(_Appends):
    """Three tables in memory as one sink: rows become visible table by table."""

    world = InMemoryWorld()
    capabilities = Capabilities(atomic="table")


@pytest.mark.slow
@_routes
class TestRoutes(_Appends):
    """The contract on a Delta table, an SQLite table, and another Delta table for the rest."""

    world = RoutesWorld()
    capabilities = Capabilities(atomic="table")
