"""Writes a split's rows to a file on executors, if its format can hold them, and reads files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.files.text import ValueTexts
from windrow.ingest.sinks.kit import (
    DATA_FOLDER,
    FileStager,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    PartitionedFiles,
    PartitionField,
    PartitionValues,
    Place,
    RowFile,
    TextStager,
    explain_file_errors,
    is_scalar,
    read_batches,
    refuse_unstorable,
    staged_path,
    window_folder,
)

Format = Literal["parquet", "jsonl", "csv"]

_NESTED = (pa.types.is_list, pa.types.is_struct, pa.types.is_map)


def check_rows(rows: pa.Schema, metadata: Mapping[str, str], written: Format) -> None:
    """Refuses columns with values that can't be read back from files of a format.

    Raises:
        SpecError: there are such columns. The error names all of them
            (`sinks.kit.columns.table_columns.refuse_unstorable`).
    """
    advice_by_format: Mapping[Format, str] = {
        "csv": "Lists, structs and maps go with format: parquet or jsonl;",
        "jsonl": (
            "Give the fields of a struct names that differ by more than case, or take format:"
            " parquet;"
        ),
    }
    refuse_unstorable(
        rows,
        metadata,
        lambda kind: _storable(kind, written),
        f"as {written} files",
        advice_by_format.get(written, ""),
    )


def _storable(kind: pa.DataType, written: Format) -> bool:
    """Returns whether files of a format can hold the type."""
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz in {"UTC", None}
    if any(test(kind) for test in _NESTED):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return (
            written != "csv"
            and bool(inner)
            and all(_storable(inner_kind, written) for inner_kind in inner)
            and not _differ_only_in_case(kind, written)
        )
    return is_scalar(kind)


def _differ_only_in_case(kind: pa.DataType, written: Format) -> bool:
    """Returns whether names of a struct's fields differ only in case.

    DuckDB writes and reads the JSON, and takes such fields for the same field.
    """
    names = [field.name.lower() for field in kind] if pa.types.is_struct(kind) else []
    return written == "jsonl" and len(set(names)) < len(names)


Compression = Literal["none", "snappy", "gzip", "zstd"]

_ENDINGS = {"gzip": ".gz", "zstd": ".zst"}
_READ = 8 << 20
_GZIP_LEVEL = 4
"""The level of gzip. Arrow's stream always has 9: far slower, for files that are hardly smaller."""

_CSV_BLOCK = 64 << 20
"""The bytes of a CSV file that are read at once. No row may be longer."""


class FileFormat(msgspec.Struct, frozen=True):
    """The format and compression of files."""

    format: Format
    compression: Compression

    def path(self, folder: str, attempt: str) -> str:
        """Makes a new path in a folder below the table, unique to this call.

        A file that is compressed as a whole has the usual ending. Parquet compresses its pages.
        """
        ending = "" if self.format == "parquet" else _ENDINGS.get(self.compression, "")
        return staged_path(folder, attempt, f"{self.format}{ending}")


class FilesWriter:
    """Writes rows with the window's column to a file. Each format has a subclass."""

    def __init__(self, schema: pa.Schema, compression: Compression, window: str) -> None:
        self._schema, self._compression, self._window = schema, compression, window
        self._out: pa.NativeFile

    def begin(self, out: pa.NativeFile) -> None:
        self._out = out
        if self._compression == "gzip":
            self._out = pa.PythonFile(gzip.GzipFile("", "wb", _GZIP_LEVEL, out, 0), mode="w")
        elif self._compression == "zstd":
            self._out = pa.CompressedOutputStream(out, "zstd")

    def write(self, rows: pa.Table) -> None:
        window = self._schema.field(len(self._schema) - 1)
        self._write(rows.append_column(window, pa.repeat(self._window, rows.num_rows)))

    def _write(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._out.close()

    def describe(self, path: str, size: int, rows: int) -> RowFile:
        return RowFile(path, size, rows)


class _Parquet(FilesWriter):
    def begin(self, out: pa.NativeFile) -> None:
        self._rows = ParquetRowWriter(self._schema, {}, self._compression)
        self._rows.begin(out)

    def _write(self, rows: pa.Table) -> None:
        self._rows.write(rows)

    def end(self) -> None:
        self._rows.end()


class _Json(FilesWriter):
    def begin(self, out: pa.NativeFile) -> None:
        super().begin(out)
        self._lines = ValueTexts(self._schema, "json")

    def _write(self, rows: pa.Table) -> None:
        for lines in self._lines.text(rows)["line"].chunks:
            self._out.write(pc.binary_join_element_wise(lines, "", "\n").buffers()[2])


class _Csv(FilesWriter):
    def begin(self, out: pa.NativeFile) -> None:
        super().begin(out)
        self._lines = ValueTexts(self._schema, "csv")
        header = self._lines.text(self._schema.empty_table())
        self._writer = pacsv.CSVWriter(self._out, header.schema)

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(self._lines.text(rows))

    def end(self) -> None:
        self._writer.close()
        super().end()


_FORMS: Mapping[Format, type[FilesWriter]] = {"parquet": _Parquet, "jsonl": _Json, "csv": _Csv}


def partition_path(partition: str, window: str) -> str:
    """Returns the folder of a window's files in a partition.

    The partition's folder is the outer one, as Hive's are for any reader: one that wants a day
    lists the files of that day alone.
    """
    below = f"{DATA_FOLDER}/{partition}" if partition else DATA_FOLDER
    return window_folder(window, below)


def begin_file(
    table: Place, written: FileFormat, columns: pa.Schema, window: str, folder: str, attempt: str
) -> GrowingFile[RowFile]:
    """Begins a new file of a window.

    Args:
        table: the table's place.
        written: the format and compression of files.
        columns: the columns of the file, the window's last. Rows are added without it.
        window: the window's key.
        folder: the folder of the file, made by `partition_path`.
        attempt: the attempt that writes the file.
    """
    form = _FORMS[written.format](columns, written.compression, window)
    return GrowingFile(table, written.path(folder, attempt), form)


class FilesStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        uri: the table's place.
        layout: the columns of a staged batch.
        window: the window's key.
        written: the format and compression of files.
        partition_by: the table's partition fields.
    """

    uri: str
    layout: Layout
    window: str
    written: FileFormat
    partition_by: tuple[PartitionField, ...] = ()

    def __call__(self, split: Split) -> FileStager[RowFile]:
        """Makes a stager whose file name is unique to this call."""
        window = pa.field(self.layout.metadata["window"], pa.string(), nullable=False)
        columns, attempt = self.layout.schema.append(window), self.layout.attempt
        place = Place(self.uri)

        def begin(values: PartitionValues) -> GrowingFile[RowFile]:
            partition = PartitionField.folder(
                PartitionField.texts_by_name(self.partition_by, values)
            )
            folder = partition_path(partition, self.window)
            return begin_file(place, self.written, columns, self.window, folder, attempt)

        files = PartitionedFiles(self.partition_by, split, begin, as_texts=True)
        stager = FileStager if self.written.format == "parquet" else TextStager
        return stager(self.uri, self.layout, split, files)


# --------------------------------------------------------------------------------------------------


def read_file(folder: Place, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Reads the rows of one file, in batches of bounded size.

    Args:
        folder: the table's place.
        path: the file's path below it.
        schema: the table's columns; an older file may have fewer.

    Raises (when the rows are read):
        RefusedError: the file is missing or damaged.
        UnreachableError: it can't be reached.
    """
    if path.endswith(".parquet"):
        yield from read_batches(folder, path)
        return
    with (
        explain_file_errors(path),
        _explain_text_errors(path),
        folder.filesystem().open_input_stream(path) as source,
    ):
        jsonl = ".jsonl" in path.rpartition("/")[2]
        lines = ValueTexts(schema, "json" if jsonl else "csv")
        for part in _json_lines(source) if jsonl else _csv_cells(source, schema):
            yield from lines.rows(part).to_batches()


@contextmanager
def _explain_text_errors(path: str) -> Iterator[None]:
    """Replaces errors of parsers, which quote values, by an error without values."""
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise RefusedError(
            f"the file {path} is damaged ({type(error).__name__})",
            "commit",
            "Restore the file from a backup.",
        ) from None


def _json_lines(source: pa.NativeFile) -> Iterator[pa.Table]:
    """Yields the lines of a file as tables with one column, `line`."""
    rest = b""
    while block := source.read(_READ):
        full_lines, _, rest = (rest + block).rpartition(b"\n")
        if full_lines:
            yield _one_column(full_lines)
    if rest:
        yield _one_column(rest)


def _one_column(lines: bytes) -> pa.Table:
    return pa.table({"line": pa.array(lines.decode().split("\n"), pa.string())})


def _csv_cells(source: pa.NativeFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the cells of a file as texts. An empty cell is null, unless it has quotes."""
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
