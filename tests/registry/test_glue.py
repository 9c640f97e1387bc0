"""Requests to AWS Glue Schema Registry, by the JSON protocol of its API."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import ValidationError

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.writer_schema import MOST_CHARACTERS, WriterSchema
from windrow.ingest.registry.client import Registry
from windrow.ingest.registry.settings import RegistrySpec

SCHEMA, VERSION = '"string"', uuid.UUID(int=7)
ID = f"glue-{VERSION}"
KNOWN = {
    "SchemaVersionId": str(VERSION),
    "SchemaDefinition": SCHEMA,
    "DataFormat": "AVRO",
    "SchemaArn": "arn:aws:glue:eu-central-1:123456789012:schema/default-registry/orders",
    "VersionNumber": 1,
    "Status": "AVAILABLE",
    "CreatedTime": "2026-01-05T09:00:00.000Z",
}
SECRET = "hunter2"


class Glue(ThreadingHTTPServer):
    """A server that has one version of a schema, or answers whatever it is told.

    Attributes:
        requests: headers and document of each request.
        fault: status and body of each answer; None for those of a registry.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.fault: tuple[int, bytes] | None = None

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, document: Any) -> tuple[int, bytes]:
        """Returns the status and the body of an answer."""
        if self.fault is not None:
            return self.fault
        if document == {"SchemaVersionId": str(VERSION)}:
            return 200, json.dumps(KNOWN).encode()
        return failure("EntityNotFoundException")


class _Handler(BaseHTTPRequestHandler):
    server: Glue

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((dict(self.headers), document))
        status, body = self.server.answer(document)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # its name  # noqa: A002
        """Prints nothing."""


def failure(kind: str) -> tuple[int, bytes]:
    return 400, json.dumps({"__type": kind, "Message": f"no {SECRET}"}).encode()


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Glue]:
    """A server, and credentials in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "windrow")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    server = Glue()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def registry(glue: Glue, **more: Any) -> Registry:
    return Registry(glue.url, region="eu-central-1", timeout=5, retries=1, **more)


def test_the_schema_of_a_version(glue: Glue) -> None:
    """A version's schema is asked for by a signed request, which has no secret in it."""
    assert registry(glue).schema(ID) == WriterSchema(ID, "AVRO", SCHEMA)
    ((headers, document),) = glue.requests
    assert document == {"SchemaVersionId": str(VERSION)}
    assert headers["X-Amz-Target"] == "AWSGlue.GetSchemaVersion"
    assert headers["Content-Type"] == "application/x-amz-json-1.1"
    scope = headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 Credential=windrow/")
    assert scope.split(",")[0].split("/", 1)[1] == "eu-central-1/glue/aws4_request"
    assert SECRET not in str(headers)


def test_a_version_that_is_not_there(glue: Glue) -> None:
    """An unknown version has no schema, and ids of another kind of registry are no question."""
    assert registry(glue).schema(f"glue-{uuid.UUID(int=8)}") is None
    assert len(glue.requests) == 1
    assert registry(glue).schema("1") is None
    assert registry(glue).of_subject("orders-value", 1) == []
    assert Registry(glue.url).schema(ID) is None
    assert len(glue.requests) == 1


@pytest.mark.parametrize(
    "kind", ["AccessDeniedException", "com.amazon.coral#UnrecognizedClientException"]
)
def test_a_refused_request(glue: Glue, kind: str) -> None:
    """A caller that may not ask is told the permission, and asks only once."""
    glue.fault = failure(kind)
    with pytest.raises(SpecError, match=kind.rpartition("#")[2]) as refused:
        registry(glue).schema(ID)
    assert glue.url in refused.value.message
    assert "glue:GetSchemaVersion" in refused.value.advice
    assert SECRET not in str(refused.value)
    assert len(glue.requests) == 1


UNUSABLE = {
    "an error of its own": failure("InternalServiceException"),
    "an error without a type": (500, b"{}"),
    "a page": (200, b"<html>sign in</html>"),
    "another document": (200, b"[1]"),
    "no schema": (200, json.dumps({**KNOWN, "SchemaDefinition": None}).encode()),
    "half a character": (200, json.dumps({**KNOWN, "SchemaDefinition": "\ud800"}).encode()),
    "an unknown kind": (200, json.dumps({**KNOWN, "DataFormat": "XML"}).encode()),
    "a bomb of brackets": (200, b"[" * 1_000_000),
    "a long schema": (
        200,
        json.dumps({**KNOWN, "SchemaDefinition": "x" * (MOST_CHARACTERS + 1)}).encode(),
    ),
    "a redirect": (307, b""),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_answer(glue: Glue, name: str) -> None:
    """Whatever isn't an answer of Glue is asked again, and is an error without its text."""
    glue.fault = UNUSABLE[name]
    with pytest.raises(UnreachableError, match=glue.url) as unreachable:
        registry(glue).schema(ID)
    assert len(glue.requests) == 2
    assert not {SECRET, "sign"} & set(str(unreachable.value).split())


def test_no_credentials(glue: Glue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without credentials sends no request."""
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda _: None)
    with pytest.raises(SpecError, match="no AWS credentials are found"):
        registry(glue).schema(ID)
    assert glue.requests == []


def test_a_sink_registers_nothing_there(glue: Glue) -> None:
    """Schemas of messages that windrow writes can't be in AWS Glue."""
    with pytest.raises(SpecError, match="never given any"):
        registry(glue, section="sink").id_of("orders-value", SCHEMA, "AVRO", register=True)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"username": "me", "password": SECRET}, "can't be combined with password"),
        ({"url": "http://glue.example"}, "would send the signature unencrypted"),
    ],
)
def test_settings_that_contradict_the_region(more: dict[str, str], says: str) -> None:
    """Requests to AWS Glue are signed in one way, and only sent over TLS or to this machine."""
    written = {"url": "https://glue.eu-central-1.amazonaws.com", "region": "eu-central-1"}
    RegistrySpec.model_validate(written)
    with pytest.raises(ValidationError) as refused:
        RegistrySpec.model_validate({**written, **more})
    assert says in str(refused.value)
