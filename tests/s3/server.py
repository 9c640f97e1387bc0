"""An S3 server on loopback: moto's server, made as atomic as S3, with faults on demand.

It connects to no other machine. moto checks whether a key exists, and then puts it; another
thread may come between. S3 does both in one step, so this server handles one request at a time.
A server that is more or less strict than S3 would prove nothing (`tests/s3/test_server.py`).
"""

from __future__ import annotations

import io
import logging
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Self

How = Literal["lost", "cut", "slow_down", "broken", "no_conditions", "unconditional"]
"""The effect of a fault.

- `lost`: the request is done, and the connection is cut before the answer.
- `unconditional`: the request is done as if it had no condition.
- `cut`: nothing is done, and the connection is cut.
- `slow_down`, `broken`, `no_conditions`: nothing is done, and the answer is 503, 500, or 501 as
  from a store that doesn't support conditions.
"""

_ANSWERS = {
    "slow_down": ("503 Slow Down", "SlowDown"),
    "broken": ("500 Internal Server Error", "InternalError"),
    "no_conditions": ("501 Not Implemented", "NotImplemented"),
}


@dataclass
class Fault:
    """A fault of the next requests of a method.

    Attributes:
        mode: its effect.
        method: the HTTP method.
        part: a part of the requests' paths.
        times: number of requests that it affects.
        hit: number of requests that it has affected.
    """

    mode: How
    method: str
    part: str
    times: int = 1
    hit: int = 0


@dataclass
class S3Server:
    """The server.

    Attributes:
        port: its port.
        secret: the key with which its clients sign. Tests check that it is stored nowhere else.
        faults: faults of the next requests.
        requests: the requests so far.
        signers: the access keys with which they were signed.
    """

    port: int = 0
    secret: str = field(default_factory=lambda: f"canary-{uuid.uuid4().hex}")
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    signers: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app, self._lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._respond, threaded=True)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    @property
    def env(self) -> dict[str, str]:
        """Environment variables by which deltalake, Arrow, boto3 and PyIceberg each find the
        server.
        """
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "windrow",
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self) -> str:
        """Makes a new bucket, and returns its URL."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def client(self) -> Any:
        """Returns a new client without retries."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.env["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="windrow",
            aws_secret_access_key=self.secret,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32),
        )

    def fail(self, mode: How, method: str, part: str, times: int = 1) -> Fault:
        """Adds a fault for the next requests."""
        fault = Fault(mode, method, part, times)
        self.faults.append(fault)
        return fault

    def _respond(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = (
            environ["wsgi.input"].read()
            if environ.get("wsgi.input_terminated")
            else environ["wsgi.input"].read(_length(environ))
        )
        environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        with self._lock:
            fault = self._fault(environ)
            if fault is not None and fault.mode in _ANSWERS:
                return _refuse(fault.mode, start)
            if fault is not None and fault.mode == "unconditional":
                environ.pop("HTTP_IF_NONE_MATCH", None)
            status_and_headers: list[Any] = []
            if fault is None or fault.mode != "cut":
                content = list(
                    self._app(environ, lambda *args, **_: status_and_headers.extend(args))
                )
        if fault is not None and fault.mode in {"lost", "cut"}:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start("500 Cut", [])
            return []
        start(*status_and_headers)
        return content

    def _fault(self, environ: dict[str, Any]) -> Fault | None:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append(f"{method} {path}")
        signature = environ.get("HTTP_AUTHORIZATION", "")
        self.signers.update(re.findall(r"Credential=([^/]+)/", signature))
        for fault in self.faults:
            if fault.hit < fault.times and fault.method == method and fault.part in path:
                fault.hit += 1
                return fault
        return None


def _length(environ: dict[str, Any]) -> int:
    return int(environ.get("CONTENT_LENGTH") or 0)


def _refuse(mode: str, start: Callable[..., Any]) -> list[bytes]:
    status, code = _ANSWERS[mode]
    content = (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as a test wants"
        " it</Message></Error>".encode()
    )
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))])
    return [content]
