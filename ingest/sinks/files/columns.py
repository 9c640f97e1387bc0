"""What a table of files holds: which types, by format, and what becomes of its columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from windrow.ingest.errors import SchemaChangedError
from windrow.ingest.sinks.columns import is_scalar, refuse_unstorable
from windrow.ingest.sinks.files.manifest import ColumnText

Format = Literal["parquet", "jsonl", "csv"]

_NESTED = (pa.types.is_list, pa.types.is_struct, pa.types.is_map)


def check_rows(rows: pa.Schema, metadata: Mapping[str, str], written: Format) -> None:
    """Refuse columns that files of a format couldn't give back
    (`sinks.columns.refuse_unstorable`).
    """
    do: Mapping[Format, str] = {
        "csv": "Lists, structs and maps go with format: parquet or jsonl;",
        "jsonl": (
            "Give the fields of a struct names that differ by more than case, or take format:"
            " parquet;"
        ),
    }
    refuse_unstorable(
        rows,
        metadata,
        lambda kind: _storable(kind, written),
        f"as {written} files",
        do.get(written, ""),
    )


def _storable(kind: pa.DataType, written: Format) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz in {"UTC", None}
    if any(test(kind) for test in _NESTED):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return (
            written != "csv"
            and bool(inner)
            and all(_storable(one, written) for one in inner)
            and not _told_by_case(kind, written)
        )
    return is_scalar(kind)


def _told_by_case(kind: pa.DataType, written: Format) -> bool:
    """Whether fields of a struct have one name but for case: DuckDB, which writes and
    reads JSON here, takes them for one.
    """
    names = [field.name.lower() for field in kind] if pa.types.is_struct(kind) else []
    return written == "jsonl" and len(set(names)) < len(names)


def in_words(schema: pa.Schema) -> tuple[ColumnText, ...]:
    """A schema as the log has it."""
    return tuple((field.name, str(field.type), field.nullable) for field in schema)


def columns_after(
    table: Sequence[ColumnText], wanted: Sequence[ColumnText], written: str, place: str
) -> tuple[ColumnText, ...]:
    """The table's columns once it has files with the wanted ones: what is new comes last.

    Columns that a table has and the wanted ones lack are no difference if they may be
    null: another process's schema is newer then.

    Raises:
        SchemaChangedError: they differ in more than new columns that may be null; in
            CSV, whose columns go by place, in anything.
    """
    have, want = (
        {name: (kind, nullable) for name, kind, nullable in columns} for columns in (table, wanted)
    )
    added = tuple(column for column in wanted if column[0] not in have)
    problems = [
        f"{name}: new, but not nullable ({_shape(kind, nullable)})"
        for name, kind, nullable in added
        if not nullable
    ]
    problems += [
        f"{name}: new ({_shape(kind, nullable)}), in a table of CSV files"
        for name, kind, nullable in added
        if written == "csv"
    ]
    problems += [
        f"{name}: in the table ({_shape(kind, nullable)}), not in the schema"
        for name, kind, nullable in table
        if name not in want and (not nullable or written == "csv")
    ]
    for name in want:
        if name in have and have[name] != want[name]:
            there, here = _shape(*have[name]), _shape(*want[name])
            problems += [*_differences(name, there, here)] or [_unlike(name, there, here)]
    if problems:
        what = f"the columns of the table {place} are not the schema's: " + "; ".join(problems)
        do = "Nothing was written. Set the schema back, or write to another path."
        raise SchemaChangedError(what, "setup", do)
    return (*table, *added)


def _differences(path: str, there: str, here: str) -> Iterator[str]:
    """Where two types differ, as paths with what is there: the log has types in words.

    See `ingest.sinks.columns.inner_difference`.
    """
    had, has = _inside(there), _inside(here)
    if had is None or has is None or had[0] != has[0]:
        if there != here:
            yield _unlike(path, there, here)
        return
    for name in dict.fromkeys([*had[1], *has[1]]):
        yield from _differences(
            f"{path}{name}", had[1].get(name, "nothing"), has[1].get(name, "nothing")
        )


def _unlike(path: str, there: str, here: str) -> str:
    return f"{path}: {there} in the table, {here} in the schema"


def _inside(kind: str) -> tuple[str, dict[str, str]] | None:
    """Of a nested type in words, which one it is, and what is in it by its place; None
    of any other.
    """
    nested = re.fullmatch(r"(struct|map|large_list|list)<(.*)>( not null)?", kind)
    if nested is None:
        return None
    pieces, depth = [""], 0
    for part in re.split(r"(, |[<>()\[\]])", nested[2]):
        depth += (part in {"<", "(", "["}) - (part in {">", ")", "]"})
        if part == ", " and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += part
    if nested[1] == "map":
        return f"map{nested[3]}", dict(zip(("{key}", "{value}"), pieces, strict=False))
    named = (piece.partition(": ") for piece in pieces)
    return f"{nested[1]}{nested[3]}", {
        f".{name}" if nested[1] == "struct" else "[]": inner for name, _, inner in named
    }


def _shape(kind: str, nullable: bool) -> str:
    return kind if nullable else f"{kind} not null"
