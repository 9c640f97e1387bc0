"""What lies behind the frames: Avro and Protobuf by the schema that is named, or JSON,
which needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.resolve import is_one_of, resolved
from windrow.ingest.formats.avro.schema import AvroSchema, parse_root
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.confluent.frame import Frame
from windrow.ingest.formats.confluent.records import (
    OneOfSeveral,
    OtherRecord,
    RecordMachine,
    messages_in,
)
from windrow.ingest.formats.json.decoder import DOCUMENT, JsonEncoding, json_batch_decoder
from windrow.ingest.formats.protobuf.decoder import ProtobufPass
from windrow.ingest.formats.protobuf.descriptors import (
    compiled_text,
    message_type,
    name_at,
    refuse_without_compiler,
)
from windrow.ingest.formats.protobuf.strict import StrictProtobuf
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.columns import Columns

_PLACE = "the schema"


@dataclass(frozen=True)
class AvroPayloads:
    """Avro, one value a message."""

    kind: str = "AVRO"
    paths: bool = False

    def check(self, _columns: Columns) -> None:
        """Which columns can come from a schema is said by that."""

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        root = _root(schema, "value")
        several = [root] if isinstance(root, AvroSchema) else root
        return [
            frozenset(name.rpartition(".")[2] for name in one.names)
            for one in several
            if one is not None
        ]

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordMachine | OtherRecord | OneOfSeveral:
        assert schema is not None
        root = _root(schema, columns.columns[0].name if len(columns.columns) == 1 else None)
        if not isinstance(root, AvroSchema) and not frame.path:
            return OneOfSeveral(len(root))
        written = root if isinstance(root, AvroSchema) else root[frame.path[0]]
        if written is None:
            return OtherRecord("null")
        found, defaults = columns.as_written(written.fields)
        if _is_other(written.names, written.fields, found, records):
            return OtherRecord(written.root or "no record")
        read = resolved(written, found, records)
        fast, strict = AvroPass(read, found), StrictAvro(read, found)
        return RecordMachine(
            BatchDecoder(columns.arrow_schema, fast, strict, defaults, frame.skip), written.root
        )


@dataclass(frozen=True)
class ProtobufPayloads:
    """Protobuf: of the messages of the schema the one that the frame's path leads to."""

    kind: str = "PROTOBUF"
    paths: bool = True

    def check(self, _columns: Columns) -> None:
        """Which columns can come from a schema is said by that, but it takes the
        compiler to say it.
        """
        refuse_without_compiler("A schema of a registry")

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        return [frozenset({name}) for name in messages_in(schema.text)]

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordMachine | OtherRecord:
        assert schema is not None
        types = compiled_text(schema.text, schema.references, _PLACE)
        kind = message_type(types, name_at(types, frame.path, _PLACE), _PLACE)
        fields = set(kind.fields_by_name)
        found, defaults = columns.as_written(fields)
        if _is_other([kind.full_name], fields, found, records):
            return OtherRecord(kind.full_name)
        strict = StrictProtobuf(kind, found, "null")
        fast = ProtobufPass(kind, found)
        return RecordMachine(
            BatchDecoder(columns.arrow_schema, fast, strict, defaults, frame.skip), kind.full_name
        )


@dataclass(frozen=True)
class JsonPayloads:
    """JSON documents: the model judges them, whatever the registry's JSON Schema says."""

    encoding: JsonEncoding = DOCUMENT
    kind: None = None
    paths: bool = False

    def check(self, columns: Columns) -> None:
        self.encoding.check(columns)

    def records(self, _schema: WriterSchema) -> list[frozenset[str]]:
        """A document has no name."""
        return []

    def machine(
        self, _schema: WriterSchema | None, frame: Frame, columns: Columns, _records: Sequence[str]
    ) -> RecordMachine:
        unknown, reading = self.encoding.unknown, self.encoding.reading
        return RecordMachine(json_batch_decoder(columns, unknown, reading, frame.skip), "")


def _root(schema: WriterSchema, only: str | None) -> AvroSchema | list[AvroSchema | None]:
    return parse_root(schema.text, "the registry", [text for _, text in schema.references], only)


def _is_other(
    names: Sequence[str], fields: Collection[str], columns: Columns, records: Sequence[str]
) -> bool:
    """Whether a record isn't the table's: by its name, or as no column has a field in it."""
    if records and not is_one_of(names, records):
        return True
    return (
        names != ("",)
        and bool(columns.columns)
        and not any(column.name in fields for column in columns.columns)
    )
