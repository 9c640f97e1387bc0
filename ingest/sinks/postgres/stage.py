"""One split's rows, or dead letters, as a file that COPY takes as it is, under a name
no other attempt uses; and such files brought in.

Staging runs on executors: the columns are encoded there, side by side, and nothing
reaches the server. The commit streams the files into the table itself, so the server
writes a row once. A file counts for what its stager said of it, its length and
checksum: one that is gone, cut short or changed is noticed while it is streamed, and
the transaction that it was streamed in is rolled back. So nobody has to sync a file:
what a loss of power takes is staged anew.
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from windrow.ingest.errors import RefusedError, UnfitRowsError, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staging
from windrow.ingest.schema.checksum import checksum, text
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.postgres.columns import HASH, column_type
from windrow.ingest.sinks.postgres.encode import HEAD, TAIL, UnfitValueError, rows_of
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.server import Connection, TablePlace
from windrow.ingest.sinks.staged_files import StagedFiles
from windrow.ingest.sinks.staging import DeadLetterLayout, Layout, writable

_BLOCK = 1 << 20
"""So many bytes of a file are in the driver's memory at once."""

_AGAIN = "Nothing was committed. Run the window again."
_NUL_SHOWN = "\N{SYMBOL FOR NULL}"


class CopyFile(msgspec.Struct, frozen=True):
    """A staged file in the sink's own words: small, JSON, safe to lose.

    `crc`: CRC-32 of all of its bytes; `types`: of its columns.
    """

    path: str
    size: int
    crc: int
    rows: int
    columns: tuple[str, ...]
    types: tuple[str, ...]


class ShownNul(DeadLetterLayout, frozen=True):
    """Dead letters as a text of PostgreSQL can hold them: where what is said of a
    message has the character NUL, there is a symbol.
    """

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        whole = super().batch(rows, messages, split)
        shown = [
            pc.replace_substring(c, "\0", _NUL_SHOWN) if pa.types.is_string(c.type) else c
            for c in whole.columns
        ]
        return pa.RecordBatch.from_arrays(shown, schema=whole.schema)


class PostgresStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know.

    `staging`: the place of the files; `folder`: which there are this table's.

    `form`: of a table with a primary key. Then changes are staged
    (`ingest.schema.changes`), each with the hash of what it is to leave.
    """

    staging: str
    folder: str
    layout: Layout
    window_column: str
    window: str
    form: KeyedForm | None = None

    def __call__(self, split: Split) -> PostgresStager:
        """A stager whose file is unique to this call."""
        return PostgresStager(self, split)

    def path(self) -> str:
        """A new path."""
        return f"{self.folder}/{quote(self.window, safe='')}/{quote(self.layout.attempt, safe='')}-{uuid.uuid4().hex}.copy"  # noqa: E501


class PostgresStager:
    """Stages one split into one file, made with its first batch. Memory: one batch."""

    def __init__(self, made_by: PostgresStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        self._place, self._path = Place(made_by.staging), made_by.path()
        self._rows = self._checksum = self._size = self._crc = 0
        self._out: pa.NativeFile | None = None

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`.

        Raises:
            UnfitRowsError: values that a table of PostgreSQL can't hold; says of which
                column, and the first one's offset.
            UnreachableError: the file can't be written.
        """
        if rows.num_rows or messages.num_rows:
            self.ready(rows, messages)()

    def ready(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        batch = self._made_by.layout.batch(rows, messages, self._split)
        whole = batch.append_column(
            self._made_by.window_column, pa.repeat(self._made_by.window, batch.num_rows)
        )
        if self._made_by.form is not None:
            whole = whole.append_column(
                HASH.name, pa.array(self._made_by.form.hashes(whole).view(np.int64))
            )
        try:
            octets = rows_of(whole)
        except UnfitValueError as unfit:
            do = (
                "Nothing was committed. Refuse such values by a rule of the schema, so that their"
                " messages become dead letters; or give the column another type: bytes hold NUL."
            )
            offset = messages["offset"][int(unfit.rows[0])].as_py()
            raise UnfitRowsError(
                unfit.what,
                "stage",
                do,
                self._split.topic,
                self._split.partition,
                offset,
                unfit.rows.tolist(),
            ) from None

        def take() -> None:
            with writable(self._made_by.staging, self._split):
                if self._out is None:
                    self._out = self._place.create(self._path)
                    self._write(self._out, HEAD)
                self._write(self._out, octets)
            self._rows += batch.num_rows
            self._checksum += checksum(batch)

        return take

    def finish(self) -> Staging:
        if self._out is None:
            return Staging()
        with writable(self._made_by.staging, self._split):
            self._write(self._out, TAIL)
            self._out.close()
            self._place.finish(self._path, durable=False)
        schema = self._made_by.layout.schema.append(
            pa.field(self._made_by.window_column, pa.string())
        )
        if self._made_by.form is not None:
            schema = schema.append(HASH)
        word = CopyFile(
            self._path,
            self._size,
            self._crc,
            self._rows,
            tuple(schema.names),
            tuple(str(column_type(f.type)) for f in schema),
        )
        return Staging(self._rows, text(self._checksum), (msgspec.json.encode(word).decode(),))

    def discard(self) -> None:
        """The file stays: a sweep takes it."""
        with suppress(OSError, pa.ArrowException):
            if self._out is not None:
                self._out.close()

    def _write(self, out: pa.NativeFile, octets: bytes | memoryview) -> None:
        out.write(octets)
        self._size += len(octets)
        self._crc = zlib.crc32(octets, self._crc)


class CopyFiles(StagedFiles[CopyFile]):
    """The staged files of one table; a commit copies their rows out, block by block.

    Args:
        staging: a place that executors and driver share.
        table: the table's.
    """

    def __init__(self, staging: str, table: TablePlace) -> None:
        folder = f"postgres-{hashlib.sha256(table.identity.encode()).hexdigest()[:16]}"
        super().__init__(staging, (folder,), CopyFile, consumed=True)

    def blocks(self, file: CopyFile) -> Iterator[bytes]:
        """The bytes of a file; the end is reached only if they are what was staged.

        Raises (when read on):
            RefusedError: it is gone, cut short or changed.
            UnreachableError: it can't be got at.
        """
        size = crc = 0
        try:
            with self.place.filesystem().open_input_stream(file.path) as source:
                while block := bytes(source.read(_BLOCK)):
                    size, crc = size + len(block), zlib.crc32(block, crc)
                    yield block
        except FileNotFoundError:
            raise self._lost(
                file,
                "is gone: did a sweep take it, or do executors and driver see different folders?",
            ) from None
        except OSError as error:
            what = (
                f"the staged file {self.uri}/{file.path} can't be read:"
                f" {error.strerror or type(error).__name__}"
            )
            raise UnreachableError(what, "commit", _AGAIN) from error
        if size != file.size:
            raise self._lost(file, f"has {size} bytes, not the {file.size} that were staged")
        if crc != file.crc:
            raise self._lost(file, "is damaged: its bytes are not those that were staged")

    def _lost(self, file: CopyFile, what: str) -> RefusedError:
        return RefusedError(f"the staged file {self.uri}/{file.path} {what}", "commit", _AGAIN)


def copy_in(
    connection: Connection,
    place: TablePlace,
    columns: pa.Schema,
    staged: CopyFiles,
    files: Sequence[CopyFile],
    into: sql.Identifier | None = None,
) -> None:
    """Stream staged files into the table, within a transaction; of a file that isn't
    whole, nothing must be committed.

    Args:
        connection: in a transaction.
        place: the table's.
        columns: the table's own, as they are in this transaction.
        staged: where the files are.
        files: which of them.
        into: another table with these columns, if they aren't to go into that one.

    Raises:
        RefusedError: a file isn't what was staged, or the table has other types or
            takes fewer rows.
        UnreachableError: a file can't be got at.
    """
    for file in files:
        _refuse_other_types(place, columns, file)
        taken = _copied(
            connection, into or sql.Identifier(place.name.schema, place.name.table), staged, file
        )
        if taken != file.rows:
            what = (
                f"{place} took {taken} of {file.rows} staged rows: a trigger of the table keeps"
                " rows out"
            )
            raise RefusedError(
                what, "commit", "Nothing was committed. Take it off, then run the window again."
            )


def _copied(
    connection: Connection, table: sql.Identifier, staged: CopyFiles, file: CopyFile
) -> int:
    """How many rows the table took.

    Between the statements lies no work: the file is opened when the server waits for it.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, file.columns))
    # run without values: see `identifier`
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, names)
    lost: RefusedError | UnreachableError | None = None
    try:
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                try:
                    for block in staged.blocks(file):
                        copy.write(block)
                except (RefusedError, UnreachableError) as error:
                    lost = error
                    raise
            return cursor.rowcount
    except psycopg.Error:
        if lost is not None:  # the server stumbled over the same bytes
            raise lost from None
        raise


def _refuse_other_types(place: TablePlace, columns: pa.Schema, file: CopyFile) -> None:
    """COPY's binary form is of exactly the column's type, where an INSERT would convert."""
    there = {f.name: str(column_type(f.type)) for f in columns}
    other = [
        f"{n}: {t}, {there.get(n)} in the table"
        for n, t in zip(file.columns, file.types, strict=True)
        if there.get(n) != t
    ]
    if other:
        what = f"the staged rows don't fit the table {place} any more: " + "; ".join(other)
        raise RefusedError(what, "commit", f"The table was changed meanwhile. {_AGAIN}")
