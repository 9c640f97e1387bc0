"""The URL of a server: what of it names the place, and what must never be told.

Text only: nothing is opened, and no driver is needed.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

FORM = "postgresql://host:port/database?sslmode=verify-full"
_PORT = 5432


class ServerUrl(msgspec.Struct, frozen=True):
    """A URL as libpq takes it.

    `hosts`: where the server may be, one or several; `database`: there. `secrets`: what
    nobody is told.
    """

    text: str
    hosts: tuple[str, ...]
    database: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ServerUrl({self.place})"

    @property
    def place(self) -> str:
        """Where the database is, without who comes to it and how."""
        return f"{','.join(self.hosts)}/{self.database}"

    def as_error(self, text: str) -> str:
        """A driver's text without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def server_url(text: str) -> ServerUrl:
    """Read a URL.

    Raises:
        ValueError: it isn't one of a database; says why, and nothing of what it holds.
    """
    if not text.isprintable() or " " in text:
        raise ValueError("holds spaces or control characters")
    try:
        parts = urlsplit(text)
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise ValueError(f"can't be read as a URL: write {FORM}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError(f"must begin with postgresql://: write {FORM}")
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
        raise ValueError(f"must name the host and the database: write {FORM}")
    password = user.partition(":")[2]
    secrets = tuple(
        {
            s
            for s in (
                password,
                unquote(password),
                options.get("password", ""),
                options.get("sslpassword", ""),
            )
            if s
        }
    )
    return ServerUrl(
        text,
        tuple(_with_port(host, options.get("port", "")) for host in hosts.split(",")),
        database,
        secrets,
    )


def _with_port(host: str, port: str) -> str:
    """A host with its port; a folder of sockets as it is."""
    if host.startswith("/"):
        return host.rstrip("/")
    named = host.rpartition(":")[2].isdecimal() and not host.endswith("]")
    return host.lower() if named else f"{host.lower()}:{port or _PORT}"
