"""Sessions of httpx2 with limits of size and time, for tokens of a provider and AWS Glue's schemas.

confluent-kafka's client of registries has neither limits, nor a CA of the provider's own.

The limits stand on names of httpx2 that aren't public; `tests/shape/test_internals.py` tells if
one is gone.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import httpx2
import msgspec
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client

from windrow.ingest.call_limits import TooLargeError
from windrow.ingest.errors import (
    SpecError,
    UnreachableError,
    describe_connection_error,
    to_printable,
)
from windrow.ingest.http_timeouts import TimedBackend, start_try
from windrow.ingest.model.writer_schema import GLUE, MOST_CHARACTERS, WriterSchema
from windrow.ingest.retry import growing_waits, retry
from windrow.ingest.settings.aws import sign_glue_request
from windrow.ingest.settings.logins import OidcLogin
from windrow.ingest.settings.secrets import KeptSecrets, masked, read
from windrow.ingest.waiting import waiting_for

MOST_BYTES = 4 << 20
"""The most bytes of an answer.

That is more than the longest schema's characters: the schema is JSON inside JSON, so each
quote has a backslash, or is written as six characters.
"""


def limit_session(session: Any, seconds: float) -> None:
    """Limits each answer of a session: in size, and in time however slowly it comes.

    An answer is never decompressed. The time is that of one try.
    """
    # no code would close a connection that is kept open
    session.headers.update({"Accept-Encoding": "identity", "Connection": "close"})
    session.event_hooks = {
        "request": [lambda _: start_try(seconds)],
        "response": [_limit_size],
    }
    for transport in filter(None, (session._transport, *session._mounts.values())):  # noqa: SLF001
        transport._pool._network_backend = TimedBackend()  # noqa: SLF001


def _limit_size(response: httpx2.Response) -> None:
    """Limits an answer before anything of its body is read."""
    stream: Any = response.stream

    class Limited(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in stream:
                size += len(chunk)
                if size > MOST_BYTES:
                    raise TooLargeError
                yield chunk

        def close(self) -> None:
            stream.close()

    if response.headers.get("content-encoding", "identity") != "identity":
        raise TooLargeError
    response.stream = Limited()


# --------------------------------------------------------------------------------------------------

_TOKENS = KeptSecrets()
"""The token of each login."""


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(min_length=1)]
    expires_in: Annotated[float, msgspec.Meta(gt=0)] = 300


def provider_token(login: OidcLogin, timeout: float, retries: int, *, renewed: bool) -> str:
    """Returns a token, which this process keeps for four fifths of its lifetime.

    Args:
        login: the login.
        timeout: how long one try may take, in seconds.
        retries: how often a request is repeated that gets no answer.
        renewed: True if a new token is asked for, though one is kept.

    Raises:
        SpecError: the provider refuses the login.
        UnreachableError: it doesn't answer, or with something unusable.
    """

    def fetch() -> tuple[str, float]:
        answer = retry(
            lambda: _request_token(login, timeout),
            lambda error: isinstance(error, UnreachableError),
            islice(growing_waits(math.inf), retries),
        )
        return answer.access_token, 0.8 * answer.expires_in

    return _TOKENS.read(login, fetch, renewed=renewed)


def _request_token(login: OidcLogin, timeout: float) -> _Answer:
    """Asks for a token once; the errors are those of `provider_token`."""
    provider = f"The provider {urlsplit(login.token_url).netloc}, of registry.oauth,"
    secret = read(login.client_secret, "registry.oauth.client_secret")
    try:
        context: Any = ssl.create_default_context(cafile=login.ca) if login.ca else True
        with (
            waiting_for("the provider of registry.oauth"),
            OAuth2Client(
                login.client_id, secret, scope=login.scope, verify=context, timeout=timeout
            ) as session,
        ):
            limit_session(session, timeout)
            session.register_compliance_hook("access_token_response", _refuse_redirect)
            written = session.fetch_token(login.token_url, grant_type="client_credentials")
            return msgspec.convert(dict(written), _Answer, strict=False)
    except OAuthError as error:
        raise SpecError(
            f"{provider} refuses the login: {to_printable(masked(str(error.error), [secret]))}",
            "spec",
            "Check client_id, client_secret and scope there.",
        ) from None
    except httpx2.HTTPStatusError as error:
        reason = f"it answered {error.response.status_code}"
    except Exception as error:  # noqa: BLE001
        # Authlib may fail on any answer; the error's text may quote it
        reason = describe_connection_error(error)
    raise UnreachableError(
        f"{provider} gives no token: {reason}",
        "setup",
        "Check token_url (no redirect is followed) and ca there, and that the provider is up."
        " Nothing was committed; run the window again.",
    )


def _refuse_redirect(response: httpx2.Response) -> httpx2.Response:
    return response.raise_for_status() if response.is_redirect else response


# --------------------------------------------------------------------------------------------------

_REFUSED = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
"""The types of errors that asking again doesn't end, because Glue doesn't know the caller."""


class _Version(msgspec.Struct, rename="pascal"):
    """The answer with a version of a schema."""

    schema_definition: str
    data_format: Literal["AVRO", "JSON", "PROTOBUF"]


def schema_of_glue(
    id_: str, url: str, region: str, *, ca: str | None, timeout: float, retries: int
) -> WriterSchema | None:
    """Returns a schema of AWS Glue Schema Registry; None if Glue doesn't have it.

    Args:
        id_: the schema's id: `GLUE`, and the UUID of the schema's version.
        url: the address of Glue's API.
        region: its region.
        ca: a file of the certificates to trust; None: the system's certificates.
        timeout: how long one try may take, in seconds.
        retries: how often a request is repeated if another try may succeed.

    Raises:
        SpecError: no credentials are found, or they aren't allowed to ask.
        UnreachableError: Glue doesn't answer, or its answer is unusable.
    """
    request = f"AWS Glue at {url} was asked for schema id {id_}"
    body = msgspec.json.encode({"SchemaVersionId": id_.removeprefix(GLUE)})

    def ask() -> WriterSchema | None:
        headers = sign_glue_request(f"{url}/", region, body)
        try:
            with (
                waiting_for(f"AWS Glue at {url}"),
                httpx2.Client(
                    verify=ssl.create_default_context(cafile=ca) if ca else True, timeout=timeout
                ) as session,
            ):
                limit_session(session, timeout)
                answer = session.post(f"{url}/", content=body, headers=headers)
            if answer.status_code == 200:
                version = msgspec.json.decode(answer.content, type=_Version)
                if len(version.schema_definition) <= MOST_CHARACTERS:
                    return WriterSchema(id_, version.data_format, version.schema_definition)
                reason = f"a schema of more than {MOST_CHARACTERS:,} characters"
            else:
                # A type may have a namespace before it.
                document = msgspec.json.decode(answer.content, type=dict[str, Any])
                reason = str(document.get("__type", answer.status_code)).rpartition("#")[2]
        except (msgspec.MsgspecError, TooLargeError) as error:
            reason = f"an unusable answer ({type(error).__name__})"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            reason = f"no answer ({describe_connection_error(error)})"
        if reason == "EntityNotFoundException":
            return None
        if reason in _REFUSED:
            raise SpecError(
                f"{request}, and refused: {reason}",
                "spec",
                "Allow glue:GetSchemaVersion to the role or the user whose credentials windrow's"
                " processes find, and check source.registry.region. Nothing was committed.",
            )
        raise UnreachableError(
            f"{request}: {to_printable(reason)}",
            "decode",
            "Check source.registry, and that Glue can be reached. Nothing was committed; run the"
            " window again.",
        )

    return retry(
        ask,
        lambda error: isinstance(error, UnreachableError),
        islice(growing_waits(math.inf), retries),
    )
