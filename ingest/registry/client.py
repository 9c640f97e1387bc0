"""Questions to a Confluent Schema Registry, through confluent-kafka's client, within
bounds that the client doesn't have.

- An answer is read up to a size, and waited for a time in all, however it comes; it is
  never unpacked, and no redirect is followed.
- Of what the client raises only types and numbers are told, and of what the registry
  said a short printable text without the password.
"""

from __future__ import annotations

import base64
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, get_args

from windrow.ingest.errors import RefusedError, SpecError, Stage, UnreachableError, WindrowError
from windrow.ingest.model.writer_schema import MOST_CHARACTERS, WriterSchema
from windrow.ingest.settings.secrets import Secret, read
from windrow.ingest.waiting import waiting_for

T = TypeVar("T")

MOST_BYTES = 4 << 20
"""Of one answer: a schema's text is JSON in JSON, so its quotes are there with a
backslash each, or as six characters.
"""
MOST_REFERENCES = 200
"""Schemas that one refers to, in one another."""

_NO_SUBJECT, _NO_SCHEMA = 40401, 40403
"""What a registry says with 404 if it has no such subject, or no such schema; else
there is something else at the address.
"""
_NOT_TAKEN = {409, 422}
"""What a registry answers to a schema that isn't compatible with the subject's, or that
may not be registered; no question leads to it.
"""
_DO_COMPATIBLE = (
    "Change the table's columns so that it is compatible, or the subject's compatibility; or write"
    " to another topic."
)
_SAID_MAX = 200
_NAME_MAX = 300
_ID_MAX = (1 << 32) - 1
"""Of an id: messages name it by four bytes."""
_BETWEEN_SECONDS = 2.0
"""At most, between two tries."""
PATIENCE = 10
"""All the questions that one schema, or subject, leads to take at most so many times as
long as one of them may.
"""
SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""As a registry calls them."""
_KINDS = get_args(SchemaKind)
_DO = {
    "source": (
        "Is source.registry, or the cluster's registry, right, and is it up? Nothing was committed;"
        " run the window again."
    ),
    "sink": (
        "Is sink.registry, or the registry of the sink's cluster, right, and is it up? Nothing was"
        " published; run the window again."
    ),
}
"""By the section that it is for."""


Strategy = Literal["topic", "record", "topic_record"]
"""Confluent's names of subjects; reading and writing go by the same."""


@dataclass(frozen=True)
class Subjects:
    """The subjects under which a registry has the schemas of a topic's messages.

    `records`: full names of records; `part`: of the messages.
    """

    strategy: Strategy = "topic"
    records: tuple[str, ...] = ()
    part: Literal["key", "value"] = "value"

    def of(self, topic: str) -> tuple[str, ...]:
        """Those of a topic."""
        if self.strategy == "topic":
            return (f"{topic}-{self.part}",)
        return tuple(
            name if self.strategy == "record" else f"{topic}-{name}" for name in self.records
        )

    @property
    def header(self) -> str:
        """The header that may hold the frame."""
        return f"__{self.part}_schema_id"


@dataclass(frozen=True)
class Registry:
    """A registry and the way to it.

    Settings alone, so it travels; each process makes its own client of them, and reads
    secrets for itself.

    `ca`: a file of certificates to trust, besides none; `certificate`, `key`,
    `key_password`: who windrow is. `timeout`: of one try, in seconds; `retries`: how
    often a question is repeated that the registry, or the network, may answer the next
    time; `section`: of a spec, for which it is asked: what is read goes by its schemas,
    or what is written.
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

    def of_subject(self, subject: str, most: int) -> list[WriterSchema]:
        return _Questions(self).of_subject(subject, most)

    def schema(self, id_: str) -> WriterSchema | None:
        return _Questions(self).schema(id_)

    def id_of(self, subject: str, schema: str, kind: SchemaKind, *, register: bool) -> int:
        """The number by which messages name a schema, which the registry has under a subject.

        Args:
            subject: the subject.
            schema: the schema's text.
            kind: what it is.
            register: whether it is registered if it isn't there; it has the same number
                however often that is asked.

        Raises:
            SpecError: the registry doesn't have it, doesn't take it (it isn't
                compatible with earlier ones), or doesn't let windrow in.
            UnreachableError: as the questions.
        """
        return _Questions(self).id_of(subject, schema, kind, register=register)

    def refuse_incompatible(self, subject: str, schema: str, kind: SchemaKind) -> None:
        """See that a schema could be registered under a subject, beside those that it
        has; nothing is registered.

        The arguments are those of `id_of`.

        Raises:
            SpecError: it isn't compatible with them by the subject's rules, or the
                registry doesn't let windrow in.
            UnreachableError: as the questions.
        """
        _Questions(self).refuse_incompatible(subject, schema, kind)

    @property
    def seconds(self) -> float:
        """What all tries of one question take at most."""
        return (self.timeout + _BETWEEN_SECONDS) * (self.retries + 1)

    @property
    def secrets(self) -> list[str]:
        """What no error may say of a registry that is `revealed`: also what a password
        is sent as, which servers like to repeat.
        """
        sent = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return [
            sent,
            *(
                secret
                for secret in (self.password, self.key_password)
                if isinstance(secret, str) and secret
            ),
        ]

    def revealed(self) -> Registry:
        """The same with what its references stand for in this process.

        Raises:
            SpecError: a secret isn't where its reference says.
        """
        password, key_password = (
            _told(self.password, "registry.password"),
            _told(self.key_password, "registry.key_password"),
        )
        return replace(self, password=password, key_password=key_password)


def _told(secret: str | Secret | None, setting: str) -> str | None:
    return read(secret, setting) if isinstance(secret, Secret) else secret


@lru_cache(maxsize=16)
def client_of(registry: Registry, _process: int) -> Any:
    """The client of a registry, one for each process: a connection doesn't outlive a fork.

    Raises:
        SpecError: the client's package isn't installed, or its settings can't be used.
    """
    try:
        from confluent_kafka.schema_registry import (
            SchemaRegistryClient,
        )  # an extra, loaded where it is asked for
    except ModuleNotFoundError as missing:
        what = f"The client of a schema registry can't be loaded: {missing.name} isn't installed"
        raise SpecError(what, "spec", "Install windrow[registry].") from missing
    settings: dict[str, Any] = {
        "url": registry.url,
        "ssl.ca.location": registry.ca,
        "ssl.certificate.location": registry.certificate,
        "ssl.key.location": registry.key,
        "ssl.key.password": registry.key_password,
        "timeout": registry.timeout,
        "max.retries": registry.retries,
        "retries.wait.ms": 200,
        "retries.max.wait.ms": int(_BETWEEN_SECONDS * 1000),
    }
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    try:
        client = SchemaRegistryClient(
            {name: value for name, value in settings.items() if value is not None}
        )
    except (
        OSError,
        ValueError,
        TypeError,
    ) as error:  # a file that can't be read, a key that isn't the certificate's
        what = (
            f"The settings of the schema registry {registry.url} can't be used:"
            f" {type(error).__name__}"
        )
        raise SpecError(
            what,
            "spec",
            "See that the files of ca, certificate and key can be read and belong together.",
        ) from None
    session = client._rest_client.session  # it offers no other way to bound an answer  # noqa: SLF001
    # kept open, a connection would be nobody's to close
    session.headers.update({"Accept-Encoding": "identity", "Connection": "close"})
    session.event_hooks = {"response": [partial(_bound, registry.seconds)]}
    return client


class _TooLargeError(Exception):
    """An answer that no schema needs."""


def _bound(seconds: float, response: Any) -> None:
    """Bound an answer's size, before anything of its body is read, and its time, for
    its thread may be all that still waits for it.
    """
    from confluent_kafka.schema_registry.common._httpx_compat import (
        httpx,
    )  # the one that the client uses

    stream, until = response.stream, time.monotonic() + seconds

    class Bounded(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in stream:
                size += len(chunk)
                if size > MOST_BYTES:
                    raise _TooLargeError
                if time.monotonic() > until:
                    raise _TimeUpError
                yield chunk

        def close(self) -> None:
            stream.close()

    if response.headers.get("content-encoding", "identity") != "identity":
        raise _TooLargeError
    response.stream = Bounded()


class _TimeUpError(Exception):
    """Nothing came of a question in all the time that its tries have."""


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """The answer, if it comes in time.

    The client bounds each step only, and a name's look-up, or an answer byte by byte, not at all.
    """
    found: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(ask())
        except BaseException as error:  # raised again, by who asked  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=work, name="windrow-registry", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise _TimeUpError
    return found[0]


class _Questions:
    """Questions by one client."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry.revealed()
        self._client = client_of(self._registry, os.getpid())
        self._characters = 0
        self._until = time.monotonic() + PATIENCE * registry.seconds

    def of_subject(self, subject: str, most: int) -> list[WriterSchema]:
        versions = self._asked(
            lambda: self._client.get_versions(subject),
            f"the versions of subject {subject}",
            _NO_SUBJECT,
        )
        if versions is None:
            return []
        if not isinstance(versions, list) or not all(type(version) is int for version in versions):
            raise self._no_answer(f"the versions of subject {subject}", "an answer that is none")
        found = (
            self._version(subject, version) for version in sorted(versions, reverse=True)[:most]
        )
        return [schema for schema in found if schema is not None]

    def schema(self, id_: str) -> WriterSchema | None:
        ask = self._client.get_schema if id_.isdecimal() else self._client.get_schema_by_guid
        what = f"schema id {id_}"
        found = self._asked(lambda: ask(int(id_) if id_.isdecimal() else id_), what, _NO_SCHEMA)
        return None if found is None else self._whole(id_, found, what)

    def id_of(self, subject: str, schema: str, kind: SchemaKind, *, register: bool) -> int:
        from confluent_kafka.schema_registry import Schema  # as above

        what, told = (
            f"the id of the schema to write by, under subject {_shown(subject)}",
            Schema(schema, kind),
        )
        if register:
            id_ = self._asked(lambda: self._client.register_schema(subject, told), what)
        else:
            found = self._asked(
                lambda: self._client.lookup_schema(subject, told), what, _NO_SUBJECT, _NO_SCHEMA
            )
            if found is None:
                missing = (
                    f"The schema registry {self._registry.url} doesn't have the sink's schema under"
                    f" subject {_shown(subject)}"
                )
                raise SpecError(
                    missing,
                    "setup",
                    f"Register it there, or set auto_register: true. It is {schema}",
                )
            id_ = found.schema_id
        if type(id_) is not int or not 0 <= id_ <= _ID_MAX:
            raise self._no_answer(what, "an answer without an id")
        return id_

    def refuse_incompatible(self, subject: str, schema: str, kind: SchemaKind) -> None:
        from confluent_kafka.schema_registry import Schema  # as above

        what = f"whether the schema to write by is compatible with subject {_shown(subject)}"
        fits = self._asked(
            lambda: self._client.test_compatibility_all_versions(subject, Schema(schema, kind)),
            what,
            _NO_SUBJECT,
        )
        if fits is False:
            said = f"The schema registry {self._registry.url} was asked {what}, and says no"
            raise SpecError(said, "setup", f"{_DO_COMPATIBLE} It is {schema}")
        if fits is not True and fits is not None:
            raise self._no_answer(what, "an answer that is neither yes nor no")

    def _version(self, subject: str, version: int) -> WriterSchema | None:
        """None if it was deleted since."""
        what = f"version {version} of subject {subject}"
        found = self._asked(lambda: self._client.get_version(subject, version), what, 40402)
        if found is None:
            return None
        if type(found.schema_id) is not int or not 0 <= found.schema_id <= _ID_MAX:
            raise self._no_answer(what, "an answer without an id")
        return self._whole(str(found.schema_id), found.schema, what)

    def _whole(self, id_: str, schema: Any, what: str) -> WriterSchema:
        """A schema with all that it refers to."""
        kind = schema.schema_type or "AVRO"
        if kind not in _KINDS:
            raise self._no_answer(what, "an answer without a schema")
        self._characters = 0
        written = self._text(schema.schema_str, what, what)
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._refer(schema, what, references, 0)
        return WriterSchema(id_, kind, written, tuple(references.values()))

    def _refer(
        self, schema: Any, what: str, found: dict[tuple[str, int], tuple[str, str]], depth: int
    ) -> None:
        """The schemas that one refers to, each behind its own; those in a circle never
        end, and are too many.
        """
        for reference in schema.references or ():
            key = reference.subject, reference.version
            if (
                not isinstance(reference.name, str)
                or not isinstance(key[0], str)
                or type(key[1]) is not int
            ):
                raise self._no_answer(what, "a reference that is none")
            if depth + len(found) >= MOST_REFERENCES:
                raise self._too_large(what)
            if key in found:
                continue
            of = f"version {_shown(key[1])} of subject {_shown(key[0])}, to which {what} refers"
            other = self._asked(
                lambda key=key: self._client.get_version(*key, deleted=True), of
            ).schema
            name, written = (
                self._text(reference.name, of, what),
                self._text(other.schema_str, of, what),
            )
            self._refer(other, what, found, depth + 1)
            found[key] = name, written

    def _text(self, text: object, of: str, what: str) -> str:
        """A text of a schema, where it is one and there is room for it: more than is
        taken isn't asked for.
        """
        if not isinstance(text, str) or not _is_unicode(text):
            raise self._no_answer(of, "an answer without a schema")
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS:
            raise self._too_large(what)
        return text

    def _asked(self, ask: Any, what: str, *missing: int) -> Any:
        """An answer; None where the registry says by one of these codes that it has none."""
        from confluent_kafka.schema_registry import SchemaRegistryError  # as above
        from confluent_kafka.schema_registry.common._httpx_compat import (
            httpx,
        )  # as above

        try:
            with waiting_for(f"the schema registry {self._registry.url}"):
                return _within(min(self._registry.seconds, self._until - time.monotonic()), ask)
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in missing:
                return None
            raise self._refused(
                what, error.http_status_code, error.error_code, error.error_message
            ) from None
        except _TooLargeError:
            raise self._too_large(what) from None
        except _TimeUpError:
            raise self._no_answer(what, "no answer in all the time that its tries have") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._no_answer(what, f"no answer ({_why(error)})") from None
        except (
            Exception  # noqa: BLE001
        ) as error:  # whatever it stumbled over in what came: its text may quote that
            raise self._no_answer(
                what, f"an answer that is none ({type(error).__name__})"
            ) from None

    def _refused(self, what: str, status: int, code: object, message: object) -> WindrowError:
        if status in {401, 403}:
            do = (
                "Fix username and password, or the certificate, of the registry, and what they may"
                " see there."
            )
            return SpecError(
                f"The schema registry {self._registry.url} doesn't let windrow see {what}: it"
                f" answered {status}",
                "spec",
                do,
            )
        said = (
            "".join(c for c in str(message) if c.isprintable())
            if type(code) is int and code > 0
            else ""
        )
        for secret in self._registry.secrets:
            said = said.replace(secret, "***")
        if status in _NOT_TAKEN:
            return SpecError(
                f"The schema registry {self._registry.url} was asked for {what}, and doesn't take"
                f" it: {status}: {said[:_SAID_MAX]}",
                "setup",
                _DO_COMPATIBLE,
            )
        moved = " and points elsewhere, which windrow doesn't follow" if 300 <= status < 400 else ""
        return self._no_answer(what, f"{status}{moved}" + (f": {said[:_SAID_MAX]}" if said else ""))

    def _no_answer(self, what: str, why: str) -> UnreachableError:
        # it keeps whatever it could read, however little of a schema that was
        self._client.clear_caches()
        stage: Stage = "decode" if self._registry.section == "source" else "setup"
        return UnreachableError(
            f"The schema registry {self._registry.url} was asked for {what}: {why}",
            stage,
            _DO[self._registry.section],
        )

    def _too_large(self, what: str) -> RefusedError:
        self._client.clear_caches()  # as above
        return RefusedError(
            f"The schema registry {self._registry.url} gives for {what} what windrow doesn't take:"
            f" more than {MOST_CHARACTERS:,} characters, more than {MOST_REFERENCES} references, or"
            " references in a circle",
            "decode",
            "See who registered it. Nothing was committed.",
        )


def _why(error: BaseException) -> str:
    """What lies under an error, by its type; of a certificate that isn't trusted also
    what the library says, in words of its own.
    """
    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    if isinstance(root, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {_shown(root.verify_message)}"
    return ", ".join(dict.fromkeys((type(error).__name__, type(root).__name__)))


def _shown(name: object) -> str:
    """What a stranger calls something, for people."""
    return "".join(c for c in str(name) if c.isprintable())[:_NAME_MAX]


def _is_unicode(text: str) -> bool:
    """Whether it can be written: JSON's escapes can make halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
