"""Requests to a registry through confluent-kafka's client: answers, and every kind of failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.registry_contract import SchemaRegistryContract, named, refers_to
from tests.kafka.listener import server_context
from tests.registry.server import Fault, RegistryServer
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, WindrowError
from windrow.ingest.model.writer_schema import MOST_CHARACTERS
from windrow.ingest.registry import client
from windrow.ingest.registry.client import Registry
from windrow.ingest.registry.sessions import MOST_BYTES

SECRET = "hunter2"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry that requires a password."""
    with RegistryServer(user=("me", SECRET)) as registry:
        yield registry


@pytest.fixture
def registry(server: RegistryServer) -> Registry:
    """A client's settings for the registry, with short waits."""
    return Registry(server.url, "me", SECRET, timeout=5, retries=1)


class TestRegistry(SchemaRegistryContract):
    """The contract of schema registries, on a real HTTP server."""


UNUSABLE: dict[str, tuple[Fault, str]] = {
    "down for a while": (Fault(503), "503"),
    "an error of its own": (
        Fault(500, b'{"error_code": 50001, "message": "the store: hunter2"}'),
        r"500: the store: \*\*\*",
    ),
    "another kind of server": (Fault(404, b"<html>nothing here</html>"), "404"),
    "another code of 404": (
        Fault(404, b'{"error_code": 404, "message": "no such path"}'),
        "404: no such path",
    ),
    "a redirect": (
        Fault(302, headers={"Location": "http://169.254.169.254/secrets"}),
        "302, a redirect, which windrow doesn't follow",
    ),
    "no JSON": (Fault(200, b"hello"), "an unusable answer"),
    "JSON of another kind": (Fault(200, b"[1, 2]"), "an unusable answer"),
    "a bomb of brackets": (Fault(200, b"[" * 1_000_000), "an unusable answer"),
    "no schema": (Fault(200, b"{}"), "an answer without a schema"),
    "a schema that is none": (Fault(200, b'{"schema": {"type": "string"}}'), "an unusable answer"),
    "a kind that nobody knows": (
        Fault(200, b'{"schema": "x", "schemaType": "XML"}'),
        "an answer without a schema",
    ),
    "a reference that is none": (
        Fault(200, b'{"schema": "x", "references": [{"name": "a", "subject": "b"}]}'),
        "reference",
    ),
    "half an answer": (Fault(200, b'{"schema": "x"}', {"Content-Length": "100"}), "no answer"),
    "an answer that is cut by its length": (
        Fault(200, b'{"schema": "x"}', {"Content-Length": "5"}),
        "an unusable answer",
    ),
    "half a character": (Fault(200, b'{"schema": "\\ud800"}'), "an answer without a schema"),
    "half a character in a reference": (
        Fault(
            200,
            b'{"schema": "x", "references": [{"name": "\\udfff", "subject": "t-value", "version":'
            b" 1}]}",
        ),
        "without a schema",
    ),
    "a reference with a long and strange name": (
        Fault(
            200,
            b'{"schema": "x", "references": [{"name": "a", "subject": "\\n\\u001b'
            + b"b" * 9000
            + b'", "version": -1}]}',
        ),
        "version -1 of subject b{300}, to which schema id 1 refers: 404: Subject",
    ),
    "what it was sent": (
        Fault(500, b'{"error_code": 50001, "message": "Basic bWU6aHVudGVyMg=="}'),
        r"500: Basic \*\*\*",
    ),
    "a password at the end of what is told": (
        Fault(500, b'{"error_code": 50001, "message": "' + b"x" * 195 + b'hunter2"}'),
        r"500: x{195}\*\*\* ",
    ),
    "a line that is cut": (Fault(closes=True), "no answer"),
    "strange characters": (
        Fault(400, b'{"error_code": 42, "message": "\\u001b[31mred\\n' + b"x" * 5000 + b'"}'),
        r"400: \[31mredx{190,}",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_no_answer(name: str, server: RegistryServer, registry: Registry) -> None:
    """An unusable answer raises UnreachableError with the address, the request and the reason.

    The error is short and has no secret.
    """
    fault, pattern = UNUSABLE[name]
    id_ = server.register("t-value", named("R"))
    server.faults = {f"/schemas/ids/{id_}": fault}
    with pytest.raises(UnreachableError, match=pattern) as raised:
        registry.schema(str(id_))
    message = str(raised.value)
    assert message.startswith(f"The schema registry {server.url} was asked for ")
    assert f"schema id {id_}" in message
    assert "hunte" not in message + repr(registry)
    assert "bWU6aHVudGVyMg" not in message
    assert len(message) < 900
    assert message.isprintable()
    server.faults = {}
    assert registry.schema(str(id_)) is not None


@pytest.mark.parametrize("fault", [Fault(503), Fault(429), Fault(closes=True)])
def test_a_question_is_repeated_so_often(
    server: RegistryServer, registry: Registry, fault: Fault
) -> None:
    """A request that may succeed later is repeated as often as the settings say."""
    server.faults = {"/schemas/ids/1": fault}
    with pytest.raises(UnreachableError):
        registry.schema("1")
    assert server.requested_paths == ["/schemas/ids/1"] * 2


def test_nobody_there(server: RegistryServer, registry: Registry) -> None:
    """A port without a server, and an unknown host, raise UnreachableError."""
    server.stop()
    for url in (server.url, "http://registry.invalid"):
        with pytest.raises(UnreachableError, match="no answer"):
            replace(registry, url=url, retries=0).schema("1")


def test_many_slow_answers(
    server: RegistryServer, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests for a schema or a subject have one time limit, however many there are."""
    monkeypatch.setattr(client, "PATIENCE", 0.2)
    for n in range(200):
        server.register("t-value", named(f"R{n}"))
        server.faults[f"/subjects/t-value/versions/{n + 1}"] = Fault(
            200, b'{"schema": "x", "id": 1, "version": 1}', seconds=0.05
        )
    with pytest.raises(UnreachableError, match="no answer in the time of all tries"):
        registry.of_subject("t-value", 200)
    assert len(server.requested_paths) < 100


def test_no_more_is_asked_for_than_is_taken(server: RegistryServer, registry: Registry) -> None:
    """A schema with many large references is refused after a limited amount, and nothing of it
    stays in memory.
    """
    for n in range(20):
        server.register(f"S{n}", f'"{n}' + "a" * (MOST_CHARACTERS // 2) + '"')
    id_ = server.register("many", named("M"), references=refers_to(*(f"S{n}" for n in range(20))))
    with pytest.raises(RefusedError, match=f"schema id {id_} with more than"):
        registry.schema(str(id_))
    assert len(server.requested_paths) == 3
    with pytest.raises(RefusedError):
        registry.schema(str(id_))
    assert len(server.requested_paths) == 6


def test_an_answer_that_is_too_large(server: RegistryServer, registry: Registry) -> None:
    """An answer that is too large isn't requested again."""
    server.faults = {"/schemas/ids/1": Fault(200, b'{"schema": "' + b"a" * MOST_BYTES + b'"}')}
    with pytest.raises(RefusedError, match="schema id 1 with more than"):
        registry.schema("1")
    assert len(server.requested_paths) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_not_let_in(server: RegistryServer, registry: Registry, status: int) -> None:
    """A wrong password raises SpecError without the password, and isn't tried again."""
    stranger = replace(registry, password="hunter3")
    if status == 403:
        server.faults = {"/subjects/t-value/versions": Fault(403, b"hunter3")}
    with pytest.raises(
        SpecError,
        match=f"doesn't let windrow ask for the versions of subject t-value: it answered {status}",
    ) as raised:
        stranger.of_subject("t-value", 1)
    assert "hunter" not in str(raised.value)
    assert len(server.requested_paths) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/subjects/t-value/versions", b'{"1": 1}'),
        ("/subjects/t-value/versions", b'["1"]'),
        ("/subjects/t-value/versions", b"[true]"),
        ("/subjects/t-value/versions/1", b'{"schema": "x", "version": 1}'),
        ("/subjects/t-value/versions/1", b'{"schema": "x", "id": "7"}'),
        ("/subjects/t-value/versions/1", b'{"schema": "x", "id": -1}'),
        ("/subjects/t-value/versions/1", b'{"schema": "x", "id": 4294967296}'),
    ],
)
def test_versions_that_are_none(
    server: RegistryServer, registry: Registry, path: str, body: bytes
) -> None:
    """Every answer is checked before it is used."""
    server.register("t-value", named("R"))
    server.faults = {path: Fault(200, body)}
    with pytest.raises(UnreachableError, match="subject t-value"):
        registry.of_subject("t-value", 1)


def test_a_version_that_is_deleted_meanwhile(server: RegistryServer, registry: Registry) -> None:
    """A version that is deleted meanwhile is left out. Its id can still be requested."""
    id_ = server.register("t-value", named("R"))
    server.register("t-value", named("S"))
    server.faults = {
        "/subjects/t-value/versions/1": Fault(
            404, b'{"error_code": 40402, "message": "Version 1 not found."}'
        )
    }
    assert [schema.text for schema in registry.of_subject("t-value", 9)] == [named("S")]
    assert registry.schema(str(id_)) is not None


@pytest.mark.parametrize(
    "settings", [{"ca": "/nowhere/ca.pem"}, {"ca": __file__}, {"certificate": "/nowhere/me.pem"}]
)
def test_files_that_make_no_tls(registry: Registry, settings: dict[str, Any]) -> None:
    """Wrong TLS files raise SpecError."""
    with pytest.raises(SpecError, match="settings of the schema registry"):
        replace(registry, **settings).schema("1")


def test_a_certificate_that_is_not_trusted(registry: Registry) -> None:
    """Nothing is sent to a server whose certificate isn't trusted, and the error says why."""
    with RegistryServer(tls=server_context()) as server:
        with pytest.raises(
            UnreachableError, match=r"no answer \(its certificate isn't trusted: .*certificate"
        ):
            replace(registry, url=server.url, retries=0).schema("1")
        assert server.requested_paths == []


def test_every_error_is_one_of_windrows(server: RegistryServer, registry: Registry) -> None:
    """Any bytes of an answer raise only windrow's errors, which have advice."""
    for status in (200, 204, 301, 400, 418, 500):
        for body in (
            b"",
            b"null",
            b"1",
            b'""',
            b"{}",
            b'{"schema": null}',
            b'{"schema": 1}',
            b'{"error_code": "x"}',
            b"\xff",
            b"[[]]",
            b"NaN",
        ):
            server.faults = {"/schemas/ids/1": Fault(status, body)}
            with pytest.raises(WindrowError):
                replace(registry, retries=0).schema("1")
