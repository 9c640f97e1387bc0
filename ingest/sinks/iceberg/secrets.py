"""Secrets by reference: a property says where its secret is, and each process that needs it reads it there for itself.

What is planned on one machine and staged on another is pickled in between, and Spark may keep that on disk. So what travels has references
in it, and never what they stand for. Loads no PyIceberg.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ingest.config.places import is_url, secret_part
from ingest.errors import SpecError


class InEnvironment(msgspec.Struct, frozen=True):
    """The secret is the value of an environment variable."""

    variable: str


class InFile(msgspec.Struct, frozen=True):
    """The secret is what a file holds, without a line's end behind it. `path`: absolute, and the same on every machine."""

    path: str


Secret = InEnvironment | InFile
Property = str | Secret

FORMS = "{env: NAME} or {file: PATH}"
"""How a reference is written."""

_SECRET = frozenset({
    "s3.secret-access-key", "s3.session-token", "client.secret-access-key", "client.session-token",
    "adls.account-key", "adls.sas-token", "adls.client-secret", "gcs.oauth2.token",
})  # fmt: skip

_PLAIN = frozenset({
    "s3.endpoint", "s3.access-key-id", "s3.region", "s3.resolve-region", "s3.proxy-uri", "s3.connect-timeout", "s3.request-timeout",
    "s3.role-arn", "s3.role-session-name", "s3.force-virtual-addressing", "s3.retry-strategy-impl", "s3.anonymous",
    "client.access-key-id", "client.region", "client.role-arn", "client.role-session-name",
    "adls.account-name", "adls.tenant-id", "adls.client-id", "adls.blob-storage-authority", "adls.dfs-storage-authority",
    "adls.blob-storage-scheme", "adls.dfs-storage-scheme",
    "gcs.oauth2.token-expires-at", "gcs.default-bucket-location", "gcs.service.host",
    "hdfs.host", "hdfs.port", "hdfs.user", "hdfs.kerberos_ticket",
})  # fmt: skip

STORAGE = _SECRET | _PLAIN
"""The properties by which PyIceberg opens a storage with Arrow; no other one is any business of a task's."""


def is_secret(name: str, value: str) -> bool:
    """Whether a property of a storage must not be written out: by its name, or because it is a URL with a password in it."""
    return name in _SECRET or (name in _PLAIN and is_url(value) and secret_part(value) is not None)


def revealed(properties: Iterable[tuple[str, Property]]) -> dict[str, str]:
    """Properties with what their references stand for, as it is in this process now.

    Raises:
        SpecError: a variable isn't set, or a file can't be read; names no value.
    """
    return {name: value if isinstance(value, str) else _read(name, value) for name, value in properties}


def _read(name: str, secret: Secret) -> str:
    if isinstance(secret, InEnvironment):
        value = os.environ.get(secret.variable)
        if not value:
            what = f"the environment variable {secret.variable}, by which sink.catalog.{name} is told, isn't set in this process"
            raise SpecError(what, "spec", "Set it wherever windrow runs, for Spark's workers too: they read it themselves.")
        return value
    try:
        value = Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        what = f"the file {secret.path}, by which sink.catalog.{name} is told, can't be read here: {why}"
        raise SpecError(what, "spec", _EVERYWHERE) from None
    if not value:
        raise SpecError(f"the file {secret.path}, by which sink.catalog.{name} is told, is empty", "spec", _EVERYWHERE)
    return value


_EVERYWHERE = "Have it there, readable, on every machine that windrow runs on: Spark's workers read it themselves."
