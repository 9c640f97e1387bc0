"""The kind `delta`: its section of the spec. deltalake is loaded only to make a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.values import Count, Default, Values
from windrow.ingest.sinks.kit import (
    Evolve,
    KeyColumns,
    Mode,
    PrimaryKey,
    Rows,
    SinkSection,
    StoragePlace,
    Version,
    key_conflicts,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink


class DeltaSection(SinkSection):
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
    buckets: Annotated[
        Annotated[Count, Field(le=4096)] | None, Values("a number from 1 to 4096"), Default("16")
    ] = Field(
        default=None,
        description=(
            "Into how many parts keys are divided, for ever. A commit holds the window's changes of"
            " one part in memory. Goes with `primary_key`."
        ),
    )

    evolve: Evolve = "add_columns"

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields settings of keys that contradict the mode."""
        yield from key_conflicts(written, "buckets")

    @property
    def key(self) -> PrimaryKey | None:
        if self.primary_key is None:
            return None
        key = PrimaryKey(self.primary_key, self.mode == "delete-aware", self.version)
        return key if self.buckets is None else replace(key, buckets=self.buckets)

    @property
    def keeps(self) -> bool:
        """True without a version column.

        With versions, a change between two versions may come later, so kept values can't be
        right.
        """
        return self.primary_key is not None and self.version is None

    def location(self, folder: Path) -> str:
        """Returns the table's absolute path, or the URL as it was given."""
        return absolute(self.path, folder)

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.sinks.delta.store import DeltaSink, DeltaStore

        store = DeltaStore(self.location(folder), metadata, self.key, self.evolve)
        return DeltaSink(store, rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes a second table, `<table>_dead`."""
        from windrow.ingest.sinks.delta.store import DeltaStore
        from windrow.ingest.sinks.kit import DeadLetterTable, Place

        return DeadLetterTable(DeltaStore(Place.normalized(self.location(folder)).dead.uri))
