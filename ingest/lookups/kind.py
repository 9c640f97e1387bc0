"""Settings that every kind of lookup source has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from windrow.ingest.settings.values import Default, Section, Text, Values

if TYPE_CHECKING:
    from windrow.ingest.ports.lookup import LookupSource


class SourceSection(Section):
    """The source that a lookup asks. Each kind has its own model.

    The option with the kind's name says where the source is.
    """

    is_repeatable: ClassVar[bool] = False
    """Same as `ports.lookup.LookupSource.is_repeatable`, known without opening the source."""

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
        """The key columns that every request must have; empty if any columns can be the key."""
        return []

    def source(self, folder: Path) -> LookupSource:
        """Makes the source, without asking it anything.

        Args:
            folder: the spec's folder.

        Raises:
            SpecError: the source's place is invalid.
        """
        raise NotImplementedError
