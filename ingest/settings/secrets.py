"""Secrets by reference: `{env: NAME}` or `{file: PATH}`.

Each process that needs the secret reads it. Tasks are pickled on their way to workers, and
Spark may store pickles on disk, so tasks contain references, never secrets. Workers import
this module, so it doesn't import a spec's models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.paths import absolute

T = TypeVar("T")


class InEnvironment(msgspec.Struct, frozen=True):
    """The secret is the value of an environment variable."""

    variable: str


class InFile(msgspec.Struct, frozen=True):
    """The secret is the text of a file, without its last line break.

    Attributes:
        path: the absolute path, which must be the same on every machine.
    """

    path: str


Secret = InEnvironment | InFile

FORMS = "{env: NAME} or {file: PATH}"
"""The two ways to write a reference."""

_EVERYWHERE = (
    "Have it there, readable, on every machine that windrow runs on: Spark's workers read it"
    " themselves."
)


def reference(written: object) -> Secret | None:
    """Reads a reference from a mapping; None if it isn't a reference."""
    if not isinstance(written, Mapping) or len(written) != 1:
        return None
    [(form, where)] = written.items()
    if not isinstance(where, str) or not where or "\0" in where:
        return None
    if form == "env":
        return InEnvironment(where)
    return InFile(where) if form == "file" else None


def in_folder(secret: T, folder: Path) -> T | InFile:
    """Makes the path of a secret's file absolute, relative to a folder.

    Other secrets are returned unchanged.
    """
    return InFile(absolute(secret.path, folder)) if isinstance(secret, InFile) else secret


def written(value: object) -> object:
    """Returns a setting as it is written in YAML: a secret as its reference, others unchanged."""
    if isinstance(value, InEnvironment):
        return {"env": value.variable}
    return {"file": value.path} if isinstance(value, InFile) else value


def masked(text: str, secrets: Iterable[str], mask: str = "***") -> str:
    """Replaces secrets in a text by a mask.

    A secret of less than 6 characters is replaced only where it is a whole word: the
    password "post" isn't a part of "postgres".
    """
    for secret in filter(None, secrets):
        word_pattern = rf"(?<!\w){re.escape(secret)}(?!\w)"
        text = re.sub(word_pattern if len(secret) < 6 else re.escape(secret), lambda _: mask, text)
    return text


def read(secret: Secret, setting: str) -> str:
    """Reads the secret now, in this process.

    Args:
        secret: the reference.
        setting: the name of the setting, for errors.

    Raises:
        SpecError: the variable isn't set, or the file can't be read.
    """
    if isinstance(secret, InEnvironment):
        value = os.environ.get(secret.variable)
        if not value:
            raise SpecError(
                f"the environment variable {secret.variable}, which {setting} refers to, isn't set"
                " in this process",
                "spec",
                "Set it wherever windrow runs, for Spark's workers too: they read it themselves.",
            )
        return value
    try:
        value = Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SpecError(
            f"the file {secret.path}, which {setting} refers to, can't be read here: {reason}",
            "spec",
            _EVERYWHERE,
        ) from None
    if not value:
        raise SpecError(
            f"the file {secret.path}, which {setting} refers to, is empty", "spec", _EVERYWHERE
        )
    return value
