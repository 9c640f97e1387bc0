"""Limits of time and size for calls whose libraries have none, or begin anew with each byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class TooLargeError(Exception):
    """An answer is larger than any that is needed."""


def run_in_time(call: Callable[[], T], seconds: float) -> T:
    """Runs a call in a thread, which is left alone if it doesn't end in time.

    Raises:
        TimeoutError: it didn't end in time.
    """
    ended = Future[T]()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001
            ended.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {seconds:g} seconds") from None


def limit_body(response: Any, most_bytes: int) -> None:
    """Limits the body of urllib3's response, which is not read yet.

    Reading more raises TooLargeError.
    """
    read_stream = response.stream

    def stream(*args: Any, **more: Any) -> Iterator[bytes]:
        size = 0
        for part in read_stream(*args, **more):
            size += len(part)
            if size > most_bytes:
                response.close()
                raise TooLargeError(f"its answer has more bytes than {most_bytes:,}")
            yield part

    response.stream = stream
