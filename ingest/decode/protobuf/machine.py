"""What a recipe for Protobuf builds: each message is judged alone, by Protobuf's own library, then read into the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ingest.decode.protobuf.fields import readers
from ingest.decode.protobuf.weight import SMALL, is_too_heavy
from ingest.decode.shared.machine import Machine, Taken
from ingest.decode.shared.refusal import RefusedValueError
from ingest.schema.columns import Columns

_MOST_NAMES = 80
"""Characters of the paths of required fields that are told."""


class StrictProtobuf:
    """Decodes one message at a time."""

    def __init__(self, kind: Any, columns: Columns) -> None:
        from google.protobuf import message_factory  # noqa: PLC0415  # an extra, loaded where it is used
        from google.protobuf.message import DecodeError  # noqa: PLC0415  # as above

        self._kind = kind
        self._readers = readers(kind, columns)
        self._parse = message_factory.GetMessageClass(kind).FromString
        self._error = DecodeError

    def decode(self, message: bytes) -> list[Any]:
        """The values of the columns, in order, as pyarrow takes them.

        Raises:
            RefusedValueError: with the reason.
        """
        if len(message) > SMALL and is_too_heavy(message, self._kind):
            raise RefusedValueError("too_large", "Expected messages inside that fit into 32 bytes a byte of the message", "")
        try:
            parsed = self._parse(message)
        except self._error:
            raise RefusedValueError("not_protobuf", f"Protobuf is malformed, as a {self._kind.full_name}", "") from None
        if not parsed.IsInitialized():
            names = ", ".join(parsed.FindInitializationErrors())[:_MOST_NAMES]
            raise RefusedValueError("missing", f"Message misses required fields: {names}", "$")
        return [read(parsed, "$") for read in self._readers]


class NoPass:
    """No fast way: it takes nothing."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """Nothing of the messages."""
        return Taken(np.zeros(len(messages), np.bool_), [pa.array([], field.type) for field in self._schema])


def protobuf_machine(kind: Any, columns: Columns) -> Machine:
    """The machine for a type and columns."""
    return Machine(columns.arrow_schema, NoPass(columns.arrow_schema), StrictProtobuf(kind, columns))
