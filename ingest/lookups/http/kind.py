"""Settings of an HTTP service as a lookup source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from pydantic import AfterValidator, Field

from windrow.ingest.errors import require_extra
from windrow.ingest.lookups.http.request import PLACE, places
from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute, is_local
from windrow.ingest.settings.secrets import FORMS, in_folder
from windrow.ingest.settings.tls import TlsSection
from windrow.ingest.settings.values import (
    REFERENCES,
    Count,
    Default,
    Password,
    SchemaReference,
    Text,
    Timeout,
    Values,
    section_of,
    sentence,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.lookup import LookupSource

_URL = re.compile(
    r"(https?://(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*|\[[0-9a-fA-F:.]+\])"
    r"(?::[0-9]{1,4}|:[1-5][0-9]{4})?)((?:/[!-~]*)?(?:\?[!-~]*)?)"
)
_SECRET = re.compile(r"auth|cookie|key|pass|secret|sig|token", re.IGNORECASE)
"""Pattern in the name of a header or parameter whose value may be a secret."""

_OWN = {"accept-encoding", "content-length", "host", "transfer-encoding"}
"""Headers that the connection sets itself."""


def _url(value: str) -> str:
    match = _URL.fullmatch(value)
    if match is None or "#" in value:
        raise sentence(
            "must be https://HOST/PATH or http://HOST/PATH, without a user or a password; {column}"
            " may be in path and query, and what isn't ASCII is percent-encoded"
        )
    query = parse_qsl(match[2].partition("?")[2])
    if any(_SECRET.search(name) and not PLACE.search(parameter) for name, parameter in query):
        raise sentence("has what may be a secret in its query: send it as a header, by reference")
    return value


class HttpSection(SourceSection):
    """A service that answers in JSON. It is asked while a window is read."""

    http: Annotated[Text, AfterValidator(_url), Values("`https://HOST/PATH/{column}`")] = Field(
        description=(
            "The address that is asked. `{column}` in path or query is the value of a column of"
            " the key, percent-encoded."
        )
    )
    schema_: SchemaReference = Field(
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel with the columns and types of the answer's rows,"
            " the key's among them. Its checks aren't asked."
        ),
    )
    body: Annotated[
        Mapping[str, Any] | None, Values('JSON, as `{ids: ["{id}"]}`'), Default("none: a GET")
    ] = Field(
        default=None,
        description=(
            "Is sent by POST. A text `{column}` in it is the value of a column of the key. A list"
            " of one item with such a text has the item for each key of a batch; the rows of the"
            " answer then say their keys."
        ),
    )
    batch: Annotated[Annotated[Count, Field(le=10_000)] | None, Default("100")] = Field(
        default=None, description="How many keys one request asks for, by a list in `body`."
    )
    results: Annotated[
        Text | None, Values("names, with dots between them"), Default("the whole answer")
    ] = Field(
        default=None,
        description="What in an answer is the row, an object, or the rows, a list of objects.",
    )
    headers: Annotated[
        Mapping[Text, Password],
        Values(f"`{{NAME: text}}`; of a secret {REFERENCES}"),
        Default("none"),
    ] = Field(
        default={},
        repr=False,
        description="Headers of each request. A task reads secrets where it runs.",
    )
    token: Password | None = Field(
        default=None,
        repr=False,
        description=(
            "A token that each request has as `Authorization: Bearer`, by reference. It and the"
            " secrets of `headers` are read again if the service refuses them (401)."
        ),
    )
    tls: Annotated[TlsSection | None, Default("the system's certificates")] = Field(
        default=None, description="Certificates for HTTPS."
    )
    timeout: Timeout = Field(
        default=timedelta(seconds=30),
        description=(
            "How long one request may take, with the tries that follow a failure; a try may take a"
            " third of it."
        ),
    )
    concurrency: Annotated[Count, Field(le=32)] = Field(
        default=4, description="How many requests a task sends at once."
    )
    per_second: Annotated[Count | None, Default("any number")] = Field(
        default=None,
        description=(
            "How many requests a run sends in a second. Its splits have equal parts of them."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the mistakes of a request.

        The request has no key; it mixes places for one key and for a batch; a secret is
        written out or would be sent unencrypted; a header or `tls` can't be set.
        """
        url = str(written.get("http"))
        in_lists = {in_list for _, in_list in _places(url, written.get("body"))}
        if len(in_lists) != 1:
            yield ("http",), "and body need a {column} of the key, in lists alone or nowhere there"
        if written.get("batch") is not None and True not in in_lists:
            yield ("batch",), 'goes with a list in body, as ["{id}"]'
        headers = section_of(written, "headers")
        token = written.get("token")
        own = _OWN if token is None else {*_OWN, "authorization"}
        for name in (name for name in headers if str(name).lower() in own):
            yield ("headers", name), "can't be set: windrow sends its own"
        secrets = [name for name in headers if _SECRET.search(str(name))]
        secret_by_path: dict[SettingPath, object] = {
            ("headers", name): headers[name] for name in secrets
        }
        secret_by_path["token",] = token
        secret_by_path["tls", "key_password"] = section_of(written, "tls").get("key_password")
        for path in (path for path, value in secret_by_path.items() if isinstance(value, str)):
            yield path, f"is written out: write {FORMS}, which each task reads itself"
        if (secrets or token is not None) and url.startswith("http://") and not is_local(url):
            yield ("http",), "would send a secret unencrypted: use https"
        if written.get("tls") is not None and url.startswith("http://"):
            yield ("tls",), "would be ignored: http must be https"

    @property
    def asked_by(self) -> list[str]:
        return sorted({name for name, _ in _places(self.http, self.body)})

    def source(self, folder: Path) -> LookupSource:
        with require_extra("http", "A service can't be asked"):
            # imported here: it loads Arrow
            from windrow.ingest.lookups.http.source import HttpSource
        from windrow.ingest.schema.user_code import ModelReference

        match = _URL.fullmatch(self.http)
        assert match is not None, "refused above"
        is_batched = any(in_list for _, in_list in places(self.body))
        tls = self.tls or TlsSection()
        assert not isinstance(tls.key_password, str), "refused above"
        assert not isinstance(self.token, str), "refused above"
        ca, certificate, key = (
            f and absolute(f, folder) for f in (tls.ca, tls.certificate, tls.key)
        )
        return HttpSource(
            match[1],
            match[2] if match[2].startswith("/") else f"/{match[2]}",
            None if self.body is None else msgspec.json.encode(self.body).decode(),
            tuple(self.asked_by),
            (self.batch or 100) if is_batched else None,
            ModelReference(self.schema_, folder),
            () if self.results is None else tuple(self.results.split(".")),
            tuple(
                (name, in_folder(header_value, folder))
                for name, header_value in self.headers.items()
            ),
            (ca, certificate, key, in_folder(tls.key_password, folder)),
            self.timeout.total_seconds(),
            self.concurrency,
            self.per_second,
            in_folder(self.token, folder),
        )


def _places(url: str, body: object) -> list[tuple[str, bool]]:
    return [*((name, False) for name in PLACE.findall(url)), *places(body)]
