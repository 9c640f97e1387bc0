"""Settings of a table as a lookup source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationError

from windrow.ingest.errors import require_extra
from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.values import (
    REFERENCES,
    Default,
    ScalarOrSecret,
    Text,
    Values,
    check_location,
)
from windrow.ingest.sinks.iceberg.kind import IcebergSection

if TYPE_CHECKING:
    from windrow.ingest.lookups.table.source import Snapshots
    from windrow.ingest.ports.lookup import LookupSource

_OF_ICEBERG = ("warehouse", "catalog")


class TableSection(SourceSection):
    """A table. A window uses the version that the table has when the window first runs."""

    is_repeatable: ClassVar[bool] = True

    table: Annotated[Text, AfterValidator(check_location)] = Field(
        description=(
            "The folder of a Delta table, of a windrow table of files, or of Parquet files; a"
            " relative path begins at the file's folder. Of an Iceberg table `namespace.table`."
        )
    )
    warehouse: Annotated[Text | None, Default("none")] = Field(
        default=None, description="Of an Iceberg table: as in `sink` with `kind: iceberg`."
    )
    catalog: Annotated[
        Mapping[str, ScalarOrSecret] | None,
        Values(f"`{{property: value}}`; of a secret {REFERENCES}"),
        Default("none"),
    ] = Field(
        default=None,
        repr=False,
        description="Of an Iceberg table: as in `sink` with `kind: iceberg`.",
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the mistakes that `sink` would report for the same Iceberg settings."""
        if any(written.get(name) is not None for name in _OF_ICEBERG):
            try:
                IcebergSection.model_validate(_of_iceberg(written))
            except ValidationError as error:
                for mistake in error.errors(include_url=False):
                    yield mistake["loc"], mistake["msg"]

    def source(self, folder: Path) -> LookupSource:
        from windrow.ingest.lookups.table.source import TableSource  # imported here: it loads Arrow

        return TableSource(self._snapshots(folder))

    def _snapshots(self, folder: Path) -> Snapshots:
        if self.warehouse is not None or self.catalog is not None:
            iceberg_table = IcebergSection.model_validate(_of_iceberg(dict(self))).to_catalog_table(
                folder
            )
            with require_extra("iceberg", "Iceberg tables can't be read"):
                from windrow.ingest.sinks.iceberg.snapshots import IcebergSnapshots

            return IcebergSnapshots(iceberg_table)
        from windrow.ingest.lookups.table.parquet import ParquetFiles
        from windrow.ingest.sinks.delta.snapshots import DeltaSnapshots
        from windrow.ingest.sinks.kit.files.filesystem import Place

        where = Place.normalized(absolute(self.table, folder), "from.table")
        if "_delta_log" in where.folders(""):
            return DeltaSnapshots(where.uri)
        return ParquetFiles(where.uri)


def _of_iceberg(written: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: written.get(name) for name in ("table", *_OF_ICEBERG)}
    return {"kind": "iceberg", **{name: v for name, v in settings.items() if v is not None}}
