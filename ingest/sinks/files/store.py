"""A folder of files as a table store, with optimistic commits.

Each change is a manifest with the next number (`manifest.py`). Its file can be created only
once (`sinks.kit.files.put_if_absent`): by a hard link on a disk, by a conditional put in S3.
"""

from __future__ import annotations

import errno
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import cast

import msgspec
import pyarrow as pa

from windrow.ingest.errors import DamagedError, SpecError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.files.manifest import (
    FILES_LOG,
    FORM,
    AnyForm,
    FilesLine,
    FilesPage,
    Manifest,
    encode,
    fingerprint,
    path_of,
)
from windrow.ingest.sinks.files.stage import (
    FileFormat,
    FilesStagerFactory,
    begin_file,
    check_rows,
    read_file,
)
from windrow.ingest.sinks.kit import (
    DATA_FOLDER,
    Answer,
    Conflict,
    Evolution,
    Layout,
    Page,
    PagedState,
    PageFiles,
    Pages,
    PartitionField,
    Place,
    RowFile,
    StagedFiles,
    TableChange,
    Unanswered,
    Written,
    fit_columns,
    put_if_absent,
    refuse_unwritable,
    table_schema,
    window_folder,
)

_KIND = "files:"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EMLINK}
_FOLDER = re.compile(r"\d{10}")
_MANIFEST = re.compile(r"\d{20}\.json")


_LOST_PAGE = (
    "Restore the folder _windrow/pages from a backup. Until then no window is read or written,"
    " because it isn't known which files count."
)


class Entry(msgspec.Struct, frozen=True):
    """A manifest of the log.

    Attributes:
        number: its number.
        content: its bytes.
        manifest: the decoded content.
    """

    number: int
    content: bytes
    manifest: Manifest


class FilesStore:
    """A folder, local or in an object store (`sinks.kit.commit.table_store.TableStore`).

    Args:
        uri: the folder, or its URL.
        written: the format of its files.
        metadata: the names of the metadata columns.
        partition_by: the partition fields. Each is a level of folders.

    Raises:
        SpecError: no table of files can be at this place.
    """

    capabilities = Capabilities()
    primary_key = None

    def __init__(
        self,
        uri: str,
        written: FileFormat = FileFormat("parquet", "zstd"),  # noqa: B008
        metadata: Mapping[str, str] = DEFAULT,
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        self.files = Place.normalized(uri)
        self.location = self.files.uri
        self.identity = f"{_KIND}{self.location}"
        self.written, self.metadata, self.partition_by = written, metadata, partition_by
        self.staged = StagedFiles(self.location, (DATA_FOLDER,), RowFile, self.files)
        self.puts = put_if_absent(self.files)
        self.pages = PageFiles(self.location, FilesPage, _LOST_PAGE)
        self._last_entry: Entry | None = None

    @property
    def waits(self) -> Sequence[float]:
        return self.puts.waits

    def is_at(self, identity: str) -> bool:
        return self.files.is_same_table(Place(identity.removeprefix(_KIND)))

    def places(self) -> Sequence[str]:
        return [self.location]

    def check_columns(self, rows: pa.Schema) -> None:
        check_rows(rows, self.metadata, self.written.format)
        PartitionField.refuse_unusable(self.partition_by, rows, self.metadata.values())

    def columns(self, rows: pa.Schema) -> pa.Schema:
        return table_schema(rows, self.metadata)

    def check_write(self) -> None:
        refuse_unwritable(self.location)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        entry = self.look() or self._begin_log(columns, owner)
        # An object store that ignores the condition would accept the newest manifest again.
        self.puts.check(path_of(entry.number), entry.content)

    def _begin_log(self, columns: pa.Schema, owner: TableOwner) -> Entry:
        """Creates the first manifest, unless another process creates it first."""
        schema = columns.serialize().to_pybytes()
        partition_by = PartitionField.describe(self.partition_by)
        first = encode(
            Manifest(FORM, "", owner, self.written.format, schema, partition_by=partition_by)
        )

        def put() -> None:
            try:
                self.puts.put(path_of(0), first)
            except OSError:  # the name is taken, or the put arrived and its answer was lost
                if self.look() is None:
                    raise

        self.puts.retry(put)
        begun = self.look()
        assert begun is not None
        return begun

    @contextmanager
    def reading(self) -> Iterator[FilesState | None]:
        entry = self.look()
        if entry is None and (self.files.names("_delta_log") or self.files.names("metadata")):
            raise self.files.other_kind_error()
        yield None if entry is None else FilesState(self, entry)

    writing = reading

    def stager(self, layout: Layout, window: Window) -> FilesStagerFactory:
        return FilesStagerFactory(
            self.location, layout, window.key, self.written, self.partition_by
        )

    # -------------------------------------------------------------------------- reading the log

    def look(self) -> Entry | None:
        """Finds the newest manifest, starting at that of the last look; None if there is no table.

        Raises:
            DamagedError: a manifest is missing or damaged, or the whole log is gone.
            SpecError: another version of windrow wrote the table.
        """
        entry, self._last_entry = self._last_entry, None  # set again at the end, without errors
        # The table may have been removed and created again.
        if entry is None or self.content(entry.number) != entry.content:
            entry = self._newest()
        while entry is not None and (content := self.content(entry.number + 1)) is not None:
            entry = self._read(entry.number + 1, content, entry.content)
        if entry is None and self.files.folders(DATA_FOLDER):
            # A race, for which the log is read again:
            # 1. This run finds no log.
            # 2. Another run creates the table.
            # 3. This run sees the new table's data.
            entry = self._newest()
            if entry is None:
                log_error = self.files.log_gone_error(FILES_LOG, "_windrow", DATA_FOLDER)
                raise self.files.other_kind_error() if self.files.names("_delta_log") else log_error
        self._last_entry = entry
        return entry

    def _newest(self) -> Entry | None:
        """Reads the manifest with the highest number, and the one before it, to compare them."""
        for folder in sorted(filter(_FOLDER.fullmatch, self.files.folders(FILES_LOG)))[::-1]:
            names = filter(_MANIFEST.fullmatch, self.files.names(f"{FILES_LOG}/{folder}"))
            for name in sorted(names)[-1:]:
                number = int(name.removesuffix(".json"))
                previous, content = self.content(number - 1), self.content(number)
                if content is None or (number and previous is None):
                    raise self.damaged_error(number if previous else number - 1, "it is gone")
                return self._read(number, content, previous)
        return None

    def _read(self, number: int, content: bytes, previous: bytes | None) -> Entry:
        """Decodes a manifest, and compares it with the content of the one before it."""
        try:
            form = msgspec.json.decode(content, type=AnyForm).windrow
            if form != FORM:
                raise SpecError(
                    f"the log of {self.location} is of another form than this windrow's:"
                    f" of {'an older one' if form < FORM else 'a later one'}",
                    "setup",
                    "Read and write it with the windrow that made it, or set sink.path to another"
                    " place.",
                )
            manifest = msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            raise self.damaged_error(number, "it can't be read") from error
        if previous is not None and manifest.previous_fingerprint != fingerprint(previous):
            raise self.damaged_error(
                number, "it was written behind another one than the one before it"
            )
        return Entry(number, content, manifest)

    def content(self, number: int) -> bytes | None:
        """Reads a manifest; None if no manifest has this number."""
        try:
            return self.files.get(path_of(number))
        except FileNotFoundError:
            return None

    def damaged_error(self, number: int, reason: str) -> DamagedError:
        """Returns the error about a manifest that can't be used."""
        path = path_of(number)
        return DamagedError(
            f"manifest {number} of {self.location} ({path}) can't be used: {reason}",
            "commit",
            "Restore that file from a backup. Or, if the table itself was removed or restored from"
            " an older copy while a run was at work, remove what that run left behind the end of"
            " the log: that file, if it is there, and all with a higher number; then windrow lag"
            " SPEC names the windows to run again. Until then no window is written to this table.",
        )


class FilesState(PagedState):
    """The table after one manifest (`sinks.kit.commit.table_store.TableState`)."""

    line = FilesLine
    is_lost = False
    """Only the pages have the files of a window, so lost pages can't be written again."""

    def __init__(self, store: FilesStore, entry: Entry) -> None:
        super().__init__(store.files, store.pages)
        self._store, self._entry, self._manifest = store, entry, entry.manifest
        self.version, self.owner = entry.number, entry.manifest.owner

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table. An older file may have fewer."""
        return self._manifest.schema

    def read_pages(self) -> Pages:
        return self._store.pages.read(self.folder, self._manifest.page)

    @property
    def _lines(self) -> Mapping[str, FilesLine]:
        return cast("Mapping[str, FilesLine]", self.pages.windows)

    def row_files(self, keys: Collection[str] | None = None) -> list[RowFile]:
        """Returns the files of some windows, or of all, in the order of windows."""
        lines = self._lines
        selected = lines.keys() if keys is None else lines.keys() & set(keys)
        return [file for key in sorted(selected) for file in lines[key].files]

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        selected = self._lines.keys() if keys is None else keys
        return {key for key in selected if self.row_files([key])}

    def size(self) -> tuple[int, int]:
        files = self.row_files()
        return sum(file.rows for file in files), sum(file.size for file in files)

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        table_format, spec_format = self._manifest.format, self._store.written.format
        PartitionField.refuse_other(
            self._store.location, self._manifest.partition_by, self._store.partition_by
        )
        if table_format != spec_format:
            raise SpecError(
                f"the table {self._store.location} was begun with {table_format} files, not"
                f" {spec_format}",
                "setup",
                f"Set sink.format back to {table_format}, or begin a pipeline with another id and"
                " path.",
            )
        return self._evolution(columns).changes

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        del names
        for file in self.row_files(None if window is None else [window.key]):
            yield from read_file(self.folder, file.path, self._manifest.schema)

    def files_by_partition(self) -> Mapping[str, Sequence[RowFile]]:
        files: dict[str, list[RowFile]] = {}
        for file in self.row_files():  # a folder has the files of one window and partition
            files.setdefault(file.path.rpartition("/")[0], []).append(file)
        return files

    def join_files(self, paths: Sequence[str], attempt: str) -> RowFile | None:
        window_key, columns = self._window_by_path[paths[0]], self.schema
        in_file = pa.schema(list(columns)[:-1])  # without the window's column
        folder = paths[0].rpartition("/")[0]
        file = begin_file(self.folder, self._store.written, columns, window_key, folder, attempt)
        for path in paths:
            for batch in read_file(self.folder, path, columns):
                file.add(fit_columns(batch, in_file))
        return file.close()

    @cached_property
    def _window_by_path(self) -> Mapping[str, str]:
        return {file.path: key for key, line in self._lines.items() for file in line.files}

    def unneeded(self, old: Mapping[str, int], cutoff: int) -> Mapping[str, int]:
        """Keeps replaced files during the grace period, because readers may still read them.

        The age of a replacement is that of its manifest. If that manifest is missing, the next
        existing manifest counts: files that were replaced before an old manifest are old too.
        """
        named = {file.path for file in self.row_files()}
        log = sorted((f.path, f.modified_millis) for f in self.folder.walk(FILES_LOG))
        young = set[str]()
        for key, line in self._lines.items():
            replacement = path_of(line.version)
            of_manifest = log[bisect_left(log, (replacement,)) :][:1]
            has_replaced = line.generation or any(map(StagedFiles.is_joined, line.files))
            if has_replaced and all(modified_millis > cutoff for _, modified_millis in of_manifest):
                young.add(window_folder(key).rpartition("/")[2])
        # A window's folder is the innermost one, below those of partitions.
        return {
            path: modified_millis
            for path, modified_millis in old.items()
            if path not in named and path.split("/")[-2] not in young
        }

    def put(self, change: TableChange) -> Answer:
        number = self.version + 1
        columns = self._manifest.columns
        if change.columns is not None and (evolution := self._evolution(change.columns)).changes:
            columns = evolution.columns.serialize().to_pybytes()
        content = encode(
            msgspec.structs.replace(
                self._manifest,
                previous_fingerprint=fingerprint(self._entry.content),
                columns=columns,
                page=self._put_page(change, number),
            )
        )
        local = self.folder.is_local
        try:
            self._store.puts.put(path_of(number), content)
        except FileExistsError:
            return Conflict(f"manifest {number} is taken")
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            if local and error.errno in _DENIED:
                raise UnreachableError(
                    f"nothing can be put below {self._store.location}: {reason}",
                    "commit",
                    self._store.files.advice(reason),
                ) from error
            return Unanswered(reason, error.errno in _FULL and local)
        if self._store.content(self.version) != self._entry.content:
            raise self._store.damaged_error(
                number, "the table was removed, restored or made anew while a commit was under way"
            )
        return Written(number)

    def _put_page(self, change: TableChange, number: int) -> str:
        if change.joined:
            page = Page(self._lines_after(change, number), dict(change.notes))
            return self._store.pages.write(self.folder, self.pages, page)
        key = "" if change.window is None else change.window.key
        stay = [] if change.replaces else self.row_files([key])
        files = (*stay, *self._store.staged.decode_committables(change.staged))
        return self.put_page(change.receipts, change.notes, number, files)

    def _lines_after(self, change: TableChange, number: int) -> dict[str, FilesLine]:
        """Returns the changed lines of windows whose files are joined."""
        lines = dict[str, FilesLine]()
        for one_join in change.joined:
            key = self._window_by_path[one_join.replaced[0]]
            line = lines.get(key, self._lines[key])
            stay = [file for file in line.files if file.path not in one_join.replaced]
            files = (*stay, *self._store.staged.decode_committables(one_join.staged))
            lines[key] = msgspec.structs.replace(line, version=number, files=files)
        return lines

    def _evolution(self, columns: pa.Schema) -> Evolution:
        csv = self._store.written.format == "csv"
        return Evolution.compare_added(
            self._manifest.schema, columns, self._store.location, by_position=csv
        )
