"""The column types that files of each format can give back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from windrow.ingest.sinks.columns import is_scalar, refuse_unstorable

Format = Literal["parquet", "jsonl", "csv"]

_NESTED = (pa.types.is_list, pa.types.is_struct, pa.types.is_map)


def check_rows(rows: pa.Schema, metadata: Mapping[str, str], written: Format) -> None:
    """Refuses columns whose values files of a format couldn't give back.

    Raises:
        SpecError: naming every such column (`sinks.columns.refuse_unstorable`).
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
            and not _differ_only_in_case(kind, written)
        )
    return is_scalar(kind)


def _differ_only_in_case(kind: pa.DataType, written: Format) -> bool:
    """Returns whether names of a struct's fields differ only in case.

    DuckDB, which writes and reads JSON here, takes such fields for one.
    """
    names = [field.name.lower() for field in kind] if pa.types.is_struct(kind) else []
    return written == "jsonl" and len(set(names)) < len(names)
