"""A folder of files as a table store: optimistic.

Each change is a manifest under the next number (`manifest.py`), put under a name that is taken
only once (`ingest.sinks.exclusive`): a hard link on a disk, a conditional put in S3.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from windrow.ingest.errors import DamagedError, SpecError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.plan import Covered, covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Promises, Unreadable
from windrow.ingest.sinks import exclusive, receipt_files
from windrow.ingest.sinks.files import manifest
from windrow.ingest.sinks.files.columns import check_rows, columns_after, in_words, whole_schema
from windrow.ingest.sinks.files.manifest import (
    PER_FOLDER,
    BrokenLogError,
    Brought,
    ColumnText,
    Log,
    Manifest,
    RowFile,
    Table,
    folder_of,
    path_of,
)
from windrow.ingest.sinks.files.stage import (
    DATA,
    FileFormat,
    FilesStagerFactory,
    row_files,
    rows_of,
)
from windrow.ingest.sinks.place import ListedFile, Place, dead_place, is_same, millis, normal
from windrow.ingest.sinks.ranges import Ranges
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import Layout
from windrow.ingest.sinks.table_store import (
    Answer,
    Conflict,
    StoredReceipt,
    TableChange,
    Unanswered,
    Written,
)

_KIND = "files:"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_READERS = 16


class FilesStore:
    """A folder, local or in an object store.

    Args:
        uri: the folder, or its URL; it belongs to one pipeline.
        written: how its files are written.

    Raises:
        SpecError: no such table can lie there.
    """

    capabilities = Promises(atomic="window", replaces=True, mode="append")
    primary_key = None
    lists_windows = True

    def __init__(self, uri: str, written: FileFormat = FileFormat("parquet", "zstd")) -> None:  # noqa: B008 - immutable
        self.place = normal(uri)
        self.written = written
        self.files = Place(self.place)
        self.staged = StagedRowFiles(self.place, self.files)
        self.puts = exclusive.exclusive(self.place, self.files)
        self._seen: tuple[Log, Ranges] | None = None

    @property
    def waits(self) -> Sequence[float]:
        return exclusive.WAITS

    @property
    def identity(self) -> str:
        return f"{_KIND}{self.place}"

    def is_at(self, identity: str) -> bool:
        """A link may lead to the table alone, and not to the dead letters' beside it: that is another one."""
        other = identity.removeprefix(_KIND)
        return is_same(other, self.place) and is_same(dead_place(other), dead_place(self.place))

    def places(self) -> Sequence[str]:
        return [self.place]

    def check_columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> None:
        check_rows(rows, metadata, self.written.format)

    def columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
        return whole_schema(rows, metadata)

    def check_write(self) -> None:
        refuse_unwritable(self.place)

    def ensure(self, columns: pa.Schema, owner: Binding) -> None:
        log = self.look() or self._begun(columns, owner)
        if log.table.format != self.written.format:
            had, mine = log.table.format, self.written.format
            what = f"the table {self.place} was begun with {had} files, not {mine}"
            do = f"Set sink.format back to {had}, or write to another path."
            raise SpecError(what, "setup", do)
        # A store that takes no notice of the condition would take the newest manifest again.
        self.puts.prove(path_of(log.number), log.newest)

    def _begun(self, columns: pa.Schema, owner: Binding) -> Log:
        """Begin the table, or find that another one was first."""
        if self.files.names("_delta_log") or self.files.names("metadata"):
            what = f"at {self.place} lies a table of another kind"
            do = "Set sink.path to a place where nothing is, or sink.kind to the table's."
            raise SpecError(what, "setup", do)
        table = Table(owner, self.written.format, in_words(columns))

        def put() -> None:
            try:
                self.puts.put(path_of(0), manifest.first_manifest(table))
            except OSError:  # the name is taken, or the put arrived and its answer didn't
                if self.look() is None:
                    raise

        exclusive.begun(self.place, put)
        log = self.look()
        assert log is not None
        return log

    @contextmanager
    def reading(self) -> Iterator[FilesState | None]:
        log = self.look()
        assert log is None or self._seen is not None
        yield None if log is None or self._seen is None else FilesState(self, *self._seen)

    writing = reading

    def stager(self, layout: Layout, window: Window) -> FilesStagerFactory:
        return FilesStagerFactory(self.place, layout, window.key, self.written)

    # -------------------------------------------------------------------------- reading the log

    def look(self) -> Log | None:
        """The log with what has come since the look before; None if the table isn't there.

        Raises:
            DamagedError: a manifest is gone or damaged.
        """
        log, ranges = self._seen or (None, Ranges())
        self._seen = None  # kept only if all goes well
        # The table may have been removed and made anew.
        if log is None or self._read(log.number) != log.newest:
            log, ranges = self._opened(), Ranges()
            if log is not None:
                ranges.add(r for held in log.table.windows.values() for r in held.ranges)
        while log is not None and (content := self._read(log.number + 1)) is not None:
            log = self._next(log, log.number + 1, content)
            held = log.table.windows.values()
            ranges.add(r for one in held if one.version == log.number for r in one.ranges)
        self._seen = None if log is None else (log, ranges)
        return log

    def _opened(self) -> Log | None:
        """The newest folder's manifests."""
        numbers = self._newest_folder()
        log: Log | None = None
        with ThreadPoolExecutor(_READERS) as pool:
            contents = pool.map(self._read, numbers)
            for number, content in zip(numbers, contents, strict=True):
                if content is None:
                    raise self._damaged(number, "it is gone")
                log = self._next(log, number, content)
        return log

    def _newest_folder(self) -> range:
        """The numbers of the newest folder's manifests, from its first one to its newest."""
        newest, number = range(0), 0
        while names := [n for n in self.files.names(folder_of(number)) if n.endswith(".json")]:
            newest = range(number, int(max(names).removesuffix(".json")) + 1)
            number += PER_FOLDER
        return newest

    def _next(self, log: Log | None, number: int, content: bytes) -> Log:
        try:
            return manifest.read(number, content, log)
        except BrokenLogError as error:
            raise self._damaged(number, str(error)) from error

    def _read(self, number: int) -> bytes | None:
        try:
            return self.files.get(path_of(number))
        except FileNotFoundError:
            return None

    def _damaged(self, number: int, why: str) -> DamagedError:
        path = path_of(number)
        what = f"manifest {number} of {self.place} ({path}) can't be gone by: {why}"
        do = "Restore that file from a backup. Until then no window is written to this table."
        return DamagedError(what, "commit", do)


class FilesState:
    """The table as of one manifest (`sinks.table_store.TableState`)."""

    def __init__(self, store: FilesStore, log: Log, ranges: Ranges) -> None:
        self.log, self._store, self._ranges = log, store, ranges
        self._table = log.table

    @property
    def version(self) -> int:
        return self.log.number

    @property
    def owner(self) -> Binding:
        return self._table.owner

    def note(self, name: str) -> int | None:
        return self._table.notes.get(name)

    def notes(self) -> Mapping[str, int]:
        return self._table.notes

    def committed(self) -> Collection[str]:
        return self._table.windows.keys()

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        held = self._table.windows
        some = held.keys() if keys is None else held.keys() & set(keys)
        named = {key: (held[key].receipt, held[key].version) for key in some}
        return receipt_files.read(self._store.files, named)

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """Nearly always none; else all are named, and the judge reads their receipts."""
        return set(self._table.windows) if self._ranges.meets(ranges) else set()

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        held = self._table.windows
        some = held.keys() if keys is None else held.keys() & set(keys)
        return {key for key in some if any(file.rows for file in held[key].files)}

    def size(self) -> tuple[int, int]:
        files = list(self._table.files())
        return sum(file.rows for file in files), sum(file.size for file in files)

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        new = self._columns_after(columns)[len(self._table.columns) :]
        return [f"{name} ({kind})" for name, kind, _ in new]

    def scan(
        self,
        window: Window | None,
        columns: Callable[[], pa.Schema],
        names: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        del names
        held = self._table.windows
        keys = sorted(held) if window is None else [window.key]
        for path in [file.path for key in keys if key in held for file in held[key].files]:
            yield from rows_of(self._store.files, path, columns())

    def unneeded(self, listed: Iterable[ListedFile], cutoff: int) -> dict[str, int]:
        """Files of an older generation stay for the grace period after they were replaced: readers may have begun to read them."""
        named = {file.path for file in self._table.files()}
        old = {f.path: at for f in listed if (at := millis(f.modified)) <= cutoff}
        return {path: at for path, at in sorted(old.items()) if path not in named and self._table.replaced.get(path, cutoff) <= cutoff}

    def put(self, change: TableChange) -> Answer:
        number = self.version + 1
        content = manifest.next_manifest(self.log, self._manifest(change))
        try:
            self._store.puts.put(path_of(number), content)
        except FileExistsError:
            return Conflict(f"manifest {number} is taken")
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            return Unanswered(why, error.errno in _FULL and self._store.files.is_local)
        return Written(number)

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        named = self._table.windows[window.key].receipt
        receipt_files.restore(self._store.files, window, named, text, dry_run=dry_run)

    def _manifest(self, change: TableChange) -> Manifest:
        columns = self._table.columns
        if change.columns is not None:
            columns = self._columns_after(change.columns)
        grown = columns if len(columns) > len(self._table.columns) else ()
        brought = None if change.receipt is None else self._brought(change, change.receipt)
        return Manifest(
            manifest.FORM,
            "",
            brought=brought,
            columns=grown,
            replaced=self._replaced(change),
            notes=change.notes,
        )

    def _brought(self, change: TableChange, receipt: Receipt) -> Brought:
        key = receipt.window.key
        stay = () if change.replaces else self._files(key)
        files = (*stay, *row_files(change.staged))
        named = receipt_files.write(self._store.files, receipt)
        return Brought(key, files, covered(receipt.plan), named)

    def _replaced(self, change: TableChange) -> dict[str, int]:
        if not change.replaces or change.receipt is None:
            return {}
        since = millis(change.receipt.staged_at)
        return {file.path: since for file in self._files(change.receipt.window.key)}

    def _files(self, key: str) -> tuple[RowFile, ...]:
        held = self._table.windows.get(key)
        return () if held is None else held.files

    def _columns_after(self, columns: pa.Schema) -> tuple[ColumnText, ...]:
        written, place = self._store.written.format, self._store.place
        return columns_after(self._table.columns, in_words(columns), written, place)


class StagedRowFiles(msgspec.Struct, frozen=True):
    """The files of attempts, which become the table's when a manifest names them (`sinks.table_store.StagedFiles`)."""

    uri: str
    place: Place
    folders: tuple[str, ...] = (DATA,)
    consumed: bool = False

    def named(self, committables: Iterable[str]) -> list[RowFile]:
        return row_files(committables)
