"""Tables in PostgreSQL as a kind of sink: its section of the spec.

The driver is loaded only when a table is made from the section.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from windrow.ingest.errors import require_extra
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.secrets import Secret, in_folder
from windrow.ingest.settings.values import Default, Reference, Text, TextOrEmpty, Values
from windrow.ingest.sinks.kit import (
    Evolve,
    KeyColumns,
    KeyedSection,
    Mode,
    Rows,
    StoragePlace,
    Version,
)
from windrow.ingest.sinks.postgres.names import LONGEST, TableName, name_problems, table_name
from windrow.ingest.sinks.postgres.url import server_url

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.sinks.postgres.store import PostgresStore


def _url(value: str) -> str:
    server_url(value)
    return value


def _table(value: str) -> str:
    table_name(value)
    return value


def _check_own_schema(value: str) -> str:
    for problem in name_problems(value, LONGEST):
        raise ValueError(problem)
    if value.startswith("pg_"):
        raise ValueError("must not begin with pg_: those schemas are PostgreSQL's own")
    return value


class PostgresSection(KeyedSection):
    """A table on a server that a URL names."""

    kind: Literal["postgres"] = Field(description="What kind of table it is.")
    url: Annotated[
        TextOrEmpty, AfterValidator(_url), Values("a URL that names host and database")
    ] = Field(
        repr=False,
        description=(
            "The server and its database, as libpq takes them:"
            " `postgresql://user@host:5432/database?sslmode=verify-full`. The password comes"
            " from `password`, from PGPASSWORD or a password file, or from a template here,"
            " `{{ env.NAME }}`; written out it is refused."
        ),
    )
    password: Annotated[Reference | None, Default("none")] = Field(
        default=None,
        repr=False,
        description="The password of the URL's user. It is read for each new connection.",
    )
    table: Annotated[
        Text, AfterValidator(_table), Values("`schema.table`, or a table of the schema `public`")
    ] = Field(
        description=(
            "The table, as PostgreSQL's catalog has its name: capitals count. Dead letters go to"
            " `<table>_dead`."
        )
    )
    windrow_schema: Annotated[Text, AfterValidator(_check_own_schema), Values("a name")] = Field(
        default="windrow",
        description=(
            "The schema with windrow's own tables: receipts, and the offsets of committed windows."
        ),
    )
    staging: StoragePlace = Field(
        description=(
            "The folder in which tasks keep rows until their window is committed; all of them, and"
            " the driver, must see it. A relative path begins at the file's folder."
        )
    )
    mode: Mode = "append"
    primary_key: KeyColumns = None
    version: Version = None

    evolve: Evolve = "add_columns"

    @field_validator("password")
    @classmethod
    def _only_password(cls, password: Secret | None, info: ValidationInfo) -> Secret | None:
        if "url" in info.data:
            server_url(info.data["url"], password)
        return password

    @property
    def only_sweeps(self) -> bool:
        return True

    def location(self, folder: Path) -> str:
        """Returns the table's place, without user, password and options."""
        del folder
        return f"postgresql://{server_url(self.url).address}/{table_name(self.table)}"

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        name = table_name(self.table)
        store = _store(self, name, folder, metadata, self.evolve, self.key)
        from windrow.ingest.sinks.postgres.store import PostgresSink

        return PostgresSink(store, rows)

    def dead_letters(self, folder: Path) -> DeadLetters:
        store = _store(self, table_name(self.table).dead, folder)
        from windrow.ingest.sinks.kit import DeadLetterTable

        return DeadLetterTable(store)


def _store(section: PostgresSection, name: TableName, folder: Path, *more: Any) -> PostgresStore:
    with require_extra("postgres", "Tables in PostgreSQL can't be read or written"):
        from windrow.ingest.sinks.postgres.server import TablePlace, refuse_unusable
        from windrow.ingest.sinks.postgres.store import PostgresStore
    from windrow.ingest.sinks.kit import Place

    url = server_url(section.url, in_folder(section.password, folder))
    refuse_unusable(url)
    staging = Place.normalized(absolute(section.staging, folder)).uri
    return PostgresStore(TablePlace(url, name, section.windrow_schema), staging, *more)
