"""Which columns can't come from a schema of a registry, by what judges it when messages
are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.json_schema import json_offers
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.columns import Columns

_TEXTS = (pa.types.is_string, pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp)
_TAKES: Sequence[tuple[Callable[[pa.DataType], bool], Sequence[Callable[[pa.DataType], bool]]]] = (
    (pa.types.is_string, _TEXTS),
    (pa.types.is_timestamp, _TEXTS),
    (pa.types.is_date, _TEXTS),
    (pa.types.is_integer, _NUMBERS),
    (pa.types.is_floating, _NUMBERS),
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_list, (pa.types.is_list,)),
    (pa.types.is_struct, (pa.types.is_struct, pa.types.is_map)),
    (pa.types.is_map, (pa.types.is_map, pa.types.is_struct)),
)
"""Of what a JSON Schema says, the columns that may take it; what coercion takes besides
is no misfit either.
"""


def misfits(schema: WriterSchema, path: Sequence[int], columns: Columns) -> dict[str, str]:
    """The columns that a field has the name of and can't become, and why.

    `path`: of a Protobuf schema, which message is meant.

    Raises:
        SpecError: it can't be read.
    """
    if schema.kind == "AVRO":
        return _by_avro(schema, columns)
    if schema.kind == "PROTOBUF":
        return _by_protobuf(schema, path, columns)
    return _by_json(schema, columns)


def _each(
    columns: Columns, names: Collection[str], judge: Callable[[Columns], object]
) -> dict[str, str]:
    """What is said of each of the columns alone whose names there are."""
    wrong: dict[str, str] = {}
    for column in columns.columns:
        try:
            judge(Columns((column,) if column.name in names else ()))
        except SpecError as error:
            wrong[column.name] = error.what.partition(": ")[2]
    return wrong


def _by_avro(schema: WriterSchema, columns: Columns) -> dict[str, str]:
    from windrow.ingest.formats.avro.fit import (
        check,
    )  # each kind is loaded where it is asked for
    from windrow.ingest.formats.avro.resolve import resolved  # as above
    from windrow.ingest.formats.avro.schema import AvroSchema  # as above
    from windrow.ingest.infer.avro import roots_of  # as above

    def judge(written: AvroSchema, one: Columns) -> None:
        check(resolved(written, one), one)

    only = columns.columns[0].name if len(columns.columns) == 1 else None
    wrong: dict[str, str] = {}
    for written in roots_of(schema, only):
        wrong |= _each(columns, dict(written.records[written.root].fields), partial(judge, written))
    return wrong


def _by_protobuf(schema: WriterSchema, path: Sequence[int], columns: Columns) -> dict[str, str]:
    from windrow.ingest.formats.protobuf.fields import readers  # as above
    from windrow.ingest.infer.protobuf import message_of  # as above

    kind = message_of(schema, path)
    return _each(columns, kind.fields_by_name, lambda one: readers(kind, one, "null"))


def _by_json(schema: WriterSchema, columns: Columns) -> dict[str, str]:
    """A JSON Schema judges no message, and says little of texts: so only what can never be."""
    said = {offer.name: offer.guess.type for offer in json_offers(schema)}
    return {
        column.name: f"{column.name}: what becomes {kind} can't become {column.type}"
        for column in columns.columns
        if (kind := said.get(column.name)) is not None and not _takes(kind, column.type)
    }


def _takes(said: pa.DataType, column: pa.DataType) -> bool:
    return any(test(column) for of, tests in _TAKES if of(said) for test in tests)
