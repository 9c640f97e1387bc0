"""Protobuf as a format of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ingest.config.values import Text, Values
from ingest.decode.kind import FormatKind, FormatSection, SchemaReference

if TYPE_CHECKING:
    from ingest.ports.decoder import Decoder


class ProtobufSection(FormatSection):
    """Messages of one Protobuf type, each without a length or a prefix before it."""

    format: Literal["protobuf"] = Field(
        default="protobuf", description="What the messages are; the other settings of `decode` are the format's."
    )
    schema_: SchemaReference = Field(
        alias="schema", description="The pandera.polars DataFrameModel whose columns, types and rules the table's rows have."
    )
    descriptor: Annotated[Text, Values("the name of a `.proto` file, or of a descriptor set")] = Field(
        description="The file that has the type of the messages, relative to the spec. A .proto file is compiled (`windrow[protobuf]`); a "
        "descriptor set is one of `protoc --include_imports --descriptor_set_out`."
    )
    message: Annotated[Text, Values("a name with its package")] = Field(description="The type of the messages, as in `shop.Order`.")
    on_null: Literal["dead", "drop"] = Field(
        default="dead", description="What becomes of a message without a value (a tombstone): a dead letter, or it is only counted."
    )


class _Protobuf:
    section = ProtobufSection

    def decoder(self, section: ProtobufSection, folder: Path) -> Decoder:
        from ingest.decode.protobuf.decoder import ProtobufDecoder

        return ProtobufDecoder(section.schema_, folder, section.descriptor, section.message, on_null=section.on_null, part=section.part)


PROTOBUF: FormatKind[ProtobufSection] = _Protobuf()
