"""Change events that name the schema they were written with, in Confluent's wire formats."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.resolve import is_one_of
from windrow.ingest.formats.avro.schema import AvroSchema, parse_schema
from windrow.ingest.formats.cdc.decoder import ChangeBatchDecoder, ChangeDecoder
from windrow.ingest.formats.confluent.decoder import LONGEST_REASON, ConfluentDecoder
from windrow.ingest.formats.confluent.frame import Frame
from windrow.ingest.formats.confluent.payloads import resolved_batch_decoder
from windrow.ingest.formats.confluent.record_names import OtherRecord, RecordDecoder
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import DecodeValues
from windrow.ingest.formats.shared.decoded import refuse_all
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import SCHEMA, Decoded
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_fields import FieldPath


@dataclass(frozen=True)
class RegistryAvro:
    """Encoding of events as Avro records, by a schema of the registry.

    A field that the schema doesn't have is null, as in JSON.

    Attributes:
        schema: the writer's schema; None as long as no message has named one.
        skip: the number of bytes before each record.
        keeps_unknown: whether rows have what no column is for.
    """

    schema: AvroSchema | None = None
    skip: int = 0
    keeps_unknown: bool = False

    def now(self) -> Self:
        return self

    def check(self, _columns: Columns) -> None:
        """Accepts all columns. Only a schema tells which columns can be read."""

    def open(self, columns: Columns) -> DecodeValues:
        assert self.schema is not None  # the frame was read
        try:
            return resolved_batch_decoder(
                self.schema, columns, (), self.skip, keeps_unknown=self.keeps_unknown
            ).decode
        except SpecError as error:
            # Only these columns can't be read: the message may be about another table.
            detail = error.message[:LONGEST_REASON]

        def refuse(values: pa.BinaryArray, _on_null: str) -> Decoded:
            return refuse_all(
                columns.arrow_schema, len(values), SCHEMA, "incompatible_schema", detail
            )

        return refuse

    def field_names(self, _value: bytes, _root: FieldPath) -> AbstractSet[str]:
        """Returns the names of the record's fields."""
        return frozenset() if self.schema is None else self.schema.fields


@dataclass(frozen=True)
class ChangePayloads:
    """Payloads that are change events, in Avro or JSON.

    Attributes:
        change: the decoder of the events. Its encoding has neither schema nor frame yet.
    """

    change: ChangeDecoder
    paths: bool = False
    has_row_record: bool = False

    @property
    def kind(self) -> str | None:
        return "AVRO" if isinstance(self.change.inner, RegistryAvro) else None

    def check(self, columns: Columns) -> None:
        """Accepts the columns: `RegistryChangeDecoder.columns` has checked them."""

    def records(self, _schema: WriterSchema) -> list[frozenset[str]]:
        """Returns no names: the envelope says of which table a row is."""
        return []

    def misfits(
        self, _schema: WriterSchema, _path: Sequence[int], _columns: Columns, _document: Any
    ) -> dict[str, str]:
        """Returns nothing: each message says whether its columns can be read."""
        return {}

    def batch_decoder(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordDecoder | OtherRecord:
        inner: JsonEncoding | RegistryAvro
        if schema is None:
            assert isinstance(self.change.inner, JsonEncoding)
            inner, record = replace(self.change.inner, skip=frame.skip), ""
        else:
            references = [text for _, text in schema.references]
            written = parse_schema(schema.text, "the registry", references)
            if records and not is_one_of(written.names, records):
                return OtherRecord(written.root)
            assert isinstance(self.change.inner, RegistryAvro)
            inner = replace(self.change.inner, schema=written, skip=frame.skip)
            record = written.root
        decoder = ChangeBatchDecoder(replace(self.change, inner=inner), columns)

        def decode(
            values: pa.BinaryArray, messages: pa.RecordBatch, rows: npt.NDArray[np.int64]
        ) -> Decoded:
            whole = len(values) == messages.num_rows
            return decoder.decode(messages if whole else messages.take(pa.array(rows)))

        return RecordDecoder(decode, record)


@dataclass(frozen=True)
class RegistryChangeDecoder(ConfluentDecoder):
    """Decodes change events that name their schemas. It also deletes rows."""

    payloads: ChangePayloads

    @property
    def columns(self) -> Columns:
        return self.payloads.change.columns

    @property
    def deletes_by(self) -> tuple[str, ...] | None:
        return self.payloads.change.primary_key

    def with_deletes(
        self, primary_key: tuple[str, ...], *, keeps_unavailable: bool
    ) -> RegistryChangeDecoder:
        change = self.payloads.change.with_deletes(primary_key, keeps_unavailable=keeps_unavailable)
        return replace(self, payloads=replace(self.payloads, change=change))


def registry_decoder(change: ChangeDecoder, subjects: Subjects) -> RegistryChangeDecoder:
    """Makes the decoder of events behind Confluent's frames.

    Args:
        change: the decoder of the events.
        subjects: the subjects of the events' schemas.
    """
    return RegistryChangeDecoder(
        change.model, ChangePayloads(change), subjects, change.on_null, part=change.part
    )
