"""Settings of a schema registry, for formats whose messages refer to schemas by id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)

from windrow.ingest.errors import SpecError
from windrow.ingest.registry.client import Registry
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.logins import OidcLogin, parse_login, to_mapping
from windrow.ingest.settings.paths import absolute, is_local
from windrow.ingest.settings.secrets import in_folder
from windrow.ingest.settings.tls import TlsSection
from windrow.ingest.settings.values import (
    CountOrZero,
    Password,
    Section,
    Text,
    Timeout,
    Values,
    must,
    sentence,
)

_URL = re.compile(r"https?://[^/?#@\s,]+(/[^?#@\s,]*)?")

_SENT = {"password": "password", "token": "token", "oauth": "token", "region": "signature"}
"""The ways to sign in, and the secret that each sends."""


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
    token: Password | None = Field(
        default=None,
        repr=False,
        description=(
            "A token to sign in with, as `Authorization: Bearer`, instead of username and"
            " password. By reference it is read again before it expires, and if it is refused."
        ),
    )
    oauth: Annotated[
        OidcLogin | None,
        PlainValidator(lambda value: None if value is None else parse_login(value)),
        must(
            lambda login: (
                login is None
                or (isinstance(login, OidcLogin) and not (login.assertion or login.extensions))
            ),
            "be {method: oidc, token_url: URL, client_id: NAME, client_secret: ...}, and may have"
            " scope and ca",
        ),
        PlainSerializer(to_mapping, when_used="json-unless-none"),
        WithJsonSchema({"type": "object", "required": ["method", "token_url"]}),
        Values("`{method: oidc, token_url: URL, client_id: NAME, client_secret: {env: NAME}}`"),
    ] = Field(
        default=None,
        repr=False,
        description=(
            "The OpenID Connect provider that gives such tokens, by client credentials; also"
            " `scope`, and `ca` for the provider's certificate. Only in a `windrow.yaml`."
        ),
    )
    logical_cluster: Annotated[Text | None, Values("a name")] = Field(
        default=None,
        description="Of Confluent Cloud with a token: the id of the registry, as in `lsrc-12345`.",
    )
    identity_pool: Annotated[Text | None, Values("a name")] = Field(
        default=None, description="Of Confluent Cloud with a token: the id of the identity pool."
    )
    region: Annotated[Text | None, Values("a region of AWS")] = Field(
        default=None,
        description=(
            "Of AWS Glue Schema Registry: its region. `url` is then the address of Glue's API, and"
            " requests are signed with the credentials of AWS that each process finds."
        ),
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
        """Yields conflicts of sign-ins, secrets over plain HTTP, settings without effect."""
        if (written.get("username") is None) != (written.get("password") is None):
            missing = "password" if written.get("password") is None else "username"
            yield (missing,), "is missing: username and password go together"
        yield from super().conflicts(written)
        url = str(written.get("url"))
        plain = url.startswith("http://")
        ways = [name for name in _SENT if written.get(name) is not None]
        for name in ways[1:]:
            yield (name,), f"can't be combined with {ways[0]}: windrow signs in one way"
        if plain and ways and not is_local(url):
            yield ("url",), f"would send the {_SENT[ways[0]]} unencrypted: use https"
        for name in ("logical_cluster", "identity_pool"):
            if written.get(name) is not None and not {"token", "oauth"} & {*ways}:
                yield (name,), "goes with token or oauth"
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
        in_folder(registry.token, folder),
        registry.oauth and _in_folder(registry.oauth, folder),
        registry.logical_cluster,
        registry.identity_pool,
        registry.region,
    )


def _in_folder(login: OidcLogin, folder: Path) -> OidcLogin:
    return msgspec.structs.replace(
        login,
        ca=login.ca and absolute(login.ca, folder),
        client_secret=in_folder(login.client_secret, folder),
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
