"""One split's rows and dead letters as Parquet files under names that no other attempt uses. Runs on executors; nothing becomes visible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.crashpoints import crash_point
from ingest.errors import RefusedError, UnreachableError, WindrowError
from ingest.model.plan import Split
from ingest.model.receipt import Checksums
from ingest.schema.checksum import checksum, text
from ingest.schema.metadata import DEFAULT
from ingest.sinks.columns import DEAD_FILE, file_schema
from ingest.sinks.delta.names import staged_path
from ingest.sinks.delta.place import Place
from ingest.sinks.delta.stats import statistics
from ingest.sinks.metadata import columns as metadata_columns
from ingest.sinks.metadata import dead_columns, in_files

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""A row group is written as soon as either is reached: that bounds what a file holds in memory."""


class StagedFile(msgspec.Struct, frozen=True):
    """A staged file in the sink's own words: small, JSON, safe to lose."""

    path: str
    size: int
    rows: int
    stats: str
    modified_ms: int


class _ParquetFile:
    """A Parquet file that grows by row groups; made with its first batch, so that a split without rows leaves no file."""

    def __init__(self, place: Place, path: str, schema: pa.Schema, metadata: Mapping[str, str]) -> None:
        self.rows = self.checksum = 0
        self._place, self._path, self._schema, self._metadata = place, path, schema, metadata
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._nan: set[str] = set()
        self._done: list[pq.FileMetaData] = []
        self._out: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._open()
        self.rows += batch.num_rows
        self.checksum += checksum(batch)
        self._nan.update(_with_nan(batch))
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> StagedFile | None:
        """What to commit; None if there were no rows."""
        if self._writer is None or self._out is None:
            return None
        self._flush()
        self._writer.close()
        self._out.close()
        size = self._place.settle(self._path)
        stats = statistics(self._done[0], self._schema, self._nan)
        return StagedFile(self._path, size, self.rows, stats, int(datetime.now(UTC).timestamp() * 1000))

    def abandon(self) -> None:
        """Close without a result. The file is rubbish already: on a full disk, closing it fails for the same reason as writing did."""
        self._held.clear()
        with suppress(OSError, RuntimeError):
            if self._writer is not None and self._out is not None:
                self._writer.close()
                self._out.close()

    def _open(self) -> None:
        self._out = self._place.create(self._path)
        text = [f.name for f in self._schema if pa.types.is_string(f.type)]
        # Dictionaries of numbers only cost time. Offsets and timestamps nearly rise in steps: as differences they take next to no room.
        steps = {self._metadata[name]: "DELTA_BINARY_PACKED" for name in ("offset", "timestamp") if name in self._metadata}
        self._writer = pq.ParquetWriter(
            self._out,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=text,
            column_encoding=steps,
            write_page_checksum=True,
            metadata_collector=self._done,
        )

    def _flush(self) -> None:
        if self._held and self._writer is not None:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
        self._held, self._held_rows, self._held_bytes = [], 0, 0


class DeltaStager:
    """Stages one split. Memory: one row group of rows and one of dead letters, whatever the split."""

    def __init__(self, factory: DeltaStagerFactory, split: Split) -> None:
        self._made_by, self._split = factory, split
        key, attempt = factory.window_key, factory.attempt
        self._schema, self._names = file_schema(factory.schema, factory.metadata), in_files(factory.metadata)
        self._rows = _ParquetFile(Place(factory.uri), staged_path(key, attempt), self._schema, factory.metadata)
        self._dead = _ParquetFile(Place(factory.dead_uri), staged_path(key, attempt), DEAD_FILE, DEFAULT)
        self._begun = False

    def rows(self, messages: pa.RecordBatch, columns: pa.RecordBatch) -> None:
        """Stage rows beside the messages they came from.

        Raises:
            WindrowError: if they are not the table's columns, or not as many as the messages.
        """
        if columns.schema.names != self._made_by.schema.names or columns.num_rows != messages.num_rows:
            what = f"{columns.num_rows} rows of {columns.schema.names} were to be staged for {messages.num_rows} messages"
            raise self._error(f"{what}; the table has {self._made_by.schema.names}")
        self._add(self._rows, [*columns.columns, *metadata_columns(self._names, messages, self._made_by.attempt)], self._schema)

    def dead(self, messages: pa.RecordBatch, stage: pa.Array, reason: pa.Array, detail: pa.Array) -> None:
        """Stage dead letters: whole messages with what refused them."""
        made = self._made_by
        self._add(self._dead, dead_columns(messages, (stage, reason, detail), made.attempt, made.generation, made.pipeline), DEAD_FILE)

    def finish(self) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
        """Close both files; rows and dead letters as counted here, and what to commit for each."""
        with self._told():
            rows, dead = self._rows.close(), self._dead.close()
        crash_point("write.after")
        return self._rows.rows, self._dead.rows, _words(rows), _words(dead)

    def checksums(self) -> Checksums:
        """See `ports.sink.Stager.checksums`."""
        return Checksums(text(self._rows.checksum), text(self._dead.checksum))

    def discard(self) -> None:
        """Close without a result. The files stay: whether another attempt committed something is not this one's to know."""
        self._rows.abandon()
        self._dead.abandon()

    def _add(self, file: _ParquetFile, columns: Sequence[pa.Array], schema: pa.Schema) -> None:
        if not len(columns[0]):
            return
        arrays = []
        for column, field in zip(columns, schema, strict=True):
            if column.null_count and not field.nullable:
                raise self._error(f"column {field.name} holds {column.null_count} nulls, but the table allows none")
            arrays.append(self._as(column, field))
        with self._told():
            file.add(pa.RecordBatch.from_arrays(arrays, schema=schema))
        if not self._begun:
            self._begun = True
            crash_point("write.middle")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A disk that is full or gone, in words."""
        try:
            yield
        except OSError as error:
            what = f"a staged file below {self._made_by.uri} can't be written: {error.strerror or type(error).__name__}"
            do = "Nothing was committed. Make room or mend the storage, then run the window again."
            raise UnreachableError(what, "stage", do, self._split.topic, self._split.partition, self._split.start) from error

    def _as(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the error's own text may quote a value
            raise self._error(f"column {field.name} is {column.type}; it doesn't fit the table's {field.type}") from None

    def _error(self, what: str) -> WindrowError:
        do = "The schema and the transform disagree: the rows must be exactly the table's columns."
        return WindrowError(what, "stage", do, self._split.topic, self._split.partition, self._split.start)


class DeltaStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know."""

    uri: str
    dead_uri: str
    schema: pa.Schema
    metadata: dict[str, str]
    window_key: str
    pipeline: str
    generation: int
    attempt: str

    def __call__(self, split: Split) -> DeltaStager:
        """A stager whose file names are unique to this call."""
        return DeltaStager(self, split)


def refuse_gone(place: Place, files: Sequence[StagedFile]) -> None:
    """A vacuum without its grace period removes staged files too; a commit that names them would make them lost rows.

    Raises:
        RefusedError: says how many are gone or cut short.
    """
    sizes = place.sizes(f.path for f in files)
    gone = [f.path for f in files if sizes[f.path] != f.size]
    if gone:
        what = f"{len(gone)} of {len(files)} staged files are gone or cut short, the first is {gone[0]}"
        raise RefusedError(what, "commit", "Did a vacuum with no retention run meanwhile? Nothing was committed; run the window again.")


def _with_nan(batch: pa.RecordBatch) -> list[str]:
    return [f.name for f in batch.schema if pa.types.is_floating(f.type) and pc.any(pc.is_nan(batch[f.name])).as_py()]


def _words(file: StagedFile | None) -> tuple[str, ...]:
    return () if file is None else (msgspec.json.encode(file).decode(),)
