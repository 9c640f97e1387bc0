"""Connections by HTTP that end in time, however slowly bytes come.

A timeout of httpcore's begins anew with each byte, so that a server which sends the head of
an answer slowly enough would never be given up.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import httpcore2

_TRY = threading.local()
"""`until`: when the try that this thread makes is over."""


def start_try(seconds: float) -> None:
    """Begins a try of this thread, which the connections of a `TimedBackend` end in time."""
    _TRY.until = time.monotonic() + seconds


class TimedBackend(httpcore2.SyncBackend):
    """Connects to servers; each connection ends with the try that waits for it."""

    def connect_tcp(self, *args: Any, **more: Any) -> httpcore2.NetworkStream:
        return _Stream(super().connect_tcp(*args, **more))


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _remaining_seconds(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _remaining_seconds(timeout))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def start_tls(self, *args: Any, **more: Any) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(*args, **more))


def _remaining_seconds(timeout: float | None) -> float:
    remaining: float = _TRY.until - time.monotonic()
    if remaining <= 0:
        raise httpcore2.ReadTimeout
    return min(remaining, timeout or remaining)
