"""Delta tables as a kind of sink: what a spec says of one. Loads deltalake only when a table is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from ingest.config.places import WAY_OUT, absolute, secret_part
from ingest.config.values import Values, Written, place, sentence
from ingest.sinks.kind import Rows, SinkKind, SinkSection

if TYPE_CHECKING:
    from ingest.ports.dead_letters import DeadLetters
    from ingest.ports.sink import Sink


def _path(value: str) -> str:
    secret = secret_part(value)
    if secret is not None:
        raise sentence(f"must not hold {secret}: {WAY_OUT}")
    return place(value)


class DeltaSection(SinkSection):
    """The table. A relative path is relative to the spec's folder; a URL (s3://...) is taken as it is."""

    kind: Literal["delta"] = Field(default="delta", description="What kind of table it is.")
    path: Annotated[Written, Field(min_length=1), AfterValidator(_path), Values("a path, or a URL without user, password and options")] = (
        Field(description="Where the table is. A relative path begins at the file's folder.")
    )

    def place(self, folder: Path) -> str:
        """Where the table is: an absolute path, or the URL as it was given."""
        return absolute(self.path, folder)


class _Delta:
    """`sinks.kind.SinkKind`: a Delta table, with its dead letters in a second one beside it (`<table>_dead`)."""

    section = DeltaSection

    def make(self, section: DeltaSection, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        """See `sinks.kind.SinkKind.make`."""
        from ingest.sinks.delta.sink import DeltaSink

        return DeltaSink(section.place(folder), rows, metadata)

    def dead_letters(self, section: DeltaSection, folder: Path) -> DeadLetters:
        """See `sinks.kind.SinkKind.dead_letters`."""
        from ingest.sinks.delta.dead import DeltaDeadLetters

        return DeltaDeadLetters.beside(section.place(folder))


DELTA: SinkKind[DeltaSection] = _Delta()
