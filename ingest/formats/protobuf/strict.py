"""Strict decoder of one Protobuf message: Google's library parses it.

The compiled pass (`scan.py`) may only take messages that this decoder takes, too, and must read
the same values.

1. The inner messages of a large message are counted, because they might take too much memory
   (`budget.py`).
2. The library parses the whole message, or refuses it.
3. Required fields must be set.
4. A reader (`fields.py`) reads the values of the columns from the parsed message.

The library ignores a number of a closed enum that has no symbol: the field isn't set, or keeps
its earlier value. So the message is parsed as a type in which each enum is an int32, which has
the same bytes. The reader checks the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.protobuf.budget import SHARE, SMALL, exceeds_budget
from windrow.ingest.formats.protobuf.descriptors import forget_types
from windrow.ingest.formats.protobuf.fields import Absent, is_map, reader
from windrow.ingest.formats.shared.placeless import Placeless
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Columns

_MOST_NAMES = 80
"""Limit of the characters for the names of required fields in a dead letter."""


class StrictProtobuf:
    """Decodes one message at a time."""

    def __init__(self, kind: Any, columns: Columns, absent: Absent = "refused") -> None:
        """Makes the readers of the columns.

        Args:
            kind: the message type's descriptor.
            columns: the columns.
            absent: the treatment of columns without a field, see `fields.Absent`.

        Raises:
            SpecError: a column can't be read from the type, or the type contains too many
                types nested in each other.
        """
        # an extra, loaded where it is used
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError

        self._kind, self._placeless = kind, Placeless(columns, _inside)
        self.truncation = Truncation(columns.finer)
        self._read = reader(kind, columns, absent, self.truncation)
        try:
            self._parse = message_factory.GetMessageClass(_with_numbers_for_enums(kind)).FromString
        except RecursionError:
            # The library makes the classes of all types inside this type by recursion.
            forget_types()
            raise SpecError(
                f"The message type {kind.full_name} contains too many types nested in each other",
                "spec",
                "Take a type with at most some hundreds of types nested in it; nothing was read.",
            ) from None
        self._error = DecodeError

    def decode(self, message: bytes) -> list[Any]:
        if len(message) > SMALL and exceeds_budget(message, self._kind):
            raise RefusedValueError(
                "too_large",
                f"Expected inner messages of at most {SHARE} bytes for each byte of the message",
                "",
            )
        try:
            parsed = self._parse(message)
        except self._error:
            raise RefusedValueError(
                "not_protobuf", f"The bytes are no Protobuf message {self._kind.full_name}", ""
            ) from None
        if not parsed.IsInitialized():
            # FindInitializationErrors of protobuf 6.33 crashes the process on some messages
            # with maps, so the fields are checked one by one.
            names = [
                f.name for f in self._kind.fields if f.is_required and not parsed.HasField(f.name)
            ]
            missing = ", ".join(names)[:_MOST_NAMES] or "some of an inner message"
            raise RefusedValueError("missing", f"Message misses required fields: {missing}", "$")
        row = list(self._read(parsed, "$"))
        self.truncation.ignored = next(self.ignored_fields(message), None) is not None
        return row

    def ignored_fields(self, message: bytes) -> Iterator[str]:
        """Returns the paths of fields that no column is for, as `StrictWay` does.

        A field that the type doesn't have is named by its number.
        """
        return self._placeless((message, self._kind))


def _inside(value: Any, _names: object) -> Iterator[tuple[str | None, Any]]:
    """Yields the fields of a message, in the form of `placeless.Open`.

    The message is parsed as google.protobuf.Empty, which has no fields. So all of its fields
    are unknown fields, in the order of the bytes.

    Args:
        value: a pair of the message's bytes and its type, a list of such pairs, or None for
            a plain value.
    """
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    message, kind = value if isinstance(value, tuple) else (b"", None)
    if isinstance(value, list):
        yield from ((None, item) for item in value)
    for unknown_field in UnknownFieldSet(Empty.FromString(message)):
        field = None if kind is None else kind.fields_by_number.get(unknown_field.field_number)
        if field is None:
            yield str(unknown_field.field_number), None
            continue
        inner_type = field.message_type
        inner_values = (
            (unknown_field.data, inner_type)
            if inner_type is not None and isinstance(unknown_field.data, bytes)
            else None
        )
        yield (
            field.name,
            [inner_values] if field.is_repeated and not is_map(field) else inner_values,
        )


def _with_numbers_for_enums(kind: Any) -> Any:
    """Returns a copy of a message type in which each enum is an int32."""
    from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool  # an extra

    database, files = descriptor_database.DescriptorDatabase(), [kind.file]
    for file in files:
        files += [dependency for dependency in file.dependencies if dependency not in files]
        file_proto = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
        messages = list(file_proto.message_type)
        for message in messages:
            messages += message.nested_type
            for field in message.field:
                if field.type == field.TYPE_ENUM:
                    field.type = field.TYPE_INT32
                    field.ClearField("type_name")
                    field.ClearField("default_value")
        database.Add(file_proto)
    return descriptor_pool.DescriptorPool(database).FindMessageTypeByName(kind.full_name)
