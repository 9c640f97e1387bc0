"""Kinds of payloads after the frames. Each makes a decoder for a schema and columns.

Avro and Protobuf are decoded by the schema that the frame names; JSON is decoded without it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.fit import misfits as avro_misfits
from windrow.ingest.formats.avro.resolve import is_one_of, resolve_schema
from windrow.ingest.formats.avro.schema import AvroSchema, parse_root
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.confluent.frame import Frame
from windrow.ingest.formats.confluent.record_names import (
    OneOfSeveral,
    OtherRecord,
    RecordDecoder,
    messages_in,
)
from windrow.ingest.formats.json.decoder import DOCUMENT, JsonEncoding, json_batch_decoder
from windrow.ingest.formats.protobuf.decoder import ProtobufPass
from windrow.ingest.formats.protobuf.descriptors import (
    compiled_text,
    described_by,
    message_type,
    name_at,
    refuse_without_compiler,
)
from windrow.ingest.formats.protobuf.fields import misfits as protobuf_misfits
from windrow.ingest.formats.protobuf.strict import StrictProtobuf
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.columns import Columns

_PLACE = "the schema"


@dataclass(frozen=True)
class AvroPayloads:
    """Payloads in Avro; each is a single Avro value.

    Attributes:
        keeps_unknown: whether rows have what no column is for.
    """

    keeps_unknown: bool = False
    kind: str = "AVRO"
    paths: bool = False
    has_row_record: bool = True

    def check(self, _columns: Columns) -> None:
        """Accepts all columns. Only a schema tells which columns can be read."""

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        return [
            frozenset(name.rpartition(".")[2] for name in written.names)
            for written in _records(schema, "value")
        ]

    def misfits(
        self, schema: WriterSchema, _path: Sequence[int], columns: Columns, _document: Any
    ) -> dict[str, str]:
        reason_by_column: dict[str, str] = {}
        for written in _records(schema, _only(columns)):
            present = _present(columns, written.fields)
            reason_by_column |= avro_misfits(resolve_schema(written, present), present)
        return reason_by_column

    def batch_decoder(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordDecoder | OtherRecord | OneOfSeveral:
        assert schema is not None
        _, named = columns.split_rest(keeps_unknown=self.keeps_unknown)
        root = _root(schema, _only(named))
        if not isinstance(root, AvroSchema) and not frame.path:
            return OneOfSeveral(len(root))
        written = root if isinstance(root, AvroSchema) else root[frame.path[0]]
        if written is None:
            return OtherRecord("null")
        by_field = named.as_written(written.fields)
        if _is_other(written.names, written.fields, by_field.columns, records):
            return OtherRecord(written.root or "no record")
        decoder = resolved_batch_decoder(
            written, columns, records, frame.skip, keeps_unknown=self.keeps_unknown
        )
        return RecordDecoder.of_rows(decoder, written.root)


@dataclass(frozen=True)
class ProtobufPayloads:
    """Payloads in Protobuf: messages of the type that the frame's path names."""

    kind: str = "PROTOBUF"
    paths: bool = True
    has_row_record: bool = True

    def check(self, _columns: Columns) -> None:
        """Accepts all columns if the compiler for schemas is installed."""
        refuse_without_compiler("A schema of a registry")

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        file = described_by(schema.text)
        return [
            frozenset({name})
            for name in (
                messages_in(schema.text)
                if file is None
                else [message.name for message in file.message_type]
            )
        ]

    def misfits(
        self, schema: WriterSchema, path: Sequence[int], columns: Columns, _document: Any
    ) -> dict[str, str]:
        kind = message_at(schema, path, _PLACE)
        return protobuf_misfits(kind, _present(columns, kind.fields_by_name), "null")

    def batch_decoder(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordDecoder | OtherRecord:
        assert schema is not None
        kind = message_at(schema, frame.path, _PLACE)
        fields = set(kind.fields_by_name)
        by_field = columns.as_written(fields)
        if _is_other([kind.full_name], fields, by_field.columns, records):
            return OtherRecord(kind.full_name)
        strict = StrictProtobuf(kind, by_field.columns, "null")
        fast = ProtobufPass(kind, by_field.columns)
        return RecordDecoder.of_rows(
            BatchDecoder(columns.arrow_schema, fast, strict, by_field.defaults, frame.skip),
            kind.full_name,
        )


@dataclass(frozen=True)
class JsonPayloads:
    """Payloads in JSON. They are checked by the pandera model, not by the JSON Schema."""

    encoding: JsonEncoding = DOCUMENT
    kind: None = None
    paths: bool = False
    has_row_record: bool = False

    def check(self, columns: Columns) -> None:
        self.encoding.check(columns)

    def records(self, _schema: WriterSchema) -> list[frozenset[str]]:
        """Returns no names: a JSON document has no record."""
        return []

    def misfits(
        self, _schema: WriterSchema, _path: Sequence[int], columns: Columns, document: Any
    ) -> dict[str, str]:
        return self.encoding.misfits(_present(columns, document), document)

    def batch_decoder(
        self, _schema: WriterSchema | None, frame: Frame, columns: Columns, _records: Sequence[str]
    ) -> RecordDecoder:
        return RecordDecoder.of_rows(
            json_batch_decoder(columns, self.encoding.reading, frame.skip), ""
        )


def resolved_batch_decoder(
    written: AvroSchema,
    columns: Columns,
    records: Sequence[str],
    skip: int,
    *,
    keeps_unknown: bool,
) -> BatchDecoder:
    """Makes the decoder of batches of a record, resolved against the columns.

    Args:
        written: the writer's schema.
        columns: the columns.
        records: the names of the records that are rows, or structs in rows.
        skip: the number of bytes before each record.
        keeps_unknown: whether rows have what no column is for.

    Raises:
        SpecError: a column can't be read from the schema.
    """
    by_field = columns.as_written(written.fields)
    _, named = by_field.columns.split_rest(keeps_unknown=keeps_unknown)
    read = resolve_schema(written, named, records)
    fast = AvroPass(read, by_field.columns, keeps_unknown=keeps_unknown)
    strict = StrictAvro(read, by_field.columns, keeps_unknown=keeps_unknown)
    return BatchDecoder(columns.arrow_schema, fast, strict, by_field.defaults, skip)


def message_at(schema: WriterSchema, path: Sequence[int], origin: str) -> Any:
    """Returns the message type at a path of a Protobuf schema.

    Raises:
        SpecError: the schema can't be compiled, or has no type at the path.
    """
    types = compiled_text(schema.text, schema.references, origin)
    return message_type(types, name_at(types, path, origin), origin)


def _records(schema: WriterSchema, only: str | None) -> list[AvroSchema]:
    root = _root(schema, only)
    return (
        [root]
        if isinstance(root, AvroSchema)
        else [branch for branch in root if branch is not None]
    )


def _only(columns: Columns) -> str | None:
    """Returns the name of the only column; None if there are several columns.

    A schema that isn't a record can fill only a single column.
    """
    return columns.columns[0].name if len(columns.columns) == 1 else None


def _present(columns: Columns, fields: Container[str]) -> Columns:
    """Returns the columns that have a field."""
    return replace(columns, columns=tuple(c for c in columns.columns if c.name in fields))


def _root(schema: WriterSchema, only: str | None) -> AvroSchema | list[AvroSchema | None]:
    return parse_root(schema.text, "the registry", [text for _, text in schema.references], only)


def _is_other(
    names: Sequence[str], fields: Collection[str], columns: Columns, records: Sequence[str]
) -> bool:
    """Returns whether messages of a record aren't rows of the table.

    They aren't if the record has none of the names in `records`, or has no field for any
    column.
    """
    if records and not is_one_of(names, records):
        return True
    return (
        names != ("",)
        and bool(columns.columns)
        and not any(column.name in fields for column in columns.columns)
    )
