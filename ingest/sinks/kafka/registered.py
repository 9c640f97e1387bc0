"""A key or a value whose schema is a registry's: Avro or Protobuf behind Confluent's header.

That is a byte 0, the schema's number in four bytes, and of Protobuf the way to the
message within its file: of the first one a byte 0.
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
"""A row with something that a format can't say though its columns can, and what that is."""


class _Encoding(msgspec.Struct, frozen=True):
    """`name`: for people; `kind`: for the registry; `way`: what stands behind the number.

    The rest is what the format's module has.
    """

    name: str
    kind: SchemaKind
    schema_text: Callable[[pa.Schema, str], str]
    records: Callable[[Sequence[tuple[pa.Array, bool]], bytes], pa.BinaryArray]
    misfit: Callable[[Mapping[str, pa.Array]], Misfit | None] = lambda _columns: None
    way: bytes = b""


_ENCODINGS: Mapping[RegisteredFormat, _Encoding] = {
    "avro-confluent": _Encoding("Avro", "AVRO", avro.schema_text, avro.records),
    "protobuf-confluent": _Encoding(
        "Protobuf", "PROTOBUF", protobuf.schema_text, protobuf.records, protobuf.misfit, b"\x00"
    ),
}


class RegisteredPart(msgspec.Struct, frozen=True):
    """A record, or a Protobuf message, with a field for each column.

    `record`: its full name. `register`: whether a registry that doesn't have the schema
    is given it. `schema_id`: what the registry calls the schema; None: it wasn't asked
    yet, and nothing can be encoded. `required`: the columns that are never null by that
    schema.
    """

    format: RegisteredFormat
    columns: tuple[str, ...]
    record: str
    subjects: Subjects
    register: bool = True
    schema_id: int | None = None
    required: tuple[str, ...] = ()

    def schema_of(self, rows: pa.Schema) -> str:
        """The text of the schema for rows of these columns.

        Raises:
            SpecError: the format has no counterpart for a column.
        """
        encoding = _ENCODINGS[self.format]
        try:
            return encoding.schema_text(
                pa.schema([rows.field(name) for name in self.columns]), self.record
            )
        except NoCounterpartError as error:
            do = (
                f"Leave it out by sink.{self.subjects.part}.columns, have a transform change it, or"
                " write json."
            )
            raise SpecError(
                f"The sink's {self.subjects.part} can't be {encoding.name}: {error}", "setup", do
            ) from None

    def registered(
        self, rows: pa.Schema, topics: Sequence[str], registry: Registry | None
    ) -> RegisteredPart:
        """The same with the number that the registry has for the schema.

        A registry never changes a schema's number, so an attempt that is made again
        writes the same bytes. One that was set up anew may have another number: then a
        window of which a split is published is refused, like one that has other rows.

        Raises:
            SpecError: the registry doesn't have the schema, or doesn't take it; or it
                has different numbers for different topics.
            UnreachableError: it doesn't answer.
        """
        registry, subjects = _asked(registry), self._subjects(topics)
        text, kind = self.schema_of(rows), _ENCODINGS[self.format].kind
        ids = {registry.id_of(subject, text, kind, register=self.register) for subject in subjects}
        if len(ids) > 1:
            what = (
                "The schema registry has different ids for one schema under the subjects"
                f" {', '.join(subjects)}"
            )
            raise SpecError(
                what,
                "setup",
                "Make a pipeline for each topic, or set subject_name_strategy: record.",
            )
        required = tuple(name for name in self.columns if not rows.field(name).nullable)
        return msgspec.structs.replace(self, schema_id=ids.pop(), required=required)

    def refuse_unregistrable(
        self, rows: pa.Schema, topics: Sequence[str], registry: Registry | None
    ) -> None:
        """See that `registered` would work; nothing is registered.

        Whether the client may register is told by the first window only.

        Raises:
            SpecError, UnreachableError: as `registered`.
        """
        if not self.register:
            self.registered(rows, topics, registry)
            return
        text, kind = self.schema_of(rows), _ENCODINGS[self.format].kind
        for subject in self._subjects(topics):
            _asked(registry).refuse_incompatible(subject, text, kind)

    def _subjects(self, topics: Sequence[str]) -> list[str]:
        return sorted({subject for topic in topics for subject in self.subjects.of(topic)})

    def misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """The rows that the format has no message for, and why."""
        encoding = _ENCODINGS[self.format]
        found = encoding.misfit({name: batch[name] for name in self.columns})
        return (
            None
            if found is None
            else (
                found[0],
                f"the {self.subjects.part} of a row can't be {encoding.name}: {found[1]}",
            )
        )

    def encoded(self, batch: pa.RecordBatch) -> pa.Array:
        """One of these for each row.

        Where a required column is null, as of a row that says no more than its key, it may be null.
        """
        if self.schema_id is None:
            raise BugError(
                "rows were to be encoded before their schema was registered",
                "stage",
                "Report a bug in the Kafka sink.",
            )
        encoding = _ENCODINGS[self.format]
        columns = [(batch[name], name not in self.required) for name in self.columns]
        return encoding.records(columns, b"\x00" + self.schema_id.to_bytes(4, "big") + encoding.way)


def _asked(registry: Registry | None) -> Registry:
    if registry is None:
        raise BugError(
            "a format that asks a schema registry has none",
            "setup",
            "Report a bug: the spec should have been refused.",
        )
    return registry
