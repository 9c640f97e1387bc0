"""The kinds of sinks for suites, deaths and chaos runs, one per line."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tests.sinks.world import SinkWorld

SINKS = {
    "delta": "tests.sinks.delta.world:DeltaWorld",
    "delta-partitioned": "tests.sinks.delta.world:DeltaPartitionedWorld",
    "delta-keyed": "tests.sinks.delta.world:DeltaKeyedWorld",
    "iceberg": "tests.sinks.iceberg.world:IcebergWorld",
    "iceberg-partitioned": "tests.sinks.iceberg.world:IcebergPartitionedWorld",
    "iceberg-keyed": "tests.sinks.iceberg.world:IcebergKeyedWorld",
    "files": "tests.sinks.files.world:FilesWorld",
    "files-partitioned": "tests.sinks.files.world:FilesPartitionedWorld",
    "postgres": "tests.sinks.postgres.world:PostgresWorld",
    "postgres-keyed": "tests.sinks.postgres.world:PostgresKeyedWorld",
    "kafka": "tests.sinks.kafka.worlds:KafkaWorld",
    "routes": "tests.sinks.routes.world:RoutesWorld",
    "sqlite": "tests.sinks.sqlite.world:SqliteWorld",
}

WEAKER = {
    "kafka-at-least-once": "tests.sinks.kafka.worlds:AtLeastOnceWorld",
    "kafka-none": "tests.sinks.kafka.worlds:NoGuaranteeWorld",
}
"""Kinds with weaker guarantees.

Losses or duplicates that they allow are counted, and aren't wrong (`Capabilities.allows`).
"""

KINDS = {**SINKS, **WEAKER}


@cache
def world_of(kind: str) -> SinkWorld:
    """Imports and returns the world of a kind."""
    module, _, name = KINDS[kind].partition(":")
    world: SinkWorld = getattr(import_module(module), name)()
    return world
