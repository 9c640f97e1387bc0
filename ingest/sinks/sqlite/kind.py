"""The kind `sqlite`: its section of the spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.settings.paths import absolute, is_url
from windrow.ingest.settings.values import Text, TextOrEmpty, Values, check_location, sentence
from windrow.ingest.sinks.kit import Rows, SinkSection

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.sinks.sqlite.store import SqliteStore


def _path(value: str) -> str:
    if is_url(value):
        raise sentence("must be a path: SQLite locks files on this machine alone")
    return check_location(value)


def _table(value: str) -> str:
    if not re.fullmatch(r"\w+", value):
        raise sentence("must be letters, digits and underscores")
    if value.lower().startswith(("sqlite_", "windrow_")):
        raise sentence("must not begin with sqlite_ or windrow_: those tables are SQLite's or ours")
    return value


class SqliteSection(SinkSection):
    """The table, in a file on this machine."""

    kind: Literal["sqlite"] = Field(description="What kind of table it is.")
    path: Annotated[TextOrEmpty, Field(min_length=1), AfterValidator(_path), Values("a path")] = (
        Field(
            description=(
                "The database, a file that several tables may share. A relative path begins at the"
                " file's folder."
            )
        )
    )
    table: Annotated[
        Text, AfterValidator(_table), Values("a name of letters, digits and underscores")
    ] = Field(description="The table in it. Dead letters go to `<table>_dead`.")

    @property
    def only_sweeps(self) -> bool:
        return True

    def location(self, folder: Path) -> str:
        """Returns the file's path, a `#`, and the table's name."""
        return f"{absolute(self.path, folder)}#{self.table}"

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.sinks.kit import WindowTable

        return WindowTable(_store(self, self.table, folder, metadata), rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        from windrow.ingest.sinks.kit import DeadLetterTable

        return DeadLetterTable(_store(self, f"{self.table}_dead", folder))


def _store(
    section: SqliteSection, table: str, folder: Path, metadata: Mapping[str, str] = DEFAULT
) -> SqliteStore:
    from windrow.ingest.sinks.sqlite.store import SqliteStore

    return SqliteStore(absolute(section.path, folder), table, metadata)
