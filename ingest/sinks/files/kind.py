"""The kind `files`: its section of the spec. Tables are folders of Parquet, JSON or CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.values import Default, Values, sentence
from windrow.ingest.sinks.kit import PartitionBy, Rows, SinkSection, StoragePlace

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink

_STORE = "s3"


def _path(value: str) -> str:
    scheme, _, remote = value.partition("://")
    if remote and scheme not in {"file", _STORE}:
        raise sentence(
            f"must be a path or an s3:// URL: in {scheme} no commit of files can be exactly once"
        )
    return value


class FilesSection(SinkSection):
    """The folder.

    A relative path is relative to the spec's folder. A URL (s3://...) stays as it is.
    """

    kind: Literal["files"] = Field(description="What kind of table it is.")
    path: Annotated[
        StoragePlace,
        AfterValidator(_path),
        Values("a path, or an s3:// URL that names a place"),
    ] = Field(description="Where the folder is. A relative path begins at the file's folder.")
    format: Literal["parquet", "jsonl", "csv"] = Field(
        default="parquet",
        description=(
            "Parquet, lines of JSON, or CSV with a header, which holds no lists, structs or maps."
        ),
    )
    compression: Annotated[
        Literal["none", "snappy", "gzip", "zstd"] | None, Default("zstd in Parquet, gzip else")
    ] = Field(
        default=None, description="What files are compressed with. snappy goes with Parquet alone."
    )

    partition_by: PartitionBy = ()

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields a compression that the format doesn't allow."""
        if written.get("compression") == "snappy" and written.get("format", "parquet") != "parquet":
            yield (
                ("compression",),
                "snappy goes with format parquet: readers of texts don't know it",
            )

    def location(self, folder: Path) -> str:
        """Returns the folder's absolute path, or the URL as it was given."""
        return absolute(self.path, folder)

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.sinks.files.stage import FileFormat
        from windrow.ingest.sinks.files.store import FilesStore
        from windrow.ingest.sinks.kit import WindowTable

        compression = self.compression or ("zstd" if self.format == "parquet" else "gzip")
        written = FileFormat(self.format, compression)
        fields = tuple(section.field for section in self.partition_by)
        return WindowTable(FilesStore(self.location(folder), written, metadata, fields), rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes a Delta table, `<folder>_dead`."""
        from windrow.ingest.sinks.kit import delta_dead_letters

        return delta_dead_letters(self.location(folder))
