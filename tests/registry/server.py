"""A schema registry for tests.

It is a real HTTP server with the API of Confluent's registry, and keeps its schemas in memory:

    with RegistryServer() as registry:
        id_ = registry.register("orders-value", '{"type": "record", ...}')
        registry.url                            # for a spec's source.registry.url
        registry.faults["/schemas/ids/1"] = Fault(status=503)

It has what producers and consumers need: subjects, versions, references, ids and GUIDs,
deletion. It parses no schema, and finds every schema compatible. A path with a fault answers
with the fault, so that tests see how windrow treats a broken registry.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from windrow.ingest.registry.client import client_of

_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_LENGTH_MAX = 8 << 20


@dataclass(frozen=True)
class Fault:
    """A false answer of a path.

    Attributes:
        status: its status.
        body: its bytes.
        headers: its headers.
        seconds: seconds of waiting before the answer.
        closes: True to close the connection without an answer.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    closes: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing about clients that hung up."""


@dataclass
class _Version:
    number: int
    id: int
    deleted: bool = False


class RegistryServer:
    """A registry on a local port, from `start` to `stop`; also a context manager.

    Attributes:
        faults: the false answers, by path.
        requested_paths: the requested paths in order.
        last_headers: the headers of the last request, by their names in lower case.
        authorization: the header that requests must have; None if they need none.
        http_server: the HTTP server.
    """

    def __init__(
        self, user: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Takes any free port.

        Args:
            user: name and password that requests must have; None if they need none.
            tls: the TLS settings for HTTPS; None for HTTP.
        """
        self.faults: dict[str, Fault] = {}
        self.requested_paths: list[str] = []
        self.last_headers: Mapping[str, str] = {}
        self.authorization = (
            None if user is None else "Basic " + base64.b64encode(":".join(user).encode()).decode()
        )
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[_Version]] = {}
        self._stopping = threading.Event()
        self.http_server = _Server(("127.0.0.1", 0), self._handler())
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            plain = self.http_server.socket
            self.http_server.socket = tls.wrap_socket(plain, server_side=True)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The registry's address."""
        return f"{self._scheme}://127.0.0.1:{self.http_server.server_address[1]}"

    def start(self) -> Self:
        """Starts to answer requests."""
        self._thread = threading.Thread(
            target=self.http_server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops the server, and frees the port.

        The next server may get the same port, so this process forgets the registry's answers.
        """
        client_of.cache_clear()
        self._stopping.set()
        self.http_server.shutdown()
        self.http_server.server_close()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Registers a schema under a subject, and returns its id.

        A schema that is registered again keeps its id, and its version under the subject.
        """
        entry = {"schema": schema, "schemaType": kind, "references": references or []}
        with self._lock:
            if entry not in self._schemas:
                self._schemas.append(entry)
            id_ = self._schemas.index(entry) + 1
            versions = self._subjects.setdefault(subject, [])
            if all(version.id != id_ or version.deleted for version in versions):
                versions.append(_Version(len(versions) + 1, id_))
            return id_

    def guid(self, id_: int) -> str:
        """Returns a schema's GUID, which depends on its content only."""
        return str(uuid.uuid5(_NAMESPACE, json.dumps(self._schemas[id_ - 1], sort_keys=True)))

    def answer(
        self, method: str, path: str, query: Mapping[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        """Returns the status and the document of the answer to a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        with_deleted = query.get("deleted") == ["true"]
        match (method, parts):
            case ("GET", ["schemas", "types"]):
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case ("GET", ["schemas", "ids", id_]) if id_.isdecimal():
                return self._schema(int(id_))
            case ("GET", ["schemas", "guids", guid]):
                numbers = range(1, len(self._schemas) + 1)
                return self._schema(
                    next((number for number in numbers if self.guid(number) == guid), 0)
                )
            case ("GET", ["subjects"]):
                return 200, [
                    name
                    for name, versions in self._subjects.items()
                    if any(not v.deleted for v in versions)
                ]
            case ("GET", ["subjects", subject, "versions"]):
                numbers_of_versions = [
                    v.number
                    for v in self._subjects.get(subject, ())
                    if with_deleted or not v.deleted
                ]
                return (200, numbers_of_versions) if numbers_of_versions else _no_subject(subject)
            case ("GET", ["subjects", subject, "versions", number]):
                return self._version(subject, number, with_deleted=with_deleted)
            case ("POST", ["subjects", subject, "versions"]) if isinstance(
                body, dict
            ) and isinstance(body.get("schema"), str):
                schema_id = self.register(
                    subject,
                    body["schema"],
                    body.get("schemaType") or "AVRO",
                    body.get("references"),
                )
                return 200, {"id": schema_id, "guid": self.guid(schema_id)}
            case ("POST", ["compatibility", "subjects", subject, "versions"]):
                exists = any(not version.deleted for version in self._subjects.get(subject, ()))
                return (200, {"is_compatible": True}) if exists else _no_subject(subject)
            case ("POST", ["subjects", subject]) if isinstance(body, dict):
                return self._look_up(subject, body)
            case ("DELETE", ["subjects", subject]):
                return self._delete(subject)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def forget(self, id_: int) -> None:
        """Loses a schema, as a broken registry does."""
        with self._lock:
            self._schemas[id_ - 1] = {}
            for versions in self._subjects.values():
                versions[:] = [version for version in versions if version.id != id_]

    def _schema(self, id_: int) -> tuple[int, Any]:
        if not 1 <= id_ <= len(self._schemas) or not self._schemas[id_ - 1]:
            return 404, {"error_code": 40403, "message": f"Schema {id_} not found"}
        return 200, {**self._document(id_), "guid": self.guid(id_)}

    def _document(self, id_: int) -> dict[str, Any]:
        """Returns a schema as Confluent's registry does: without fields that have defaults."""
        document = dict(self._schemas[id_ - 1])
        if document["schemaType"] == "AVRO":
            del document["schemaType"]
        if not document["references"]:
            del document["references"]
        return document

    def _version(self, subject: str, number: str, *, with_deleted: bool) -> tuple[int, Any]:
        versions = [v for v in self._subjects.get(subject, ()) if with_deleted or not v.deleted]
        if not versions:
            return _no_subject(subject)
        matching = (
            versions[-1:]
            if number in {"latest", "-1"}
            else [v for v in versions if str(v.number) == number]
        )
        if not matching:
            return 404, {"error_code": 40402, "message": f"Version {number} not found."}
        (version,) = matching
        return 200, {
            "subject": subject,
            "version": version.number,
            "id": version.id,
            "guid": self.guid(version.id),
            **self._document(version.id),
        }

    def _look_up(self, subject: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        entry = {
            "schema": body.get("schema"),
            "schemaType": body.get("schemaType") or "AVRO",
            "references": body.get("references") or [],
        }
        for version in self._subjects.get(subject, ()):
            if not version.deleted and self._schemas[version.id - 1] == entry:
                return self._version(subject, str(version.number), with_deleted=False)
        return (
            (404, {"error_code": 40403, "message": "Schema not found"})
            if subject in self._subjects
            else _no_subject(subject)
        )

    def _delete(self, subject: str) -> tuple[int, Any]:
        versions = [version for version in self._subjects.get(subject, ()) if not version.deleted]
        for version in versions:
            version.deleted = True
        return (200, [version.number for version in versions]) if versions else _no_subject(subject)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._respond()

            do_POST = do_DELETE = do_GET  # the library's names  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # its name  # noqa: A002
                """Prints nothing."""

            def _respond(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                written = self.rfile.read(min(size, _LENGTH_MAX))
                url = urlsplit(self.path)
                server.requested_paths.append(url.path)
                server.last_headers = {name.lower(): value for name, value in self.headers.items()}
                fault = server.faults.get(url.path)
                if fault is not None:
                    server._stopping.wait(fault.seconds)
                    if not fault.closes:
                        self._send(fault.status, fault.body, fault.headers)
                    else:
                        self.close_connection = True
                    return
                if server.authorization not in {None, self.headers.get("Authorization")}:
                    self._send(401, b'{"error_code": 401, "message": "Unauthorized"}', {})
                    return
                try:
                    status, document = server.answer(
                        self.command,
                        url.path,
                        parse_qs(url.query.lower()),
                        json.loads(written or b"null"),
                    )
                except ValueError:
                    status, document = 422, {"error_code": 42201, "message": "Invalid JSON"}
                self._send(status, json.dumps(document).encode(), {})

            def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                    for name, value in {"Content-Length": str(len(body)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                    if len(body) < int(headers.get("Content-Length", 0)):
                        self.close_connection = True  # the body is shorter than announced
                except OSError:  # the client hung up
                    self.close_connection = True

        return Handler


def _no_subject(subject: str) -> tuple[int, Any]:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
