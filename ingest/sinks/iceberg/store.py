"""An Iceberg table as a table store, with optimistic commits on its newest snapshot.

Every change makes a snapshot, also a change without rows. The snapshot's summary names the
newest page (`sinks.kit.commit.pages`). The pages list the windows of the table. The newest
snapshot by windrow among the ancestors of main has the state. So a rollback undoes windows'
rows and their receipts together.

If all of these snapshots are expired, a property of the table names the page of the last
change. A rollback doesn't change the property. So in this case windows without rows in the
table are left out, from the newest window down to the first one that has rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.typedef import Record

from windrow.ingest.errors import RefusedError, SchemaChangedError, UnreachableError, format_count
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.iceberg.catalog_table import DATABASE, CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import catalog_is_missing, load, reason
from windrow.ingest.sinks.iceberg.columns import arrow_columns, check_rows
from windrow.ingest.sinks.iceberg.commit import NEWEST_PAGE, Prepared, data_file
from windrow.ingest.sinks.iceberg.contents import read_files
from windrow.ingest.sinks.iceberg.create import (
    column_changes,
    create_table,
    evolution_for,
    evolve_columns,
    file_columns,
    new_schema,
    refuse_foreign,
)
from windrow.ingest.sinks.iceberg.stage import (
    STAGED,
    IcebergFile,
    IcebergStagerFactory,
    IcebergWriter,
)
from windrow.ingest.sinks.iceberg.storage import (
    IcebergPlace,
    TaskStorage,
    local_path,
    storage_properties,
    to_task_storage,
)
from windrow.ingest.sinks.kit import (
    BUCKET,
    STORE_WAITS,
    Answer,
    BucketFiles,
    ChangesFile,
    Conflict,
    DeadLetterTable,
    Evolve,
    GrowingFile,
    KeyedState,
    Layout,
    MergeLayout,
    PageFiles,
    Pages,
    PartitionField,
    Place,
    PrimaryKey,
    RowFile,
    RowLayout,
    StagedFiles,
    TableChange,
    Unanswered,
    Written,
    fit_columns,
    key_properties,
    merge_changes,
    read_receipt,
    refuse_unwritable,
    staged_path,
    table_gone_error,
    table_schema,
)

_KIND = "iceberg:"


class IcebergStore:
    """An Iceberg table, by its catalog.

    Args:
        catalog_table: the table's catalog and name. The table belongs to one pipeline.
        metadata: names of the metadata columns. A table without a primary key is partitioned by
            the window's column.
        primary_key: the key of a table whose rows replace each other; the table is partitioned
            by its buckets. None if rows are appended.
        evolve: the allowed changes of an existing table's columns.
        partition_by: the partition fields, which follow the window.
    """

    waits: Sequence[float] = STORE_WAITS

    def __init__(
        self,
        catalog_table: CatalogTable,
        metadata: Mapping[str, str],
        primary_key: PrimaryKey | None = None,
        evolve: Evolve = "add_columns",
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        self.catalog_table, self.metadata, self.evolve = catalog_table, metadata, evolve
        self.primary_key, self.partition_by = primary_key, partition_by
        self.capabilities = Capabilities(mode="append" if primary_key is None else "upsert")
        self.column = metadata["window"] if primary_key is None else BUCKET
        self.location = catalog_table.location
        self.identity = f"{_KIND}{catalog_table.location}"
        self.pages = PageFiles(catalog_table.location)
        self._newest: IcebergState | None = None

    def is_at(self, identity: str) -> bool:
        return self.catalog_table.is_same(identity.removeprefix(_KIND))

    def places(self) -> Sequence[str]:
        """Returns the warehouse folder of a table that is in a folder.

        For any other table the catalog gives the location and the properties to open it.
        """
        return [self.catalog_table.warehouse] if self.catalog_table.warehouse else []

    def check_columns(self, rows: pa.Schema) -> None:
        check_rows(rows, self.metadata)
        PartitionField.refuse_unusable(self.partition_by, rows, self.metadata.values())

    def columns(self, rows: pa.Schema) -> pa.Schema:
        return table_schema(rows, self.metadata, self.primary_key)

    def _with_window(self, in_file: pa.Schema) -> pa.Schema:
        return in_file.append(pa.field(self.column, pa.string(), nullable=False))

    def check_write(self) -> None:
        """Checks that the folder can be written, or else that the catalog answers."""
        if self.catalog_table.warehouse:
            refuse_unwritable(self.catalog_table.warehouse, "sink.warehouse")
        else:
            load(self.catalog_table)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        properties = {**owner.properties, **key_properties(self.primary_key)}
        create_table(self.catalog_table, self.column, columns, properties, self.partition_by)

    @contextmanager
    def reading(self) -> Iterator[IcebergState | None]:
        yield self._look()

    writing = reading

    def _look(self) -> IcebergState | None:
        """Loads the newest state; None if there is no table.

        Raises:
            DamagedError: the warehouse's catalog is gone, and files of the table are left.
            SpecError, SchemaChangedError: windrow didn't make the table, or its partitions
                differ.
        """
        table = load(self.catalog_table)
        if table is None:
            folder = f"{self.catalog_table.namespace}/{self.catalog_table.table.rpartition('.')[2]}"
            leftover = Path(self.catalog_table.warehouse, folder, "_windrow")
            if catalog_is_missing(self.catalog_table) and leftover.exists():
                raise Place(self.location).log_gone_error(DATABASE, "of the warehouse", folder)
            return None
        refuse_foreign(self.location, table, self.column, self.primary_key, self.partition_by)
        self._newest = IcebergState(self, table)
        return self._newest

    @property
    def staged(self) -> StagedFiles[Any] | None:
        """The staged files at the table's location, which only the catalog knows."""
        state = self._newest or self._look()
        return None if state is None else state.staged

    def stager(self, layout: Layout, window: Window) -> IcebergStagerFactory:
        """Makes the factory of stagers whose files have the table's field ids and types.

        Raises:
            SpecError: tasks can't open the storage unless a secret is sent to them.
        """
        state = self._look()
        if state is None:
            raise table_gone_error(self)
        table, key = state.table, self.primary_key
        location, storage = table.metadata.location, self.task_storage(table)
        if key is not None:
            return IcebergStagerFactory(location, storage, layout, layout.schema, window.key, key)
        evolution = evolution_for(table, self._with_window(layout.schema), self.evolve)
        columns = file_columns(table, evolution)
        if isinstance(layout, RowLayout):
            wide = [columns.field(name) for name in layout.rows.names]
            rows = pa.schema([pa.field(f.name, f.type, f.nullable) for f in wide])
            layout = msgspec.structs.replace(layout, rows=rows)
        return IcebergStagerFactory(
            location, storage, layout, columns, window.key, partition_by=self.partition_by
        )

    def task_storage(self, table: Table) -> TaskStorage:
        """Returns the properties that open the table's storage in a task.

        Raises:
            SpecError: tasks can't open it unless a secret is sent to them.
        """
        is_local = local_path(table.metadata.location) is not None
        return (
            TaskStorage()
            if is_local
            else to_task_storage(self.catalog_table, storage_properties(table))
        )

    def send(self, ready: Prepared) -> None:
        """Sends a commit, once. It may have arrived even if this raises an error."""
        ready.send()


class IcebergState(KeyedState):
    """The table as its catalog returned it (`sinks.kit.commit.table_store.TableState`)."""

    def __init__(self, store: IcebergStore, table: Table) -> None:
        self.files = IcebergPlace(table.metadata.location, lambda: storage_properties(table))
        super().__init__(self.files, store.pages)
        self._store, self.table = store, table

    @property
    def version(self) -> int:
        """The table's sequence number, which increases with each snapshot."""
        return int(self.table.last_sequence_number)

    @property
    def owner(self) -> TableOwner:
        return TableOwner.from_properties(self.table.metadata.properties, self._store.location)

    @property
    def staged(self) -> StagedFiles[Any]:
        """Files of attempts. A file belongs to the table as soon as a snapshot names it."""
        staged_file: type[Any] = IcebergFile if self._store.primary_key is None else ChangesFile
        return StagedFiles(
            _location(self.table),
            (STAGED,),
            staged_file,
            self.files,
            opened=lambda uri: IcebergPlace(uri, self._store.task_storage(self.table).properties),
        )

    # ------------------------------------------------------------------------------------ pages

    def read_pages(self) -> Pages:
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if NEWEST_PAGE in summary:
                return self._store.pages.read(self.files, summary[NEWEST_PAGE])
            if snapshot.sequence_number == 1:
                return Pages()  # the table's first snapshot: windrow has made no snapshot
            # If the parent is expired, PyIceberg removes its id from here too. Other engines
            # leave the id.
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.metadata.snapshot_by_id(parent)
        newest = self._store.pages.read(self.files, self.table.properties.get(NEWEST_PAGE, ""))
        return newest.without(
            self._windows_taken_back(newest), self._dead_letters_taken_back(newest)
        )

    def _windows_taken_back(self, pages: Pages) -> list[str]:
        """Returns windows whose rows are missing, from the newest to the first one with rows.

        In a table with a primary key a window may have no row left, so none is returned.
        """
        windows: list[str] = []
        if self._store.primary_key is not None:
            return windows
        for key in reversed(pages.windows):
            if self.holding([key]):
                break
            (stored,) = pages.receipts(self.files, [key])
            committed = read_receipt(stored)
            if isinstance(committed, Committed) and committed.receipt.table_rows > 0:
                windows.append(key)
        return windows

    def _dead_letters_taken_back(self, pages: Pages) -> list[str]:
        """Returns attempts whose dead letters are missing, by the same rule as for windows."""
        notes: list[str] = []
        for name, _ in sorted(pages.notes.items(), key=lambda note: note[1], reverse=True):
            window = DeadLetterTable.window_of_note(name, "dead")
            if window is not None and self.holding([window[0]]):
                break
            if window is not None:
                notes.append(name)
        return notes

    # ------------------------------------------------------------------------------------- rows

    def tasks(self, key: str | None = None) -> list[FileScanTask]:
        """Returns the files with rows of a window, or of all windows, each with its deletes.

        Raises:
            UnreachableError: a manifest can't be read, or is damaged.
        """
        if self.table.current_snapshot() is None:
            return []
        if key is None:
            return self._planned(self.table.scan())
        # The ignores are for mypy, which sees only the aliases of pydantic's fields.
        of_window = EqualTo(self._store.column, key)  # type: ignore[call-arg, arg-type]
        return self._planned(self.table.scan(row_filter=of_window))

    def _planned(self, scan: DataScan) -> list[FileScanTask]:
        """Lists the files of a scan.

        Raises:
            UnreachableError: a manifest can't be read, or is damaged.
        """
        try:
            return list(scan.plan_files())
        except Exception as error:  # a damaged manifest can cause any error in PyIceberg
            raise UnreachableError(
                f"the manifests of the table {self._store.location} can't be read:"
                f" {type(error).__name__}",
                "setup",
                "Nothing was committed. Check the storage, then run this again. If a file in its"
                " folder metadata is damaged or gone, restore it from a backup.",
            ) from error

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        """Returns the keys of windows with rows; no keys in a table with a primary key.

        The files of such a table have rows of several windows.
        """
        if self._store.primary_key is not None:
            return set()
        if keys is not None:
            return {key for key in keys if self.tasks(key)}
        parts = [task.file.partition for task in self.tasks()]
        return {str(part[0]) for part in parts if len(part)}

    def size(self) -> tuple[int, int] | None:
        snapshot = self.table.current_snapshot()
        if snapshot is None:
            return 0, 0
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if summary.get("total-delete-files", "0") != "0":
            return None  # the number of rows that aren't deleted is unknown
        try:
            return int(summary["total-records"]), int(summary["total-files-size"])
        except (KeyError, ValueError):
            return None

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        return column_changes(self._store.location, self.table, columns, self._store.evolve)

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if self._store.primary_key is None:
            return read_files(self.table, self.tasks(None if window is None else window.key), names)
        return self._scan_buckets(window, names)

    def _scan_buckets(
        self, window: Window | None, names: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yields rows of a table with a primary key, without their buckets, as in receipts."""
        column = self._store.metadata["window"]
        for rows in read_files(self.table, self.tasks(), names):
            batch = rows.select([name for name in rows.schema.names if name != BUCKET])
            yield batch if window is None else batch.filter(pc.equal(batch[column], window.key))

    # ------------------------------------------------------------------------------ maintenance

    @cached_property
    def _joinable(self) -> Mapping[str, FileScanTask]:
        """The files without deleted rows, in partitions as they are today, by their URIs."""
        spec = self.table.metadata.default_spec_id
        return {
            task.file.file_path: task
            for task in self.tasks()
            if not task.delete_files and task.file.spec_id == spec
        }

    def files_by_partition(self) -> Mapping[Record, Sequence[RowFile]]:
        files: dict[Record, list[RowFile]] = {}
        for path, task in self._joinable.items():
            row_file = RowFile(path, task.file.file_size_in_bytes, task.file.record_count)
            files.setdefault(task.file.partition, []).append(row_file)
        return files

    def join_files(self, paths: Sequence[str], attempt: str) -> IcebergFile | None:
        columns = arrow_columns(self.table.schema(), ids=True)
        writer = IcebergWriter(columns, self._store.metadata, None)
        file = GrowingFile(self.files, staged_path(STAGED, attempt), writer)
        for batch in read_files(self.table, [self._joinable[path] for path in paths]):
            file.add(fit_columns(batch, columns))
        return file.close()

    def snapshots_until(self, instant: int) -> Sequence[int]:
        about = self.table.metadata
        protected = {ref.snapshot_id for ref in about.refs.values()}
        return [
            s.snapshot_id
            for s in about.snapshots
            if s.timestamp_ms <= instant and s.snapshot_id not in protected
        ]

    def replaced_until(self, instant: int) -> Sequence[str]:
        """Returns the manifests, and lists of manifests, that no snapshot names.

        They are compared by their names, which are unique, because another engine may spell
        the table's location differently.
        """
        lists = [snapshot.manifest_list for snapshot in self.table.metadata.snapshots]
        manifests, _ = self._named_by_snapshots
        names = {path.rpartition("/")[2] for path in (*lists, *manifests)}
        return [
            file.path
            for file in self.files.walk("metadata")
            if file.path.endswith(".avro")
            and file.modified_millis <= instant
            and file.path.rpartition("/")[2] not in names
        ]

    def unneeded(self, old: Mapping[str, int], _cutoff: int) -> Mapping[str, int]:
        """Returns the files that no snapshot names, on any branch or tag."""
        _, named = self._named_by_snapshots if old else ((), frozenset())
        return {path: modified_millis for path, modified_millis in old.items() if path not in named}

    @cached_property
    def _named_by_snapshots(self) -> tuple[Collection[str], frozenset[str]]:
        """The manifests and the files that a snapshot names, on any branch or tag.

        Raises:
            UnreachableError: a manifest can't be read.
        """
        table, begin = self.table, f"{_location(self.table)}/"
        manifest_by_path: dict[str, ManifestFile] = {}
        try:
            for snapshot in table.metadata.snapshots:
                manifest_by_path |= {
                    manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)
                }
            entries = [
                e
                for manifest in manifest_by_path.values()
                for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
        except Exception as error:
            raise UnreachableError(
                f"which files the snapshots of {self._store.location} name can't be read:"
                f" {type(error).__name__}",
                "setup",
                "Nothing was removed. Check the table's storage and rights, then run this again.",
            ) from error
        named = frozenset(entry.data_file.file_path.removeprefix(begin) for entry in entries)
        return manifest_by_path.keys(), named

    # -------------------------------------------------------------------------------------- put

    def put(self, change: TableChange) -> Answer:
        catalog_table = self._store.catalog_table
        try:
            ready, receipt = self._prepare(change)
        except (UnreachableError, RefusedError):
            raise
        except Exception as error:  # its text may repeat a request  # noqa: BLE001
            raise UnreachableError(
                f"a commit to {catalog_table.location} can't be prepared:"
                f" {reason(catalog_table, error)}",
                "commit",
                "Nothing was committed. Make room or fix the storage, then run the window again.",
            ) from None
        try:
            self._store.send(ready)
        except CommitFailedException as error:
            return Conflict(reason(catalog_table, error))
        except Exception as error:  # noqa: BLE001
            cause = reason(catalog_table, error)
            is_local = local_path(self.table.metadata.location) is not None
            return Unanswered.by_storage(cause, is_local=is_local)
        return Written(ready.snapshot, receipt)

    def _prepare(self, change: TableChange) -> tuple[Prepared, Receipt | None]:
        """Prepares the commit of a change, and writes its receipt and page."""
        store, receipt, ready = self._store, change.receipt, Prepared(self.table)
        appended = change.staged if store.primary_key is None else ()
        files = self.staged.decode_committables(appended)
        schema = self.table.schema()
        if change.columns is not None:
            evolution = evolve_columns(
                store.location, self.table, change.columns, store.evolve, files
            )
            schema = new_schema(self.table, evolution)
        ready.set_schema(None if schema is self.table.schema() else schema)
        if store.primary_key is not None and receipt is not None:
            receipt, added, removed = self._merge(receipt, change.staged, schema)
        else:
            key = "" if change.window is None else change.window.key
            added = [data_file(self.table, f, Record(key, *f.partition)) for f in files]
            replaced = self._own_files(key) if change.replaces else []
            removed = [task.file for task in replaced]
        for expired in change.expired:
            removed += [task.file for task in self._own_files(expired.window.key)]
        for one_join in change.joined:
            old_files = [self._joinable[path].file for path in one_join.replaced]
            new_files = self.staged.decode_committables(one_join.staged)
            removed += old_files
            added += [data_file(self.table, f, old_files[0].partition) for f in new_files]

        def page(snapshot: int) -> str:
            receipts = change.expired if receipt is None else (receipt,)
            return self.put_page(receipts, change.notes, snapshot)

        summary = _describe_location(receipt)
        ready.change(added, removed, summary, page, same_rows=bool(change.joined))
        if change.expired_snapshots:
            ready.expire(change.expired_snapshots)
        return ready, receipt

    def _merge(
        self, receipt: Receipt, staged: Sequence[str], schema: Schema
    ) -> tuple[Receipt, list[DataFile], list[DataFile]]:
        """Merges changes into exactly this state; returns the added and the removed files."""
        store, table = self._store, self.table
        assert store.primary_key is not None
        columns = arrow_columns(schema, ids=True)
        by_bucket: dict[int, list[FileScanTask]] = {}
        for task in self._own_files(None):
            by_bucket.setdefault(int(task.file.partition[0]), []).append(task)

        def begin(bucket: int) -> GrowingFile[IcebergFile]:
            path = staged_path(f"{STAGED}/{BUCKET}={bucket}", receipt.attempt)
            writer = IcebergWriter(columns, store.metadata, (BUCKET, bucket))
            return GrowingFile(self.files, path, writer)

        merged, files = merge_changes(
            self,
            BucketFiles(
                self.files, by_bucket, lambda task, names: read_files(table, [task], names), begin
            ),
            MergeLayout(
                store.primary_key,
                store.metadata,
                pa.schema([field for field in columns if field.name != BUCKET]),
            ),
            receipt,
            staged,
        )
        added = [data_file(table, file, Record(bucket)) for bucket, file in files.added]
        return merged, added, [task.file for task in files.removed]

    def _own_files(self, key: str | None) -> list[FileScanTask]:
        """Returns the files of a window, or all files of buckets, to be removed as a whole.

        Raises:
            SchemaChangedError: a file may have other windows' or buckets' rows too, for example
                a file from before a change of the partitions; or another program deleted rows
                of a bucket.
        """
        spec, tasks = self.table.metadata.default_spec_id, self.tasks(key)
        mixed = [
            task.file.file_path
            for task in tasks
            if task.file.spec_id != spec
            or (task.delete_files if key is None else task.file.partition[0] != key)
        ]
        if mixed:
            which = format_count(len(mixed), "file")
            state = (
                "may hold other buckets' rows too, or rows that another program deleted"
                if key is None
                else f"with rows of window {key} may hold other windows' rows too"
            )
            raise SchemaChangedError(
                f"{which} {state}, the first is {mixed[0]}",
                "commit",
                "Nothing was committed. Have them written anew, partitioned by"
                f" {self._store.column}.",
            )
        return tasks


def _location(table: Table) -> str:
    return table.metadata.location.rstrip("/")


def _describe_location(receipt: Receipt | None) -> dict[str, str]:
    """Returns a commit's entry in the table's history, for people.

    It is short, because Iceberg writes it again with each later commit.
    """
    if receipt is None:
        return {}
    return {
        "windrow.window": receipt.window.key,
        "windrow.generation": str(receipt.generation),
        "windrow.attempt": receipt.attempt,
        "windrow.digest": receipt.digest,
    }
