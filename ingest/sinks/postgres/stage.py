"""Stages a split's rows in a file for COPY, and copies such files into tables.

Staging runs on executors. They encode the columns in parallel, and send nothing to the server. The
commit streams the files into the table, so the server writes each row only once.

A stager returns the length and a checksum of its file. So a file that is missing, cut short or
changed is noticed while it is streamed, and the transaction is rolled back. For this reason no file
is synced: a file that is lost in a power failure is staged again.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kit import (
    DeadLetterLayout,
    FileStager,
    GrowingFile,
    Layout,
    Place,
    StagedFiles,
    staged_path,
    window_folder,
)
from windrow.ingest.sinks.postgres.columns import HASH, KeyedColumns
from windrow.ingest.sinks.postgres.encode import HEAD, TAIL, encode_copy_rows, find_unstorable
from windrow.ingest.sinks.postgres.server import OF_A_ROW, Connection, TablePlace, to_windrow_error

_BLOCK = 1 << 20
"""The bytes of a file that are in the driver's memory at the same time."""

_AGAIN = "Nothing was committed. Run the window again."
_NUL_SHOWN = "\N{SYMBOL FOR NULL}"


class CopyFile(msgspec.Struct, frozen=True):
    """A staged file as its stager describes it: small, JSON, safe to lose.

    Attributes:
        path: the file's path in the staging place.
        size: the file's size in bytes.
        crc: the CRC-32 of all of the file's bytes.
        rows: the number of rows.
        columns: the names of the columns.
    """

    path: str
    size: int
    crc: int
    rows: int
    columns: tuple[str, ...]


class ShownNul(DeadLetterLayout, frozen=True):
    """Dead letters whose texts have a symbol instead of NUL, which `text` can't hold."""

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        full_batch = super().batch(rows, messages, split)
        shown = [
            pc.replace_substring(c, "\0", _NUL_SHOWN) if pa.types.is_string(c.type) else c
            for c in full_batch.columns
        ]
        return pa.RecordBatch.from_arrays(shown, schema=full_batch.schema)


class PostgresStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        staging: the place of the files.
        folder: the table's folder in that place.
        layout: the columns of a row.
        window_column: the column with the window's key.
        window: the window's key.
        keyed: the columns of a table with a primary key. For such a table changes are staged
            (`ingest.schema.row_changes`), each with its hash.
    """

    staging: str
    folder: str
    layout: Layout
    window_column: str
    window: str
    keyed: KeyedColumns | None = None

    def __call__(self, split: Split) -> PostgresStager:
        """Makes a stager, whose file is unique to this call."""
        return PostgresStager(self, split)


class CopyWriter:
    """Writes rows in the format of a binary COPY (`sinks.kit.files.file_stager.RowWriter`)."""

    def __init__(self) -> None:
        self._crc, self._columns = 0, list[str]()
        self._out: pa.NativeFile

    def begin(self, out: pa.NativeFile) -> None:
        self._out = out
        self._write(HEAD)

    def write(self, rows: pa.Table) -> None:
        self._columns = rows.schema.names
        for batch in rows.to_batches():
            self._write(encode_copy_rows(batch))

    def end(self) -> None:
        self._write(TAIL)

    def describe(self, path: str, size: int, rows: int) -> CopyFile:
        return CopyFile(path, size, self._crc, rows, tuple(self._columns))

    def _write(self, octets: bytes) -> None:
        self._out.write(octets)
        self._crc = zlib.crc32(octets, self._crc)


class PostgresStager(FileStager[CopyFile]):
    """Stages one split in one file. It holds one batch in memory."""

    def __init__(self, made_by: PostgresStagerFactory, split: Split) -> None:
        self._made_by = made_by
        path = staged_path(
            window_folder(made_by.window, made_by.folder), made_by.layout.attempt, "copy"
        )
        folder = Place(made_by.staging)
        file = GrowingFile(folder, path, CopyWriter(), grouped=False, durable=False)
        super().__init__(made_by.staging, made_by.layout, split, file)

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        misfit, keyed = find_unstorable(batch), self._made_by.keyed
        if misfit is not None:
            advice = (
                "Nothing was committed. Refuse such values by a rule of the schema, so that their"
                " messages become dead letters; or give the column another type: bytes hold NUL."
            )
            raise self._unstorable(misfit[1], advice, messages, misfit[0].tolist())
        window = pa.repeat(self._made_by.window, batch.num_rows)
        staged_batch = batch.append_column(self._made_by.window_column, window)
        if keyed is None:
            return staged_batch
        return staged_batch.append_column(
            HASH.name, pa.array(keyed.hashes(staged_batch).view(np.int64))
        )


class CopyFiles(StagedFiles[CopyFile]):
    """The staged files of one table, from which a commit copies rows.

    Args:
        staging: a place that executors and the driver share.
        table: the table's place.
        position: the columns with topic, partition and offset of a row.
    """

    def __init__(self, staging: str, table: TablePlace, position: Sequence[str]) -> None:
        self._position = position
        folder = f"postgres-{hashlib.sha256(table.identity.encode()).hexdigest()[:16]}"
        super().__init__(staging, (folder,), CopyFile, consumed=True)

    def blocks(self, file: CopyFile) -> Iterator[bytes]:
        """Reads the bytes of a file, and compares them at the end with the staged file's checksum.

        Raises (while it is read):
            RefusedError: the file is missing, cut short or changed.
            UnreachableError: the file can't be read.
        """
        size = crc = 0
        try:
            with self.folder.filesystem().open_input_stream(file.path) as source:
                while block := bytes(source.read(_BLOCK)):
                    size, crc = size + len(block), zlib.crc32(block, crc)
                    yield block
        except FileNotFoundError:
            raise self._unusable_error(
                file,
                "is gone: did a sweep remove it, or do executors and driver see different folders?",
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"the staged file {self.uri}/{file.path} can't be read:"
                f" {error.strerror or type(error).__name__}",
                "commit",
                _AGAIN,
            ) from error
        if (size, crc) != (file.size, file.crc):
            raise self._unusable_error(
                file,
                f"is damaged: its {format_count(size, 'byte')} are not the {file.size} that were"
                " staged",
            )

    def position(self, file: CopyFile, number: int) -> tuple[str, int, int]:
        """Reads topic, partition and offset of a row of a file; rows are counted from 1."""
        filesystem, row = self.folder.filesystem(), dict[str, bytes]()
        with filesystem.open_input_stream(file.path, buffer_size=_BLOCK) as source:
            source.read(len(HEAD))
            for _ in range(min(number, file.rows)):
                source.read(2)  # the number of columns; each value has its length, -1 for null
                row = {
                    name: source.read(max(int.from_bytes(source.read(4), signed=True), 0))
                    for name in file.columns
                }
        topic, partition, offset = (row[name] for name in self._position)
        return topic.decode(), int.from_bytes(partition), int.from_bytes(offset)

    def _unusable_error(self, file: CopyFile, state: str) -> RefusedError:
        return RefusedError(f"the staged file {self.uri}/{file.path} {state}", "commit", _AGAIN)


def copy_in(
    connection: Connection,
    location: TablePlace,
    staged: CopyFiles,
    files: Sequence[CopyFile],
    into: sql.Identifier | None = None,
) -> None:
    """Copies staged files into a table, within a transaction.

    Args:
        connection: a connection in a transaction, which must be rolled back if this raises.
        location: the table's place.
        staged: the folder of the files.
        files: the files to copy.
        into: another table with these columns, to copy into; None: the table itself.

    Raises:
        RefusedError: a file has changed since it was staged, or the table takes fewer rows.
        UnreachableError: a file can't be read.
    """
    for file in files:
        table = into or sql.Identifier(location.name.schema, location.name.table)
        refuse_fewer_rows(
            location, _copy_file(connection, location, table, staged, file), file.rows
        )


def refuse_fewer_rows(location: TablePlace, written_rows: int, rows: int) -> None:
    """Refuses a table that took fewer rows than windrow sent.

    Raises:
        RefusedError: a trigger or a rule of the table kept some rows out.
    """
    if written_rows != rows:
        raise RefusedError(
            f"{location} took {written_rows} of {format_count(rows, 'row')}: a trigger or a rule"
            " of the table keeps rows out",
            "commit",
            "Nothing was committed. Take it off, then run the window again.",
        )


def _copy_file(
    connection: Connection,
    location: TablePlace,
    table: sql.Identifier,
    staged: CopyFiles,
    file: CopyFile,
) -> int:
    """Copies one file; returns the number of rows that the table took.

    The file is opened during the COPY, so that the session isn't idle before it.

    Raises:
        RefusedError: the server refuses a row; the error has the position of the row's message.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, file.columns))
    # the statement has no parameters, so no percent sign needs to be escaped (`identifier`)
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, names)
    file_error: RefusedError | UnreachableError | None = None
    try:
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                try:
                    for block in staged.blocks(file):
                        copy.write(block)
                except (RefusedError, UnreachableError) as error:
                    file_error = error
                    raise
            return cursor.rowcount
    except psycopg.Error as error:
        if file_error is not None:  # the server's error is about the same bytes
            raise file_error from None
        # the context is in the server's language: COPY orders, line 3
        line = re.search(r"^COPY .*?, \w+ (\d+)", error.diag.context or "", re.MULTILINE)
        if line is None or (error.sqlstate or "")[:2] not in OF_A_ROW:
            raise
        refused = to_windrow_error(location, error, "commit")
        with suppress(OSError, ValueError):  # the file may be gone or damaged by now
            refused.topic, refused.partition, refused.offset = staged.position(file, int(line[1]))
        raise refused from error
