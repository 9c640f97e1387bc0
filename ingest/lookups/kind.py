"""Settings that every kind of source of lookups has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from windrow.ingest.settings.values import Default, Section, Text, Values

if TYPE_CHECKING:
    from windrow.ingest.ports.lookup import LookupSource


class SourceSection(Section):
    """What a lookup asks. Each kind has a model of its own.

    The option that has the kind's name says where it is.
    """

    repeats: ClassVar[bool] = False
    """As its source says (`ports.lookup.LookupSource.repeats`), which nobody has made yet."""

    asset: Annotated[
        Annotated[Text, Field(pattern="^[^/]+(/[^/]+)*$")] | None,
        Values("a key, its parts with `/` between them"),
        Default("none"),
    ] = Field(
        default=None,
        description="The Dagster asset of what is looked up in: it is upstream in the lineage.",
    )

    @property
    def asked_by(self) -> list[str]:
        """The columns that it is asked by, all together; empty if it can be by any."""
        return []

    def source(self, folder: Path) -> LookupSource:
        """Makes the source; `folder`: the spec's. Nothing is asked yet.

        Raises:
            SpecError: its place is invalid.
        """
        raise NotImplementedError
