"""The state of a table whose rows of a primary key are in files, for every kind of table.

The table has its primary key in a property, because the layout of its files depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from windrow.ingest.errors import RefusedError, SchemaChangedError, UnreachableError
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.kit.commit.pages import PagedState
from windrow.ingest.sinks.kit.merge.tombstones import TombstonesOf


def key_properties(primary_key: PrimaryKey | None) -> dict[str, str]:
    """Returns the properties that describe the layout of a table, which never change."""
    if primary_key is None:
        return {}
    described = {
        "columns": list(primary_key.columns),
        "marks": primary_key.marks,
        "version": primary_key.version,
        "buckets": primary_key.buckets,
    }
    return {"windrow.primary-key": json.dumps(described)}


def refuse_other_key(
    where: str, properties: Mapping[str, str], primary_key: PrimaryKey | None
) -> None:
    """Refuses a table that was made with another primary key.

    Args:
        where: the table's place.
        properties: the table's properties.
        primary_key: the primary key of the spec.

    Raises:
        SchemaChangedError: the keys differ.
    """
    differences = [
        f"{name} is {properties.get(name)} in the table, {expected} in the spec"
        for name, expected in key_properties(primary_key).items()
        if properties.get(name) != expected
    ]
    if differences:
        raise SchemaChangedError(
            f"the table {where} was made with another primary key: {'; '.join(differences)}",
            "setup",
            "Set it back, or begin a pipeline with another id and table: rows that are there can't"
            " be put in another order.",
        )


class KeyedState(PagedState):
    """A state that answers the questions about a primary key (`ports.sink.KeyedAudit`)."""

    def size(self) -> tuple[int, int] | None:
        """Returns the number of rows and of bytes, if the table knows them."""
        raise NotImplementedError

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one window, or of all (`table_store.TableState.scan`)."""
        raise NotImplementedError

    def rows(self) -> int:
        size = self.size()
        return sum(batch.num_rows for batch in self.all_rows()) if size is None else size[0]

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        return self.scan(None)

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """Returns none. Each window has its own file, which `lost_tombstones` checks."""
        return iter(())

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        for receipt in receipts:
            try:
                TombstonesOf(self.folder, receipt)
            except (RefusedError, UnreachableError) as error:
                yield receipt, error
