"""Decoder of messages that name the schemas they were written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import pyarrow as pa

from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.formats.confluent.frame import Frame, schema_ids
from windrow.ingest.formats.confluent.records import (
    OneOfSeveral,
    OtherRecord,
    RecordDecoder,
    WrittenWith,
    record_of_subjects,
)
from windrow.ingest.formats.row_decoder import OnNull
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.ports.schemas import OnSchema, PreparedDecoder, SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, load_model
from windrow.ingest.schema.part import WHOLE, Part

UnknownId = Literal["fail", "dead"]
OtherRecords = Literal["dead", "filter"]

MOST_VERSIONS = 100
"""Number of a subject's newest versions that are asked for when a window is planned.

An older version is asked for when a message names its schema.
"""


class Payloads(Protocol):
    """Kind of the payloads after the frames. Picklable."""

    @property
    def kind(self) -> str | None:
        """Kind of the schemas that the payloads are decoded by; None: they need no schema."""

    @property
    def paths(self) -> bool:
        """True if frames have a path."""

    def check(self, columns: Columns, /) -> None:
        """Refuses columns that can't be read from any schema.

        Raises:
            SpecError: names each such column, or says what isn't installed.
        """

    def records(self, schema: WriterSchema, /) -> list[frozenset[str]]:
        """Returns for each record that a schema's messages may be of its names.

        They are without namespaces.

        Raises:
            SpecError: the schema can't be used.
        """

    def misfits(
        self, schema: WriterSchema, path: Sequence[int], columns: Columns, document: Any
    ) -> dict[str, str]:
        """Returns why columns can't come from the schema's fields of their names; others can.

        `path`: the path of the message in a Protobuf schema; `document`: one that has all of
        a JSON Schema, by which payloads in JSON are judged. Columns without a field are none
        of its matter.

        Raises:
            SpecError: the schema can't be used.
        """

    def batch_decoder(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordDecoder | OtherRecord | OneOfSeveral:
        """Makes the decoder of messages with this frame.

        `schema`: the schema that the frame names; None if the payloads need no schema.
        `records`: the names of the records that are rows; empty: it isn't known.

        If the schema is a union of records, a frame without a path gives `OneOfSeveral`;
        then the decoder is asked for again, with the number of a record as the path.

        Raises:
            SpecError: the columns can't be read from the schema.
        """


@dataclass(frozen=True)
class ConfluentDecoder:
    """Decodes messages in one of Confluent's wire formats, one row each.

    - `model`: the pandera model that has the columns; `part`: which of them are read
      from these messages.
    - `payloads`: the kind of the payloads; `subjects`: the subjects of their schemas.
    - `on_null`: what a message without a value becomes.
    - `unknown_id`: "fail" refuses the window if the registry doesn't know an id, "dead"
      only the message.
    - `records`: the names of the records that are rows; empty: the subjects say them.
    - `other_records`: what messages of other records become.
    - `written_with`: the columns that have something of the schema itself.
    - `registry`: the registry to ask for schemas; `known`: schemas that needn't be asked
      for.
    """

    model: ModelReference
    payloads: Payloads
    subjects: Subjects
    on_null: OnNull = "dead"
    unknown_id: UnknownId = "dead"
    part: Part = WHOLE
    records: tuple[str, ...] = ()
    other_records: OtherRecords = "dead"
    written_with: tuple[tuple[str, WrittenWith], ...] = ()
    registry: SchemaRegistry | None = None
    known: tuple[WriterSchema, ...] = ()

    @property
    def columns(self) -> Columns:
        columns = self.part.of(Columns.of(load_model(self.model)))
        self.payloads.check(columns)
        texts = {
            c.name
            for c in columns.columns
            if c.type == pa.string() and not c.aliases and c.default is None
        }
        wrong = [name for name, _ in self.written_with if name not in texts]
        if wrong:
            do = "Add it to the schema, or take it out of decode.written_with; nothing was read."
            what = (
                f"decode.written_with names {', '.join(wrong)}: the schema has no such String"
                " column without aliases and without a default"
            )
            raise SpecError(what, "spec", do)
        if self.written_with and len(columns.columns) == len(self.written_with):
            do = (
                "Take one out of decode.written_with, or add the columns of the messages to the"
                " schema; nothing was read."
            )
            raise SpecError(
                "decode.written_with names all columns of the value: none is left for the fields"
                " of the messages",
                "spec",
                do,
            )
        return columns

    def asking(self, registry: SchemaRegistry) -> ConfluentDecoder:
        """Returns this decoder with the registry that has its schemas."""
        return replace(self, registry=registry)

    def prepared(self, topics: Sequence[str]) -> PreparedDecoder:
        """Asks for the newest versions of the topics' subjects, and finds their record."""
        if self.payloads.kind is None:
            return PreparedDecoder(self, [])
        subjects = dict.fromkeys(subject for topic in topics for subject in self.subjects.of(topic))
        versions = {subject: self.asked.of_subject(subject, MOST_VERSIONS) for subject in subjects}
        schemas = [schema for of_subject in versions.values() for schema in of_subject]
        if self.records:
            return PreparedDecoder(self, schemas)
        setting = "decode.records" if self.subjects.part == "value" else "decode.key.records"
        records = {
            subject: [names for one in of_subject for names in self._records(one)]
            for subject, of_subject in versions.items()
        }
        return PreparedDecoder(replace(self, records=record_of_subjects(records, setting)), schemas)

    def _records(self, schema: WriterSchema) -> list[frozenset[str]]:
        """Returns the names of a schema's records.

        A schema that can't be used has none: its messages will be dead letters.
        """
        try:
            return self.payloads.records(schema) if schema.kind == self.payloads.kind else []
        except SpecError:
            return []

    def with_schemas(self, known: Sequence[WriterSchema]) -> ConfluentDecoder:
        return replace(self, known=tuple(known)) if self.payloads.kind is not None else self

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """Reads the ids from the frames, whichever stage refused the messages."""
        del stages
        return schema_ids(messages, self.subjects.header, paths=self.payloads.paths)

    def open(self) -> Decode:
        """Opens the decoder. A thread keeps its batch decoders until the model's file changes."""
        return self.open_reporting(lambda _schema, _asked: None)

    def open_reporting(self, on_schema: OnSchema) -> Decode:
        # compiled code is loaded where it is used
        from windrow.ingest.formats.confluent.batch_decoder import (
            BatchDecoders,
            FramedBatchDecoder,
        )

        recipe = replace(self, known=())
        batch_decoders = built_of_model(
            recipe,
            self.model,
            lambda model: BatchDecoders(
                self.payloads, self.part.of(Columns.of(model)), self.records, self.written_with
            ),
        )
        self.payloads.check(batch_decoders.columns)
        return FramedBatchDecoder(self, batch_decoders, on_schema).decode

    @property
    def asked(self) -> SchemaRegistry:
        """Registry to ask.

        Raises:
            BugError: `asking` wasn't called.
        """
        if self.registry is None:
            raise BugError(
                "A decoder was given no schema registry",
                "decode",
                "Nothing was committed. Report a bug.",
            )
        return self.registry
