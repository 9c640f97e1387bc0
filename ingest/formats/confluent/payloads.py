"""What lies behind the frames: Avro and Protobuf by the schema that is named, or JSON,
which needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.records import (
    OneOfSeveral,
    OtherRecord,
    RecordMachine,
    messages_in,
)
from windrow.ingest.formats.json.strict import Unknown
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.names import is_one_of
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import holds_bytes

if TYPE_CHECKING:
    from windrow.ingest.formats.confluent.frame import Frame

_PLACE = "the schema"


@dataclass(frozen=True)
class AvroPayloads:
    """Avro, one value a message."""

    kind: str = "AVRO"
    paths: bool = False

    def check(self, _columns: Columns) -> None:
        """Which columns can come from a schema is said by that."""

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        from windrow.ingest.formats.avro.schema import (
            AvroSchema,
            parse_root,
        )  # loaded where messages are decoded

        root = parse_root(
            schema.text, "the registry", [text for _, text in schema.references], "value"
        )
        several = (
            [root] if isinstance(root, AvroSchema) else [one for one in root if one is not None]
        )
        return [frozenset(name.rpartition(".")[2] for name in one.names) for one in several]

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordMachine | OtherRecord | OneOfSeveral:
        from windrow.ingest.formats.avro.onepass import (
            AvroPass,
        )  # compiled code is loaded where messages are decoded
        from windrow.ingest.formats.avro.resolve import resolved  # as above
        from windrow.ingest.formats.avro.schema import (
            AvroSchema,
            parse_root,
        )  # as above
        from windrow.ingest.formats.avro.strict import StrictAvro  # as above
        from windrow.ingest.formats.confluent.batch_decoder import (
            PassBehind,
            StrictBehind,
        )  # as above

        assert schema is not None
        only = columns.columns[0].name if len(columns.columns) == 1 else None
        root = parse_root(
            schema.text, "the registry", [text for _, text in schema.references], only
        )
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
        machine = BatchDecoder(
            columns.arrow_schema,
            PassBehind(fast, frame.skip),
            StrictBehind(strict, frame.skip),
            defaults,
        )
        return RecordMachine(machine, written.root)


@dataclass(frozen=True)
class ProtobufPayloads:
    """Protobuf: of the messages of the schema the one that the frame's path leads to."""

    kind: str = "PROTOBUF"
    paths: bool = True

    def check(self, _columns: Columns) -> None:
        """Which columns can come from a schema is said by that, but it takes the
        compiler to say it.
        """
        from windrow.ingest.formats.protobuf.descriptors import (
            refuse_without_compiler,
        )  # loaded where messages are decoded

        refuse_without_compiler("A schema of a registry")

    def records(self, schema: WriterSchema) -> list[frozenset[str]]:
        return [frozenset({name}) for name in messages_in(schema.text)]

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordMachine | OtherRecord | OneOfSeveral:
        from windrow.ingest.formats.confluent.batch_decoder import (
            PassBehind,
            StrictBehind,
        )  # as above
        from windrow.ingest.formats.protobuf.batch_decoder import (
            StrictProtobuf,
        )  # as above
        from windrow.ingest.formats.protobuf.descriptors import (
            compiled_text,
            message_type,
            name_at,
        )  # as above
        from windrow.ingest.formats.protobuf.onepass import (
            ProtobufPass,
        )  # as above

        assert schema is not None
        types = compiled_text(schema.text, schema.references, _PLACE)
        kind = message_type(types, name_at(types, frame.path, _PLACE), _PLACE)
        fields = set(kind.fields_by_name)
        found, defaults = columns.as_written(fields)
        if _is_other([kind.full_name], fields, found, records):
            return OtherRecord(kind.full_name)
        strict = StrictProtobuf(kind, found, "null")
        fast = PassBehind(ProtobufPass(kind, found), frame.skip)
        return RecordMachine(
            BatchDecoder(columns.arrow_schema, fast, StrictBehind(strict, frame.skip), defaults),
            kind.full_name,
        )


@dataclass(frozen=True)
class JsonPayloads:
    """JSON documents: the model judges them, whatever the registry's JSON Schema says."""

    unknown: Unknown = "ignore"
    reading: Reading = EXACT
    kind: None = None
    paths: bool = False

    def check(self, columns: Columns) -> None:
        wrong = [column.name for column in columns.columns if holds_bytes(column.type)]
        if wrong:
            what = f"The schema can't be used for JSON, which has no bytes: {', '.join(wrong)}"
            raise SpecError(
                what, "spec", "Take String, and decode it after the table; nothing was read."
            )

    def records(self, _schema: WriterSchema) -> list[frozenset[str]]:
        """A document has no name."""
        return []

    def machine(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, _records: Sequence[str]
    ) -> RecordMachine:
        from windrow.ingest.formats.confluent.batch_decoder import (
            PassBehind,
            StrictBehind,
        )  # as above
        from windrow.ingest.formats.json.onepass import OnePass  # as above
        from windrow.ingest.formats.json.strict import Strict  # as above

        assert schema is None
        fast, strict = (
            OnePass(columns, self.unknown, self.reading),
            Strict(columns, self.unknown, self.reading),
        )
        return RecordMachine(
            BatchDecoder(
                columns.arrow_schema, PassBehind(fast, frame.skip), StrictBehind(strict, frame.skip)
            ),
            "",
        )


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
