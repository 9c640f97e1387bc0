"""Counts and refusals of merges into tables with a primary key, for every kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windrow.ingest.errors import RefusedError, format_count
from windrow.ingest.model.receipt import Changed, Merged, Receipt, Tombstones
from windrow.ingest.schema.checksum import checksum_text
from windrow.ingest.schema.primary_key import PrimaryKey


class MergeColumns(msgspec.Struct, frozen=True):
    """The columns by which a table is merged.

    Attributes:
        key: the primary key.
        metadata: the names of the metadata columns.
    """

    key: PrimaryKey
    metadata: Mapping[str, str]

    @property
    def window(self) -> str:
        """The name of the window's column."""
        return self.metadata["window"]

    @property
    def position(self) -> list[str]:
        """The columns that order the messages of a window."""
        return [self.metadata[name] for name in ("topic", "partition", "offset")]


class MergeCounts(msgspec.Struct):
    """Counts of the rows that one commit adds and removes, and the sums of their hashes.

    Attributes:
        rows_added: number of rows that it adds.
        rows_removed: number of rows that it removes.
        added: sum of the hashes of the added rows.
        removed: sum of the hashes of the removed rows.
        kept_count: as in `Merged`.
        unknown: as in `Merged`.
    """

    rows_added: int = 0
    rows_removed: int = 0
    added: int = 0
    removed: int = 0
    kept_count: int = 0
    unknown: int = 0

    def to_merged(
        self,
        older: Receipt | None,
        tombstones: Tombstones | None = None,
        tombstones_changed: MergeCounts | None = None,
    ) -> Merged:
        """Returns the sums of this commit and of the window's earlier generations.

        Args:
            older: the receipt of the last earlier generation.
            tombstones: this commit's file of tombstones, if it has one.
            tombstones_changed: the tombstones that this commit added and removed, if one table
                has all tombstones.
        """
        done = (None if older is None else older.merged) or Merged()
        earlier = done.tombstones_changed or Changed()
        in_table = (
            None if tombstones_changed is None else Changed(*tombstones_changed.onto(earlier))
        )
        kept_count, unknown = done.kept_count + self.kept_count, done.unknown + self.unknown
        return Merged(*self.onto(done), tombstones, in_table, kept_count, unknown)

    def onto(self, done: Changed) -> tuple[int, int, str, str]:
        """Adds these counts to earlier changes, in the order of the fields of `Changed`."""
        return (
            done.rows_added + self.rows_added,
            done.rows_removed + self.rows_removed,
            checksum_text(int(done.added, 16) + self.added),
            checksum_text(int(done.removed, 16) + self.removed),
        )


def refuse_unmergeable(window: str, missing_keys: int, lost_values: int) -> None:
    """Refuses a window that can't be merged any more, because the table lacks values for it.

    Args:
        window: the window's key.
        missing_keys: number of keys whose last change was the window's, and that its
            replacement lacks.
        lost_values: number of keys with lost values. Either the window changes the values of a
            key although later changes kept them, or the window keeps values that aren't known.

    Raises:
        RefusedError: there are such keys.
    """
    if missing_keys:
        raise RefusedError(
            f"window {window} can't be replaced: it brought the last change of"
            f" {format_count(missing_keys, 'key')} that the"
            " new attempt lacks, and the rows that they had before aren't in the table",
            "commit",
            "Nothing was committed. See that the new attempt has all messages that count; or begin"
            " a new table, and run all windows.",
        )
    if lost_values:
        raise RefusedError(
            f"window {window} can't be merged any more: changes of"
            f" {format_count(lost_values, 'key')}, in it or in a later window, left values as they"
            " were (decode.unavailable: keep). Which values these are isn't in the table",
            "commit",
            "Nothing was committed. Run windows in their order, and once; or begin a new table, and"
            " run all windows in their order.",
        )
