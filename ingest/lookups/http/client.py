"""Connections to an HTTP service, within bounds of time, size and rate.

They are httpx2's, without its client, which would keep cookies, follow redirects, go by the
environment's proxies, and unpack answers.
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
"""The most bytes of an answer."""

MOST_FAILURES = 20
"""The tries that may fail one after the other, of all requests of a task."""

_AGAIN = {408, 425, 429}
"""The statuses below 500 by which a service asks for another try."""


_NETWORK = (httpcore2.NetworkError, httpcore2.TimeoutException)

Certificates: TypeAlias = tuple[str | None, str | None, str | None, Secret | None]
"""Files of the authorities to trust, of a certificate and its key; where the key's password is."""


def context_of(tls: Certificates) -> ssl.SSLContext:
    """Makes the settings of TLS.

    Raises:
        SpecError: a file can't be read, or the key isn't the certificate's.
    """
    ca, certificate, key, secret = tls
    password = read(secret, "from.tls.key_password") if secret is not None else ""
    try:
        context = ssl.create_default_context(cafile=ca) if ca else httpcore2.default_ssl_context()
        if certificate is not None:  # without a password nobody is asked for one
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise SpecError(
            f"The files of from.tls can't be used: {error.strerror or type(error).__name__}",
            "setup",
            "See that ca, certificate and key are where tasks run, and belong together.",
        ) from None
    return context


class AgainError(Exception):
    """A try failed: why, without payload, and how many seconds the service asks to wait."""


class Client:
    """Connections of one task, for several threads.

    `origin`: scheme, host and port; `headers`: reads the headers with their secrets, at first and
    when the service refuses these; `timeout`: the seconds of a request with all its tries, and
    with the waits that the service asks for; `interval`: the seconds between two requests, which
    don't count.
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

        `understood` makes the answer of a status and a body, which is None if it is too large.

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
            until -= wait  # which is a turn's, and no failure's
            with self._lock:
                self._failures += not wait  # a service that asks to wait is up
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
        """Waits until the rate, and what the service asked for, allow another request.

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
        """Sends a request once. `remaining_seconds`: the seconds for this try and those after it.

        Raises:
            AgainError: another try may mend it.
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
    """The seconds that a Retry-After asks for, as a number or a date; 0 without one."""
    text = next((v.decode("latin-1") for n, v in headers if n.lower() == b"retry-after"), "")
    with suppress(ValueError, TypeError):
        date = text if text.isdecimal() else parsedate_to_datetime(text) - datetime.now(UTC)
        return max(0.0, float(date) if isinstance(date, str) else date.total_seconds())
    return 0.0
