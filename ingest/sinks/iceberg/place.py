"""Files below a table's location that Iceberg doesn't know: staged ones, receipts and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from urllib.parse import urlparse

from pyarrow import fs

from windrow.ingest.sinks.place import Place


class IcebergPlace(Place):
    """A table's location, in the file system that its catalog's properties open.

    Loads no PyIceberg for a local table.

    Args:
        location: the table's location by its metadata.
        properties: returns the properties for PyIceberg's file access, which may contain
            credentials. Called once, and never for a local table.
    """

    def __init__(self, location: str, properties: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(location)
        self._properties = properties

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        path = local_path(self.uri)
        if path is not None:
            return fs.LocalFileSystem(), path
        # an executor that writes to a local disk needs no PyIceberg
        from pyiceberg.io.pyarrow import PyArrowFileIO

        properties = dict(self._properties())
        scheme, host, root = PyArrowFileIO.parse_location(self.uri, properties)
        return PyArrowFileIO(properties).fs_by_scheme(scheme, host), root


def local_path(location: str) -> str | None:
    """Path of a location on this machine's disks; None for any other location."""
    if location.startswith("/"):
        return location
    parsed = urlparse(location)
    return parsed.path if parsed.scheme == "file" else None
