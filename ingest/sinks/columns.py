"""Which columns windrow's own files hold: of rows, and of dead letters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.schema.metadata import fields, refuse_wrong

DEAD_FILE = pa.schema(
    [
        *fields(DEFAULT)[:-1],
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("schema_id", pa.string()),
        pa.field("attempt", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("pipeline", pa.string(), nullable=False),
    ]
)
"""One dead letter a row: the whole message, why it was refused, which schema it named,
and by which attempt.

These columns, and `DEFAULT["window"]` by which their table is partitioned, have the
same names whatever the table of rows calls such things.
"""

DEAD_LETTERS = DEAD_FILE.append(pa.field(DEFAULT["window"], pa.string()))
"""As they are read: with the window's key."""


_SCALARS = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def file_schema(rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """What a staged file of rows holds: the row columns, then what they say of the
    message that each row came from.
    """
    return pa.schema(
        [*(pa.field(f.name, f.type, f.nullable) for f in rows), *fields(metadata)[:-1]]
    )


def whole_schema(rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """The columns of a table whose rows are appended: the rows', the metadata columns,
    the window's last.
    """
    return file_schema(rows, metadata).append(
        pa.field(metadata["window"], pa.string(), nullable=False)
    )


def refuse_unstorable(
    rows: pa.Schema,
    metadata: Mapping[str, str],
    holds: Callable[[pa.DataType], bool],
    where: str,
    do: str = "",
    more: Iterable[str] = (),
) -> None:
    """Refuse columns that a kind of table can't give back as they are, and metadata
    columns that can't stand beside the rows'.

    Args:
        rows: the rows' columns.
        metadata: windrow's own, by name.
        holds: whether the kind gives back the values of a type.
        where: what the table is, behind "can't be written".
        do: what else a user may do.
        more: what else is wrong with them.

    Raises:
        SpecError: naming every such column, and what to do.
    """
    refuse_wrong(rows.names, metadata)
    lower = [name.lower() for name in rows.names]
    wrong = [
        f"{name}: the name is used twice (case doesn't count)"
        for name in sorted({n for n in lower if lower.count(n) > 1})
    ]
    wrong += [
        f"{field.name}: {field.type}"
        for field in file_schema(rows, metadata)
        if not holds(field.type)
    ]
    wrong += [*more] if rows.names else ["there are no columns"]
    if wrong:
        what = f"the columns can't be written {where}: " + "; ".join(wrong)
        take = (
            "take signed integers, floats, bool, string, binary, date32, decimal128 or"
            " timestamp[us]."
        )
        raise SpecError(what, "spec", f"{do} {take}" if do else take.capitalize())


def is_scalar(kind: pa.DataType) -> bool:
    """Whether a type without parts, but for timestamps, is one that every kind of table holds."""
    return any(test(kind) for test in _SCALARS)


def fitted(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows with exactly these columns: what a file doesn't have, for it was written
    before there was such a column, is null.
    """
    names = rows.schema.names
    arrays = [
        rows.column(f.name).cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type)
        for f in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def inner_difference(there: pa.Field, here: pa.Field) -> str:
    """Where two nested columns differ: the paths inside them, each with what is there
    in the table and in the schema; else nothing.
    """
    return (
        "; ".join(_inside(there.name, there, here))
        if pa.types.is_nested(there.type) and pa.types.is_nested(here.type)
        else ""
    )


def _inside(path: str, there: pa.Field | None, here: pa.Field | None) -> Iterator[str]:
    """`[]` stands for the elements of a list, `{key}` and `{value}` for those of a map."""
    if (
        there is None
        or here is None
        or there.type.id != here.type.id
        or not pa.types.is_nested(there.type)
    ):
        if (
            there is None
            or here is None
            or (there.type, there.nullable) != (here.type, here.nullable)
        ):
            yield f"{path}: {_told(there)} in the table, {_told(here)} in the schema"
        return
    if there.nullable != here.nullable:
        yield (
            f"{path}: {'nullable' if there.nullable else 'not null'} in the table, and not so in"
            " the schema"
        )
    if pa.types.is_struct(there.type):
        had, has = ({f.name: f for f in kind} for kind in (there.type, here.type))
        for name in dict.fromkeys([*had, *has]):
            yield from _inside(f"{path}.{name}", had.get(name), has.get(name))
    elif pa.types.is_map(there.type):
        yield from _inside(f"{path}{{key}}", there.type.key_field, here.type.key_field)
        yield from _inside(f"{path}{{value}}", there.type.item_field, here.type.item_field)
    else:
        yield from _inside(f"{path}[]", there.type.value_field, here.type.value_field)


def _told(field: pa.Field | None) -> str:
    return (
        "nothing"
        if field is None
        else f"{field.type}"
        if field.nullable
        else f"{field.type} not null"
    )
