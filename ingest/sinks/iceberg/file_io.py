"""PyIceberg's file access, which syncs each file on a local disk."""

from __future__ import annotations

import io
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from windrow.ingest.sinks.kit import Place


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's file access over Arrow, with a sync of each local file.

    Without it, a loss of power might leave a catalog that names lost metadata. A catalog
    loads this class by its name (`py-io-impl`), for all tables that windrow opens in it.
    """

    def new_output(self, location: str) -> PyArrowFile:
        """Opens a file to write. Closing a local file syncs it and its folder."""
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    """A local file that is synced when it is closed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        """Closes the file, and syncs it and its folder."""
        if not self.closed:
            super().close()
            path = Path(self.name)
            Place(str(path.parent)).fsync(path.name)
