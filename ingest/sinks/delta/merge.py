"""Puts the changes of a window into a table with a primary key, on the state that was
looked at: which files go, and which come.

Bucket by bucket, and of a bucket only the files that hold a row which has to go:

    the window's changes of the bucket      the last one of each key: by version, if there is one,
                            then by topic, partition and offset
    tombstones of later windows         a change of a key that lies there is too late, and
                            does
                            nothing
    the bucket's rows                       of each key with a change: the later window's word
                            counts; of one window the newer attempt's

A window's place in time decides, never the order in which windows are committed: topics
are cut at offsets, so in one topic-partition that is the order of the log. What a merge
needs of memory is the window's changes of one bucket, the keys of one of its files, a
byte for each of its rows, and a row group.

A replacement takes back what its window wrote before. Where that was the last word on a
key, and the new attempt has none, nobody knows what the key was before: it isn't in the
table. So it is refused.

A change may have left columns alone, whose values it doesn't know (`UNAVAILABLE`). It
has those of the change before it in the window, or of the row that it takes the place
of; where there is neither, null. That is right where every change before it is merged,
and none comes later. What comes later is refused: a change that is beaten by a row of a
window that kept something (by its receipt), and a replacement before such a window; and
of a replacement or a dead-letter replay any change that leaves a column alone, for the row before
it isn't there any more.

A dead-letter replay takes nothing back: its changes are more of the window's own, and lie between
those that are there. So a row or a tombstone of the window itself meets them as in the log:
the later message counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from windrow.ingest.model.receipt import Merged, Receipt
from windrow.ingest.schema.changes import DELETED, UNAVAILABLE
from windrow.ingest.schema.checksum import checksum
from windrow.ingest.schema.primary_key import BUCKET
from windrow.ingest.sinks.columns import fitted
from windrow.ingest.sinks.delta.stage import StagedFile, explained_files, growing
from windrow.ingest.sinks.delta.table import DataFile, data_files
from windrow.ingest.sinks.delta.tombstones import TombstonesOf, TombstonesWriter, tombstones_named
from windrow.ingest.sinks.merging import MergeForm, Tally, kept_by, refuse_unknown, refuse_untold
from windrow.ingest.sinks.parquet_files import BATCH_ROWS, batches_of
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.staged_file import GrowingFile
from windrow.ingest.sinks.staged_files import staged_path

FEW = 8
"""So many files a bucket may have that a commit leaves as they are; with more it puts
them together.
"""

Renews = Literal["few", "buckets", "table"]
"""Which files a commit puts together: as few as can be; all of each bucket that it
changes; all that there are.
"""

Mask = npt.NDArray[np.bool_]


class Form(MergeForm, frozen=True):
    """The same, and how the table's files are made.

    `in_file`: their columns, the window's among them; the table's own, of which what
    was staged may lack some. `renews`: what is written anew beside what loses a row.
    """

    in_file: pa.Schema
    renews: Renews = "few"

    @property
    def judged(self) -> list[str]:
        """What has to be read of a row to know whether it stays."""
        return list(
            dict.fromkeys(
                [
                    *self.key.columns,
                    self.window,
                    *([] if self.key.version is None else [self.key.version]),
                ]
            )
        )


def merge(
    place: Place,
    table: DeltaTable,
    form: Form,
    receipt: Receipt,
    files: Sequence[StagedFile],
    later: Sequence[Receipt],
    older: Receipt | None,
) -> tuple[Merged, list[AddAction | RemoveAction]]:
    """What a commit of these staged files does to the table; new files are written by
    then, and nothing names them.

    Args:
        place: where the table lies.
        table: it, at the version that the commit is made on.
        form: how its files are made.
        receipt: of the window.
        files: what was staged: changes.
        later: the committed receipts of all windows after this one.
        older: the committed receipt of the generation before, if there is one.

    Raises:
        RefusedError: a replacement has nothing to say of keys that are as its window
            left them; what was kept may have been another value; or a file is damaged.
        DamagedError: tombstones are.
        UnreachableError: a file can't be read or written.
    """
    merging = _Merging(place, form, receipt, files, later, older)
    by_bucket: dict[int, list[DataFile]] = {}
    for file in data_files(table):
        by_bucket.setdefault(int(file.part), []).append(file)
    touched = merging.touched | (
        by_bucket.keys() if merging.replaces or form.renews == "table" else set()
    )
    with explained_files():
        for bucket in sorted(touched):
            merging.merge(bucket, by_bucket.get(bucket, []))
        return merging.close(), merging.actions


class _Merging:
    """One merge, bucket by bucket."""

    def __init__(
        self,
        place: Place,
        form: Form,
        receipt: Receipt,
        files: Sequence[StagedFile],
        later: Sequence[Receipt],
        older: Receipt | None,
    ) -> None:
        self.actions: list[AddAction | RemoveAction] = []
        self._place, self._form, self._receipt = place, form, receipt
        self._later = [TombstonesOf(place, r) for r in later if tombstones_named(r) is not None]
        self._keeping = pa.array(
            [r.window.key for r in (*later, *([older] if older else [])) if kept_by(r)], pa.string()
        )
        self._key = receipt.window.key
        self._staged = files
        self._dead_replay = receipt.dead_replay is not None
        self.replaces = older is not None and not self._dead_replay
        self._before = None if older is None else TombstonesOf(place, older)
        self._older = older
        self._tombstones = TombstonesWriter(place, receipt.attempt)
        self._tally, self._unknown = Tally(), 0
        self._untold = sum(kept_by(r) for r in later) if self.replaces else 0

    @property
    def touched(self) -> set[int]:
        """The buckets that the window says something of, or said in the generation before."""
        before = frozenset[int]() if self._before is None else self._before.buckets
        return {bucket for file in self._staged for bucket in file.buckets} | before

    def merge(self, bucket: int, files: Sequence[DataFile]) -> None:
        """One bucket. `files`: the table's."""
        changes, alone = self._changes(bucket)
        beaten = self._buried_later(changes, bucket)
        gone = [self._judged(file, changes, beaten, alone) for file in files]
        changes = self._kept(changes, beaten, alone)
        if self.replaces:
            self._unknown_tombstones(files, changes, bucket)
        if not self._form.key.marks and self._form.key.version is None:
            self._bury(bucket, changes, beaten)
        self._rewrite(bucket, files, gone, self._new(changes, beaten))

    def close(self) -> Merged:
        """What was done, with what the generations before did.

        Raises:
            RefusedError: keys would be left as nobody knows.
        """
        refuse_unknown(self._key, self._unknown)
        refuse_untold(self._key, self._untold)
        return self._tally.after(self._older, self._tombstones.close())

    def _changes(self, bucket: int) -> tuple[pa.Table, _Alone]:
        """The last change of each key, and what they leave alone that the changes
        before them don't tell.
        """
        found = [self._staged_rows(file, bucket) for file in self._staged if bucket in file.buckets]
        if not found:
            known = [f for f in self._form.in_file if f.name not in {self._form.window, DELETED}]
            return pa.schema([*known, pa.field(DELETED, pa.bool_())]).empty_table(), {}
        every = pa.concat_tables(found)
        versions = [] if self._form.key.version is None else [self._form.key.version]
        order = [every[name] for name in (*versions, *self._form.place)]
        keys = [every[name] for name in self._form.key.columns]
        # Of one message's changes the last counts: sorting keeps them as they stand.
        key = [f"{len(order) + i}" for i in range(len(keys))]
        ordered = (
            _frame([*order, *keys])
            .with_row_index("row")
            .sort([f"{i}" for i in range(len(order))], nulls_last=False, maintain_order=True)
        )
        last = ordered.unique(key, keep="last", maintain_order=True).sort("row")
        changes = every.take(pa.array(last["row"].to_numpy()))
        names = pc.unique(pc.list_flatten(every[UNAVAILABLE.name])).to_pylist()
        if names and (self.replaces or self._dead_replay):
            self._untold += int(
                np.count_nonzero(
                    _mask(pc.greater(pc.list_value_length(every[UNAVAILABLE.name]), 0))
                )
            )
        alone: _Alone = {}
        for name in names:
            told = ordered.with_columns(
                pl.Series("told", ~_leaves_alone(every, name)).gather(ordered["row"])
            )
            told = told.with_columns(pl.when("told").then("row").alias("from")).with_columns(
                pl.col("from").forward_fill().over(key)
            )
            source = told.unique(key, keep="last", maintain_order=True).sort("row")["from"]
            values = every[name].take(source.to_arrow())
            changes = changes.set_column(
                changes.schema.get_field_index(name), every.schema.field(name), values
            )
            alone[name] = _Kept(source.is_null().to_numpy())
        return changes, alone

    def _kept(self, changes: pa.Table, beaten: Mask, alone: _Alone) -> pa.Table:
        """The changes with what the rows have that they take the place of."""
        for name, kept in alone.items():
            kind = self._form.in_file.field(name).type
            values = pa.concat_arrays([_whole(changes[name]).cast(kind), *kept.values])
            at = np.arange(changes.num_rows)
            for positions, values_before in zip(
                kept.positions, np.cumsum([changes.num_rows, *map(len, kept.values)]), strict=False
            ):
                at[positions] = values_before + np.arange(len(positions))
            changes = changes.set_column(
                changes.schema.get_field_index(name),
                self._form.in_file.field(name),
                values.take(pa.array(at)),
            )
        if alone:
            left = _mask(pc.greater(pc.list_value_length(changes[UNAVAILABLE.name]), 0))
            self._tally.kept += int(np.count_nonzero(left & ~beaten))
        return changes

    def _staged_rows(self, file: StagedFile, bucket: int) -> pa.Table:
        groups = [number for number, of in enumerate(file.buckets) if of == bucket]
        with (
            self._place.filesystem().open_input_file(file.path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            return opened.read_row_groups(groups, use_threads=False)

    def _buried_later(self, changes: pa.Table, bucket: int) -> Mask:
        """Which changes come too late, because a later window took the key out; or, of
        a dead-letter replay, a later message of the window itself.
        """
        beaten = np.zeros(changes.num_rows, np.bool_)
        for tombstones in self._later:
            keys = tombstones.keys(bucket)
            if keys is not None:
                beaten[self._meeting(keys, changes)[1]] = True
        own = self._own_tombstones(bucket)
        if own is not None:
            buried, changed = self._meeting(own, changes)
            beaten[changed[~self._follows(changes, changed, own, buried)]] = True
        return beaten

    def _own_tombstones(self, bucket: int) -> pa.Table | None:
        """Those that a dead-letter replay stands on."""
        return self._before.keys(bucket) if self._dead_replay and self._before is not None else None

    def _bury(self, bucket: int, changes: pa.Table, beaten: Mask) -> None:
        """Note what the window took out by its last words: of a dead-letter replay, also what
        stands of the tombstones before.
        """
        columns = [*self._form.key.columns, *self._form.place]
        own = self._own_tombstones(bucket)
        if not self._dead_replay:
            self._tombstones.add(bucket, changes.filter(changes[DELETED]).select(columns))
            return
        stays = changes.filter(pa.array(~beaten))
        found = [stays.filter(stays[DELETED]).select(columns)]
        if own is not None:
            told = np.zeros(own.num_rows, np.bool_)
            told[self._meeting(own, stays)[0]] = True
            found.append(own.filter(pa.array(~told)).select(columns))
        kinds = pa.schema([self._form.in_file.field(name) for name in columns])
        self._tombstones.add(bucket, pa.concat_tables([table.cast(kinds) for table in found]))

    def _meeting(
        self, rows: pa.Table, changes: pa.Table
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which rows have which change, by their keys: the positions of both."""
        left, right = (
            _frame(
                [
                    table.column(name).cast(self._form.in_file.field(name).type)
                    for name in self._form.key.columns
                ]
            ).with_row_index(named)
            for table, named in ((rows, "row"), (changes, "change"))
        )
        names = [name for name in left.columns if name != "row"]
        met = left.join(right, on=names, how="inner")
        return met["row"].to_numpy().astype(np.int64), met["change"].to_numpy().astype(np.int64)

    def _judged(self, file: DataFile, changes: pa.Table, beaten: Mask, alone: _Alone) -> Mask:
        """Which rows of a file go.

        Notes the changes that a row of it beats, and what those keep that take its place.
        """
        batch = self._columns(
            file, [*self._form.judged, *(self._form.place if self._dead_replay else []), *alone]
        )
        rows, changed = self._meeting(batch, changes)
        own = self._own(batch) if self.replaces else np.zeros(batch.num_rows, np.bool_)
        wins = self._wins(batch, changes, rows, changed)
        beaten[changed[~wins]] = True
        keeping = _mask(
            pc.is_in(batch.column(self._form.window).take(pa.array(rows[~wins])), self._keeping)
        )
        self._untold += int(np.count_nonzero(keeping))
        for name, kept in alone.items():
            kept.take(batch[name], rows[wins], changed[wins])
        gone = np.zeros(batch.num_rows, np.bool_)
        gone[rows[wins]] = True
        self._unknown += int(np.count_nonzero(own & ~gone))
        return gone

    def _wins(
        self,
        batch: pa.Table,
        changes: pa.Table,
        rows: npt.NDArray[np.int64],
        changed: npt.NDArray[np.int64],
    ) -> Mask:
        """Whether a change takes the place of the row that it meets."""
        after = _mask(
            pc.less_equal(batch.column(self._form.window).take(pa.array(rows)), self._key)
        )
        if self._dead_replay:
            after &= ~self._own(batch)[rows] | self._follows(changes, changed, batch, rows)
        version = self._form.key.version
        if version is None:
            return after
        old, new = (
            table[version].take(pa.array(at)) for table, at in ((batch, rows), (changes, changed))
        )
        higher = _mask(pc.greater(new, old)) | (_mask(new.is_valid()) & _mask(old.is_null()))
        same = _mask(pc.equal(new, old)) | (_mask(new.is_null()) & _mask(old.is_null()))
        return higher | (same & after)

    def _own(self, batch: pa.Table) -> Mask:
        """Which rows the window wrote."""
        return _mask(pc.equal(batch.column(self._form.window), self._key))

    def _follows(
        self,
        new: pa.Table,
        new_at: npt.NDArray[np.int64],
        old: pa.Table,
        old_at: npt.NDArray[np.int64],
    ) -> Mask:
        """Whether the message of each of some rows comes after that of another, in one window."""
        follows, equal = np.zeros(len(new_at), np.bool_), np.ones(len(new_at), np.bool_)
        for name in self._form.place:
            mine, other = new[name].take(pa.array(new_at)), old[name].take(pa.array(old_at))
            follows |= equal & _mask(pc.greater(mine, other.cast(mine.type)))
            equal &= _mask(pc.equal(mine, other.cast(mine.type)))
        return follows

    def _unknown_tombstones(
        self, files: Sequence[DataFile], changes: pa.Table, bucket: int
    ) -> None:
        """Count the keys that the generation before took out, and of which neither the
        new attempt nor a later window says more.
        """
        keys = None if self._before is None else self._before.keys(bucket)
        if keys is None:
            return
        told = np.zeros(keys.num_rows, np.bool_)
        told[self._meeting(changes, keys)[1]] = True
        for tombstones in self._later:
            others = tombstones.keys(bucket)
            if others is not None:
                told[self._meeting(others, keys)[1]] = True
        for file in files:
            told[self._meeting(self._columns(file, list(self._form.key.columns)), keys)[1]] = True
        self._unknown += int(np.count_nonzero(~told))

    def _new(self, changes: pa.Table, beaten: Mask) -> pa.Table:
        """The rows that the table gains."""
        stays = ~beaten if self._form.key.marks else ~beaten & ~_mask(changes[DELETED])
        rows = changes.filter(pa.array(stays))
        return rows.append_column(
            self._form.in_file.field(self._form.window),
            pa.array([self._key] * rows.num_rows, pa.string()),
        )

    def _rewrite(
        self, bucket: int, files: Sequence[DataFile], gone: Sequence[Mask], new: pa.Table
    ) -> None:
        """One file in the place of those that lose a row, with what is new."""
        left = [file for file, mask in zip(files, gone, strict=True) if not mask.any()]
        if len(left) == len(files) and not new.num_rows and self._form.renews != "table":
            return
        whole = (
            set()
            if len(left) < FEW and self._form.renews == "few"
            else {file.path for file in left}
        )
        out = growing(
            self._place,
            staged_path(self._key, self._receipt.attempt),
            self._form.in_file,
            self._form.metadata,
        )
        for file, mask in zip(files, gone, strict=True):
            if mask.any() or file.path in whole:
                self._copy(file, mask, out)
                self.actions.append(
                    RemoveAction(file.path, True, _now(), file.size, {BUCKET: str(bucket)})
                )
        for rows in (
            fitted(batch, self._form.in_file) for batch in new.to_batches(max_chunksize=BATCH_ROWS)
        ):
            self._tally.rows_added += rows.num_rows
            self._tally.added += checksum(rows)
            out.add(rows)
        written = out.close()
        if written is not None:
            stats = written.stats
            self.actions.append(
                AddAction(
                    written.path,
                    written.size,
                    {BUCKET: str(bucket)},
                    written.modified_ms,
                    data_change=True,
                    stats=stats,
                )
            )

    def _copy(self, file: DataFile, gone: Mask, out: GrowingFile[StagedFile]) -> None:
        at = 0
        for batch in (
            fitted(batch, self._form.in_file) for batch in batches_of(self._place, file.path)
        ):
            mask = gone[at : at + batch.num_rows]
            at += batch.num_rows
            if mask.any():
                lost = batch.filter(pa.array(mask))
                self._tally.rows_removed += lost.num_rows
                self._tally.removed += checksum(lost)
            kept = batch.filter(pa.array(~mask)) if mask.any() else batch
            if kept.num_rows:
                out.add(kept)

    def _columns(self, file: DataFile, names: list[str]) -> pa.Table:
        kept = pa.schema([self._form.in_file.field(name) for name in names])
        batches = [fitted(batch, kept) for batch in batches_of(self._place, file.path, names)]
        return pa.Table.from_batches(batches, kept)


@dataclass
class _Kept:
    """Of a column, which changes left it alone and don't know it; and the values of
    rows that some of them take the place of.
    """

    unknown: Mask
    positions: list[npt.NDArray[np.int64]] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def take(
        self, column: pa.ChunkedArray, rows: npt.NDArray[np.int64], changes: npt.NDArray[np.int64]
    ) -> None:
        """Keep what rows have for the changes that don't know it."""
        unknown = self.unknown[changes]
        self.positions.append(changes[unknown])
        self.values.append(_whole(column.take(pa.array(rows[unknown]))))


_Alone = dict[str, _Kept]


def _leaves_alone(changes: pa.Table, name: str) -> Mask:
    """Which changes leave a column alone."""
    names = _whole(changes[UNAVAILABLE.name])
    mask = np.zeros(changes.num_rows, np.bool_)
    mask[
        pc.list_parent_indices(names).to_numpy()[_mask(pc.equal(pc.list_flatten(names), name))]
    ] = True
    return mask


def _frame(columns: Sequence[Any]) -> pl.DataFrame:
    """Columns by their numbers."""
    return pl.DataFrame({f"{i}": pl.from_arrow(_whole(column)) for i, column in enumerate(columns)})


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(found: Any) -> Mask:
    """Null is no."""
    # Arrow's own word
    mask: Mask = _whole(pc.fill_null(found, False)).to_numpy(zero_copy_only=False)
    return mask


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
