"""Stages a split's rows in a file whose name no other attempt uses. Runs on executors.

Each kind of sink has a `RowWriter`, which writes rows in its format and describes the file for
the commit. Nothing becomes visible here, and nothing is removed: another attempt may have
committed a file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staging
from windrow.ingest.schema.checksum import checksum, text
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.staging import Layout, writable

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""Rows are written as soon as either is reached: that bounds what a file holds in memory."""

File = TypeVar("File", bound=msgspec.Struct)
File_co = TypeVar("File_co", bound=msgspec.Struct, covariant=True)


class RowWriter(Protocol[File_co]):
    """Writes rows into one file, in a sink's format."""

    def begin(self, out: pa.NativeFile) -> None:
        """Writes the file's header. Called once, first."""

    def write(self, rows: pa.Table) -> None:
        """Appends rows."""

    def end(self) -> None:
        """Writes the file's footer; the caller closes the file."""

    def describe(self, path: str, size: int, rows: int) -> File_co:
        """Describes the file for the commit: small, JSON, safe to lose. Called last."""


class GrowingFile(Generic[File]):
    """A file that is written in groups of rows, one of which is in memory.

    It is created with its first batch, so a split without rows makes none.

    Args:
        place: the folder.
        path: the file's path in it, which nobody else uses.
        writer: the format.
        grouped: whether batches are collected to groups; else each is written at once.
        durable: whether it must survive a loss of power; else its reader must check that it is
            whole.
    """

    def __init__(
        self,
        place: Place,
        path: str,
        writer: RowWriter[File],
        *,
        grouped: bool = True,
        durable: bool = True,
    ) -> None:
        self.rows = 0
        self._place, self._path, self._writer = place, path, writer
        self._grouped, self._durable = grouped, durable
        self._out: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends rows, with the same columns each time."""
        if self._out is None:
            out = self._place.create(self._path)
            # if this fails because the disk is full, there is nothing to end
            self._writer.begin(out)
            self._out = out
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if (
            not self._grouped
            or self._waiting_rows >= GROUP_ROWS
            or self._waiting_bytes >= GROUP_BYTES
        ):
            self._flush()

    def close(self) -> File | None:
        """Finishes the file and describes it; None if there were no rows."""
        if self._out is None:
            return None
        self._flush()
        self._writer.end()
        self._out.close()
        return self._writer.describe(
            self._path, self._place.finish(self._path, durable=self._durable), self.rows
        )

    def abandon(self) -> None:
        """Closes the file without a result. On a full disk closing fails as writing did."""
        self._waiting.clear()
        with suppress(OSError, RuntimeError, pa.ArrowException):
            if self._out is not None:
                self._writer.end()
                self._out.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class FileStager(Generic[File]):
    """Stages a split in one file (`ports.sink.Stager`).

    Args:
        uri: the place of the sink's files, for errors.
        layout: the columns of a staged batch.
        split: the split of the rows.
        file: the new file.
    """

    done = "committed"
    """The word for what surely didn't happen to a split whose file can't be written."""

    def __init__(self, uri: str, layout: Layout, split: Split, file: GrowingFile[File]) -> None:
        self._uri, self._layout, self._split, self._file = uri, layout, split, file
        self._checksum = 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        if rows.num_rows or messages.num_rows:
            self.check(rows, messages)()

    def check(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        batch = self._layout.batch(rows, messages, self._split)
        in_file = self._in_file(batch, messages)

        def take() -> None:
            with writable(self._uri, self._split, done=self.done):
                self._file.add(in_file)
            self._checksum += checksum(batch)

        return take

    def finish(self) -> Staging:
        with writable(self._uri, self._split, done=self.done):
            file = self._file.close()
        return Staging(
            self._file.rows,
            text(self._checksum),
            () if file is None else (msgspec.json.encode(file).decode(),),
        )

    def discard(self) -> None:
        """Closes the file without a result. It stays: a sweep removes it."""
        self._file.abandon()

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Converts a staged batch for the file; refuses rows that it can't hold."""
        del messages
        return batch
