"""The kind `iceberg`: its section of the spec. PyIceberg is loaded only to make a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from windrow.ingest.errors import require_extra
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute, is_url
from windrow.ingest.settings.secrets import Secret, in_folder
from windrow.ingest.settings.values import (
    REFERENCES,
    Default,
    ScalarOrSecret,
    Text,
    Values,
    check_location,
    sentence,
)
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable, Property
from windrow.ingest.sinks.kit import (
    Buckets,
    Evolve,
    KeyColumns,
    KeyedSection,
    Mode,
    PartitionBy,
    Rows,
    Version,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink

_WHAT = "Iceberg tables can't be read or written"
_NAME = re.compile(r"[^./\\%?#\s\x00-\x1f\x7f][^./\\%?#\x00-\x1f\x7f]*")
_OWN = ("py-io-impl", "init_catalog_tables")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]+")


def _table(value: str) -> str:
    parts = value.split(".")
    if len(parts) < 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise sentence("must be namespace.table, without / \\ % ? # in the names")
    return value


def _folder(value: str) -> str:
    if is_url(value):
        raise sentence(
            "must be a folder of this machine, where its catalog lies too; a warehouse elsewhere"
            " has a catalog: say it under catalog"
        )
    return check_location(value)


def _catalog(value: Mapping[str, Any]) -> Mapping[str, Any]:
    bad_names = [name for name in value if not _PROPERTY.fullmatch(name)]
    if bad_names:
        raise sentence(f"{', '.join(bad_names)}: no names of properties")
    reserved = [name for name in _OWN if name in value]
    if reserved:
        raise sentence(f"{', '.join(reserved)}: set by windrow itself")
    if value.get("type") == "in-memory":
        raise sentence(
            "of type in-memory is gone with its process: say warehouse, which needs no server"
            " either"
        )
    if not value:
        raise sentence("names no property: leave it out, and say warehouse")
    return value


class IcebergSection(KeyedSection):
    """The table: in a folder with its own catalog, or in an existing catalog."""

    kind: Literal["iceberg"] = Field(description="What kind of table it is.")
    table: Annotated[Text, AfterValidator(_table), Values("`namespace.table`")] = Field(
        description="The table's name in its catalog. The namespace is made where it isn't there."
    )
    warehouse: Annotated[
        Annotated[Text, AfterValidator(_folder)] | None,
        Values("a path"),
        Default("none, with `catalog`"),
    ] = Field(
        default=None,
        description=(
            "A folder for tables and their catalog, `catalog.db` in SQLite. A relative path begins"
            " at the file's folder."
        ),
    )
    catalog: Annotated[
        Annotated[Mapping[str, ScalarOrSecret], AfterValidator(_catalog)] | None,
        Values(f"`{{property: value}}`; of a secret {REFERENCES}"),
        Default("none, with `warehouse`"),
    ] = Field(
        default=None,
        repr=False,
        description=(
            "A catalog's properties as PyIceberg knows them: `type`, `uri`, `warehouse`,"
            " credentials by references ...; and its `name`, which is `default` where that is left"
            " out. A secret that tasks need has to be a reference: each process reads it for"
            " itself."
        ),
    )
    mode: Mode = "append"
    primary_key: KeyColumns = None
    version: Version = None
    buckets: Buckets = None
    evolve: Evolve = "add_columns"
    partition_by: PartitionBy = ()

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the conflicts of the keys, and those of warehouse and catalog: one is set."""
        yield from super().conflicts(written)
        settings = [name for name in ("warehouse", "catalog") if written.get(name) is not None]
        if not settings:
            yield (
                (),
                (
                    "either warehouse, a folder, or catalog must be set: nothing says where the"
                    " table is"
                ),
            )
        if len(settings) > 1:
            yield (
                ("catalog",),
                "goes without warehouse: say the catalog's warehouse among its properties",
            )

    def location(self, folder: Path) -> str:
        """Returns the place of the table: folder and name, or the catalog's address and name."""
        return self.to_catalog_table(folder).location

    def to_catalog_table(self, folder: Path) -> CatalogTable:
        """Returns the table's catalog, and its name in it.

        Raises:
            SpecError: no table can be there.
        """
        if self.warehouse is not None:
            return CatalogTable.in_folder(absolute(self.warehouse, folder), self.table)
        return CatalogTable.in_catalog(
            self.table,
            {name: _property(value, folder) for name, value in (self.catalog or {}).items()},
        )

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        with require_extra("iceberg", _WHAT):
            from windrow.ingest.sinks.iceberg.store import IcebergStore
        from windrow.ingest.sinks.kit import WindowTable

        fields = tuple(section.field for section in self.partition_by)
        table = self.to_catalog_table(folder)
        store = IcebergStore(table, metadata, self.key, self.evolve, fields)
        return WindowTable(store, rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes a second table, `<table>_dead`."""
        with require_extra("iceberg", _WHAT):
            from windrow.ingest.sinks.iceberg.store import IcebergStore
        from windrow.ingest.sinks.kit import DeadLetterTable

        return DeadLetterTable(IcebergStore(self.to_catalog_table(folder).dead(), DEFAULT))


def _property(value: object, folder: Path) -> Property:
    """Converts a property for PyIceberg. A reference to a file gets its absolute path."""
    if isinstance(value, Secret):
        return in_folder(value, folder)
    return str(value).lower() if isinstance(value, bool) else str(value)
