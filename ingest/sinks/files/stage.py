"""One split's rows as a file whose name no other attempt uses, and its rows back.

Staging runs on executors; nothing becomes visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from windrow.ingest.errors import RefusedError, UnfitRowsError
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.files.columns import Format
from windrow.ingest.sinks.files.manifest import RowFile
from windrow.ingest.sinks.files.text import ValueTexts
from windrow.ingest.sinks.iso_times import WHAT, without_text
from windrow.ingest.sinks.parquet_files import batches_of, end, explained
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.staged_file import FileStager, GrowingFile
from windrow.ingest.sinks.staged_files import staged_path
from windrow.ingest.sinks.staging import Layout

Compression = Literal["none", "snappy", "gzip", "zstd"]

_ENDINGS = {"gzip": ".gz", "zstd": ".zst"}
_READ = 8 << 20
_CSV_BLOCK = 64 << 20
"""So much of a CSV file is in memory at once when it is read back; no row may be longer."""


class FileFormat(msgspec.Struct, frozen=True):
    """How files are written."""

    format: Format
    compression: Compression

    @property
    def of_whole(self) -> Compression | None:
        """What compresses a file as a whole, as Arrow names it; a Parquet file is
        compressed part by part.
        """
        return None if self.format == "parquet" or self.compression == "none" else self.compression

    def path(self, window: str, attempt: str) -> str:
        """A new path under the table, unique to this call.

        What is compressed as a whole says so by its ending, as readers expect.
        """
        ending = "" if self.of_whole is None else _ENDINGS[self.of_whole]
        return staged_path(window, attempt, f"{self.format}{ending}")


class RowWriter(Protocol):
    """Writes tables of one schema into one file."""

    def write(self, rows: pa.Table) -> None:
        """Behind those that were written before."""

    def close(self) -> None:
        """End the file's content."""


class _ParquetRows:
    def __init__(self, out: pa.NativeFile, schema: pa.Schema, compression: Compression) -> None:
        # dictionaries of numbers only cost time
        texts = [f.name for f in schema if pa.types.is_string(f.type)]
        self._writer = pq.ParquetWriter(
            out, schema, compression=compression, use_dictionary=texts, write_page_checksum=True
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def close(self) -> None:
        end(self._writer)


class _JsonRows:
    def __init__(self, out: pa.NativeFile, schema: pa.Schema) -> None:
        self._out, self._lines = out, ValueTexts(schema, "json")

    def write(self, rows: pa.Table) -> None:
        for lines in self._lines.text(rows)["line"].chunks:
            self._out.write(pc.binary_join_element_wise(lines, "", "\n").buffers()[2])

    def close(self) -> None:
        """Nothing is left to write."""


class _CsvRows:
    def __init__(self, out: pa.NativeFile, schema: pa.Schema) -> None:
        self._out, self._lines = out, ValueTexts(schema, "csv")
        self._writer: pacsv.CSVWriter | None = None

    def write(self, rows: pa.Table) -> None:
        texts = self._lines.text(rows)
        if self._writer is None:
            self._writer = pacsv.CSVWriter(self._out, texts.schema)
        self._writer.write_table(texts)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _rows_into(out: pa.NativeFile, schema: pa.Schema, written: FileFormat) -> RowWriter:
    if written.format == "parquet":
        return _ParquetRows(out, schema, written.compression)
    return _JsonRows(out, schema) if written.format == "jsonl" else _CsvRows(out, schema)


class FilesForm:
    """Rows with the window's column, in one of the formats."""

    def __init__(self, schema: pa.Schema, written: FileFormat, window: str) -> None:
        self.compression = written.of_whole
        self._schema, self._written, self._window = schema, written, window
        self._writer: RowWriter

    def begin(self, out: pa.NativeFile) -> None:
        self._writer = _rows_into(out, self._schema, self._written)

    def write(self, rows: pa.Table) -> None:
        self._writer.write(
            rows.append_column(
                self._schema.field(len(self._schema) - 1), pa.repeat(self._window, rows.num_rows)
            )
        )

    def end(self) -> None:
        self._writer.close()

    def word(self, path: str, size: int, rows: int) -> RowFile:
        return RowFile(path, size, rows)


class TextStager(FileStager[RowFile]):
    """Stages rows whose dates and times become texts, and refuses those that have none."""

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        found = without_text(dict(zip(batch.schema.names, batch.columns, strict=True)))
        if found is not None:
            do = (
                "Nothing was committed. Refuse such values by a rule of the schema, or have a"
                " transform change them."
            )
            rows, name = found
            at = self._split.topic, self._split.partition, messages["offset"][int(rows[0])].as_py()
            raise UnfitRowsError(f"column {name} {WHAT}", "stage", do, *at, rows.tolist())
        return batch


class FilesStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know.

    `uri`: the table under which the files go; `window`: the window's key; `texts`:
    whether dates and times of Parquet files become texts.
    """

    uri: str
    layout: Layout
    window: str
    written: FileFormat
    texts: bool = False

    def __call__(self, split: Split) -> FileStager[RowFile]:
        """A stager whose file name is unique to this call."""
        window = pa.field(self.layout.metadata["window"], pa.string(), nullable=False)
        form = FilesForm(self.layout.schema.append(window), self.written, self.window)
        file = GrowingFile(
            Place(self.uri), self.written.path(self.window, self.layout.attempt), form
        )
        stager = TextStager if self.texts or self.written.format != "parquet" else FileStager
        return stager(self.uri, self.layout, split, file)


# --------------------------------------------------------------------------------------------------


def rows_of(place: Place, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file, whatever it was compressed with, in batches of bounded size.

    Args:
        place: the table's.
        path: the file's.
        schema: what the table's files hold; a Parquet file says that by itself, and one
            that is older may hold less.

    Raises (when read):
        RefusedError: the file is gone or damaged.
        UnreachableError: it can't be got at.
    """
    if path.endswith(".parquet"):
        yield from batches_of(place, path)
        return
    with (
        explained(path),
        _texts_explained(path),
        place.filesystem().open_input_stream(path) as source,
    ):
        jsonl = ".jsonl" in path.rpartition("/")[2]
        lines = ValueTexts(schema, "json" if jsonl else "csv")
        for part in _json_lines(source) if jsonl else _csv_cells(source, schema):
            yield from lines.rows(part).to_batches()


@contextmanager
def _texts_explained(path: str) -> Iterator[None]:
    """What reads texts quotes them in its errors, so their kind alone is told."""
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, UnicodeDecodeError) as error:
        what = f"the file {path} is damaged ({type(error).__name__})"
        raise RefusedError(what, "commit", "Restore the file from a backup.") from None


def _json_lines(source: pa.NativeFile) -> Iterator[pa.Table]:
    rest = b""
    while block := source.read(_READ):
        whole, _, rest = (rest + block).rpartition(b"\n")
        if whole:
            yield _one_column(whole)
    if rest:
        yield _one_column(rest)


def _one_column(lines: bytes) -> pa.Table:
    return pa.table({"line": pa.array(lines.decode().split("\n"), pa.string())})


def _csv_cells(source: pa.NativeFile, schema: pa.Schema) -> Iterator[pa.Table]:
    texts = pacsv.ConvertOptions(
        column_types=dict.fromkeys(schema.names, pa.string()),
        include_columns=schema.names,
        include_missing_columns=True,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    reader = pacsv.open_csv(
        source,
        pacsv.ReadOptions(block_size=_CSV_BLOCK),
        pacsv.ParseOptions(newlines_in_values=True),
        texts,
    )
    for batch in reader:
        yield pa.Table.from_batches([batch])
