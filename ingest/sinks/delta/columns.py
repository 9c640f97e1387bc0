"""The columns of a Delta table: which types it holds, and how two schemas differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from deltalake import Field, Schema

from ingest.errors import SpecError
from ingest.schema.metadata import refuse_wrong

_PLAIN = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def table_schema(in_file: pa.Schema, partition: str, kind: pa.DataType | None = None) -> Schema:
    """The Delta schema of a table whose files hold these columns, and its partition column, which is a text where no type is given."""
    return Schema.from_arrow(in_file.append(pa.field(partition, kind or pa.string(), nullable=False)))


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuse what a Delta table would store as something else, or not at all, and metadata columns that can't stand beside the rows'.

    Delta takes unsigned integers without a word and stores signed ones, so the types are listed here.

    Raises:
        SpecError: naming every column that can't be stored as it is, and what to use.
    """
    refuse_wrong(rows.names, metadata)
    lower = [n.lower() for n in rows.names]
    wrong = [f"{n}: the name stands there twice (case doesn't count)" for n in sorted({n for n in lower if lower.count(n) > 1})]
    wrong += [f"{f.name}: {f.type}" for f in rows if not _storable(f.type)]
    if not rows.names:
        wrong.append("there are no columns")
    if wrong:
        what = "the schema can't be stored in a Delta table as it is: " + "; ".join(wrong)
        do = "Use signed integers, float32/64, bool, string, binary, date32, decimal128, timestamp[us], structs, lists or maps of these."
        raise SpecError(what, "spec", do)


def _storable(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz in {None, "UTC"}
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_storable(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _storable(kind.key_type) and _storable(kind.item_type)
    if pa.types.is_list(kind):
        return _storable(kind.value_type)
    return any(test(kind) for test in _PLAIN)


def difference(table: Iterable[Field], wanted: Iterable[Field]) -> tuple[list[Field], list[str]]:
    """What a table lacks that may simply be added (nullable columns), and every other difference, column by column.

    The order of columns doesn't count: Delta finds them by name, and added ones always come last.
    """
    there, here = {f.name: f for f in table}, {f.name: f for f in wanted}
    new = [f for name, f in here.items() if name not in there]
    problems = [f"{f.name}: new, but not nullable ({_shape(f)})" for f in new if not f.nullable]
    problems += [f"{name}: in the table ({_shape(f)}), not in the schema" for name, f in there.items() if name not in here]
    problems += [
        f"{name}: {_shape(f)} in the table, {_shape(here[name])} in the schema"
        for name, f in there.items()
        if name in here and _shape(f) != _shape(here[name])
    ]
    return [f for f in new if f.nullable], problems


def _shape(field: Field) -> str:
    kind = field.type.to_json().strip('"')
    return kind if field.nullable else f"{kind} not null"
