"""Conversion of column values to the contents of headers, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.kit import json_texts, parse_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def header_texts(column: pa.Array) -> pa.Array:
    """Writes each value as the bytes of a header.

    Text and bytes are written as they are, instants in epoch milliseconds, and all other
    values as JSON.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if kind in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}:
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    texts = json_texts(column).cast(pa.binary())
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.binary()))


def from_header(content: bytes | None, kind: pa.DataType) -> Any:
    """Converts the content of a header into a value that Arrow accepts for a type.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the content isn't of the type.
    """
    if content is None or pa.types.is_binary(kind):
        return content
    text = content.decode()
    if pa.types.is_string(kind):
        return text
    if pa.types.is_timestamp(kind):
        return _EPOCH + timedelta(milliseconds=int(text))
    return parse_json(text, kind)
