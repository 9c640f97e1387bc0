"""What lies behind the frames: Avro and Protobuf by the schema that is named, or JSON, which needs none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.decode.json.strict import Unknown
from ingest.decode.json.values import EXACT, Reading
from ingest.decode.shared.machine import Machine
from ingest.errors import SpecError
from ingest.model.writer_schema import WriterSchema
from ingest.schema.columns import Columns
from ingest.schema.dtypes import holds_bytes

if TYPE_CHECKING:
    from ingest.decode.confluent.frame import Frame

_PLACE = "the schema"


@dataclass(frozen=True)
class AvroPayloads:
    """Avro, one value a message."""

    kind: str = "AVRO"
    paths: bool = False

    def check(self, _columns: Columns) -> None:
        """See `Payloads.check`: which columns can come from a schema is said by that."""

    def machine(self, schema: WriterSchema | None, frame: Frame, columns: Columns) -> Machine:
        """See `Payloads.machine`."""
        from ingest.decode.avro.onepass import AvroPass  # noqa: PLC0415  # compiled code is loaded where messages are decoded
        from ingest.decode.avro.resolve import resolved  # noqa: PLC0415  # as above
        from ingest.decode.avro.schema import parse_schema  # noqa: PLC0415  # as above
        from ingest.decode.avro.strict import StrictAvro  # noqa: PLC0415  # as above
        from ingest.decode.confluent.machine import PassBehind, StrictBehind  # noqa: PLC0415  # as above

        assert schema is not None
        only = columns.columns[0].name if len(columns.columns) == 1 else None
        written = parse_schema(schema.text, "the registry", [text for _, text in schema.references], only)
        read = resolved(written, columns)
        fast, strict = AvroPass(read, columns), StrictAvro(read, columns)
        return Machine(columns.arrow_schema, PassBehind(fast, frame.skip), StrictBehind(strict, frame.skip))


@dataclass(frozen=True)
class ProtobufPayloads:
    """Protobuf: of the messages of the schema the one that the frame's path leads to."""

    kind: str = "PROTOBUF"
    paths: bool = True

    def check(self, _columns: Columns) -> None:
        """See `Payloads.check`: which columns can come from a schema is said by that, but it takes the compiler to say it."""
        from ingest.decode.protobuf.descriptors import refuse_without_compiler  # noqa: PLC0415  # loaded where messages are decoded

        refuse_without_compiler("A schema of a registry")

    def machine(self, schema: WriterSchema | None, frame: Frame, columns: Columns) -> Machine:
        """See `Payloads.machine`."""
        from ingest.decode.confluent.machine import PassBehind, StrictBehind  # noqa: PLC0415  # as above
        from ingest.decode.protobuf.descriptors import compiled_text, message_type, name_at  # noqa: PLC0415  # as above
        from ingest.decode.protobuf.machine import StrictProtobuf  # noqa: PLC0415  # as above
        from ingest.decode.protobuf.onepass import ProtobufPass  # noqa: PLC0415  # as above

        assert schema is not None
        types = compiled_text(schema.text, schema.references, _PLACE)
        kind = message_type(types, name_at(types, frame.path, _PLACE), _PLACE)
        strict = StrictProtobuf(kind, columns, "null")
        fast = PassBehind(ProtobufPass(kind, columns), frame.skip)
        return Machine(columns.arrow_schema, fast, StrictBehind(strict, frame.skip))


@dataclass(frozen=True)
class JsonPayloads:
    """JSON documents: the model judges them, whatever the registry's JSON Schema says."""

    unknown: Unknown = "ignore"
    reading: Reading = EXACT
    kind: None = None
    paths: bool = False

    def check(self, columns: Columns) -> None:
        """See `Payloads.check`."""
        wrong = [column.name for column in columns.columns if holds_bytes(column.type)]
        if wrong:
            what = f"The schema can't be used for JSON, which has no bytes: {', '.join(wrong)}"
            raise SpecError(what, "spec", "Take String, and decode it after the table; nothing was read.")

    def machine(self, schema: WriterSchema | None, frame: Frame, columns: Columns) -> Machine:
        """See `Payloads.machine`."""
        from ingest.decode.confluent.machine import PassBehind, StrictBehind  # noqa: PLC0415  # as above
        from ingest.decode.json.onepass import OnePass  # noqa: PLC0415  # as above
        from ingest.decode.json.strict import Strict  # noqa: PLC0415  # as above

        assert schema is None
        fast, strict = OnePass(columns, self.unknown, self.reading), Strict(columns, self.unknown, self.reading)
        return Machine(columns.arrow_schema, PassBehind(fast, frame.skip), StrictBehind(strict, frame.skip))
