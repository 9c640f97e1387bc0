"""Calls that are repeated after errors that may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

STORE_WAITS = (0.2, 1.0, 3.0)
"""Seconds before each further try at a table, its storage or its catalog."""

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 2.0
"""Wait between the first two tries of a call, and the longest one between two."""


def retry(
    call: Callable[[], T], is_retriable: Callable[[Exception], bool], waits: Iterable[float]
) -> T:
    """Calls a function again after errors that may pass; returns its answer.

    Args:
        call: the function.
        is_retriable: returns whether an error is worth another try.
        waits: the seconds before each further try; behind the last one, or after an error that
            isn't worth another try, the error is raised.
    """
    remaining_waits = iter(waits)
    while True:
        try:
            return call()
        except Exception as error:
            if not is_retriable(error) or (wait := next(remaining_waits, None)) is None:
                raise
        time.sleep(wait)


def growing_waits(deadline: float) -> Iterator[float]:
    """Returns waits that double, as many as end before a deadline of the monotonic clock."""
    wait = FIRST_WAIT_SECONDS
    while True:
        # at random, so that many clients don't all repeat their requests at once
        seconds = wait + random.uniform(0, FIRST_WAIT_SECONDS)  # noqa: S311
        if time.monotonic() + seconds > deadline:
            return
        yield seconds
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
