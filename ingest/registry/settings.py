"""How a schema registry is reached: said beside a cluster, for the formats whose
messages name their schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError

from windrow.ingest.errors import SpecError
from windrow.ingest.registry.client import Registry
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.places import absolute
from windrow.ingest.settings.secrets import InFile, Secret
from windrow.ingest.settings.values import (
    CountOrZero,
    Duration,
    Password,
    Section,
    Text,
    Values,
    sentence,
)

_LOCAL = {"localhost", "127.0.0.1", "::1"}
_URL = re.compile(r"https?://[^/?#@\s,]+(/[^?#@\s,]*)?")


def _url(value: str) -> str:
    if "@" in value:
        raise sentence("must not hold a user or a password: they belong into username and password")
    if not _URL.fullmatch(value) or urlsplit(value).hostname is None:
        raise ValueError(
            "must be http://HOST:PORT or https://HOST:PORT, and a path where the registry has one"
        )
    return value.rstrip("/")


def _some_time(value: timedelta) -> timedelta:
    if not timedelta(milliseconds=100) <= value <= timedelta(minutes=5):
        raise ValueError("must be 100ms to 5m")
    return value


class RegistrySpec(Section):
    """A Confluent Schema Registry, or what speaks its language."""

    url: Annotated[Text, AfterValidator(_url), Values("`https://HOST:PORT`")] = Field(
        description="Where it answers."
    )
    username: Annotated[Text | None, Values("a name")] = Field(
        default=None,
        repr=False,
        description=(
            "Who windrow is, by a name (of Confluent Cloud: the API key); goes with `password`."
        ),
    )
    password: Password | None = Field(default=None, repr=False, description="What proves it.")
    ca: Annotated[Text | None, Values("a file")] = Field(
        default=None,
        description=(
            "The certificates (PEM) that the registry's must come from, instead of those that are"
            " widely known."
        ),
    )
    certificate: Annotated[Text | None, Values("a file")] = Field(
        default=None, description="Windrow's own certificate (PEM)."
    )
    key: Annotated[Text | None, Values("a file")] = Field(
        default=None,
        description="Its private key (PEM), where the certificate's file doesn't hold it.",
    )
    key_password: Password | None = Field(
        default=None, repr=False, description="What the key is locked with."
    )
    timeout: Annotated[Duration, AfterValidator(_some_time)] = Field(
        default=timedelta(seconds=10), description="How long one try of a question may take."
    )
    retries: Annotated[CountOrZero, Field(le=10)] = Field(
        default=3,
        description=(
            "How often a question is repeated that wasn't answered, or by an error of the"
            " registry's own."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Who windrow is, is told whole, and never in the clear."""
        if (written.get("username") is None) != (written.get("password") is None):
            missing = "password" if written.get("password") is None else "username"
            yield (missing,), "is missing: username and password go together"
        for name in ("key", "key_password"):
            if written.get(name) is not None and written.get("certificate") is None:
                yield (name,), "goes with certificate"
        url = str(written.get("url"))
        plain = url.startswith("http://")
        if plain and written.get("password") is not None and _host(url) not in _LOCAL:
            yield ("url",), "would send the password in clear: use https"
        for name in ("ca", "certificate"):
            if plain and written.get(name) is not None:
                yield (name,), "would be ignored: url must be https"


def registry_of(
    registry: RegistrySpec, folder: Path, section: Literal["source", "sink"] = "source"
) -> Registry:
    """What asks a registry.

    `folder`: what files are relative to; `section`: of a spec, for which it is asked.
    """
    files = (registry.ca, registry.certificate, registry.key)
    ca, certificate, key = (None if file is None else absolute(file, folder) for file in files)
    seconds = registry.timeout.total_seconds()
    password, key_password = _at(registry.password, folder), _at(registry.key_password, folder)
    return Registry(
        registry.url,
        registry.username,
        password,
        ca,
        certificate,
        key,
        key_password,
        seconds,
        registry.retries,
        section,
    )


def _at(secret: str | Secret | None, folder: Path) -> str | Secret | None:
    """The same, a file by its whole path."""
    return InFile(absolute(secret.path, folder)) if isinstance(secret, InFile) else secret


def registry_at(url: str) -> Registry:
    """One that is named by its URL alone.

    Raises:
        SpecError: it is none.
    """
    try:
        return registry_of(RegistrySpec(url=url), Path())
    except ValidationError as error:
        why = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise SpecError(
            f"The URL of the schema registry {why}", "spec", "As in http://127.0.0.1:8081."
        ) from None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # told by the setting itself
        return None
