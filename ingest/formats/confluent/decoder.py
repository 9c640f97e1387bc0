"""Messages that name the schemas they were written with -> rows and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import pyarrow as pa

from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.formats.confluent.frame import Frame, schema_ids
from windrow.ingest.formats.confluent.records import (
    OneOfSeveral,
    OtherRecord,
    RecordMachine,
    WrittenWith,
    record_of_subjects,
)
from windrow.ingest.formats.row_decoder import OnNull
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.ports.schemas import Foreseen, SchemaRegistry, Tell
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part

UnknownId = Literal["fail", "dead"]
OtherRecords = Literal["dead", "filter"]

MOST_VERSIONS = 100
"""Of a subject: so many of the newest are asked for when a window is planned; an older
one is asked for when a message names it.
"""


class Payloads(Protocol):
    """What lies behind the frames. Picklable."""

    @property
    def kind(self) -> str | None:
        """The kind of the schemas that it goes by; None if it goes by none."""

    @property
    def paths(self) -> bool:
        """Whether frames have a path."""

    def check(self, columns: Columns, /) -> None:
        """Refuse what no schema could become.

        Raises:
            SpecError: with each such column.
        """

    def records(self, schema: WriterSchema, /) -> list[frozenset[str]]:
        """The names, without namespaces, of each record that messages of a schema may be.

        Raises:
            SpecError: the schema can't be used.
        """

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordMachine | OtherRecord | OneOfSeveral:
        """What decodes messages with this frame.

        `records`: the names of those that are rows; none: that isn't known.

        Of a union of records, the path of the frame is which one of them it is.

        Raises:
            SpecError: the columns can't come from the schema.
        """


@dataclass(frozen=True)
class ConfluentDecoder:
    """Messages in one of Confluent's wire formats to the columns of a pandera model, one row a message.

    `on_null`: what a message without a value becomes; `unknown_id`: whether an id that
    the registry doesn't know refuses the window or the message; `part`: which of the
    model's columns the messages hold; `records`: the names of the records that are
    rows, none where the subjects of the topics say it; `other_records`: what messages
    of others become; `written_with`: which of the columns say what of the schema
    itself; `known`: schemas that needn't be asked for.
    """  # noqa: E501

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
        columns = self.part.of(Columns.of(model_now(self.model)[1]))
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
                " column without aliases and a default"
            )
            raise SpecError(what, "spec", do)
        if self.written_with and len(columns.columns) == len(self.written_with):
            do = (
                "Take one out of decode.written_with, or add the columns of the messages to the"
                " schema; nothing was read."
            )
            raise SpecError(
                "decode.written_with names all columns of the value: none is left for what the"
                " messages hold",
                "spec",
                do,
            )
        return columns

    def asking(self, registry: SchemaRegistry) -> ConfluentDecoder:
        """The same decoder with the registry that has its schemas."""
        return replace(self, registry=registry)

    def foreseen(self, topics: Sequence[str]) -> Foreseen:
        """The newest versions of the topics' subjects, and the record that they are of."""
        if self.payloads.kind is None:
            return Foreseen(self, [])
        subjects = dict.fromkeys(subject for topic in topics for subject in self.subjects.of(topic))
        found = {subject: self.asked.of_subject(subject, MOST_VERSIONS) for subject in subjects}
        schemas = [schema for of_subject in found.values() for schema in of_subject]
        if self.records:
            return Foreseen(self, schemas)
        setting = "decode.records" if self.subjects.part == "value" else "decode.key.records"
        records = {
            subject: [names for one in of_subject for names in self._records(one)]
            for subject, of_subject in found.items()
        }
        return Foreseen(replace(self, records=record_of_subjects(records, setting)), schemas)

    def _records(self, schema: WriterSchema) -> list[frozenset[str]]:
        """Of a schema that can't be used there are none: its messages are dead letters."""
        try:
            return self.payloads.records(schema) if schema.kind == self.payloads.kind else []
        except SpecError:
            return []

    def with_schemas(self, known: Sequence[WriterSchema]) -> ConfluentDecoder:
        return replace(self, known=tuple(known)) if self.payloads.kind is not None else self

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """What stands in front of the values, or in the header, whatever refused them."""
        del stages
        return schema_ids(messages, self.subjects.header, paths=self.payloads.paths)

    def open(self) -> Decode:
        """A thread's machines are kept until the model's file changes."""
        return self.open_telling(lambda _schema, _asked: None)

    def open_telling(self, tell: Tell) -> Decode:
        from windrow.ingest.formats.confluent.batch_decoder import (
            BatchDecoders,
            FramedBatchDecoder,
        )  # compiled code is loaded where it is used

        recipe = replace(self, known=())
        machines = built_of_model(
            recipe,
            self.model,
            lambda model: BatchDecoders(
                self.payloads, self.part.of(Columns.of(model)), self.records, self.written_with
            ),
        )
        self.payloads.check(machines.columns)
        return FramedBatchDecoder(self, machines, tell).decode

    @property
    def asked(self) -> SchemaRegistry:
        """The registry.

        Raises:
            BugError: nobody gave it one.
        """
        if self.registry is None:
            raise BugError(
                "A decoder was given no schema registry",
                "decode",
                "Nothing was committed. Report a bug.",
            )
        return self.registry
