"""The password of a database, which is read for each new connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from windrow.ingest.settings.secrets import Secret, masked, read

C = TypeVar("C")

TWO_PASSWORDS = "has a password, and there is a reference to one beside it: leave one of them out"

_REFUSED = ("authentication failed", "Access denied")
"""Words of PostgreSQL's and MySQL's errors about a password. libpq reports no SQLSTATE of them."""


def connect_with(password: Secret, setting: str, connect: Callable[[str], C]) -> C:
    """Connects with the password as it is now.

    If the server refuses it, it is read anew, and tried once more if it has changed: a command
    may have printed it before the server got another one. An error of the driver doesn't quote
    the password, although the server may repeat it.

    Args:
        password: the reference.
        setting: the name of the setting, for errors.
        connect: opens a connection by a password.

    Raises:
        SpecError: the reference leads to no password.
    """

    def connect_by(text: str) -> C:
        try:
            return connect(text)
        except Exception as error:
            # masked here, because only here is it known which password was tried
            error.args = tuple(
                masked(arg, [text]) if isinstance(arg, str) else arg for arg in error.args
            )
            raise

    first = read(password, setting)
    try:
        return connect_by(first)
    except Exception as error:
        if not any(words in str(error) for words in _REFUSED):
            raise
        second = read(password, setting, renewed=True)
        if second == first:
            raise
    return connect_by(second)


def connection_event(password: Secret, setting: str) -> Callable[..., Any]:
    """Returns a function for SQLAlchemy's event `do_connect`, by which an engine connects so."""

    def connect(dialect: Any, _record: object, words: Any, options: dict[str, Any]) -> Any:
        return connect_with(
            password, setting, lambda text: dialect.connect(*words, **options, password=text)
        )

    return connect
