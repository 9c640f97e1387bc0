"""A writer's schema for readers who want other fields: Avro's schema resolution, where
the columns are the reader's schema.

A column that the writer has no field for is null; where it isn't nullable, the schema
can't be read by it. Of a union the types that can't become the column are refused where
a message has one; of one of several records, those are structs that are named, or else
those that have all of the struct's fields, for others would be structs of nulls. What a
type may become is `fit.py`'s, as for a schema that a spec names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from windrow.ingest.formats.avro.fit import fits, is_null, value_of, words
from windrow.ingest.formats.avro.schema import (
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    MapType,
    NamedReference,
    RecordType,
    UnfitType,
    UnionType,
)
from windrow.ingest.schema.columns import Columns, epoch_of


def resolved(writer: AvroSchema, columns: Columns, records: Sequence[str] = ()) -> AvroSchema:
    """The schema by which the columns are read from what it has written.

    `records`: the names of those that are rows, or structs in them.

    Raises:
        SpecError: there are too many types in it.
    """
    return _Resolution(writer, records).whole(columns)


def is_one_of(names: Iterable[str], records: Sequence[str]) -> bool:
    """Whether a record with these full names is one of some.

    One of them without a namespace is meant in any.
    """
    return any(record in {name, name.rpartition(".")[2]} for name in names for record in records)


class _Resolution:
    """Records are made anew for each type of struct that they become, once: a record
    that columns want in two ways becomes two.
    """

    def __init__(self, writer: AvroSchema, records: Sequence[str]) -> None:
        self._writer = writer
        self._wanted = records
        self._records = dict(writer.records)
        self._made: dict[tuple[str, pa.DataType, Hashable], str] = {}

    def whole(self, columns: Columns) -> AvroSchema:
        wanted = {column.name: (column.type, column.epoch) for column in columns.columns}
        name = self._record(self._writer.root, pa.struct(list(columns.arrow_schema)), wanted)
        return AvroSchema.of(name, self._records)

    def _record(
        self, name: str, struct: pa.DataType, wanted: dict[str, tuple[pa.DataType, str | None]]
    ) -> str:
        key = name, struct, _epochs(struct)  # types are equal whatever their fields' metadata
        if key not in self._made:
            # no name of a schema's has brackets
            own = self._made[key] = f"{name}({len(self._made) + 1})"
            fields = self._writer.records[name].fields
            kept = tuple(
                (field, self._type(kind, *wanted[field]) if field in wanted else kind)
                for field, kind in fields
            )
            absent = tuple((field, AbsentType()) for field in wanted if field not in dict(fields))
            self._records[own] = RecordType(own, kept + absent)
        return self._made[key]

    def _type(self, kind: AvroType, column: pa.DataType, epoch: str | None) -> AvroType:
        if isinstance(kind, UnionType):
            return self._union(kind, column, epoch)
        if isinstance(kind, ArrayType) and pa.types.is_list(column):
            return ArrayType(self._type(kind.items, column.value_type, None))
        if isinstance(kind, MapType) and (of := value_of(column)) is not None:
            return MapType(self._type(kind.values, of, None))
        if isinstance(kind, NamedReference) and pa.types.is_struct(column):
            return NamedReference(
                self._record(
                    kind.name,
                    column,
                    {field.name: (field.type, epoch_of(field)) for field in column},
                )
            )
        return kind

    def _union(self, kind: UnionType, column: pa.DataType, epoch: str | None) -> UnionType:
        others = self._others(kind, column) if pa.types.is_struct(column) else []
        made = [
            branch if is_null(branch) or branch in others else self._type(branch, column, epoch)
            for branch in kind.branches
        ]
        schema = replace(self._writer, records=self._records)
        good = [
            is_null(one) or (old not in others and fits(schema, one, column, epoch))
            for one, old in zip(made, kind.branches, strict=True)
        ]
        if not any(fine and not is_null(branch) for fine, branch in zip(good, made, strict=True)):
            return UnionType(tuple(made))  # none can be read: `check` says why
        unfit = [
            UnfitType(words(old), "other_record" if old in others else "wrong_type")
            for old in kind.branches
        ]
        return UnionType(
            tuple(b if fine else bad for b, fine, bad in zip(made, good, unfit, strict=True))
        )

    def _others(self, kind: UnionType, column: pa.DataType) -> list[NamedReference]:
        """The records of a union that aren't the struct's, where it has several."""
        several = {
            branch: self._writer.records[branch.name]
            for branch in kind.branches
            if isinstance(branch, NamedReference)
        }
        if len(several) < 2:
            return []
        fields = {field.name for field in column}
        chosen = [
            one
            for one, record in several.items()
            if is_one_of((record.name, *record.aliases), self._wanted)
        ]
        chosen = chosen or [
            one for one, record in several.items() if fields.issubset(dict(record.fields))
        ]
        return [one for one in several if one not in chosen]


def _epochs(kind: pa.DataType) -> Hashable:
    """The units of the integer timestamps in a type, at any depth."""
    if pa.types.is_struct(kind):
        return tuple((epoch_of(field), _epochs(field.type)) for field in kind)
    if pa.types.is_list(kind):
        return _epochs(kind.value_type)
    return _epochs(kind.item_type) if pa.types.is_map(kind) else None
