"""Connections to an HTTP service, with limits of time, size and rate.

They are connections of httpcore2. The client of httpx2 isn't used: it would keep cookies,
follow redirects, use the environment's proxies, and decompress answers.
"""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeAlias, TypeVar

import httpcore2

from windrow.ingest.errors import SpecError, UnreachableError, describe_connection_error
from windrow.ingest.http_timeouts import TimedBackend, start_try
from windrow.ingest.retry import growing_waits, retry
from windrow.ingest.settings.secrets import Secret, read

T = TypeVar("T")

MOST_BYTES = 4 << 20
"""Size limit of an answer, in bytes."""

MOST_FAILURES = 20
"""Number of failed tries in a row, over all requests of a task, after which the task gives up."""

_AGAIN = {408, 425, 429}
"""Statuses below 500 after which the request is tried again."""


_NETWORK = (httpcore2.NetworkError, httpcore2.TimeoutException)

Certificates: TypeAlias = tuple[str | None, str | None, str | None, Secret | None]
"""Files of trusted authorities, a certificate and its key; reference to the key's password."""


def context_of(tls: Certificates) -> ssl.SSLContext:
    """Makes the TLS context.

    Raises:
        SpecError: a file can't be read, or the key doesn't belong to the certificate.
    """
    ca, certificate, key, secret = tls
    password = read(secret, "from.tls.key_password") if secret is not None else ""
    try:
        context = ssl.create_default_context(cafile=ca) if ca else httpcore2.default_ssl_context()
        if certificate is not None:  # with "" as password, OpenSSL doesn't prompt for one
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise SpecError(
            f"The files of from.tls can't be used: {error.strerror or type(error).__name__}",
            "setup",
            "See that ca, certificate and key are where tasks run, and belong together.",
        ) from None
    return context


class AgainError(Exception):
    """A failed try.

    Attributes:
        args: the reason, without payload; the seconds that the service asks to wait.
    """


class Client:
    """Connections of one task, for several threads.

    Args:
        origin: scheme, host and port.
        headers: reads the headers and their secrets, first and after each refusal (401).
        timeout: seconds for a request with all its tries. Waits that the service asks for
            count; waits for `interval` don't count.
        interval: seconds between two requests.
        context: the TLS context.
    """

    def __init__(
        self,
        origin: str,
        headers: Callable[[], list[tuple[bytes, bytes]]],
        timeout: float,
        interval: float,
        context: ssl.SSLContext,
    ) -> None:
        self._pool = httpcore2.ConnectionPool(
            context, max_connections=None, network_backend=TimedBackend()
        )
        self._url, self._timeout, self._interval = httpcore2.URL(origin), timeout, interval
        self._read_headers, self._headers = headers, headers()
        self._origin, self._lock, self._next = origin, threading.Lock(), 0.0
        self._failures, self._failed = 0, ""

    def close(self) -> None:
        self._pool.close()

    def ask(
        self, target: bytes, body: bytes | None, understood: Callable[[int, bytes | None], T]
    ) -> tuple[T, int]:
        """Sends a request until it is answered; returns the answer and the number of tries.

        Args:
            target: path and query.
            body: the body of a POST; None for a GET.
            understood: turns status and body into the answer. The body is None if it is too
                large. An AgainError leads to another try.

        Raises:
            UnreachableError: no try was answered in time, or too many failed in a row.
        """
        until, tries = 0.0, 0

        def once() -> T:
            nonlocal until, tries
            started = time.monotonic()
            self._take_turn()
            now = time.monotonic()
            until, tries = until + now - started if tries else now + self._timeout, tries + 1
            headers, answer = self._headers, self._send(target, body, until - now)
            if answer[0] == 401 and self._renew_headers(headers):
                self._take_turn()
                tries, answer = tries + 1, self._send(target, body, until - now)
            reply = understood(*answer)
            self._failures = 0
            return reply

        def worth(error: Exception) -> bool:
            nonlocal until
            if not isinstance(error, AgainError):
                return False
            wait = error.args[1]
            until -= wait  # the next turn waits this long, and `once` adds a turn's time to `until`
            with self._lock:
                self._failures += not wait  # a service that asks to wait is up: it is no failure
                may_retry = self._failures < MOST_FAILURES and time.monotonic() < until
                self._next = max(self._next, time.monotonic() + wait * may_retry)
            return may_retry and not self._failed

        try:
            return retry(once, worth, growing_waits(math.inf)), tries
        except AgainError as failed:
            self._failed = failed.args[0]
            raise UnreachableError(
                f"{self._origin} gives no answer that can be used: {self._failed}",
                "setup",
                "Nothing was committed. Run the window again when the service is up.",
            ) from None

    def _renew_headers(self, refused: list[tuple[bytes, bytes]]) -> bool:
        """Reads the headers again, which may be new since; returns whether they are others."""
        with self._lock:
            if self._headers is refused:  # no other thread has done it
                self._headers = self._read_headers()
            return self._headers != refused

    def _take_turn(self) -> None:
        """Waits until the rate and the service's own wait allow another request.

        Raises:
            AgainError: another thread has given up.
        """
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._interval
        time.sleep(max(0.0, turn - time.monotonic()))
        if self._failed:
            raise AgainError(self._failed, 0)

    def _send(
        self, target: bytes, body: bytes | None, remaining_seconds: float
    ) -> tuple[int, bytes | None]:
        """Sends a request once.

        Args:
            target: path and query.
            body: the body of a POST; None for a GET.
            remaining_seconds: seconds for this try and all later tries together.

        Returns:
            The status, and the body; None for a body that is too large.

        Raises:
            AgainError: the try failed, and another one may succeed.
            SpecError: a header can't be sent.
        """
        seconds, content, base_url = (
            max(0.1, min(remaining_seconds, self._timeout / 3)),
            bytearray(),
            self._url,
        )
        start_try(seconds)
        url = httpcore2.URL(
            scheme=base_url.scheme, host=base_url.host, port=base_url.port, target=target
        )
        steps = {"timeout": dict.fromkeys(("connect", "read", "write"), seconds)}
        try:
            with self._pool.stream(
                "GET" if body is None else "POST",
                url,
                headers=self._headers,
                content=body,
                extensions=steps,
            ) as response:
                if response.status in _AGAIN or response.status >= 500:
                    wait = _asked_wait(response.headers) or float(response.status == 429)
                    raise AgainError(f"it answered {response.status}", wait)
                for part in response.iter_stream():
                    content += part
                    if len(content) > MOST_BYTES:
                        return response.status, None
                return response.status, bytes(content)
        except httpcore2.LocalProtocolError:
            raise SpecError(
                f"The headers can't be sent to {self._origin}",
                "setup",
                "Check the names in from.headers, and its values and from.token for line breaks and"
                " spaces at an end.",
            ) from None
        except (*_NETWORK, httpcore2.ProtocolError, OSError) as error:
            raise AgainError(describe_connection_error(error), 0) from None


def _asked_wait(headers: list[tuple[bytes, bytes]]) -> float:
    """Returns the seconds that a Retry-After header asks for; 0 without such a header.

    The header has a number of seconds or a date.
    """
    text = next((v.decode("latin-1") for n, v in headers if n.lower() == b"retry-after"), "")
    with suppress(ValueError, TypeError):
        date = text if text.isdecimal() else parsedate_to_datetime(text) - datetime.now(UTC)
        return max(0.0, float(date) if isinstance(date, str) else date.total_seconds())
    return 0.0
