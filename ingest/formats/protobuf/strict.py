"""The truth about one message: Protobuf's own library, and the columns of what it has parsed."""

from __future__ import annotations

from typing import Any

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.protobuf.descriptors import forget_types
from windrow.ingest.formats.protobuf.fields import Absent, readers
from windrow.ingest.formats.protobuf.weight import SMALL, is_too_heavy
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Columns

_MOST_NAMES = 80
"""Characters of the names of required fields in a dead letter."""


class StrictProtobuf:
    """Decodes one message at a time."""

    def __init__(self, kind: Any, columns: Columns, absent: Absent = "refused") -> None:
        from google.protobuf import (
            message_factory,
        )  # an extra, loaded where it is used
        from google.protobuf.message import DecodeError  # as above

        self._kind = kind
        self.truncation = Truncation(columns.finer)
        self._readers = readers(kind, columns, absent, self.truncation)
        try:
            self._parse = message_factory.GetMessageClass(kind).FromString
        except RecursionError:  # it makes the classes of all types that a type leads to, each from within the one before  # noqa: E501
            forget_types()
            what = (
                f"The message type {kind.full_name} leads through too many others, one in another"
            )
            raise SpecError(
                what,
                "spec",
                "Take a type that leads through some hundreds at most; nothing was read.",
            ) from None
        self._error = DecodeError

    def decode(self, message: bytes) -> list[Any]:
        """The values of the columns, in order, as pyarrow takes them.

        Raises:
            RefusedValueError: with the reason.
        """
        if len(message) > SMALL and is_too_heavy(message, self._kind):
            raise RefusedValueError(
                "too_large",
                "Expected messages inside that fit into 32 bytes a byte of the message",
                "",
            )
        try:
            parsed = self._parse(message)
        except self._error:
            raise RefusedValueError(
                "not_protobuf", f"Protobuf is malformed, as a {self._kind.full_name}", ""
            ) from None
        if not parsed.IsInitialized():
            # Not by FindInitializationErrors: of protobuf 6.33 it crashes the process
            # on some messages with maps.
            names = [
                f.name for f in self._kind.fields if f.is_required and not parsed.HasField(f.name)
            ]
            told = ", ".join(names)[:_MOST_NAMES] or "some of a message inside"
            raise RefusedValueError("missing", f"Message misses required fields: {told}", "$")
        return [read(parsed, "$") for read in self._readers]
