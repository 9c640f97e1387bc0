"""Decoder of messages whose values are in codecs: `gzip`, `base64` and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from windrow.ingest.formats.shared.codecs import open_codecs
from windrow.ingest.formats.shared.decoded import DeadLetters, together
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.ports.decoder import Decode, Decoded, Decoder
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_fields import Codec

_CHUNK = 64 << 20
"""Bytes of opened values that are decoded together."""

OpenValue = Callable[[bytes], bytes]
"""Returns what is in a value; raises RefusedValueError if it can't be opened."""


@dataclass(frozen=True)
class CodecDecoder:
    """Opens the codecs of values before another decoder decodes them.

    Attributes:
        inner: decodes what is in the codecs.
        codecs: the codecs, the outermost first.
    """

    inner: Decoder
    codecs: tuple[Codec, ...]

    @property
    def columns(self) -> Columns:
        return self.inner.columns

    def open(self) -> Decode:
        decode = self.inner.open()
        return lambda messages: decode_opened(
            messages, decode, lambda value: open_codecs(value, self.codecs)
        )


def decode_opened(messages: pa.RecordBatch, decode: Decode, open_value: OpenValue) -> Decoded:
    """Decodes messages whose values have to be opened first.

    Args:
        messages: the messages.
        decode: decodes messages with opened values.
        open_value: opens a value, or refuses it.
    """
    dead = DeadLetters()
    value_index = messages.schema.get_field_index("value")
    parts = []
    for index, values in _opened_chunks(messages.column("value"), open_value, dead):
        numbers = pa.array(index, pa.int64())
        chunk = messages.take(numbers).set_column(
            value_index, messages.schema.field(value_index), pa.array(values, pa.binary())
        )
        parts.append(decode(chunk).renumber(numbers))
    schema, deletes = parts[0].rows.schema, parts[0].deletes
    key = None if deletes is None else deletes.keys.schema.names
    return together(schema, [*parts, dead.verdict(schema)], key)


def _opened_chunks(
    values: pa.BinaryArray, open_value: OpenValue, dead: DeadLetters
) -> Iterator[tuple[list[int], list[bytes | None]]]:
    """Yields the numbers and the opened values of messages, at least once."""
    index, opened, size = list[int](), list[bytes | None](), 0
    for number, scalar in enumerate(values):
        value = scalar.as_py()
        try:
            value = None if value is None else open_value(value)
        except RefusedValueError as refusal:
            dead.add(number, refusal)
            continue
        index.append(number)
        opened.append(value)
        size += len(value or b"")
        if size > _CHUNK:
            yield index, opened
            index, opened, size = [], [], 0
    yield index, opened
