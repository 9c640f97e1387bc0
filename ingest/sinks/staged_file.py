"""One split's rows as a file whose name no other attempt uses.

The same for every sink that stages files; runs on executors.

A sink says by a `FileForm` how rows stand in its files, and what it is to know of one
when it commits it. Nothing becomes visible here, and nothing is removed: whether
another attempt committed a file is not this one's to know.
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

Word = TypeVar("Word", bound=msgspec.Struct)
Word_co = TypeVar("Word_co", bound=msgspec.Struct, covariant=True)


class FileForm(Protocol[Word_co]):
    """How rows stand in a file of a sink's."""

    @property
    def compression(self) -> str | None:
        """Arrow's name of what compresses a file as a whole; None for nothing."""

    def begin(self, out: pa.NativeFile) -> None:
        """Write what stands before the rows. Called once, and before all else."""

    def write(self, rows: pa.Table) -> None:
        """Write rows behind those that were written before."""

    def end(self) -> None:
        """Write what stands behind them; the file itself is not this one's to close."""

    def word(self, path: str, size: int, rows: int) -> Word_co:
        """The file in the sink's own words: small, JSON, safe to lose.

        `size` in bytes. Called last.
        """


class GrowingFile(Generic[Word]):
    """A file that grows by groups of rows; made with its first batch, so that a split
    without rows leaves none.

    Memory: one group.

    Args:
        place: where it lies.
        path: its name there, which nobody else uses.
        form: how rows stand in it.
        grouped: whether batches are gathered to groups; else each is written as it
            comes.
        durable: whether it has to outlive a loss of power; else who reads it must see
            whether it is whole.
    """

    def __init__(
        self,
        place: Place,
        path: str,
        form: FileForm[Word],
        *,
        grouped: bool = True,
        durable: bool = True,
    ) -> None:
        self.rows = 0
        self._place, self._path, self._form, self._grouped, self._durable = (
            place,
            path,
            form,
            grouped,
            durable,
        )
        self._out: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows, of the same columns each time."""
        if self._out is None:
            out = self._place.create(self._path, self._form.compression)
            self._form.begin(out)  # on a disk that is full here already, there is no form to end
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

    def close(self) -> Word | None:
        """What to commit; None if there were no rows."""
        if self._out is None:
            return None
        self._flush()
        self._form.end()
        self._out.close()
        return self._form.word(
            self._path, self._place.finish(self._path, durable=self._durable), self.rows
        )

    def abandon(self) -> None:
        """Close without a result.

        The file is rubbish already: on a full disk, closing it fails for the same
        reason as writing did.
        """
        self._waiting.clear()
        with suppress(OSError, RuntimeError, pa.ArrowException):
            if self._out is not None:
                self._form.end()
                self._out.close()

    def _flush(self) -> None:
        if self._waiting:
            self._form.write(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class FileStager(Generic[Word]):
    """`ports.sink.Stager` on one file.

    Args:
        uri: where the sink's files lie, for errors.
        layout: the columns of a staged batch.
        split: whose rows they are.
        file: the new file.
    """

    done = "committed"
    """What surely didn't happen to a split whose file can't be written."""

    def __init__(self, uri: str, layout: Layout, split: Split, file: GrowingFile[Word]) -> None:
        self._uri, self._layout, self._split, self._file = uri, layout, split, file
        self._checksum = 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        if rows.num_rows or messages.num_rows:
            self.ready(rows, messages)()

    def ready(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        batch = self._layout.batch(rows, messages, self._split)
        in_file = self._in_file(batch, messages)

        def take() -> None:
            with writable(self._uri, self._split, done=self.done):
                self._file.add(in_file)
            self._checksum += checksum(batch)

        return take

    def finish(self) -> Staging:
        with writable(self._uri, self._split, done=self.done):
            word = self._file.close()
        return Staging(
            self._file.rows,
            text(self._checksum),
            () if word is None else (msgspec.json.encode(word).decode(),),
        )

    def discard(self) -> None:
        """Close without a result. The file stays: a sweep takes it."""
        self._file.abandon()

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        """A staged batch as the file has it."""
        del messages
        return batch
