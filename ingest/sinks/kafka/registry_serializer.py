"""Keys and values with a schema in a registry: Avro or Protobuf after Confluent's header.

The header is a zero byte and the schema's id in four bytes. For Protobuf, the position of the
message type within its file follows: a zero byte means the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.registry.client import Registry, SchemaKind, Subjects
from windrow.ingest.sinks.kafka import avro, protobuf
from windrow.ingest.sinks.kafka.byte_columns import NoCounterpartError

RegisteredFormat = Literal["avro-confluent", "protobuf-confluent"]

Misfit = tuple[npt.NDArray[np.int64], str]
"""Numbers of rows with a value that a format can't write, and a sentence about the value."""


class _Encoding(msgspec.Struct, frozen=True):
    """A format with a schema in a registry.

    Attributes:
        name: the format's name in messages.
        kind: the format's name in the registry.
        schema_text: the function of that name in the format's module.
        records: the function of that name in the format's module.
        misfit: the function of that name in the format's module, if it has one.
        after_id: the bytes between the schema's id and the record.
    """

    name: str
    kind: SchemaKind
    schema_text: Callable[[pa.Schema, str], str]
    records: Callable[[Sequence[tuple[pa.Array, bool]], bytes], pa.BinaryArray]
    misfit: Callable[[Mapping[str, pa.Array]], Misfit | None] = lambda _columns: None
    after_id: bytes = b""


_ENCODINGS: Mapping[RegisteredFormat, _Encoding] = {
    "avro-confluent": _Encoding("Avro", "AVRO", avro.schema_text, avro.records),
    "protobuf-confluent": _Encoding(
        "Protobuf", "PROTOBUF", protobuf.schema_text, protobuf.records, protobuf.misfit, b"\x00"
    ),
}


class RegistrySerializer(msgspec.Struct, frozen=True):
    """Makes keys or values as Avro records or Protobuf messages, with a field per column.

    Attributes:
        format: the format.
        columns: the columns that are written.
        record: the full name of the record.
        subjects: the registry's subjects of the schema.
        register: True if the schema is registered when the registry doesn't have it.
        schema_id: the schema's id in the registry; None until `registered` asks for it. No
            row can be encoded before.
        required: the columns that may not be null by the schema.
    """

    format: RegisteredFormat
    columns: tuple[str, ...]
    record: str
    subjects: Subjects
    register: bool = True
    schema_id: int | None = None
    required: tuple[str, ...] = ()

    def schema_of(self, rows: pa.Schema) -> str:
        """Returns the text of the schema for rows with these columns.

        Raises:
            SpecError: the format has no type for a column.
        """
        encoding = _ENCODINGS[self.format]
        try:
            return encoding.schema_text(
                pa.schema([rows.field(name) for name in self.columns]), self.record
            )
        except NoCounterpartError as error:
            raise SpecError(
                f"The sink's {self.subjects.part} can't be written as {encoding.name}: {error}",
                "setup",
                f"Leave the column out by sink.{self.subjects.part}.columns, change it by a"
                " transform, or write json.",
            ) from None

    def registered(
        self, rows: pa.Schema, topics: Sequence[str], registry: Registry | None
    ) -> RegistrySerializer:
        """Returns the serializer with the schema's id in the registry.

        A registry never changes a schema's id, so another attempt writes the same bytes. A
        registry that was set up again may have another id. If a split of a window was
        published with the old id, the window is refused, like a window with other rows.

        Raises:
            SpecError: the registry doesn't have the schema, or refuses it, or has
                different ids for different topics.
            UnreachableError: the registry doesn't answer.
        """
        registry, subjects = _require_registry(registry), self._subjects(topics)
        text, kind = self.schema_of(rows), _ENCODINGS[self.format].kind
        ids = {registry.id_of(subject, text, kind, register=self.register) for subject in subjects}
        if len(ids) > 1:
            raise SpecError(
                "The schema registry has different ids for one schema under the subjects"
                f" {', '.join(subjects)}",
                "setup",
                "Make a pipeline for each topic, or set subject_name_strategy: record.",
            )
        required = tuple(name for name in self.columns if not rows.field(name).nullable)
        return msgspec.structs.replace(self, schema_id=ids.pop(), required=required)

    def refuse_unregistrable(
        self, rows: pa.Schema, topics: Sequence[str], registry: Registry | None
    ) -> None:
        """Checks that `registered` would work, without registering a schema.

        Only the first window shows whether the client has the right to register.

        Raises:
            SpecError, UnreachableError: see `registered`.
        """
        if not self.register:
            self.registered(rows, topics, registry)
            return
        text, kind = self.schema_of(rows), _ENCODINGS[self.format].kind
        for subject in self._subjects(topics):
            _require_registry(registry).refuse_incompatible(subject, text, kind)

    def _subjects(self, topics: Sequence[str]) -> list[str]:
        return sorted({subject for topic in topics for subject in self.subjects.of(topic)})

    def misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """Returns the rows that the format can't write."""
        encoding = _ENCODINGS[self.format]
        mismatch = encoding.misfit({name: batch[name] for name in self.columns})
        if mismatch is None:
            return None
        rows, reason = mismatch
        return (
            rows,
            f"the {self.subjects.part} of a row can't be written as {encoding.name}: {reason}",
        )

    def encoded(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the bytes of each row.

        The bytes may be null if a required column is null, as in a deleted row.
        """
        if self.schema_id is None:
            raise BugError(
                "rows were encoded before the id of their schema was known",
                "stage",
                "Report a bug in the Kafka sink.",
            )
        encoding = _ENCODINGS[self.format]
        columns = [(batch[name], name not in self.required) for name in self.columns]
        return encoding.records(
            columns, b"\x00" + self.schema_id.to_bytes(4, "big") + encoding.after_id
        )


def _require_registry(registry: Registry | None) -> Registry:
    if registry is None:
        raise BugError(
            "a format that needs a schema registry has none",
            "setup",
            "Report a bug: the spec should have been refused.",
        )
    return registry
