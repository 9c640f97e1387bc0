"""Sinks that have their dead letters, as in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.partition_fields import PartitionField
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.delta import store as delta
from windrow.ingest.sinks.kind import Evolve, Rows, delta_dead_letters
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters
from windrow.ingest.testing.sink import MemoryDeadLetters, MemorySink


class DeltaSink(delta.DeltaSink):
    """A Delta table, with or without a primary key."""

    def __init__(
        self,
        uri: str,
        schema: Rows,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
        primary_key: PrimaryKey | None = None,
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        store = delta.DeltaStore(uri, metadata, primary_key, evolve, partition_by)
        super().__init__(store, schema)
        self.uri = self.store.location


class DeltaBoth(WithDeadLetters, DeltaSink):
    """A Delta table with its dead letters."""

    def __init__(self, uri: str, *args: Any, **more: Any) -> None:
        super().__init__(uri, *args, **more)
        self.dead_letters = delta_dead_letters(self.uri)


class DeltaKeyedBoth(DeltaBoth):
    """A Delta table with a primary key, and its dead letters."""

    def __init__(
        self,
        uri: str,
        schema: Rows,
        primary_key: PrimaryKey,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(uri, schema, metadata, evolve, primary_key)
        self.primary_key = primary_key


class MemoryBoth(WithDeadLetters, MemorySink):
    """A table in memory with its dead letters."""

    def __init__(self, name: str, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        super().__init__(name, schema, metadata)
        self.dead_letters = MemoryDeadLetters()
