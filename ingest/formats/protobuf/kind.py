"""Settings of the format `protobuf`, for values and for keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, NamedRowSection
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.formats.protobuf.descriptors import TypesFile
from windrow.ingest.settings.values import Text, Values

if TYPE_CHECKING:
    from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding


class ProtobufOptions(FinerOptions):
    """Settings that keys and values share."""

    by_schema: ClassVar[bool] = True
    is_named: ClassVar[bool] = True

    descriptor: Annotated[Text, Values("the name of a `.proto` file, or of a descriptor set")] = (
        Field(
            description=(
                "The file that defines the message type, relative to the spec. A .proto file is"
                " compiled (needs the extra `protobuf`); a descriptor set comes from `protoc"
                " --include_imports --descriptor_set_out`."
            )
        )
    )
    message: Annotated[Text, Values("a name with its package")] = Field(
        description="The message type's full name, as in `shop.Order`."
    )

    def encoding(self, folder: Path, _setting: str) -> ProtobufEncoding:
        from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding

        return ProtobufEncoding(TypesFile(folder, self.descriptor), self.message)


class ProtobufSection(ProtobufOptions, NamedRowSection):
    """Values that are one message of a Protobuf type each, without a length or prefix."""

    format: Literal["protobuf"] = Field(default="protobuf", description=VALUES)


class ProtobufKeySection(ProtobufOptions, KeySection):
    """Keys that are one message of a Protobuf type each."""

    format: Literal["protobuf"] = Field(default="protobuf", description=KEYS)
