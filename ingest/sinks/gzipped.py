"""A file that is compressed by gzip while it is written."""

from __future__ import annotations

import io
import zlib
from typing import Any

import pyarrow as pa

LEVEL = 4
"""Arrow's own stream has no say in this, and takes 9: several times as long for files
that are hardly smaller.
"""


class _Gzipped(io.RawIOBase):
    def __init__(self, out: pa.NativeFile) -> None:
        self._out, self._gzip = out, zlib.compressobj(LEVEL, wbits=zlib.MAX_WBITS + 16)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._out.write(self._gzip.compress(content))
        return memoryview(content).nbytes

    def close(self) -> None:
        if not self.closed:
            self._out.write(self._gzip.flush())
            self._out.close()
        super().close()


def gzipped(out: pa.NativeFile) -> pa.NativeFile:
    """A stream whose content, compressed, is written to another one. That is closed with it."""
    return pa.PythonFile(_Gzipped(out), mode="w")
