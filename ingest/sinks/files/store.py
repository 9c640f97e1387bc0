"""A folder of files as a table store, with optimistic commits.

Each change is a manifest with the next number (`manifest.py`). Its file can be created only once
(`ingest.sinks.put_if_absent`): by a hard link on a disk, by a conditional put in S3.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa

from windrow.ingest.errors import DamagedError, SpecError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Capabilities, Unreadable
from windrow.ingest.sinks import put_if_absent, receipt_files
from windrow.ingest.sinks.columns import whole_schema
from windrow.ingest.sinks.files import manifest
from windrow.ingest.sinks.files.columns import check_rows
from windrow.ingest.sinks.files.manifest import (
    BrokenLogError,
    Log,
    Manifest,
    OtherFormError,
    RowFile,
    Table,
    WindowFiles,
    path_of,
)
from windrow.ingest.sinks.files.stage import (
    FileFormat,
    FilesStagerFactory,
    read_file,
)
from windrow.ingest.sinks.place import (
    FILES_LOG,
    ListedFile,
    Place,
    is_same_table,
    millis,
    normalized,
    to_check,
)
from windrow.ingest.sinks.ranges import Ranges
from windrow.ingest.sinks.schema_evolution import Evolution, new_columns
from windrow.ingest.sinks.stage import Layout
from windrow.ingest.sinks.staged_files import DATA, StagedFiles
from windrow.ingest.sinks.table_store import (
    Answer,
    Conflict,
    StoredReceipt,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.sinks.write_check import refuse_unwritable

_KIND = "files:"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EMLINK}
_FOLDER = re.compile(r"\d{10}")
_MANIFEST = re.compile(r"\d{20}\.json")
_READERS = 16


class FilesStore:
    """A folder, local or in an object store (`sinks.table_store.TableStore`).

    Args:
        uri: the folder, or its URL.
        written: the format of its files.
        metadata: the names of the metadata columns.

    Raises:
        SpecError: no table of files can be at this place.
    """

    capabilities = Capabilities()
    primary_key = None
    lists_windows = True

    def __init__(
        self,
        uri: str,
        written: FileFormat = FileFormat("parquet", "zstd"),  # noqa: B008
        metadata: Mapping[str, str] = DEFAULT,
    ) -> None:
        self.place = normalized(uri)
        self.written, self.metadata = written, metadata
        self.files = Place(self.place)
        self.staged = StagedFiles(self.place, (DATA,), RowFile, self.files)
        self.puts = put_if_absent.put_if_absent(self.place, self.files)
        self._seen: tuple[Log, Ranges] | None = None

    @property
    def waits(self) -> Sequence[float]:
        return put_if_absent.WAITS

    @property
    def identity(self) -> str:
        return f"{_KIND}{self.place}"

    def is_at(self, identity: str) -> bool:
        return is_same_table(identity.removeprefix(_KIND), self.place)

    def places(self) -> Sequence[str]:
        return [self.place]

    def check_columns(self, rows: pa.Schema) -> None:
        check_rows(rows, self.metadata, self.written.format)

    def columns(self, rows: pa.Schema) -> pa.Schema:
        return whole_schema(rows, self.metadata)

    def check_write(self) -> None:
        refuse_unwritable(self.place)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        log = self.look() or self._begun(columns, owner)
        if log.table.format != self.written.format:
            had, mine = log.table.format, self.written.format
            what = f"the table {self.place} was begun with {had} files, not {mine}"
            do = f"Set sink.format back to {had}, or begin a pipeline with another id and path."
            raise SpecError(what, "setup", do)
        # An object store that ignores the condition would accept the newest manifest again.
        self.puts.check(path_of(log.number), log.newest)

    def _begun(self, columns: pa.Schema, owner: TableOwner) -> Log:
        """Creates the first manifest, unless another process was first."""
        if self.files.names("_delta_log") or self.files.names("metadata"):
            what = f"at {self.place} lies a table of another kind"
            do = "Set sink.path to a place where nothing is, or sink.kind to the table's."
            raise SpecError(what, "setup", do)
        table = Table(owner, self.written.format, columns.serialize().to_pybytes())

        def put() -> None:
            try:
                self.puts.put(path_of(0), manifest.first_manifest(table))
            except OSError:  # the name is taken, or only the answer was lost
                if self.look() is None:
                    raise

        put_if_absent.retried(self.place, put)
        log = self.look()
        assert log is not None
        return log

    @contextmanager
    def reading(self) -> Iterator[FilesState | None]:
        seen = self._look()
        yield None if seen is None else FilesState(self, *seen)

    writing = reading

    def stager(self, layout: Layout, window: Window) -> FilesStagerFactory:
        return FilesStagerFactory(self.place, layout, window.key, self.written)

    # -------------------------------------------------------------------------- reading the log

    def look(self) -> Log | None:
        """Reads the log from the last look on; None if the table doesn't exist.

        Raises:
            DamagedError: a manifest is missing or damaged, or the whole log is gone.
            SpecError: another version of windrow wrote the table.
        """
        seen = self._look()
        return None if seen is None else seen[0]

    def _look(self) -> tuple[Log, Ranges] | None:
        log, ranges = self._seen or (None, Ranges())
        self._seen = None  # kept only if all goes well
        try:
            # The table may have been removed and created again.
            if log is None or self.manifest(log.number) != log.newest:
                log, ranges = manifest.followed(None, self._newest_manifests()), Ranges()
                if log is not None:
                    ranges.add(r for held in log.table.windows.values() for r in held.ranges)
            while log is not None and (content := self.manifest(log.number + 1)) is not None:
                log = manifest.followed(log, [(log.number + 1, content)])
                assert log is not None
                ranges.add(r for key in log.keys for r in log.table.windows[key].ranges)
        except BrokenLogError as error:
            raise self.damaged(error.number, str(error)) from error
        except OtherFormError as error:
            what = f"the log of {self.place} is of another form than this windrow's: of {error}"
            do = (
                "Read and write it with the windrow that made it, or set sink.path to another"
                " place."
            )
            raise SpecError(what, "setup", do) from error
        if log is None and self.files.folders(DATA):
            what = f"the log of {self.place} ({FILES_LOG}) is gone, and files of rows are left"
            do = (
                "Is its disk mounted? If so, restore the folder _windrow from a backup. If the"
                f" table was moved, or removed for good, remove {DATA} here as well, then run this"
                " again."
            )
            raise DamagedError(what, "setup", do)
        self._seen = None if log is None else (log, ranges)
        return self._seen

    def _newest_manifests(self) -> Iterator[tuple[int, bytes]]:
        """Reads the manifests from the newest one with the whole table on.

        The folders are listed, because old ones may be gone, so that counting up from 0 would end.
        """
        folders = sorted(filter(_FOLDER.fullmatch, self.files.folders(FILES_LOG)), reverse=True)
        newest: int | None = None
        for folder in folders:
            names = filter(_MANIFEST.fullmatch, self.files.names(f"{FILES_LOG}/{folder}"))
            numbers = [int(name.removesuffix(".json")) for name in names]
            if numbers and newest is None:
                newest = max(numbers)
            first = int(folder) * manifest.PER_FOLDER
            if newest is not None and (first == 0 or manifest.has_table(self._whole(first))):
                yield from self._manifests(range(first, newest + 1))
                return

    def _manifests(self, numbers: range) -> Iterator[tuple[int, bytes]]:
        with ThreadPoolExecutor(_READERS) as pool:
            yield from zip(numbers, pool.map(self._whole, numbers), strict=True)

    def _whole(self, number: int) -> bytes:
        content = self.manifest(number)
        if content is None:
            raise BrokenLogError(number, "it is gone")
        return content

    def manifest(self, number: int) -> bytes | None:
        """Reads a manifest; None if there is none with this number."""
        try:
            return self.files.get(path_of(number))
        except FileNotFoundError:
            return None

    def damaged(self, number: int, why: str) -> DamagedError:
        """Makes the error of a manifest that can't be used."""
        path = path_of(number)
        what = f"manifest {number} of {self.place} ({path}) can't be used: {why}"
        do = (
            "Restore that file from a backup. Or, if the table itself was removed or restored from"
            " an older copy while a run was at work, remove what that run left behind the end of"
            " the log: that file, if it is there, and all with a higher number; then windrow lag"
            " SPEC names the windows to run again. Until then no window is written to this table."
        )
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
    def owner(self) -> TableOwner:
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
        if not self._ranges.meets(ranges):
            return set()
        held = self._table.windows.items()
        return {key for key, one in held if any(a.overlaps(b) for a in one.ranges for b in ranges)}

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        held = self._table.windows
        some = held.keys() if keys is None else held.keys() & set(keys)
        return {key for key in some if any(file.rows for file in held[key].files)}

    def size(self) -> tuple[int, int]:
        files = list(self._table.files())
        return sum(file.rows for file in files), sum(file.size for file in files)

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        return self._evolution(columns).changes

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        del names
        held = self._table.windows
        keys = sorted(held) if window is None else [window.key]
        for path in [file.path for key in keys if key in held for file in held[key].files]:
            yield from read_file(self._store.files, path, self._table.schema)

    def unneeded(self, listed: Iterable[ListedFile], cutoff: int) -> dict[str, int]:
        """Old files without replaced ones in the grace period, which readers may still read."""
        named = {file.path for file in self._table.files()}
        old = {f.path: at for f in listed if (at := millis(f.modified)) <= cutoff}
        return {
            path: at
            for path, at in sorted(old.items())
            if path not in named and self._table.replaced.get(path, cutoff) <= cutoff
        }

    def put(self, change: TableChange) -> Answer:
        number = self.version + 1
        content = manifest.next_manifest(self.log, self._manifest(change))
        local = self._store.files.is_local
        try:
            self._store.puts.put(path_of(number), content)
        except FileExistsError:
            return Conflict(f"manifest {number} is taken")
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            if local and error.errno in _DENIED:
                what = f"nothing can be put below {self._store.place}: {why}"
                raise UnreachableError(what, "commit", to_check(self._store.place, why)) from error
            return Unanswered(why, error.errno in _FULL and local)
        if self._store.manifest(self.version) != self.log.newest:
            raise self._store.damaged(
                number, "the table was removed, restored or made anew while a commit was under way"
            )
        return Written(number)

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        named = self._table.windows[window.key].receipt
        receipt_files.restore(self._store.files, window, named, text, dry_run=dry_run)

    def _manifest(self, change: TableChange) -> Manifest:
        become = None if change.columns is None else self._evolution(change.columns)
        columns = become.columns.serialize().to_pybytes() if become and become.changes else b""
        # Dead letters of files are in a Delta table.
        assert change.receipt is not None or not change.staged
        brought = None if change.receipt is None else self._brought(change, change.receipt)
        return Manifest(
            manifest.FORM,
            "",
            brought=brought,
            columns=columns,
            replaced=self._replaced(change),
            notes=change.notes,
        )

    def _brought(self, change: TableChange, receipt: Receipt) -> WindowFiles:
        key = receipt.window.key
        stay = () if change.replaces else self._files(key)
        files = (*stay, *self._store.staged.named(change.staged))
        named = receipt_files.write(self._store.files, receipt)
        return WindowFiles(key, files, covered(receipt.plan), named, self.version + 1)

    def _replaced(self, change: TableChange) -> dict[str, int]:
        if not change.replaces or change.receipt is None:
            return {}
        since = millis(datetime.now(UTC))
        return {file.path: since for file in self._files(change.receipt.window.key)}

    def _files(self, key: str) -> tuple[RowFile, ...]:
        held = self._table.windows.get(key)
        return () if held is None else held.files

    def _evolution(self, columns: pa.Schema) -> Evolution:
        csv = self._store.written.format == "csv"
        return new_columns(self._table.schema, columns, self._store.place, by_position=csv)
