"""Settings of a database as a lookup source."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.settings.paths import absolute, home
from windrow.ingest.settings.secrets import in_folder
from windrow.ingest.settings.values import Default, Reference, Text, Timeout, Values, sentence

if TYPE_CHECKING:
    from windrow.ingest.ports.lookup import LookupSource

_SQLITE = "sqlite:///"

_UNHEEDED = {"ssl_verify_cert", "ssl_verify_identity"}
"""Options of PyMySQL that SQLAlchemy gives it beside `ssl_ca` in such a way that one cancels it."""


def _url(value: str) -> str:
    if value.startswith(_SQLITE) and value != _SQLITE:
        home(value.removeprefix(_SQLITE))
        return value
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in {"postgresql", "mysql"} or not url.database:
        message = "must be postgresql://user@host:5432/database, mysql://user@host:3306/database"
        raise sentence(f"{message}, or sqlite:///path")
    secret = [name for name in url.query if "pass" in name]
    if url.password or secret or ":" in (url.username or ""):
        raise sentence("has a password in it: say it under password, by reference")
    if _UNHEEDED & {*url.query}:
        raise sentence(
            "has ssl_verify_cert or ssl_verify_identity, with which PyMySQL ignores ssl_ca: leave"
            " them out, since ssl_ca alone has certificate and host checked"
        )
    return value


class SqlSection(SourceSection):
    """A table or view of PostgreSQL, MySQL or SQLite. It is asked while a window is read."""

    sql: Annotated[
        Text,
        AfterValidator(_url),
        Values(
            "`postgresql://user@host:5432/database`, `mysql://user@host:3306/database` (MariaDB,"
            " too), or `sqlite:///path`"
        ),
    ] = Field(
        description="The database. The path of SQLite's file is relative to the spec's folder."
    )
    relation: Annotated[Text, Values("`table`, or `schema.table`")] = Field(
        description="The table or view. Its keys should have an index."
    )
    password: Annotated[Reference | None, Default("none")] = Field(
        default=None,
        repr=False,
        description="The password of the URL's user. Each task reads it for a new connection.",
    )
    timeout: Timeout = Field(
        default=timedelta(seconds=30), description="How long one question may take, of 1,000 keys."
    )

    def source(self, folder: Path) -> LookupSource:
        # imported here: it loads SQLAlchemy's dialects and Arrow
        from windrow.ingest.lookups.sql.source import SqlSource

        url = self.sql
        if url.startswith(_SQLITE):
            url = _SQLITE + absolute(url.removeprefix(_SQLITE), folder)
        milliseconds = self.timeout // timedelta(milliseconds=1)
        return SqlSource(url, self.relation, in_folder(self.password, folder), milliseconds)
