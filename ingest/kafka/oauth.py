"""Tokens of SASL OAUTHBEARER: where librdkafka gets them for a login.

With OIDC and on Azure, librdkafka asks for tokens itself. For the other logins it asks
`TokenSource`, in a thread of its own, when four fifths of a token's lifetime are over.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.aws import sign_msk_url
from windrow.ingest.settings.logins import AzureLogin, Login, MskLogin, OidcLogin, TokenLogin
from windrow.ingest.settings.secrets import Secret, claimed_expiry, read

_SETTING = "client.oauth"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat, Fedora, Amazon Linux
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS
)
"""Files with the certificates that a system trusts."""
_MSK_SECONDS = 900
"""Lifetime of a token for MSK, the longest that it takes."""

Token = tuple[str, float, str, dict[str, str]]
"""A token, the end of its lifetime in seconds since 1970, its principal, and extensions."""


class TokenSource(msgspec.Struct, frozen=True):
    """Gives clients their tokens, as confluent-kafka's `oauth_cb` and the reader ask for them.

    Attributes:
        login: the login.
    """

    login: TokenLogin | MskLogin

    def __call__(self, _config: str = "") -> Token:
        """Returns a token that is valid now.

        Raises:
            SpecError: there is none.
        """
        login = self.login
        token, expiry = msk_token(login) if isinstance(login, MskLogin) else _given_token(login)
        return token, expiry, "windrow", dict(login.extensions)


def login_properties(login: Login) -> Mapping[str, str | TokenSource]:
    """Returns a login as properties of a client, with secrets.

    Raises:
        SpecError: a secret isn't where its reference says.
    """
    if isinstance(login, TokenLogin | MskLogin):
        source = TokenSource(login)
        source()  # fails here if there is no token, not later as a refused login
        return {"oauth_cb": source}
    properties: dict[str, object] = {
        "method": "oidc",
        "extensions": ",".join(f"{name}={value}" for name, value in login.extensions.items()),
        **(_azure(login) if isinstance(login, AzureLogin) else _oidc(login)),
    }
    ca = (login.ca or _system_ca()) if isinstance(login, OidcLogin) else None
    return {f"sasl.oauthbearer.{name}": str(text) for name, text in properties.items() if text} | (
        {"https.ca.location": ca} if ca else {}
    )


def _system_ca() -> str | None:
    """Returns the file with the certificates that this system trusts; None if there is none.

    The curl in confluent-kafka's wheel knows Red Hat's file alone, and neither a folder nor
    OpenSSL's variables.
    """
    files = (ssl.get_default_verify_paths().cafile, *_CA_FILES)
    return next((file for file in files if file and Path(file).is_file()), None)


def _oidc(login: OidcLogin) -> Mapping[str, object]:
    properties = {
        "token.endpoint.url": login.token_url,
        "client.id": login.client_id,
        "client.secret": _revealed(login.client_secret, "client_secret"),
        "scope": login.scope,
    }
    if login.assertion is None:
        return properties
    assertion = login.assertion
    return properties | {
        "grant.type": _JWT_BEARER,
        "assertion.file": assertion.token_file,
        "assertion.private.key.pem": _revealed(assertion.key, "assertion.key"),
        "assertion.private.key.passphrase": _revealed(
            assertion.key_password, "assertion.key_password"
        ),
        "assertion.algorithm": None if assertion.token_file else "RS256",
        "assertion.claim.aud": assertion.audience,
        "assertion.claim.iss": assertion.issuer,
        "assertion.claim.sub": assertion.subject,
    }


def _revealed(secret: Secret | None, name: str) -> str | None:
    return None if secret is None else read(secret, f"{_SETTING}.{name}")


def _azure(login: AzureLogin) -> Mapping[str, object]:
    identity = {"client_id": login.identity} if login.identity else {}
    query = urlencode({"api-version": "2018-02-01", "resource": login.resource, **identity})
    return {"metadata.authentication.type": "azure_imds", "config": f"query={query}"}


def _given_token(login: TokenLogin) -> tuple[str, float]:
    """Returns the token that a reference leads to, and the end of its lifetime.

    Raises:
        SpecError: there is none, or it is no longer valid.
    """
    setting = f"{_SETTING}.token"
    token = read(login.token, setting)
    expiry = _expiry_of(token, login)
    if expiry <= time.time():
        raise SpecError(
            f"the token of {setting} expired at {datetime.fromtimestamp(expiry, UTC):%FT%TZ}",
            "spec",
            "See that the program that renews it runs; windrow reads it again by itself.",
        )
    return token, expiry


def _expiry_of(token: str, login: TokenLogin) -> float:
    """Returns the end of a token's lifetime: the claim `exp` of a JWT, else the setting's.

    Raises:
        SpecError: the token doesn't say it, and neither do the settings.
    """
    expiry = claimed_expiry(token)
    if expiry is not None:
        return expiry
    if login.lifetime_seconds is not None:
        return time.time() + login.lifetime_seconds
    raise SpecError(
        f"the token of {_SETTING}.token is no JWT with the claim exp, so it doesn't say how long it"
        " is valid",
        "spec",
        f"Set {_SETTING}.lifetime_seconds.",
    )


def msk_token(login: MskLogin) -> tuple[str, float]:
    """Signs a token for Amazon MSK, as AWS's own signers do; returns the end of its lifetime too.

    It is the URL of a request that is signed and never sent.

    Raises:
        SpecError: botocore isn't installed, or finds no credentials.
    """
    expiry = time.time() + _MSK_SECONDS
    url = f"{sign_msk_url(login.region, _MSK_SECONDS)}&User-Agent=windrow"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("="), expiry
