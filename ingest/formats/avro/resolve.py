"""Resolution of a registry's schema against the columns.

It is Avro's schema resolution, with the columns as the reader's schema:

- A column is null if the writer's record has no field of its name. If the column isn't
  nullable, it can't be read from this schema.
- A union may have types that can't become the column. A message with a value of such a type
  is refused.
- If a union has several records and the column is a struct, the records with a configured
  name become structs. If no record has a configured name, the records that have all of the
  struct's fields become structs. The other records would become structs full of nulls.

`fit.py` decides which type can become which column, as for a schema in a spec.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from windrow.ingest.formats.avro.fit import (
    fits,
    is_null,
    member_name,
    members_of,
    names_in,
    words,
)
from windrow.ingest.formats.avro.schema import (
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    MapType,
    NamedReference,
    RecordType,
    RefusedType,
    UnionType,
)
from windrow.ingest.formats.shared.placeless import value_of
from windrow.ingest.schema.columns import Columns, epoch_of


def resolve_schema(writer: AvroSchema, columns: Columns, records: Sequence[str] = ()) -> AvroSchema:
    """Returns the writer's schema, changed so that the columns can be read by it.

    Args:
        writer: the writer's schema.
        columns: the columns.
        records: the names of the records that are rows, or structs in rows.

    Raises:
        SpecError: the schema has too many types.
    """
    return _Resolution(writer, records).resolve(columns)


def is_one_of(names: Iterable[str], records: Sequence[str]) -> bool:
    """Returns whether one of a record's full names is among `records`.

    A name in `records` without a namespace matches in every namespace.
    """
    return any(record in {name, name.rpartition(".")[2]} for name in names for record in records)


class _Resolution:
    """Resolves a single writer's schema.

    A record that is read into two different structs becomes two records.
    """

    def __init__(self, writer: AvroSchema, records: Sequence[str]) -> None:
        self._writer = writer
        self._record_names = records
        self._records = dict(writer.records)
        self._resolved_names: dict[tuple[str, pa.DataType, Hashable], str] = {}

    def resolve(self, columns: Columns) -> AvroSchema:
        type_by_column = {column.name: (column.type, column.epoch) for column in columns.columns}
        name = self._record(
            self._writer.root, pa.struct(list(columns.arrow_schema)), type_by_column
        )
        return AvroSchema.of(name, self._records)

    def _record(
        self,
        name: str,
        struct: pa.DataType,
        type_by_field: dict[str, tuple[pa.DataType, str | None]],
    ) -> str:
        # pyarrow's types are equal even if the metadata of their fields differs, so `_epochs`
        # is a part of the key.
        key = name, struct, _epochs(struct)
        if key not in self._resolved_names:
            # Names in a schema have no brackets, so this name is new.
            resolved_name = self._resolved_names[key] = f"{name}({len(self._resolved_names) + 1})"
            fields = self._writer.records[name].fields
            kept_fields = tuple(
                (field, self._type(kind, *type_by_field[field]) if field in type_by_field else kind)
                for field, kind in fields
            )
            absent = tuple(
                (field, AbsentType()) for field in type_by_field if field not in dict(fields)
            )
            self._records[resolved_name] = RecordType(resolved_name, kept_fields + absent)
        return self._resolved_names[key]

    def _type(self, kind: AvroType, column: pa.DataType, epoch: str | None) -> AvroType:
        if isinstance(kind, UnionType):
            return self._union(kind, column, epoch)
        if isinstance(kind, ArrayType) and pa.types.is_list(column):
            return ArrayType(self._type(kind.items, column.value_type, None))
        if isinstance(kind, MapType) and (value_type := value_of(column)) is not None:
            return MapType(self._type(kind.values, value_type, None))
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
        if members_of(kind, names_in(column)):
            fields = {field.name: (field.type, epoch_of(field)) for field in column}
            return UnionType(
                tuple(
                    self._type(branch, *fields[name]) if name in fields else branch
                    for branch, name in ((b, member_name(b)) for b in kind.branches)
                )
            )
        others = self._others(kind, column) if pa.types.is_struct(column) else []
        branches = [
            branch if is_null(branch) or branch in others else self._type(branch, column, epoch)
            for branch in kind.branches
        ]
        schema = replace(self._writer, records=self._records)
        is_readable = [
            is_null(branch) or (writer_branch not in others and fits(schema, branch, column, epoch))
            for branch, writer_branch in zip(branches, kind.branches, strict=True)
        ]
        if not any(
            is_fine and not is_null(branch)
            for is_fine, branch in zip(is_readable, branches, strict=True)
        ):
            return UnionType(tuple(branches))  # No type can be read; `check` reports each type.
        refused = [
            RefusedType(
                words(writer_branch), "other_record" if writer_branch in others else "wrong_type"
            )
            for writer_branch in kind.branches
        ]
        return UnionType(
            tuple(
                b if is_fine else refused_branch
                for b, is_fine, refused_branch in zip(branches, is_readable, refused, strict=True)
            )
        )

    def _others(self, kind: UnionType, column: pa.DataType) -> list[NamedReference]:
        """Returns a union's records that don't become the struct; none if it has one record."""
        records_of_union = {
            branch: self._writer.records[branch.name]
            for branch in kind.branches
            if isinstance(branch, NamedReference)
        }
        if len(records_of_union) < 2:
            return []
        fields = {field.name for field in column}
        candidates = [
            reference
            for reference, record in records_of_union.items()
            if is_one_of((record.name, *record.aliases), self._record_names)
        ]
        candidates = candidates or [
            reference
            for reference, record in records_of_union.items()
            if fields.issubset(dict(record.fields))
        ]
        return [reference for reference in records_of_union if reference not in candidates]


def _epochs(kind: pa.DataType) -> Hashable:
    """Returns the `epoch` metadata of the fields in a type, at any depth."""
    if pa.types.is_struct(kind):
        return tuple((epoch_of(field), _epochs(field.type)) for field in kind)
    if pa.types.is_list(kind):
        return _epochs(kind.value_type)
    return _epochs(kind.item_type) if pa.types.is_map(kind) else None
