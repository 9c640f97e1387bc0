"""Settings of an HTTPS connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Password, Section, Text, Values


class TlsSection(Section):
    """The certificates of an HTTPS connection."""

    ca: Annotated[Text | None, Values("a file")] = Field(
        default=None,
        description=(
            "The certificates (PEM) of the authorities to trust, instead of the system's: the"
            " server's certificate must be signed by one of them."
        ),
    )
    certificate: Annotated[Text | None, Values("a file")] = Field(
        default=None, description="Windrow's own certificate (PEM), if the server asks for one."
    )
    key: Annotated[Text | None, Values("a file")] = Field(
        default=None,
        description="The certificate's private key (PEM), if it is in a file of its own.",
    )
    key_password: Password | None = Field(
        default=None, repr=False, description="The password of the private key."
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds a key without its certificate."""
        for name in ("key", "key_password"):
            if written.get(name) is not None and written.get("certificate") is None:
                yield (name,), "goes with certificate"
