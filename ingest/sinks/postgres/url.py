"""The URL of a server: its hosts and database, and the secrets in it.

The module only handles text: it opens no connection and needs no driver.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windrow.ingest.settings.database_password import TWO_PASSWORDS
from windrow.ingest.settings.secrets import Secret

_FORM = "postgresql://host:port/database?sslmode=verify-full"
_PORT = 5432


class ServerUrl(msgspec.Struct, frozen=True):
    """A URL in the form of libpq.

    Attributes:
        text: the URL itself.
        hosts: the server's hosts with their ports.
        database: the database's name.
        secrets: passwords, which no message may show.
        password: where each connection reads its password; None: it is in the URL, or libpq's.
    """

    text: str
    hosts: tuple[str, ...]
    database: str
    secrets: tuple[str, ...] = ()
    password: Secret | None = None

    def __repr__(self) -> str:
        return f"ServerUrl({self.address})"

    @property
    def address(self) -> str:
        """The hosts and the database, without user, password and options."""
        return f"{','.join(self.hosts)}/{self.database}"


def server_url(text: str, password: Secret | None = None) -> ServerUrl:
    """Reads a URL.

    Args:
        text: the URL.
        password: the reference to the password.

    Raises:
        ValueError: the URL is malformed, or lacks host or database, or has a password beside the
            reference; the text quotes no part of it.
    """
    if not text.isprintable() or " " in text:
        raise ValueError("holds spaces or control characters")
    try:
        parts = urlsplit(text)
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise ValueError(f"can't be read as a URL: write {_FORM}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError(f"must begin with postgresql://: write {_FORM}")
    if parts.fragment:
        raise ValueError(
            "holds a #: what is special in a user or a password is percent-encoded, # as %23"
        )
    user, _, hosts = parts.netloc.rpartition("@")
    if "@" in user or "@" in parts.path:
        raise ValueError(
            "has an @ too many: what is special in a user or a password is percent-encoded, @"
            " as %40"
        )
    hosts, database = (
        unquote(hosts) or options.get("host", ""),
        unquote(parts.path.removeprefix("/")) or options.get("dbname", ""),
    )
    if not hosts or not database:
        raise ValueError(f"must name the host and the database: write {_FORM}")
    in_user, in_options = user.partition(":")[2], options.get("password", "")
    if password is not None and (in_user or in_options):
        raise ValueError(TWO_PASSWORDS)
    secrets = {in_user, unquote(in_user), in_options, options.get("sslpassword", "")}
    return ServerUrl(
        text,
        tuple(_with_port(host, options.get("port", "")) for host in hosts.split(",")),
        database,
        tuple(filter(None, secrets)),
        password,
    )


def _with_port(host: str, port: str) -> str:
    """Adds the port to a host; a folder of sockets has no port."""
    if host.startswith("/"):
        return host.rstrip("/")
    named = host.rpartition(":")[2].isdecimal() and not host.endswith("]")
    return host.lower() if named else f"{host.lower()}:{port or _PORT}"
