"""What a format is: the options that a spec's `decode` section has for it, and the decoder that they make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, Field

from ingest.config.values import Section, Values, Written

if TYPE_CHECKING:
    from ingest.ports.decoder import Decoder

SCHEMA_REFERENCE = re.compile(r"(.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


def _schema(value: str) -> str:
    if not SCHEMA_REFERENCE.fullmatch(value):
        raise ValueError("must be FILE.py:Class or package.module:Class")
    return value


SchemaReference = Annotated[Written, AfterValidator(_schema), Values("`FILE.py:Class`, `package.module:Class`")]


class FormatSection(Section):
    """What the `decode` section of every format has; each format says its own name, as a `Literal`, and its own options.

    `schema` is relative to the spec. A format that needs one to decode requires it; one that knows its columns by itself may do without.
    """

    format: str = Field(description="What the messages are; the other settings of `decode` are the format's.")
    schema_: SchemaReference | None = Field(
        default=None, alias="schema", description="The pandera.polars DataFrameModel whose columns, types and rules the table's rows have."
    )


S_contra = TypeVar("S_contra", bound=FormatSection, contravariant=True)


class FormatKind(Protocol[S_contra]):
    """One format. Described without loading what decodes it."""

    @property
    def section(self) -> type[Any]:
        """The model of its `decode` section, a `FormatSection`."""

    def decoder(self, section: S_contra, folder: Path) -> Decoder:
        """The decoder that a section asks for. `folder`: what its files are relative to.

        Raises:
            SpecError: no decoder can be made of it.
        """
