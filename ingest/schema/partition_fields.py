"""Partitions of a table by its columns: which rows are in one file. Loads no Arrow."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import msgspec

from windrow.ingest.errors import SchemaChangedError, SpecError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_PARTITIONS = 500
"""The most partitions of the rows of one split, and so the most files that its task writes."""

PartitionTransform = Literal["day", "month", "year", "hour", "bucket", "identity"]

_TIMES = ("year", "month", "day", "hour")

PartitionValues = tuple[int | str | bool | None, ...]
"""The values, or texts, of a table's partition fields, in their order."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The text of null in a folder's name, for all readers of such folders."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROPERTY = "windrow.partition-by"


class PartitionField(msgspec.Struct, frozen=True):
    """A transform of a column; rows with different results are never in one file.

    The transforms are Iceberg's, also in tables of other kinds.

    Attributes:
        transform: the transform.
        column: the column of the schema.
        name: the name of the partition field; in Delta and in folders, of a visible column.
        buckets: the number of buckets; 0 for other transforms.
    """

    transform: PartitionTransform
    column: str
    name: str
    buckets: int = 0

    def __str__(self) -> str:
        """Returns the field as SQL would: `day(created_at) as created_at_day`."""
        argument = f"{self.buckets}, {self.column}" if self.buckets else self.column
        return f"{self.transform}({argument}) as {self.name}"

    def column_type(self, rows: pa.Schema) -> pa.DataType:
        """Returns the type of a partition field that is a visible column."""
        import pyarrow as pa  # only where a table is checked

        kind = rows.field(self.column).type
        if self.transform == "identity":
            # a column that becomes wider keeps its partitions
            return pa.int64() if pa.types.is_integer(kind) else kind
        shown = {"day": pa.date32(), "month": pa.string(), "hour": pa.string()}
        return shown.get(self.transform, pa.int32())

    @staticmethod
    def describe(fields: Iterable[PartitionField]) -> str:
        """Returns partition fields in words, as tables keep them; "" for none."""
        return ", ".join(map(str, fields))

    @staticmethod
    def properties(fields: Sequence[PartitionField]) -> dict[str, str]:
        """Returns the property of a new table that records its partition fields."""
        return {_PROPERTY: PartitionField.describe(fields)} if fields else {}

    @staticmethod
    def read_description(properties: Mapping[str, str]) -> str:
        """Returns the partition fields of a table by its properties, as `describe`."""
        return properties.get(_PROPERTY, "")

    @staticmethod
    def refuse_other(where: str, recorded: str, fields: Sequence[PartitionField]) -> None:
        """Refuses a table that was made with other partition fields.

        Args:
            where: the table's place.
            recorded: the table's partition fields, as `describe`.
            fields: the partition fields of the spec.

        Raises:
            SchemaChangedError: they differ.
        """
        wanted = PartitionField.describe(fields)
        if recorded != wanted:
            back = f"Set sink.partition_by back to {recorded}" if recorded else "Remove it"
            raise SchemaChangedError(
                f"the table {where} is partitioned by {recorded or 'no column of the schema'}, and"
                f" sink.partition_by is {wanted or 'not set'}",
                "setup",
                f"{back}, or begin a pipeline with another id and table: files that are there keep"
                " their partitions.",
            )

    @staticmethod
    def refuse_unusable(
        fields: Sequence[PartitionField], rows: pa.Schema, metadata: Collection[str]
    ) -> None:
        """Checks partition fields against the columns of the table's rows.

        Args:
            fields: the partition fields.
            rows: the columns of a row.
            metadata: the names of the metadata columns.

        Raises:
            SpecError: names everything that is wrong.
        """
        mistakes = "; ".join(_mistakes(fields, rows, metadata)) if fields else ""
        if mistakes:
            raise SpecError(
                f"sink.partition_by can't be used: {mistakes}",
                "spec",
                "Fix the schema, or sink; nothing was read.",
            )

    @staticmethod
    def texts_by_name(
        fields: Sequence[PartitionField], texts: PartitionValues
    ) -> dict[str, str | None]:
        """Returns the texts of a partition by the names of the partition fields; None for null."""
        return {
            field.name: None if text is None else str(text)
            for field, text in zip(fields, texts, strict=True)
        }

    @staticmethod
    def folder(texts: Mapping[str, str | None]) -> str:
        """Returns the folder of a partition as Hive names it: `created_at_day=2026-01-01`."""
        return "/".join(
            f"{name}={NULL_FOLDER if text is None else quote(text, safe='')}"
            for name, text in texts.items()
        )


def _mistakes(
    fields: Sequence[PartitionField], rows: pa.Schema, metadata: Collection[str]
) -> Iterator[str]:
    taken = {name.casefold() for name in (*rows.names, *metadata)}
    for number, field in enumerate(fields):
        if not _NAME.fullmatch(field.name):
            yield f"{field.name}: take a name of letters, digits and _ (as)"
        if field.name.casefold() in taken:
            yield f"{field.name}: the table has a column of this name; set another one (as)"
        taken.add(field.name.casefold())
        if field.column not in rows.names:
            yield (
                f"{field.column}: the schema doesn't have this column, it has"
                f" {', '.join(rows.names)}"
            )
        elif not _takes(field.transform, rows.field(field.column).type):
            kind = rows.field(field.column).type
            yield f"{field.column}: {field.transform} doesn't take {kind}; {_TAKES}"
        if any(_is_redundant(field, earlier) for earlier in fields[:number]):
            yield f"{field.column}: one transform of this kind is enough"


_TAKES = (
    "day, month and year take dates and timestamps, hour timestamps, bucket whole numbers, texts,"
    " bytes, dates and timestamps, identity whole numbers, texts, booleans and dates"
)


def _takes(transform: PartitionTransform, kind: pa.DataType) -> bool:
    """Returns whether a transform takes a type of columns."""
    import pyarrow as pa  # only where a table is checked

    tests = {
        "hour": (pa.types.is_timestamp,),
        "bucket": (
            pa.types.is_integer,
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_date,
            pa.types.is_timestamp,
        ),
        "identity": (
            pa.types.is_integer,
            pa.types.is_string,
            pa.types.is_boolean,
            pa.types.is_date,
        ),
    }.get(transform, (pa.types.is_date, pa.types.is_timestamp))
    return any(test(kind) for test in tests)


def _is_redundant(field: PartitionField, earlier: PartitionField) -> bool:
    """Returns whether Iceberg takes no second field like this: two times of one column, say."""
    both_times = field.transform in _TIMES and earlier.transform in _TIMES
    return field.column == earlier.column and (both_times or field.transform == earlier.transform)
