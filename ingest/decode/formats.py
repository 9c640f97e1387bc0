"""The formats that there are: one line each. What stands behind a line is loaded when a spec names the format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ingest.config.kinds import OfItsKind, kind_at
from ingest.decode.kind import FormatKind, FormatSection

if TYPE_CHECKING:
    from ingest.ports.decoder import Decoder

FORMATS = {
    "json": "ingest.decode.json.kind:JSON",
    "avro": "ingest.decode.avro.kind:AVRO",
}

DecodeSection = Annotated[FormatSection, OfItsKind("format", "json", FORMATS)]
"""A spec's `decode` section."""


def make_decoder(section: FormatSection, folder: Path) -> Decoder:
    """The decoder that a `decode` section asks for. `folder`: where the spec lies.

    Raises:
        SpecError: no decoder can be made of it.
    """
    kind: FormatKind[Any] = kind_at(FORMATS[section.format])
    return kind.decoder(section, folder)
