"""Settings of a schema registry, for formats whose messages refer to schemas by id."""

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
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.secrets import in_folder
from windrow.ingest.settings.tls import TlsSection, is_local
from windrow.ingest.settings.values import (
    CountOrZero,
    Password,
    Section,
    Text,
    Timeout,
    Values,
    sentence,
)

_URL = re.compile(r"https?://[^/?#@\s,]+(/[^?#@\s,]*)?")


def _url(value: str) -> str:
    if "@" in value:
        raise sentence("must not have a user or a password: set username and password instead")
    if not _URL.fullmatch(value) or urlsplit(value).hostname is None:
        raise ValueError(
            "must be http://HOST:PORT or https://HOST:PORT, with a path if the registry has one"
        )
    return value.rstrip("/")


class _RegistryAddress(Section):
    url: Annotated[Text, AfterValidator(_url), Values("`https://HOST:PORT`")] = Field(
        description="The registry's address."
    )
    username: Annotated[Text | None, Values("a name")] = Field(
        default=None,
        repr=False,
        description=(
            "The name that windrow signs in with (for Confluent Cloud: the API key); goes with"
            " `password`."
        ),
    )
    password: Password | None = Field(
        default=None,
        repr=False,
        description="The password (for Confluent Cloud: the API secret).",
    )


class RegistrySpec(TlsSection, _RegistryAddress):
    """Confluent Schema Registry, or a registry with the same HTTP API."""

    timeout: Timeout = Field(
        default=timedelta(seconds=10), description="How long one try of a request may take."
    )
    retries: Annotated[CountOrZero, Field(le=10)] = Field(
        default=3,
        description=(
            "How often a request is repeated if no answer comes, or the registry answers with an"
            " error of its own."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields conflicts of a sign-in, a password over plain HTTP, settings without effect."""
        if (written.get("username") is None) != (written.get("password") is None):
            missing = "password" if written.get("password") is None else "username"
            yield (missing,), "is missing: username and password go together"
        yield from super().conflicts(written)
        url = str(written.get("url"))
        plain = url.startswith("http://")
        if plain and written.get("password") is not None and not is_local(url):
            yield ("url",), "would send the password unencrypted: use https"
        for name in ("ca", "certificate"):
            if plain and written.get(name) is not None:
                yield (name,), "would be ignored: url must be https"


def registry_of(
    registry: RegistrySpec, folder: Path, section: Literal["source", "sink"] = "source"
) -> Registry:
    """Makes the client of a registry.

    Args:
        registry: the settings.
        folder: the folder that files are relative to.
        section: the spec's section that the registry is for.
    """
    files = (registry.ca, registry.certificate, registry.key)
    ca, certificate, key = (None if file is None else absolute(file, folder) for file in files)
    seconds = registry.timeout.total_seconds()
    password = in_folder(registry.password, folder)
    key_password = in_folder(registry.key_password, folder)
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


def registry_at(url: str) -> Registry:
    """Makes the client of a registry from its URL alone.

    Raises:
        SpecError: the text isn't a URL of a registry.
    """
    try:
        return registry_of(RegistrySpec(url=url), Path())
    except ValidationError as error:
        reason = "; ".join(
            mistake["msg"].removeprefix("Value error, ") for mistake in error.errors()
        )
        raise SpecError(
            f"The URL of the schema registry {reason}", "spec", "As in http://127.0.0.1:8081."
        ) from None
