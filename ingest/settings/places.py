"""Places as a spec names them, a path or a URL, and what must not be part of one.

Text only: nothing is opened.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

WAY_OUT = (
    "a table's place is kept in plans, receipts and logs for ever. Give credentials and options to"
    " the storage's own SDK by the environment (AWS_ACCESS_KEY_ID, AWS_REGION,"
    " GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY ...)"
)
"""Why a URL holds no secret, and where the secret goes instead."""

_USER_IS_NO_SECRET = ("abfs", "abfss", "hdfs")
"""Schemes in which what stands before the @ is a container, or a name."""

_USER = re.compile(r"[^@]*:.*@", re.DOTALL)
"""A user and a password, which may hold any character: the secret keys of AWS have
slashes in them.
"""

_CREDENTIALS = re.compile(r"(?<=://)(?:[^@]*:.*@|[^/@?#]*@)", re.DOTALL)


def is_url(place: str) -> bool:
    """Whether a place is a URL; else it is a path."""
    return "://" in place


def secret_part(place: str) -> str | None:
    """What a URL holds that may be secret, in words; None for a path, and for a URL
    that names a place and nothing else.
    """
    scheme, _, rest = place.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if _USER.match(rest) or ("@" in authority and scheme not in _USER_IS_NO_SECRET):
        return "a user or a password"
    return "options behind a ? or #" if "?" in rest or "#" in rest else None


def without_secrets(place: str) -> str:
    """A place without what may be secret in it."""
    if not is_url(place) or secret_part(place) is None:
        return place
    return re.split(r"[?#]", _CREDENTIALS.sub("", place, count=1), maxsplit=1)[0]


def absolute(place: str, folder: Path) -> str:
    """The place, a relative path from a folder on; a URL as it is.

    Raises:
        ValueError: it begins with the home of a user who isn't there.
    """
    return place if is_url(place) else os.path.normpath(folder / home(place))


def home(place: str) -> Path:
    """A path with ~ filled in.

    Raises:
        ValueError: there is no such home.
    """
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise ValueError(
            "begins with ~, and that home can't be found: write the whole path"
        ) from None
