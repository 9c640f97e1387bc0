"""A key or a value whose schema is a registry's: Avro behind Confluent's header, a byte 0 and the schema's number in four bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import pyarrow as pa

from ingest.errors import BugError, SpecError
from ingest.registry.client import Registry
from ingest.registry.subjects import Subjects
from ingest.sinks.kafka.avro import NotAvroError, records, schema_text


class AvroPart(msgspec.Struct, frozen=True):
    """A record with a field for each column.

    `record`: its full name. `register`: whether a registry that doesn't have the schema is given it. `schema_id`: what the registry calls
    the schema; None: it wasn't asked yet, and nothing can be encoded. `required`: the columns that are never null by that schema.
    """

    columns: tuple[str, ...]
    record: str
    subjects: Subjects
    register: bool = True
    schema_id: int | None = None
    required: tuple[str, ...] = ()

    @property
    def format(self) -> Literal["avro-confluent"]:
        """As a spec says it."""
        return "avro-confluent"

    def schema_of(self, rows: pa.Schema) -> str:
        """The text of the schema for rows of these columns.

        Raises:
            SpecError: a column can't be in an Avro record.
        """
        try:
            return schema_text(pa.schema([rows.field(name) for name in self.columns]), self.record)
        except NotAvroError as error:
            do = f"Leave it out by sink.{self.subjects.part}.columns, have a transform change it, or write json."
            raise SpecError(f"The sink's {self.subjects.part} can't be Avro: {error}", "setup", do) from None

    def registered(self, rows: pa.Schema, topics: Sequence[str], registry: Registry | None) -> AvroPart:
        """The same with the number that the registry has for the schema.

        A registry never changes a schema's number, so an attempt that is made again writes the same bytes. One that was set up anew may
        have another number: then a window of which a split is published is refused, like one that has other rows.

        Raises:
            SpecError: the registry doesn't have the schema, or doesn't take it; or it has different numbers for different topics.
            UnreachableError: it doesn't answer.
        """
        if registry is None:
            raise BugError("a format that asks a schema registry has none", "setup", "Report a bug: the spec should have been refused.")
        text = self.schema_of(rows)
        subjects = sorted({subject for topic in topics for subject in self.subjects.of(topic)})
        ids = {registry.id_of(subject, text, register=self.register) for subject in subjects}
        if len(ids) > 1:
            what = f"The schema registry has different ids for one schema under the subjects {', '.join(subjects)}"
            raise SpecError(what, "setup", "Make a pipeline for each topic, or set subject_name_strategy: record.")
        required = tuple(name for name in self.columns if not rows.field(name).nullable)
        return msgspec.structs.replace(self, schema_id=ids.pop(), required=required)

    def encoded(self, batch: pa.RecordBatch) -> pa.Array:
        """One of these for each row; null only where a required column is, as of a row that says no more than its key."""
        if self.schema_id is None:
            raise BugError("rows were to be encoded before their schema was registered", "stage", "Report a bug in the Kafka sink.")
        columns = [(batch[name], name not in self.required) for name in self.columns]
        return records(columns, b"\x00" + self.schema_id.to_bytes(4, "big"))
