"""Client of a Confluent Schema Registry.

It is confluent-kafka's client, with additional bounds:

- The size of an answer is limited, and so is the time to receive it (`registry.sessions`). An
  answer is never decompressed, and no redirect is followed.
- Error messages contain only types and numbers of the client's errors, and a short printable
  part of the registry's answer, without the password.

The bounds depend on `_rest_client`, the only name of confluent-kafka's client here that isn't
public. It exists in confluent-kafka 2.16; `tests/shape/test_internals.py` fails if it is gone.
"""

from __future__ import annotations

import base64
import os
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from windrow.ingest.call_limits import TooLargeError
from windrow.ingest.errors import (
    RefusedError,
    SpecError,
    Stage,
    UnreachableError,
    WindrowError,
    describe_connection_error,
    require_extra,
    to_printable,
)
from windrow.ingest.model.writer_schema import GLUE, MOST_CHARACTERS, WriterSchema
from windrow.ingest.settings.logins import OidcLogin
from windrow.ingest.settings.secrets import Secret, masked, read
from windrow.ingest.waiting import waiting_for

MOST_REFERENCES = 200
"""The most schemas that a schema may refer to, directly or through others."""

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
"""The registry's error codes, with status 404, for a missing subject, version or schema.

A 404 without such a code comes from another server at the address.
"""
_REFUSED_SCHEMA = {409, 422}
"""The statuses for a schema that can't be registered because it isn't compatible.

A request that only reads never gets them.
"""
_DO_COMPATIBLE = (
    "Change the table's columns so that the schema is compatible, or change the subject's"
    " compatibility; or write to another topic."
)
_LONGEST_MESSAGE = 200
"""The most characters of a registry's message in an error."""
_LARGEST_ID = (1 << 32) - 1
"""The largest schema id: messages have four bytes for it."""
_LONGEST_WAIT = 2.0
"""The longest wait between two tries, in seconds."""
PATIENCE = 10
"""Most time for all requests of a schema or a subject, as a multiple of one request's time."""
_TIME_UP = "no answer in the time of all tries"
SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""The kinds of schemas, by the registry's names."""
_KINDS = get_args(SchemaKind)
_DO = {
    "source": (
        "Check source.registry, or the cluster's registry, and that the registry is up. Nothing"
        " was committed; run the window again."
    ),
    "sink": (
        "Check sink.registry, or the registry of the sink's cluster, and that the registry is up."
        " Nothing was published; run the window again."
    ),
}
"""Advice if the registry doesn't answer, for each section of a spec."""


Strategy = Literal["topic", "record", "topic_record"]
"""Confluent's strategies to name subjects, for reading and for writing."""


@dataclass(frozen=True)
class Subjects:
    """Names of the subjects under which a registry has the schemas of topics' messages.

    Attributes:
        strategy: how subjects are named.
        records: full names of records, for the strategies that need them.
        part: the part of the messages that has the schemas.
    """

    strategy: Strategy = "topic"
    records: tuple[str, ...] = ()
    part: Literal["key", "value"] = "value"

    def of(self, topic: str) -> tuple[str, ...]:
        """Returns the subjects of a topic."""
        if self.strategy == "topic":
            return (f"{topic}-{self.part}",)
        return tuple(
            name if self.strategy == "record" else f"{topic}-{name}" for name in self.records
        )

    @property
    def header(self) -> str:
        """Name of the header that may hold the schema's id."""
        return f"__{self.part}_schema_id"


@dataclass(frozen=True)
class Registry:
    """A schema registry, and how to reach it.

    It only has settings, so it can be pickled. Each process makes its own client, and reads the
    secrets itself.

    Attributes:
        url: the registry's address.
        username: the name to sign in with; None: no sign-in.
        password: the password, or a reference to it.
        ca: a file of the certificates to trust; None: the system's certificates.
        certificate: the file of windrow's own certificate.
        key: the file of the certificate's key.
        key_password: the password of that key, or a reference to it.
        timeout: how long one try may take, in seconds.
        retries: how often a request is repeated if another try may succeed.
        section: the spec's section that the registry is for, which errors name.
        token: the token to sign in with, or a reference to it.
        oauth: the provider of such tokens.
        logical_cluster: id of the registry, for Confluent Cloud with a token.
        identity_pool: id of the identity pool, for Confluent Cloud with a token.
        region: the region of AWS Glue Schema Registry, whose API is at `url`; None for
            Confluent's API.
    """

    url: str
    username: str | None = None
    password: str | Secret | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | Secret | None = field(default=None, repr=False)
    timeout: float = 10.0
    retries: int = 3
    section: Literal["source", "sink"] = "source"
    token: str | Secret | None = field(default=None, repr=False)
    oauth: OidcLogin | None = field(default=None, repr=False)
    logical_cluster: str | None = None
    identity_pool: str | None = None
    region: str | None = None

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        """Returns the schemas of a subject, as `SchemaRegistry` says; AWS Glue has no subjects."""
        return [] if self.region is not None else _Requests(self).of_subject(subject, limit)

    def schema(self, id_: str) -> WriterSchema | None:
        """Returns the schema with an id, as `SchemaRegistry` says.

        Only AWS Glue has ids that begin with `GLUE`, and has no others.
        """
        if self.region is None:
            return None if id_.startswith(GLUE) else _Requests(self).schema(id_)
        if not id_.startswith(GLUE):
            return None
        with require_extra("registry", "AWS Glue can't be asked"):
            from windrow.ingest.registry.sessions import schema_of_glue
        return schema_of_glue(
            id_, self.url, self.region, ca=self.ca, timeout=self.timeout, retries=self.retries
        )

    def id_of(self, subject: str, schema: str, kind: SchemaKind, *, register: bool) -> int:
        """Returns the id of a schema that the registry has under a subject.

        Args:
            subject: the subject.
            schema: the schema's text.
            kind: the schema's kind.
            register: True to register the schema if the subject doesn't have it. A second
                registration returns the same id.

        Raises:
            SpecError: the registry doesn't have the schema, refuses it (it isn't
                compatible with earlier schemas), or doesn't let windrow in.
            UnreachableError: the registry doesn't answer, or its answer is unusable.
        """
        return _Requests(self).id_of(subject, schema, kind, register=register)

    def refuse_incompatible(self, subject: str, schema: str, kind: SchemaKind) -> None:
        """Refuses a schema that can't be registered under a subject; registers nothing.

        The arguments are those of `id_of`.

        Raises:
            SpecError: the schema isn't compatible with the subject's schemas by its
                rules, or the registry doesn't let windrow in.
            UnreachableError: the registry doesn't answer, or its answer is unusable.
        """
        _Requests(self).refuse_incompatible(subject, schema, kind)

    @property
    def seconds(self) -> float:
        """Most seconds that all tries of one request may take."""
        return (self.timeout + _LONGEST_WAIT) * (self.retries + 1)

    @property
    def secrets(self) -> list[str]:
        """Texts that no error may contain; only for the result of `reveal`.

        They include the password in the form in which it is sent, because servers repeat it in
        errors.
        """
        basic_credentials = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return [
            basic_credentials,
            *(
                secret
                for secret in (self.password, self.key_password, self.token)
                if isinstance(secret, str) and secret
            ),
        ]

    def reveal(self, *, renewed: bool = False) -> Registry:
        """Returns the registry with the secrets themselves instead of references to them.

        Args:
            renewed: True if they are read anew, though this process keeps them.

        Raises:
            SpecError: a secret isn't at the place of its reference.
            UnreachableError: the provider of `oauth` gives no token.
        """
        token = _reveal(self.token, "registry.token", renewed=renewed)
        if self.oauth is not None:
            with require_extra("registry", "The client of a schema registry can't be loaded"):
                from windrow.ingest.registry.sessions import provider_token
            token = provider_token(self.oauth, self.timeout, self.retries, renewed=renewed)
        return replace(
            self,
            password=_reveal(self.password, "registry.password", renewed=renewed),
            key_password=_reveal(self.key_password, "registry.key_password", renewed=renewed),
            token=token,
        )


def _reveal(secret: str | Secret | None, setting: str, *, renewed: bool) -> str | None:
    return read(secret, setting, renewed=renewed) if isinstance(secret, Secret) else secret


@lru_cache(maxsize=16)
def client_of(registry: Registry, _process: int) -> Any:
    """Makes the client of a registry, one for each process: connections don't survive a fork.

    Raises:
        SpecError: the client's package isn't installed, or its settings can't be used.
    """
    with require_extra("registry", "The client of a schema registry can't be loaded"):
        from confluent_kafka.schema_registry import SchemaRegistryClient

        from windrow.ingest.registry.sessions import limit_session
    settings: dict[str, Any] = {
        "url": registry.url,
        "ssl.ca.location": registry.ca,
        "ssl.certificate.location": registry.certificate,
        "ssl.key.location": registry.key,
        "ssl.key.password": registry.key_password,
        "timeout": registry.timeout,
        "max.retries": registry.retries,
        "retries.wait.ms": 200,
        "retries.max.wait.ms": int(_LONGEST_WAIT * 1000),
    }
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    if registry.token is not None:
        settings |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": registry.token,
            "bearer.auth.logical.cluster": registry.logical_cluster or "",
            "bearer.auth.identity.pool.id": registry.identity_pool,
        }
    try:
        client = SchemaRegistryClient(
            {name: value for name, value in settings.items() if value is not None}
        )
    except (OSError, ValueError, TypeError) as error:
        # a file that can't be read, or a key that doesn't belong to the certificate
        raise SpecError(
            f"The settings of the schema registry {registry.url} can't be used:"
            f" {type(error).__name__}",
            "spec",
            "Check that the files of ca, certificate and key can be read and belong together.",
        ) from None
    # the client offers no public way to limit an answer
    limit_session(client._rest_client.session, registry.timeout)  # noqa: SLF001
    return client


class _Requests:
    """Requests for one schema or one subject.

    Attributes:
        _stated: the registry with references; None after the secrets were read again.
        _registry: the registry, with its secrets.
        _client: confluent-kafka's client.
        _characters: the number of characters of the schema and its references so far.
        _until: when the last request may be sent, on the monotonic clock.
    """

    def __init__(self, registry: Registry) -> None:
        if registry.region is not None:
            raise SpecError(
                f"AWS Glue at {registry.url} is only asked for schemas, and never given any",
                "setup",
                "Set sink.registry to a registry with Confluent's API, or write another format.",
            )
        self._stated: Registry | None = registry
        self._registry = registry.reveal()
        self._client = client_of(self._registry, os.getpid())
        self._characters = 0
        self._until = time.monotonic() + PATIENCE * registry.seconds

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        versions = self._send(
            lambda: self._client.get_versions(subject),
            f"the versions of subject {subject}",
            _NO_SUBJECT,
        )
        if versions is None:
            return []
        if not isinstance(versions, list) or not all(type(version) is int for version in versions):
            raise self._no_answer(f"the versions of subject {subject}", "an unusable answer")
        schemas = (
            self._version(subject, version) for version in sorted(versions, reverse=True)[:limit]
        )
        return [schema for schema in schemas if schema is not None]

    def schema(self, id_: str) -> WriterSchema | None:
        request = f"schema id {id_}"
        response = self._send(
            lambda: (
                self._client.get_schema(int(id_))
                if id_.isdecimal()
                else self._client.get_schema_by_guid(id_)
            ),
            request,
            _NO_SCHEMA,
        )
        return None if response is None else self._with_references(id_, response, request)

    def id_of(self, subject: str, schema: str, kind: SchemaKind, *, register: bool) -> int:
        # an optional dependency, loaded only when it is used
        from confluent_kafka.schema_registry import Schema

        request = f"the id of the sink's schema, under subject {to_printable(subject)}"
        sink_schema = Schema(schema, kind)
        if register:
            id_ = self._send(lambda: self._client.register_schema(subject, sink_schema), request)
        else:
            response = self._send(
                lambda: self._client.lookup_schema(subject, sink_schema),
                request,
                _NO_SUBJECT,
                _NO_SCHEMA,
            )
            if response is None:
                missing = (
                    f"The schema registry {self._registry.url} doesn't have the sink's schema under"
                    f" subject {to_printable(subject)}"
                )
                raise SpecError(
                    missing,
                    "setup",
                    f"Register it there, or set auto_register: true. The schema is {schema}",
                )
            id_ = response.schema_id
        return self._id(id_, request)

    def refuse_incompatible(self, subject: str, schema: str, kind: SchemaKind) -> None:
        # an optional dependency, loaded only when it is used
        from confluent_kafka.schema_registry import Schema

        request = f"the compatibility of the sink's schema with subject {to_printable(subject)}"
        fits = self._send(
            lambda: self._client.test_compatibility_all_versions(subject, Schema(schema, kind)),
            request,
            _NO_SUBJECT,
        )
        if fits is False:
            incompatible = (
                f"The schema registry {self._registry.url} finds that the sink's schema isn't"
                f" compatible with subject {to_printable(subject)}"
            )
            raise SpecError(incompatible, "setup", f"{_DO_COMPATIBLE} The schema is {schema}")
        if fits is not True and fits is not None:
            raise self._no_answer(request, "an answer that is neither yes nor no")

    def _version(self, subject: str, version: int) -> WriterSchema | None:
        """Returns a version of a subject; None if it was deleted in the meantime."""
        request = f"version {version} of subject {subject}"
        response = self._send(
            lambda: self._client.get_version(subject, version), request, _NO_VERSION
        )
        if response is None:
            return None
        return self._with_references(
            str(self._id(response.schema_id, request)), response.schema, request
        )

    def _id(self, id_: object, request: str) -> int:
        if type(id_) is not int or not 0 <= id_ <= _LARGEST_ID:
            raise self._no_answer(request, "an answer without an id")
        return id_

    def _with_references(self, id_: str, schema: Any, request: str) -> WriterSchema:
        """Returns a schema with all schemas that it refers to."""
        kind = schema.schema_type or "AVRO"
        if kind not in _KINDS:
            raise self._no_answer(request, "an answer without a schema")
        self._characters = 0
        written = self._text(schema.schema_str, request, request)
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect_references(schema, request, references, 0)
        return WriterSchema(id_, kind, written, tuple(references.values()))

    def _collect_references(
        self,
        schema: Any,
        request: str,
        collected: dict[tuple[str, int], tuple[str, str]],
        depth: int,
    ) -> None:
        """Adds the schemas that a schema refers to, each after its own references.

        References in a circle never end, so at some depth they exceed MOST_REFERENCES.
        """
        for reference in schema.references or ():
            key = reference.subject, reference.version
            if (
                not isinstance(reference.name, str)
                or not isinstance(key[0], str)
                or type(key[1]) is not int
            ):
                raise self._no_answer(request, "an unusable reference")
            if depth + len(collected) >= MOST_REFERENCES:
                raise self._too_large(request)
            if key in collected:
                continue
            reference_request = (
                f"version {key[1]} of subject {to_printable(key[0])}, to which {request} refers"
            )
            referred_schema = self._send(
                lambda key=key: self._client.get_version(*key, deleted=True), reference_request
            ).schema
            name, written = (
                self._text(reference.name, reference_request, request),
                self._text(referred_schema.schema_str, reference_request, request),
            )
            self._collect_references(referred_schema, request, collected, depth + 1)
            collected[key] = name, written

    def _text(self, text: object, part_request: str, request: str) -> str:
        """Returns a text of a schema; refuses it if the schema becomes too long with it.

        So no request is sent for the rest of a schema that is too long.
        """
        if not isinstance(text, str) or not _is_unicode(text):
            raise self._no_answer(part_request, "an answer without a schema")
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS:
            raise self._too_large(request)
        return text

    def _send(self, ask: Any, request: str, *missing: int) -> Any:
        """Returns the answer to a request; None if the error code is one of `missing`.

        Args:
            ask: sends the request.
            request: what is requested, in words for errors.
            *missing: the error codes that mean a missing subject, version or schema.
        """
        # an optional dependency, loaded only when it is used
        import httpx2
        from confluent_kafka.schema_registry import SchemaRegistryError

        if time.monotonic() > self._until:
            raise self._no_answer(request, _TIME_UP)
        try:
            with waiting_for(f"the schema registry {self._registry.url}"):
                return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in missing:
                return None
            refusal = self._error_of(
                request, error.http_status_code, error.error_code, error.error_message
            )
            if error.http_status_code != 401:
                raise refusal from None
        except TooLargeError:
            raise self._too_large(request) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise self._no_answer(
                request, f"no answer ({describe_connection_error(error)})"
            ) from None
        except Exception as error:  # noqa: BLE001
            # the client failed on the answer; the error's text may quote the answer
            raise self._no_answer(request, f"an unusable answer ({type(error).__name__})") from None
        stated, self._stated = self._stated, None
        if stated is None or (renewed := stated.reveal(renewed=True)) == self._registry:
            raise refusal
        self._registry, self._client = renewed, client_of(renewed, os.getpid())
        return self._send(ask, request, *missing)

    def _error_of(self, request: str, status: int, code: object, message: object) -> WindrowError:
        if status in {401, 403}:
            return SpecError(
                f"The schema registry {self._registry.url} doesn't let windrow ask for {request}:"
                f" it answered {status}",
                "spec",
                "Check how windrow signs in to the registry (username and password, token, oauth or"
                " certificate), and the permissions that it has there.",
            )
        reason = (
            "".join(c for c in str(message) if c.isprintable())
            if type(code) is int and code > 0
            else ""
        )
        reason = masked(reason, self._registry.secrets)[:_LONGEST_MESSAGE]
        if status in _REFUSED_SCHEMA:
            return SpecError(
                f"The schema registry {self._registry.url} was asked for {request}, and refused the"
                f" schema: {status}: {reason}",
                "setup",
                _DO_COMPATIBLE,
            )
        redirect_hint = ", a redirect, which windrow doesn't follow" if 300 <= status < 400 else ""
        return self._no_answer(
            request, f"{status}{redirect_hint}" + (f": {reason}" if reason else "")
        )

    def _no_answer(self, request: str, reason: str) -> UnreachableError:
        # the client caches every text that it could read, even half of a schema
        self._client.clear_caches()
        stage: Stage = "decode" if self._registry.section == "source" else "setup"
        return UnreachableError(
            f"The schema registry {self._registry.url} was asked for {request}: {reason}",
            stage,
            _DO[self._registry.section],
        )

    def _too_large(self, request: str) -> RefusedError:
        self._client.clear_caches()  # the client caches even half of a schema
        return RefusedError(
            f"The schema registry {self._registry.url} answers for {request} with more than"
            f" {MOST_CHARACTERS:,} characters, more than {MOST_REFERENCES} references, or"
            " references in a circle",
            "decode",
            "Find out who registered it. Nothing was committed.",
        )


def _is_unicode(text: str) -> bool:
    """Returns whether a text can be encoded: JSON's escapes can make half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
