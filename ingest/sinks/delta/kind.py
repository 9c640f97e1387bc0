"""The kind `delta`: its section of the spec. deltalake is loaded only to make a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.settings.paths import absolute
from windrow.ingest.sinks.kit import (
    Buckets,
    Evolve,
    KeyColumns,
    KeyedSection,
    Mode,
    PartitionBy,
    Rows,
    StoragePlace,
    Version,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink


class DeltaSection(KeyedSection):
    """The table.

    A relative path is relative to the spec's folder. A URL (s3://...) stays as it is.
    """

    kind: Literal["delta"] = Field(default="delta", description="What kind of table it is.")
    path: StoragePlace = Field(
        description="Where the table is. A relative path begins at the file's folder."
    )

    mode: Mode = "append"
    primary_key: KeyColumns = None
    version: Version = None
    buckets: Buckets = None

    evolve: Evolve = "add_columns"
    partition_by: PartitionBy = ()

    def location(self, folder: Path) -> str:
        """Returns the table's absolute path, or the URL as it was given."""
        return absolute(self.path, folder)

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.sinks.delta.store import DeltaSink, DeltaStore

        fields = tuple(section.field for section in self.partition_by)
        store = DeltaStore(self.location(folder), metadata, self.key, self.evolve, fields)
        return DeltaSink(store, rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes a second table, `<table>_dead`."""
        from windrow.ingest.sinks.delta.store import DeltaStore
        from windrow.ingest.sinks.kit import DeadLetterTable, Place

        return DeadLetterTable(DeltaStore(Place.normalized(self.location(folder)).dead.uri))
