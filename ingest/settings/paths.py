"""Paths and URLs in a spec, and the secrets that a URL must not have.

It works on texts only and opens nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

WAY_OUT = (
    "a table's place is kept in plans, receipts and logs for ever. Give credentials and options to"
    " the storage's own SDK by the environment (AWS_ACCESS_KEY_ID, AWS_REGION,"
    " GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY ...)"
)
"""The reason why a URL must have no secret, and where secrets belong instead."""

_USER_IS_NO_SECRET = ("abfs", "abfss", "hdfs")
"""Schemes in which the text before the @ is a container, or a user without a password."""

_USER = re.compile(r"[^@]*:.*@", re.DOTALL)
"""Matches a user and a password, with any characters: secret keys of AWS have slashes."""

_CREDENTIALS = re.compile(r"(?<=://)(?:[^@]*:.*@|[^/@?#]*@)", re.DOTALL)


_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_local(url: str) -> bool:
    """Returns whether a URL leads to this machine, so that no other machine reads the request."""
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:  # the URL is refused by itself
        return False


def is_url(location: str) -> bool:
    """Returns whether a location is a URL, not a path."""
    return "://" in location


def secret_part(location: str) -> str | None:
    """Describes the part of a URL that may be secret; None if it has none, or is a path."""
    scheme, _, rest = location.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if _USER.match(rest) or ("@" in authority and scheme not in _USER_IS_NO_SECRET):
        return "a user or a password"
    return "options behind a ? or #" if "?" in rest or "#" in rest else None


def without_secrets(location: str) -> str:
    """Returns the location without the parts that may be secret."""
    if not is_url(location) or secret_part(location) is None:
        return location
    return re.split(r"[?#]", _CREDENTIALS.sub("", location, count=1), maxsplit=1)[0]


def absolute(location: str, folder: Path) -> str:
    """Makes a path absolute, relative to a folder. A URL is returned unchanged.

    Raises:
        ValueError: see `home`.
    """
    return location if is_url(location) else os.path.normpath(folder / home(location))


def home(path: str) -> Path:
    """Expands ~ in a path.

    Raises:
        ValueError: the home folder can't be found; or the path has a shell variable, which
            would not be expanded.
    """
    if not path.startswith("/") and "/$" in f"/{path}":
        raise ValueError("has a shell's variable, which is not read: use {{ env.HOME }} or ~")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(
            "begins with ~, and that home can't be found: write the whole path"
        ) from None


def split_spec_path(path: Path) -> tuple[Path, str | None]:
    """Splits `FILE:ID` into a spec's file and the id of one of its pipelines; None: all."""
    file, _, pipeline_id = str(path).rpartition(":")
    return (Path(file), pipeline_id) if file and not path.exists() else (path, None)
