"""PyIceberg's file access, which syncs each file on a local disk."""

from __future__ import annotations

import os
from typing import Any

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from windrow.ingest.sinks.place import fsync_path


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's file access over Arrow, with a sync of each local file.

    Without it, a loss of power might leave a catalog that names lost metadata. A catalog
    loads this class by its name (`py-io-impl`), for all tables that windrow opens in it.
    """

    def new_output(self, location: str) -> PyArrowFile:
        """Opens a file to write; closing a local one syncs it and its folder."""
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    """A local file that is synced when it is closed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(super().create(overwrite=overwrite), self._path)


class _SyncedStream:
    """The output stream of a local file."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream, self._path = stream, path

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)  # type: ignore[attr-defined]

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and syncs it and its folder."""
        if not self.closed:
            self._stream.close()
            for path in (
                self._path,
                os.path.dirname(self._path),  # noqa: PTH120
            ):
                fsync_path(path)
