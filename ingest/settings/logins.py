"""Logins of Kafka by token (SASL OAUTHBEARER), as `client.oauth` of a cluster has them.

Pure data, which is pickled on its way to workers: a secret is a reference, and each
process that connects gets its own token. Workers import this module, so it loads no
model of a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from windrow.ingest.settings.paths import is_local
from windrow.ingest.settings.secrets import (
    SHARED_FORMS,
    Secret,
    named_or_reference,
    written,
)


class _Login(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="method",
):
    """The fields of each login.

    Attributes:
        extensions: names and values that the broker gets with the token, such as
            Confluent Cloud's `logicalCluster` and `identityPoolId`.
    """

    extensions: Mapping[str, str] = {}

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(to_mapping(self), order="deterministic"))


class Assertion(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A signed statement by which a client shows who it is, instead of a secret (RFC 7523).

    Attributes:
        token_file: file with an assertion that another program renews, such as a
            projected token of Kubernetes.
        key: private RSA key (PEM) that signs an assertion for each token, by RS256. librdkafka
            2.16 writes signatures of ES256 in DER, which isn't a JWT's form (RFC 7518, 3.4).
        key_password: password of the key.
        audience, issuer, subject: claims of the assertion.
    """

    token_file: str | None = None
    key: Any = None
    key_password: Any = None
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        _require_reference(self.key, "key")
        _require_reference(self.key_password, "key_password")
        if (self.token_file is None) == (self.key is None):
            raise ValueError("an assertion has exactly one of token_file and key")
        if self.key is None and len(to_mapping(self)) > 2:
            raise ValueError("token_file is signed already: it goes without key and claims")


class OidcLogin(_Login, tag="oidc", frozen=True):
    """Tokens of an OpenID Connect provider. librdkafka asks for them, and renews them.

    Attributes:
        token_url: the provider's token endpoint, by HTTPS.
        client_id: the client's name at the provider.
        client_secret: the client's secret.
        assertion: signed statement instead of a secret.
        scope: scope of the token.
        ca: file with the certificates (PEM) of the authorities to trust for `token_url`.
    """

    token_url: str
    client_id: str | None = None
    client_secret: Any = None
    assertion: Assertion | None = None
    scope: str | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        _require_reference(self.client_secret, "client_secret")
        if (self.client_secret is None) == (self.assertion is None):
            raise ValueError("oidc has exactly one of client_secret and assertion")
        if self.client_secret is not None and not self.client_id:
            raise ValueError("client_secret goes with client_id")
        _require_https(self.token_url)


class AzureLogin(_Login, tag="azure_imds", frozen=True):
    """Tokens of the managed identity of an Azure machine. librdkafka asks for them.

    Attributes:
        resource: what the token is for, such as `https://NAMESPACE.servicebus.windows.net`.
        identity: client id of the identity, if the machine has several.
    """

    resource: str
    identity: str | None = None


class TokenLogin(_Login, tag="token", frozen=True):
    """Tokens from a file, a variable or a command. Another program renews them.

    Attributes:
        token: reference to the token.
        lifetime_seconds: how long a token can be used that doesn't say it itself, as a
            JWT does by its claim `exp`.
    """

    token: Any
    lifetime_seconds: int | None = None

    def __post_init__(self) -> None:
        if self.token is None:
            raise ValueError(f"token must be a reference: {SHARED_FORMS}")
        _require_reference(self.token, "token")
        if self.lifetime_seconds is not None and self.lifetime_seconds < 1:
            raise ValueError("lifetime_seconds must be 1 or more")


class MskLogin(_Login, tag="aws_msk_iam", frozen=True):
    """Tokens for Amazon MSK, signed with the AWS credentials of the process.

    Attributes:
        region: region of the cluster.
    """

    region: str


Login = OidcLogin | AzureLogin | TokenLogin | MskLogin


def parse_login(value: object) -> Login:
    """Reads a login from a mapping.

    Raises:
        ValueError: the mapping is no login; the text quotes no value.
    """
    if isinstance(value, Login):  # a section that is made from another one
        return value
    try:
        login: Login = msgspec.convert(_with_secrets(value), Login)
    except msgspec.ValidationError as error:
        raise ValueError(f"is no login: {error}") from None
    return login


def to_mapping(login: _Login | Assertion) -> dict[str, Any]:
    """Writes a login as YAML has it: a secret as its reference."""
    fields = msgspec.structs.asdict(login)
    method = {"method": login.__struct_config__.tag} if isinstance(login, _Login) else {}
    return method | {
        name: to_mapping(value) if isinstance(value, Assertion) else written(value)
        for name, value in fields.items()
        if value not in (None, {})
    }


def _with_secrets(value: object) -> object:
    """Returns the value with each nested reference replaced by its `Secret`."""
    if not isinstance(value, Mapping):
        return value
    return named_or_reference(value) or {name: _with_secrets(item) for name, item in value.items()}


def _require_reference(value: object, name: str) -> None:
    if value is not None and not isinstance(value, Secret):
        raise ValueError(f"{name} is a secret: write {SHARED_FORMS}")


def _require_https(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_local(url):
        raise ValueError("token_url must begin with https://")
    if parts.username or parts.password:
        raise ValueError("token_url must not hold a user or a password")
