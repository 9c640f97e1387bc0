"""Secrets by reference: a setting says where its secret is, and each process that needs
it reads it there for itself.

What is planned on one machine and done on another is pickled in between, and Spark may
keep that on disk. So what travels has references in it, and never what they stand for.
Loads no model of a spec: workers use it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from windrow.ingest.errors import SpecError


class InEnvironment(msgspec.Struct, frozen=True):
    """The secret is the value of an environment variable."""

    variable: str


class InFile(msgspec.Struct, frozen=True):
    """The secret is what a file holds, without a line's end behind it.

    `path`: absolute, and the same on every machine.
    """

    path: str


Secret = InEnvironment | InFile

FORMS = "{env: NAME} or {file: PATH}"
"""How a reference is written."""

_EVERYWHERE = (
    "Have it there, readable, on every machine that windrow runs on: Spark's workers read it"
    " themselves."
)


def reference(written: object) -> Secret | None:
    """The reference that is written as a mapping; None if it is none."""
    if not isinstance(written, Mapping) or len(written) != 1:
        return None
    [(form, where)] = written.items()
    if not isinstance(where, str) or not where or "\0" in where:
        return None
    if form == "env":
        return InEnvironment(where)
    return InFile(where) if form == "file" else None


def written(value: object) -> object:
    """A setting as a document has it: of a secret its reference, of anything else the
    value itself.
    """
    if isinstance(value, InEnvironment):
        return {"env": value.variable}
    return {"file": value.path} if isinstance(value, InFile) else value


def read(secret: Secret, setting: str) -> str:
    """What a reference stands for, as it is in this process now.

    `setting`: what is told by it, for errors.

    Raises:
        SpecError: the variable isn't set, or the file can't be read; names no value.
    """
    if isinstance(secret, InEnvironment):
        value = os.environ.get(secret.variable)
        if not value:
            what = (
                f"the environment variable {secret.variable}, by which {setting} is told, isn't set"
                " in this process"
            )
            raise SpecError(
                what,
                "spec",
                "Set it wherever windrow runs, for Spark's workers too: they read it themselves.",
            )
        return value
    try:
        value = Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SpecError(
            f"the file {secret.path}, by which {setting} is told, can't be read here: {why}",
            "spec",
            _EVERYWHERE,
        ) from None
    if not value:
        raise SpecError(
            f"the file {secret.path}, by which {setting} is told, is empty", "spec", _EVERYWHERE
        )
    return value
