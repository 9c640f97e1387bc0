"""Protobuf as a format of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, RowSection
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.formats.protobuf.descriptors import TypesFile
from windrow.ingest.settings.values import Text, Values

if TYPE_CHECKING:
    from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding


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

    def encoding(self, folder: Path, _setting: str) -> ProtobufEncoding:
        from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding

        return ProtobufEncoding(TypesFile(folder, self.descriptor), self.message)


class ProtobufSection(ProtobufOptions, RowSection):
    """Messages of one Protobuf type, each without a length or a prefix before it."""

    format: Literal["protobuf"] = Field(default="protobuf", description=VALUES)


class ProtobufKeySection(ProtobufOptions, KeySection):
    """Messages of one Protobuf type as keys."""

    format: Literal["protobuf"] = Field(default="protobuf", description=KEYS)
