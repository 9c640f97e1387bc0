"""A Delta table as a table store: each change is made on exactly the snapshot looked at.

The windows of a table are listed in pages (`sinks.kit.commit.pages`): files below `_windrow`,
each named by a digest of its content. A commit writes its window's receipt and a page. It names
the page in one application transaction, `windrow:pages`, which survives checkpoints and the
clean-up of the log. The page names the older pages.

So rows, receipt, ranges and notes become visible together or not at all. A look reads one
transaction, however many windows there are. All commits of windrow have this transaction, so
any two concurrent commits conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.delta import create
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import check_rows, evolution_of, in_files, schema_after
from windrow.ingest.sinks.delta.stage import (
    DeltaStagerFactory,
    StagedFile,
    WideFiles,
    begin_file,
    part_path,
)
from windrow.ingest.sinks.delta.table import Action, Writing, entry_name, refuse_unfinished
from windrow.ingest.sinks.delta.unsupported import refuse_unsupported
from windrow.ingest.sinks.kit import (
    BUCKET,
    DATA_FOLDER,
    STORE_WAITS,
    Answer,
    BucketFiles,
    ChangesFile,
    Evolution,
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
    StagedFiles,
    TableChange,
    WindowTable,
    Written,
    allowed_changes,
    checksum,
    fit_columns,
    merge_changes,
    read_batches,
    refuse_unwritable,
    table_schema,
)

_KIND = "delta:"


class DeltaStore:
    """A Delta table.

    Args:
        uri: the table's path or URI. The table belongs to one pipeline.
        metadata: names of the metadata columns. A table without a primary key is partitioned by
            the window's column.
        primary_key: the key of a table whose rows replace each other; the table is partitioned
            by its buckets. None if rows are appended.
        evolve: the allowed changes of an existing table's columns.
        partition_by: the partition fields. Each is a column of the table, and of no file.
    """

    waits: Sequence[float] = STORE_WAITS

    def __init__(
        self,
        uri: str,
        metadata: Mapping[str, str] = DEFAULT,
        primary_key: PrimaryKey | None = None,
        evolve: Evolve = "add_columns",
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        self.files = Place.normalized(uri)
        self.location = self.files.uri
        self.identity = f"{_KIND}{self.location}"
        self.metadata, self.primary_key, self.evolve = metadata, primary_key, evolve
        self.partition_by = partition_by
        self.capabilities = Capabilities(mode="append" if primary_key is None else "upsert")
        staged_file: type[Any] = StagedFile if primary_key is None else ChangesFile
        self.staged = StagedFiles(self.location, (DATA_FOLDER,), staged_file, self.files)
        self.pages = PageFiles(self.location)
        self._last_look: tuple[DeltaState, Sequence[object]] | None = None
        self._wide: tuple[Receipt, WideFiles] | None = None

    @cached_property
    def shape(self) -> tables.Shape:
        """The table's partition columns, and its primary key."""
        key = self.primary_key
        column = self.metadata["window"] if key is None else BUCKET
        return tables.Shape(column, key, self.partition_by)

    def is_at(self, identity: str) -> bool:
        return self.files.is_same_table(Place(identity.removeprefix(_KIND)))

    def places(self) -> Sequence[str]:
        return [self.location]

    def check_columns(self, rows: pa.Schema) -> None:
        check_rows(rows, self.metadata)
        PartitionField.refuse_unusable(self.partition_by, rows, self.metadata.values())

    def columns(self, rows: pa.Schema) -> pa.Schema:
        columns = table_schema(rows, self.metadata, self.primary_key)
        for field in self.partition_by:
            columns = columns.append(pa.field(field.name, field.column_type(rows)))
        return columns

    def check_write(self) -> None:
        refuse_unwritable(self.location)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        create.ensure(self.files, self.location, columns, owner, self.shape, self.waits)

    @contextmanager
    def reading(self) -> Iterator[DeltaState | None]:
        """Yields the state of the last look if the log hasn't grown since, else the newest one."""
        last_look, self._last_look = self._last_look, None
        if last_look is None or self._end(last_look[0].version) != last_look[1]:
            state = self._load()
            last_look = None if state is None else (state, self._end(state.version))
        if last_look is not None and last_look[1][0] is not None and last_look[1][1] is None:
            self._last_look = last_look
        yield None if last_look is None else last_look[0]

    @contextmanager
    def writing(self) -> Iterator[DeltaState | None]:
        """Yields the newest state, always loaded again.

        A clean-up may have removed the log's entries after the last look.
        """
        state = self._load()
        if state is not None:
            refuse_unfinished(self.location, self.files, state.version)
        yield state

    def stager(self, layout: Layout, window: Window) -> DeltaStagerFactory:
        return DeltaStagerFactory(
            self.location, layout, window.key, self.primary_key, self.partition_by
        )

    def wide_files(self, receipt: Receipt) -> WideFiles:
        """Returns the rewritten files of a commit. Another try of the commit uses them again."""
        if self._wide is None or self._wide[0] is not receipt:
            self._wide = receipt, WideFiles(self.files, receipt, self.metadata)
        return self._wide[1]

    def _load(self) -> DeltaState | None:
        """Loads the newest state; None if there is no table.

        Raises:
            SpecError: the place has a table of another kind.
            DamagedError: the log is gone, and files of the table are left.
        """
        table = tables.load(self.location)
        if table is not None:
            return DeltaState(self, table)
        folder_names = self.files.folders("_windrow")
        if "log" in folder_names:  # a table of kind files: a sweep would remove its data
            raise self.files.other_kind_error()
        if folder_names:
            # A race, for which the table is loaded again:
            # 1. This run finds no table.
            # 2. Another run creates the table.
            # 3. This run sees the new table's folders.
            new_table = tables.load(self.location)
            if new_table is not None:
                return DeltaState(self, new_table)
            files = f"{DATA_FOLDER} and _windrow"
            raise self.files.log_gone_error(tables.LOG, tables.LOG, files)
        return None

    def _end(self, version: int) -> Sequence[object]:
        """Returns size and time of a version's entry, the next entry and the newest checkpoint.

        A missing file is None. A table that was created again has entries with other times. A
        clean-up of the log writes a checkpoint first.
        """
        names = entry_name(version), entry_name(version + 1), tables.NEWEST_CHECKPOINT
        return list(self.files.stat_files(names).values())


class DeltaState(KeyedState):
    """One version of the table (`sinks.kit.commit.table_store.TableState`)."""

    def __init__(self, store: DeltaStore, table: DeltaTable) -> None:
        super().__init__(store.files, store.pages)
        self._store, self._table = store, table
        self.version = table.version()

    @cached_property
    def owner(self) -> TableOwner:
        return tables.owner_of(self._store.location, self._table, self._store.shape)

    def read_pages(self) -> Pages:
        head = tables.newest_page(self._store.location, self._table)
        return self._store.pages.read(self._store.files, head)

    @cached_property
    def _files(self) -> pa.Table:
        return tables.list_added_files(self._table)

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        """Returns the keys of windows with rows; no keys in a table with a primary key.

        The files of such a table have rows of several windows.
        """
        if self._store.primary_key is not None:
            return set()
        parts = set(map(str, self._files[tables.part_of(self._table)].unique().to_pylist()))
        return parts if keys is None else parts & set(keys)

    def size(self) -> tuple[int, int]:
        rows, size = (
            int(pc.sum(self._files[name]).as_py() or 0) for name in ("num_records", "size_bytes")
        )
        return rows, size

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        store = self._store
        evolution_by = partial(evolution_of, self._table.schema(), columns)
        evolution = evolution_by(store.evolve)
        rewrites = store.primary_key is not None or evolution.widens_table
        refuse_unsupported(store.location, self._table, rewrites=rewrites)
        changes = allowed_changes(store.location, store.evolve, evolution_by)
        if store.primary_key is not None:
            self.refuse_append_only("windows of a table with a primary key")
        elif evolution.widens_table:
            self.refuse_append_only(f"wider columns: {', '.join(changes)}")
        return changes

    def refuse_append_only(self, act: str, parts: Collection[str] | None = None) -> None:
        """Refuses to remove files (`sinks.delta.table.refuse_append_only`)."""
        tables.refuse_append_only(self._store.location, self._table, act, parts)

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        tables.refuse_unreadable_rows(self._store.location, self._table)
        column, by_window = self._store.metadata["window"], self._store.primary_key is None
        column_names = None if names is None else list(names)
        for file in tables.data_files(self._table):
            if by_window and window is not None and file.part != window.key:
                continue
            for batch in read_batches(self._store.files, file.path, column_names):
                if by_window:
                    yield batch.append_column(column, pa.repeat(file.part, batch.num_rows))
                elif window is None:
                    yield batch
                else:
                    yield batch.filter(pc.equal(batch[column].cast(pa.string()), window.key))

    def unneeded(self, old: Mapping[str, int], _cutoff: int) -> Mapping[str, int]:
        needed = tables.find_needed_paths(self._store.location, self._table)
        return {
            path: modified_millis for path, modified_millis in old.items() if path not in needed
        }

    # -------------------------------------------------------------------------------- maintenance

    @cached_property
    def _file_by_path(self) -> Mapping[str, tables.DataFile]:
        return {file.path: file for file in tables.data_files(self._table)}

    def files_by_partition(self) -> Mapping[str, Sequence[tables.DataFile]]:
        way_out = " With maintain.file_size: 0 its files stay as they are."
        tables.refuse_hidden_rows(self._store.location, self._table, way_out)
        files: dict[str, list[tables.DataFile]] = {}
        for file in self._file_by_path.values():
            files.setdefault(f"{file.part} {file.partition}", []).append(file)
        return files

    def join_files(self, paths: Sequence[str], attempt: str) -> StagedFile | None:
        store, table = self._store, self._table
        columns = in_files(pa.schema(table.schema()), store.shape.columns)
        first = self._file_by_path[paths[0]]
        path = part_path(store.shape.column, first.part, attempt, first.partition)
        file = begin_file(store.files, path, columns, store.metadata, first.partition)
        for old_path in paths:
            for batch in read_batches(store.files, old_path):
                file.add(fit_columns(batch, columns))
        return file.close()

    def replaced_until(self, instant: int) -> Sequence[str]:
        return tables.list_replaced(self._store.files, self._table, instant)

    # ---------------------------------------------------------------------------------- a change

    def put(self, change: TableChange) -> Answer:
        store, receipt, writing = self._store, change.receipt, Writing([])
        if change.window is not None:
            keyed = store.primary_key is not None
            columns = change.columns if change.staged else None
            evolution = create.evolve_columns(store.location, self._table, columns, store.evolve)
            refuse_unsupported(
                store.location, self._table, rewrites=keyed or evolution.widens_table
            )
            if store.primary_key is None:
                writing = self._append(change, change.window.key, evolution)
            elif receipt is not None:
                receipt, writing = self._merge(receipt, change.staged, evolution)
            removes_files = any(isinstance(action, RemoveAction) for action in writing.actions)
            self.refuse_append_only("this commit", None if removes_files else writing.parts)
        if change.joined or change.expired:
            refuse_unsupported(store.location, self._table, rewrites=False)
            expired_parts = {expired.window.key for expired in change.expired}
            self.refuse_append_only("this commit", expired_parts)
            writing = Writing(self._join_actions(change), None, expired_parts)
        receipts = change.expired if receipt is None else (receipt,)
        page = self.put_page(receipts, change.notes, self.version + 1)
        note = _note(receipt) if receipt is not None else ", ".join(change.notes)

        reply = tables.try_change(
            lambda: tables.write(store.files, self._table, writing, page, note),
            local=store.files.is_local,
        )
        return reply or Written(self.version + 1, receipt)

    def _join_actions(self, change: TableChange) -> list[Action]:
        """Replaces files by files with the same rows, which readers of a stream pass over."""
        table, actions = self._table, list[Action]()
        for one_join in change.joined:
            old_files = [self._file_by_path[path] for path in one_join.replaced]
            actions += [tables.remove_action(table, file, changes=False) for file in old_files]
            new_files = self._store.staged.decode_committables(one_join.staged)
            actions += tables.add_actions(table, new_files, old_files[0].part, changes=False)
        return actions

    def _append(self, change: TableChange, key: str, evolution: Evolution) -> Writing:
        """Adds staged files unchanged, or rewritten with the table's wider columns.

        If the table's columns become wider, all of its files are rewritten too.
        """
        table, files, parts = (
            self._table,
            self._store.staged.decode_committables(change.staged),
            {key} if change.replaces else set[str](),
        )
        schema = schema_after(table.schema(), evolution) if evolution.changes else None
        receipt = change.receipt  # None if dead letters expire
        may_repeat = change.replaces and schema is None
        if may_repeat and receipt and self._has_rows(receipt):
            # The rows are the same, so the files are marked as no change of data for readers
            # that read the table as a stream.
            older = [file for file in tables.data_files(table) if file.part == key]
            removed = [tables.remove_action(table, file, changes=False) for file in older]
            return Writing([*removed, *tables.add_actions(table, files, key, changes=False)])
        if not evolution.widens_table and not evolution.widens_rows:
            return Writing(tables.add_actions(table, files, key), schema, parts)
        assert change.receipt is not None  # columns of dead letters never become wider
        wide = self._store.wide_files(change.receipt)
        columns = in_files(evolution.columns, self._store.shape.columns)
        if evolution.widens_rows:
            files = [
                wider
                for file in files
                for wider in wide.rewrite(file.path, key, columns, file.partition)
            ]
        actions = tables.add_actions(table, files, key)
        if evolution.widens_table:
            tables.refuse_hidden_rows(self._store.location, table)
            for file in tables.data_files(table):
                if file.part not in parts:
                    wider = wide.rewrite(file.path, file.part, columns, file.partition)
                    actions += tables.add_actions(table, wider, file.part)
        # Files of an earlier try may be so old that a sweep has removed them since.
        self._store.staged.refuse_gone(wide.files, self)
        return Writing(actions, schema, None if evolution.widens_table else parts)

    def _has_rows(self, receipt: Receipt) -> bool:
        """Returns whether the window already has exactly the rows of its replacement."""
        rows, column = 0, self._store.metadata["window"]
        difference = sum(int(split.checksums.rows, 16) for split in receipt.splits)
        try:
            for batch in self.scan(receipt.window):
                rows += batch.num_rows
                difference -= checksum(batch, leave_out=(column,))
        except (RefusedError, UnreachableError):
            return False  # the damaged rows are replaced
        return rows == receipt.counts.rows and difference % 2**64 == 0

    def _merge(
        self, receipt: Receipt, staged: Sequence[str], evolution: Evolution
    ) -> tuple[Receipt, Writing]:
        """Merges changes into exactly this version of the table."""
        store, table = self._store, self._table
        assert store.primary_key is not None
        tables.refuse_hidden_rows(store.location, table)
        in_file = in_files(evolution.columns, (BUCKET,))
        by_bucket: dict[int, list[tables.DataFile]] = {}
        for file in tables.data_files(table):
            by_bucket.setdefault(int(file.part), []).append(file)

        def begin(bucket: int) -> GrowingFile[StagedFile]:
            path = part_path(BUCKET, str(bucket), receipt.attempt)
            return begin_file(store.files, path, in_file, store.metadata)

        receipt, files = merge_changes(
            self,
            BucketFiles(
                store.files,
                by_bucket,
                lambda file, names: read_batches(store.files, file.path, names),
                begin,
            ),
            MergeLayout(
                store.primary_key,
                store.metadata,
                in_file,
                "table" if evolution.widens_table else "buckets" if evolution.changes else "few",
            ),
            receipt,
            staged,
        )
        added = [
            action
            for bucket, file in files.added
            for action in tables.add_actions(table, [file], str(bucket))
        ]
        # deltalake adds columns only together with a removal. So if columns change, the commit
        # removes all files of each bucket that the merge rewrote.
        if evolution.changes:
            parts = None if evolution.widens_table else {file.part for file in files.removed}
            return receipt, Writing(added, schema_after(table.schema(), evolution), parts)
        removed = [tables.remove_action(table, file) for file in files.removed]
        return receipt, Writing([*removed, *added])


class DeltaSink(WindowTable):
    """A Delta table that takes windows."""

    store: DeltaStore

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        super().prepare(owner)
        with self.store.reading() as state:
            if state is not None and replaced:
                state.refuse_append_only(f"a replay of {', '.join(replaced)}", replaced)


def _note(receipt: Receipt) -> str:
    """Returns a commit's entry in the table's history, for people."""
    ranges = [[s.topic, s.partition, s.start, s.stop] for s in receipt.plan.splits]
    entry = {
        "window": receipt.window.key,
        "pipeline": receipt.window.pipeline,
        "generation": receipt.generation,
        "digest": receipt.digest,
        "attempt": receipt.attempt,
        "counts": receipt.counts,
        "ranges": ranges,
    }
    return msgspec.json.encode(entry).decode()
