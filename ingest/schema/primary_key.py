"""Primary key of a table in which a row replaces the earlier row with the same key.

It also says whether a deleted row leaves a mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.ingest.errors import SpecError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

BUCKET = "_bucket"
"""Partition column of a table with a primary key.

All rows of a key are in the same bucket. A commit reads and writes whole buckets.
"""


@dataclass(frozen=True)
class PrimaryKey:
    """Primary key of a table that holds the last row of each key.

    Attributes:
        columns: the columns of the key, in this order.
        marks: whether a deleted row stays as a mark, with its key, a true
            `schema.row_changes.DELETED` and nulls. Otherwise a deleted row is removed.
        version: the column whose greatest value makes a row the last row. Null is less than
            any value. For equal values, the order of the log counts. If `version` is None,
            only the order of the log counts.
        buckets: the number of buckets that the keys are divided into.
    """

    columns: tuple[str, ...]
    marks: bool = False
    version: str | None = None
    buckets: int = 16

    @property
    def deletes(self) -> tuple[str, ...]:
        """Columns by which rows are deleted.

        It is empty if rows have versions, because a delete has no version and so no place
        in their order.
        """
        return self.columns if self.version is None else ()

    def bucket_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Returns the bucket of each row, which never changes.

        It is `checksum.hash_rows` of the row's key, modulo the number of buckets.
        """
        # Imported here, because checking a spec needs neither.
        import numpy as np

        from windrow.ingest.schema.checksum import hash_rows

        return (hash_rows(rows.select(list(self.columns))) % np.uint64(self.buckets)).astype(
            np.int64
        )

    def refuse_unusable(self, rows: pa.Schema) -> None:
        """Checks the key against the columns of the table's rows.

        Raises:
            SpecError: names everything that is wrong.
        """
        mistakes = "; ".join(self._mistakes(rows))
        if mistakes:
            raise SpecError(
                f"sink.primary_key can't be used: {mistakes}",
                "spec",
                "Fix the schema, or sink; nothing was read.",
            )

    def _mistakes(self, rows: pa.Schema) -> Iterator[str]:
        from windrow.ingest.schema.row_changes import DELETED, UNAVAILABLE  # loads Arrow

        for name in self.columns:
            if name not in rows.names:
                yield f"{name}: the schema doesn't have this column, it has {', '.join(rows.names)}"
                continue
            if rows.field(name).nullable:
                yield f"{name}: a column of the key is never null, but in the schema it is nullable"
            if not _is_exact(rows.field(name).type):
                yield (
                    f"{name}: {rows.field(name).type} is not a type for a key: use texts, bytes,"
                    " booleans, whole numbers, decimals or dates"
                )
        if self.version is not None and self.version not in rows.names:
            yield (
                f"version {self.version}: the schema doesn't have this column, it has"
                f" {', '.join(rows.names)}"
            )
        elif self.version is not None and not _is_ordered(rows.field(self.version).type):
            yield (
                f"version {self.version}: {rows.field(self.version).type} is not a type for it: use"
                " whole numbers, decimals or dates"
            )
        own_columns = (BUCKET, DELETED, UNAVAILABLE.name)
        yield from (
            f"{name}: windrow has a column of this name in such a table"
            for name in own_columns
            if name in rows.names
        )


def _is_ordered(kind: pa.DataType) -> bool:
    import pyarrow as pa  # only where a table is checked

    return any(
        test(kind)
        for test in (
            pa.types.is_integer,
            pa.types.is_decimal,
            pa.types.is_date,
            pa.types.is_timestamp,
        )
    )


def _is_exact(kind: pa.DataType) -> bool:
    import pyarrow as pa  # only where a table is checked

    return _is_ordered(kind) or any(
        test(kind) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)
    )
