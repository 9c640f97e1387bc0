"""Protobuf as a format of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.keys import KeyKind, KeySection
from windrow.ingest.formats.kind import FormatKind, FormatSection, SchemaReference
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.formats.protobuf.descriptors import TypesFile
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.settings.values import Text, Values

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder


class ProtobufOptions(FinerOptions):
    """What keys and values say alike."""

    by_schema: ClassVar[bool] = True

    descriptor: Annotated[Text, Values("the name of a `.proto` file, or of a descriptor set")] = (
        Field(
            description=(
                "The file that has the type, relative to the spec. A .proto file is compiled"
                " (`windrow[protobuf]`); a descriptor set is one of `protoc --include_imports"
                " --descriptor_set_out`."
            )
        )
    )
    message: Annotated[Text, Values("a name with its package")] = Field(
        description="The type's name, as in `shop.Order`."
    )


class ProtobufSection(ProtobufOptions, FormatSection):
    """Messages of one Protobuf type, each without a length or a prefix before it."""

    format: Literal["protobuf"] = Field(
        default="protobuf",
        description="What the messages are; the other settings of `decode` are the format's.",
    )
    schema_: SchemaReference = Field(
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the table's rows"
            " have."
        ),
    )
    on_null: Literal["dead", "drop"] = Field(
        default="dead",
        description=(
            "What becomes of a message without a value (a tombstone): a dead letter, or it is only"
            " counted."
        ),
    )


class ProtobufKeySection(ProtobufOptions, KeySection):
    """Messages of one Protobuf type as keys."""

    format: Literal["protobuf"] = Field(
        default="protobuf",
        description="What the keys are; the other settings of `decode.key` are the format's.",
    )


class _Protobuf:
    section = ProtobufSection

    def decoder(self, section: ProtobufSection, folder: Path) -> Decoder:
        from windrow.ingest.formats.protobuf.decoder import ProtobufDecoder

        model, types = (
            ModelReference(section.schema_, folder),
            TypesFile(folder, section.descriptor),
        )
        return ProtobufDecoder(model, types, section.message, section.on_null, section.part)


class _ProtobufKey:
    section = ProtobufKeySection

    def decoder(self, key: ProtobufKeySection, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.protobuf.decoder import ProtobufDecoder

        return ProtobufDecoder(
            model, TypesFile(model.folder, key.descriptor), key.message, part=key.part
        )


PROTOBUF: FormatKind[ProtobufSection] = _Protobuf()
PROTOBUF_KEY: KeyKind[ProtobufKeySection] = _ProtobufKey()
