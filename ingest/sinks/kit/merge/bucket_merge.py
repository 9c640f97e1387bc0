"""Merges the changes of a window into a table with a primary key, on the snapshot looked at.

Each bucket is merged separately. Only the files that lose a row are rewritten, or all files of
a bucket that has many (`FEW`). A merge of a bucket has three inputs:

- Changes of the window. The last change of each key counts. Changes are ordered by version, if
  there is one, then by topic, partition and offset.
- Tombstones of later windows. A change of one of their keys is too late and is dropped.
- Rows of the bucket. A change replaces the row of its key, unless a later window wrote the row.

Windows are ordered by time, not by the order of their commits. Their ranges begin and end at
offsets, so in one topic-partition this is the order of the log. A merge holds in memory the
window's changes of one bucket, the keys of one file, a byte for each row of the file, and a row
group.

A replacement removes the rows that its window wrote before. If such a row was the newest change
of its key, the table no longer has the row before it. So the replacement is refused if the new
attempt has no change of that key.

A change may leave columns unchanged (`UNAVAILABLE`). It gets their values from the earlier
change of its key in the window, or from the row that it replaces, else null. That is correct
only while windows are merged in their order. So these are refused:

- A change of a key whose row is of a later window, if that window kept values (by its receipt).
- A replacement of a window, if a later window kept values.
- A change that leaves a column unchanged, in a replacement or a dead-letter replay, because the
  row before it is gone.

A dead-letter replay removes nothing: it adds changes to the window, between the committed
changes. So its changes are compared with the window's own rows and tombstones by their offsets,
and the later message counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.ingest.model.receipt import Merged, Receipt
from windrow.ingest.schema.checksum import checksum
from windrow.ingest.schema.row_changes import DELETED, UNAVAILABLE
from windrow.ingest.sinks.kit.columns.merging import (
    MergeColumns,
    MergeCounts,
    refuse_unmergeable,
)
from windrow.ingest.sinks.kit.columns.table_columns import fit_columns
from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key
from windrow.ingest.sinks.kit.commit.table_store import ReceiptState
from windrow.ingest.sinks.kit.files.file_stager import GrowingFile
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.parquet_files import explain_storage_errors, rows_per_batch
from windrow.ingest.sinks.kit.merge.staged_changes import ChangesFile
from windrow.ingest.sinks.kit.merge.tombstones import (
    TombstonesOf,
    TombstonesWriter,
    find_tombstones,
)

if TYPE_CHECKING:
    import polars as pl

FEW = 8
"""A commit compacts a bucket that has at least this number of files."""

Rewrites = Literal["few", "buckets", "table"]
"""The files that a commit rewrites: as few as possible, all of each changed bucket, or all."""

Mask = npt.NDArray[np.bool_]


class MergeLayout(MergeColumns, frozen=True):
    """The columns by which a table is merged, and the columns of its files.

    Attributes:
        in_file: columns of the files, with the window's column. Staged files may lack some.
        rewrites: the files that are rewritten in addition to those that lose a row.
    """

    in_file: pa.Schema
    rewrites: Rewrites = "few"

    @property
    def deciding_columns(self) -> list[str]:
        """The columns that decide whether a row stays."""
        return list(
            dict.fromkeys(
                [
                    *self.key.columns,
                    self.window,
                    *([] if self.key.version is None else [self.key.version]),
                ]
            )
        )


OldFile = TypeVar("OldFile")
NewFile = TypeVar("NewFile", bound=msgspec.Struct)


@dataclass(frozen=True)
class BucketFiles(Generic[OldFile, NewFile]):
    """The files of a table with a primary key, in the snapshot on which the commit is made.

    Attributes:
        folder: the table's place.
        by_bucket: the files of each bucket.
        read: reads the rows of a file, or some of its columns.
        begin: begins a new file of a bucket.
    """

    folder: Place
    by_bucket: Mapping[int, Sequence[OldFile]]
    read: Callable[[OldFile, list[str] | None], Iterator[pa.RecordBatch]]
    begin: Callable[[int], GrowingFile[NewFile]]


@dataclass(frozen=True)
class FileChanges(Generic[OldFile, NewFile]):
    """The files that a merge removes from the table, and those that it adds to each bucket."""

    removed: list[OldFile] = field(default_factory=list)
    added: list[tuple[int, NewFile]] = field(default_factory=list)


def merge_changes(
    state: ReceiptState,
    table: BucketFiles[OldFile, NewFile],
    layout: MergeLayout,
    receipt: Receipt,
    committables: Iterable[str],
) -> tuple[Receipt, FileChanges[OldFile, NewFile]]:
    """Merges staged changes; returns the receipt with its sums, and the change of the files.

    It writes the new files, which no commit names yet.

    Args:
        state: the table's state, with all committed receipts.
        table: the table's files in that state.
        layout: the layout of the table's files.
        receipt: the window's receipt.
        committables: the staged changes.

    Raises:
        RefusedError: a replacement lacks keys whose newest change was its window's; a kept
            value may be wrong; or a file is damaged.
        DamagedError: tombstones are damaged.
        UnreachableError: a file can't be read or written.
    """
    staged = [msgspec.json.decode(text, type=ChangesFile) for text in committables]
    window_key = receipt.window.key
    committed = committed_by_key(state, [key for key in state.committed() if key >= window_key])
    receipts = {key: committed[key].receipt for key in sorted(committed)}
    older = receipts.pop(window_key, None)
    merging = Merging(table, layout, receipt, staged, list(receipts.values()), older)
    touched = merging.touched | (
        table.by_bucket.keys() if merging.replaces or layout.rewrites == "table" else set()
    )
    with explain_storage_errors():
        for bucket in sorted(touched):
            merging.merge(bucket)
        merged = merging.close()
    return msgspec.structs.replace(receipt, merged=merged), merging.file_changes


class Merging(Generic[OldFile, NewFile]):
    """One merge. Call `merge` for each touched bucket, then `close`.

    Args:
        table: the table's files.
        layout: the layout of the table's files.
        receipt: the window's receipt.
        staged: the staged changes.
        later: the committed receipts of all windows after this one.
        older: the committed receipt of the previous generation, if there is one.
    """

    def __init__(
        self,
        table: BucketFiles[OldFile, NewFile],
        layout: MergeLayout,
        receipt: Receipt,
        staged: Sequence[ChangesFile],
        later: Sequence[Receipt],
        older: Receipt | None,
    ) -> None:
        self.file_changes: FileChanges[OldFile, NewFile] = FileChanges()
        self._table, self._layout, self._folder = table, layout, table.folder
        self._later = [
            TombstonesOf(table.folder, r) for r in later if find_tombstones(r) is not None
        ]
        self._keeping = pa.array(
            [r.window.key for r in (*later, *([older] if older else [])) if r.kept_keys],
            pa.string(),
        )
        self._key = receipt.window.key
        self._staged = staged
        self._dead_replay = receipt.dead_replay is not None
        self.replaces = older is not None and not self._dead_replay
        self._older_tombstones = None if older is None else TombstonesOf(table.folder, older)
        self._older = older
        self._tombstones = TombstonesWriter(table.folder, receipt.attempt)
        self._counts, self._missing_keys = MergeCounts(), 0
        self._lost_values = sum(r.kept_keys for r in later) if self.replaces else 0

    @property
    def touched(self) -> set[int]:
        """The buckets that the window changes, or whose keys its previous generation deleted."""
        older_buckets = (
            frozenset[int]() if self._older_tombstones is None else self._older_tombstones.buckets
        )
        return {bucket for file in self._staged for bucket in file.buckets} | older_buckets

    def merge(self, bucket: int) -> None:
        """Merges one bucket."""
        files = self._table.by_bucket.get(bucket, ())
        changes, keeps = self._changes(bucket)
        too_late = self._find_too_late(changes, bucket)
        removed_masks = [self._decide(file, changes, too_late, keeps) for file in files]
        changes = self._fill_kept(changes, too_late, keeps)
        if self.replaces:
            self._count_missing_tombstones(files, changes, bucket)
        if not self._layout.key.marks and self._layout.key.version is None:
            self._write_tombstones(bucket, changes, too_late)
        self._rewrite(bucket, files, removed_masks, self._new_rows(changes, too_late))

    def close(self) -> Merged:
        """Returns the sums of this commit and of the earlier generations.

        Raises:
            RefusedError: the right value of some keys is unknown.
        """
        refuse_unmergeable(self._key, self._missing_keys, self._lost_values)
        return self._counts.to_merged(self._older, self._tombstones.close())

    def _changes(self, bucket: int) -> tuple[pa.Table, _KeptColumns]:
        """Returns the last change of each key, and the columns that take values from older rows."""
        staged_tables = [
            self._staged_rows(file, bucket) for file in self._staged if bucket in file.buckets
        ]
        if not staged_tables:
            row_fields = [
                f for f in self._layout.in_file if f.name not in {self._layout.window, DELETED}
            ]
            return pa.schema([*row_fields, pa.field(DELETED, pa.bool_())]).empty_table(), {}
        import polars as pl  # imported here, because only a merge needs it

        all_changes = pa.concat_tables(staged_tables)
        versions = [] if self._layout.key.version is None else [self._layout.key.version]
        order = [all_changes[name] for name in (*versions, *self._layout.position)]
        keys = [all_changes[name] for name in self._layout.key.columns]
        # If a message has several changes, the last one counts: the sort keeps their order.
        key = [f"{len(order) + i}" for i in range(len(keys))]
        ordered = (
            _frame([*order, *keys])
            .with_row_index("row")
            .sort([f"{i}" for i in range(len(order))], nulls_last=False, maintain_order=True)
        )
        last = ordered.unique(key, keep="last", maintain_order=True).sort("row")
        changes = all_changes.take(pa.array(last["row"].to_numpy()))
        names = pc.unique(pc.list_flatten(all_changes[UNAVAILABLE.name])).to_pylist()
        if names and (self.replaces or self._dead_replay):
            self._lost_values += int(
                np.count_nonzero(
                    _mask(pc.greater(pc.list_value_length(all_changes[UNAVAILABLE.name]), 0))
                )
            )
        keeps: _KeptColumns = {}
        for name in names:
            origins = ordered.with_columns(
                pl.Series("known", ~_leaves_unchanged(all_changes, name)).gather(ordered["row"])
            )
            origins = origins.with_columns(pl.when("known").then("row").alias("from")).with_columns(
                pl.col("from").forward_fill().over(key)
            )
            source = origins.unique(key, keep="last", maintain_order=True).sort("row")["from"]
            values = all_changes[name].take(source.to_arrow())
            changes = changes.set_column(
                changes.schema.get_field_index(name), all_changes.schema.field(name), values
            )
            deleted = pc.fill_null(all_changes[DELETED].take(source.to_arrow()), True)
            keeps[name] = _KeptValues(source.is_null().to_numpy(), _mask(deleted))
        return changes, keeps

    def _fill_kept(self, changes: pa.Table, too_late: Mask, keeps: _KeptColumns) -> pa.Table:
        """Fills in the values that changes take from the rows that they replace."""
        unknown = np.zeros(changes.num_rows, np.bool_)
        for name, kept_values in keeps.items():
            kind = self._layout.in_file.field(name).type
            values = pa.concat_arrays([_array(changes[name]).cast(kind), *kept_values.values])
            row_indices = np.arange(changes.num_rows)
            for positions, values_before in zip(
                kept_values.positions,
                np.cumsum([changes.num_rows, *map(len, kept_values.values)]),
                strict=False,
            ):
                row_indices[positions] = values_before + np.arange(len(positions))
            changes = changes.set_column(
                changes.schema.get_field_index(name),
                self._layout.in_file.field(name),
                values.take(pa.array(row_indices)),
            )
            unknown |= kept_values.nowhere
        if keeps:
            unavailable = (
                _mask(pc.greater(pc.list_value_length(changes[UNAVAILABLE.name]), 0)) & ~too_late
            )
            self._counts.kept_count += int(np.count_nonzero(unavailable & ~unknown))
            self._counts.unknown += int(np.count_nonzero(unavailable & unknown))
        return changes

    def _staged_rows(self, file: ChangesFile, bucket: int) -> pa.Table:
        """Reads the changes of one bucket from a staged file."""
        groups = [
            number for number, group_bucket in enumerate(file.buckets) if group_bucket == bucket
        ]
        with (
            self._folder.filesystem().open_input_file(file.path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            return opened.read_row_groups(groups, use_threads=False)

    def _find_too_late(self, changes: pa.Table, bucket: int) -> Mask:
        """Returns the mask of the changes that are too late, because the key was deleted later.

        A later window deleted it. In a dead-letter replay it may also be a later message of the
        window itself.
        """
        too_late = np.zeros(changes.num_rows, np.bool_)
        for tombstones in self._later:
            keys = tombstones.keys(bucket)
            if keys is not None:
                too_late[self._join_by_key(keys, changes)[1]] = True
        own_tombstones = self.own_tombstones(bucket)
        if own_tombstones is not None:
            deleted, changed = self._join_by_key(own_tombstones, changes)
            too_late[changed[~self.follows(changes, changed, own_tombstones, deleted)]] = True
        return too_late

    def own_tombstones(self, bucket: int) -> pa.Table | None:
        """Returns the window's own tombstones in a dead-letter replay; else None."""
        return (
            self._older_tombstones.keys(bucket)
            if self._dead_replay and self._older_tombstones is not None
            else None
        )

    def _write_tombstones(self, bucket: int, changes: pa.Table, too_late: Mask) -> None:
        """Writes the keys that the window deleted.

        In a dead-letter replay these include its earlier tombstones that still count.
        """
        columns = [*self._layout.key.columns, *self._layout.position]
        own_tombstones = self.own_tombstones(bucket)
        if not self._dead_replay:
            self._tombstones.add(bucket, changes.filter(changes[DELETED]).select(columns))
            return
        stays = changes.filter(pa.array(~too_late))
        deleted_keys = [stays.filter(stays[DELETED]).select(columns)]
        if own_tombstones is not None:
            replaced = np.zeros(own_tombstones.num_rows, np.bool_)
            replaced[self._join_by_key(own_tombstones, stays)[0]] = True
            deleted_keys.append(own_tombstones.filter(pa.array(~replaced)).select(columns))
        kinds = pa.schema([self._layout.in_file.field(name) for name in columns])
        self._tombstones.add(
            bucket, pa.concat_tables([table.cast(kinds) for table in deleted_keys])
        )

    def _join_by_key(
        self, rows: pa.Table, changes: pa.Table
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Joins rows and changes by their keys; returns the positions of both."""
        row_keys, change_keys = (
            _frame(
                [
                    table.column(name).cast(self._layout.in_file.field(name).type)
                    for name in self._layout.key.columns
                ]
            ).with_row_index(named)
            for table, named in ((rows, "row"), (changes, "change"))
        )
        names = [name for name in row_keys.columns if name != "row"]
        met = row_keys.join(change_keys, on=names, how="inner")
        return met["row"].to_numpy().astype(np.int64), met["change"].to_numpy().astype(np.int64)

    def _decide(
        self, file: OldFile, changes: pa.Table, too_late: Mask, keeps: _KeptColumns
    ) -> Mask:
        """Returns the mask of the rows that a file loses.

        It also marks the changes that don't replace a row of the file as too late, and takes
        the values that the other changes keep.
        """
        batch = self._columns(
            file,
            [
                *self._layout.deciding_columns,
                *(self._layout.position if self._dead_replay else []),
                *([DELETED] if keeps and self._layout.key.marks else []),
                *keeps,
            ],
        )
        rows, changed = self._join_by_key(batch, changes)
        own_rows = self._is_own(batch) if self.replaces else np.zeros(batch.num_rows, np.bool_)
        wins = self.wins(batch, changes, rows, changed)
        too_late[changed[~wins]] = True
        keeping = _mask(
            pc.is_in(batch.column(self._layout.window).take(pa.array(rows[~wins])), self._keeping)
        )
        self._lost_values += int(np.count_nonzero(keeping))
        for name, kept_values in keeps.items():
            kept_values.take(batch, name, rows[wins], changed[wins])
        removed = np.zeros(batch.num_rows, np.bool_)
        removed[rows[wins]] = True
        self._missing_keys += int(np.count_nonzero(own_rows & ~removed))
        return removed

    def wins(
        self,
        batch: pa.Table,
        changes: pa.Table,
        rows: npt.NDArray[np.int64],
        changed: npt.NDArray[np.int64],
    ) -> Mask:
        """Returns the mask of the changes that replace the row with their key."""
        newer = _mask(
            pc.less_equal(batch.column(self._layout.window).take(pa.array(rows)), self._key)
        )
        if self._dead_replay:
            newer &= ~self._is_own(batch)[rows] | self.follows(changes, changed, batch, rows)
        version = self._layout.key.version
        if version is None:
            return newer
        old, new = (
            table[version].take(pa.array(indices))
            for table, indices in ((batch, rows), (changes, changed))
        )
        higher = _mask(pc.greater(new, old)) | (_mask(new.is_valid()) & _mask(old.is_null()))
        same = _mask(pc.equal(new, old)) | (_mask(new.is_null()) & _mask(old.is_null()))
        return higher | (same & newer)

    def _is_own(self, batch: pa.Table) -> Mask:
        """Returns the mask of the rows that the window wrote."""
        return _mask(pc.equal(batch.column(self._layout.window), self._key))

    def follows(
        self,
        new: pa.Table,
        new_at: npt.NDArray[np.int64],
        old: pa.Table,
        old_at: npt.NDArray[np.int64],
    ) -> Mask:
        """Returns the mask of the new rows whose message comes after that of the old row.

        Both are rows of one window.
        """
        follows, equal = np.zeros(len(new_at), np.bool_), np.ones(len(new_at), np.bool_)
        for name in self._layout.position:
            new_positions, old_positions = (
                new[name].take(pa.array(new_at)),
                old[name].take(pa.array(old_at)),
            )
            follows |= equal & _mask(
                pc.greater(new_positions, old_positions.cast(new_positions.type))
            )
            equal &= _mask(pc.equal(new_positions, old_positions.cast(new_positions.type)))
        return follows

    def _count_missing_tombstones(
        self, files: Sequence[OldFile], changes: pa.Table, bucket: int
    ) -> None:
        """Counts keys that the previous generation deleted and that no change has now.

        Neither the new attempt nor a later window changes them.
        """
        keys = None if self._older_tombstones is None else self._older_tombstones.keys(bucket)
        if keys is None:
            return
        known_keys = np.zeros(keys.num_rows, np.bool_)
        known_keys[self._join_by_key(changes, keys)[1]] = True
        for tombstones in self._later:
            others = tombstones.keys(bucket)
            if others is not None:
                known_keys[self._join_by_key(others, keys)[1]] = True
        for file in files:
            known_keys[
                self._join_by_key(self._columns(file, list(self._layout.key.columns)), keys)[1]
            ] = True
        self._missing_keys += int(np.count_nonzero(~known_keys))

    def _new_rows(self, changes: pa.Table, too_late: Mask) -> pa.Table:
        """Returns the rows that are added to the table."""
        stays = ~too_late if self._layout.key.marks else ~too_late & ~_mask(changes[DELETED])
        rows = changes.filter(pa.array(stays))
        return rows.append_column(
            self._layout.in_file.field(self._layout.window),
            pa.array([self._key] * rows.num_rows, pa.string()),
        )

    def _rewrite(
        self, bucket: int, files: Sequence[OldFile], removed_masks: Sequence[Mask], new: pa.Table
    ) -> None:
        """Writes one file with the new rows and the rows of the files that it replaces."""
        untouched_count = sum(not mask.any() for mask in removed_masks)
        if untouched_count == len(files) and not new.num_rows and self._layout.rewrites != "table":
            return
        rewrites_all = untouched_count >= FEW or self._layout.rewrites != "few"
        out = self._table.begin(bucket)
        for file, mask in zip(files, removed_masks, strict=True):
            if mask.any() or rewrites_all:
                self._copy(file, mask, out)
                self.file_changes.removed.append(file)
        for rows in (
            fit_columns(batch, self._layout.in_file)
            for batch in new.to_batches(max_chunksize=rows_per_batch(new.num_rows, new.nbytes))
        ):
            self._counts.rows_added += rows.num_rows
            self._counts.added += checksum(rows)
            out.add(rows)
        written = out.close()
        if written is not None:
            self.file_changes.added.append((bucket, written))

    def _copy(self, file: OldFile, removed: Mask, out: GrowingFile[NewFile]) -> None:
        """Copies a file's rows to a new file, without the removed rows, which it counts."""
        row_offset = 0
        for batch in (
            fit_columns(batch, self._layout.in_file) for batch in self._table.read(file, None)
        ):
            mask = removed[row_offset : row_offset + batch.num_rows]
            row_offset += batch.num_rows
            if mask.any():
                removed_rows = batch.filter(pa.array(mask))
                self._counts.rows_removed += removed_rows.num_rows
                self._counts.removed += checksum(removed_rows)
            kept_rows = batch.filter(pa.array(~mask)) if mask.any() else batch
            if kept_rows.num_rows:
                out.add(kept_rows)

    def _columns(self, file: OldFile, names: list[str]) -> pa.Table:
        """Reads some columns of a file, in the table's types. A missing column is null."""
        schema = pa.schema([self._layout.in_file.field(name) for name in names])
        batches = [fit_columns(batch, schema) for batch in self._table.read(file, names)]
        return pa.Table.from_batches(batches, schema)


@dataclass
class _KeptValues:
    """The values of a column that changes keep.

    Attributes:
        unknown: mask of the changes that left the column unchanged and have no earlier change
            with a value in the window.
        nowhere: mask of the changes for which no row has a value, because no row exists or it
            was deleted before.
        positions: for each file, the changes that take a value from it.
        values: for each file, the values of the rows that these changes replace.
    """

    unknown: Mask
    nowhere: Mask
    positions: list[npt.NDArray[np.int64]] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def take(
        self,
        batch: pa.Table,
        name: str,
        rows: npt.NDArray[np.int64],
        changes: npt.NDArray[np.int64],
    ) -> None:
        """Takes values from rows, for the changes that don't have them."""
        unknown = self.unknown[changes]
        taken_rows = batch.take(pa.array(rows[unknown]))
        self.positions.append(changes[unknown])
        self.values.append(_array(taken_rows[name]))
        self.nowhere[changes[unknown]] = DELETED in taken_rows.schema.names and _mask(
            taken_rows[DELETED]
        )


_KeptColumns = dict[str, _KeptValues]


def _leaves_unchanged(changes: pa.Table, name: str) -> Mask:
    """Returns the mask of the changes that leave a column unchanged."""
    names = _array(changes[UNAVAILABLE.name])
    mask = np.zeros(changes.num_rows, np.bool_)
    mask[
        pc.list_parent_indices(names).to_numpy()[_mask(pc.equal(pc.list_flatten(names), name))]
    ] = True
    return mask


def _frame(columns: Sequence[Any]) -> pl.DataFrame:
    """Makes a data frame of columns. Their names are their numbers."""
    import polars as pl  # imported here, because only a merge needs it

    return pl.DataFrame({f"{i}": pl.from_arrow(_array(column)) for i, column in enumerate(columns)})


def _array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(nullable_mask: Any) -> Mask:
    """Converts a mask to numpy. Null counts as false."""
    mask: Mask = _array(pc.fill_null(nullable_mask, False)).to_numpy(zero_copy_only=False)
    return mask
