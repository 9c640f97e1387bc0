"""Calls that are repeated after temporary errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

STORE_WAITS = (0.2, 1.0, 3.0)
"""Seconds before each further try at a table, its storage or its catalog."""

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 2.0
"""Seconds before the second attempt of a call, and the maximum between two attempts."""


def retry(
    call: Callable[[], T], is_retriable: Callable[[Exception], bool], waits: Iterable[float]
) -> T:
    """Calls a function until it succeeds, and returns its result.

    Args:
        call: the function.
        is_retriable: returns whether another attempt may succeed after an error.
        waits: the seconds before each further attempt. The error is raised after the last
            one, or if it isn't retriable.
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
    """Yields waits in seconds that double, as long as they end before a deadline.

    Args:
        deadline: a time of the monotonic clock.
    """
    wait = FIRST_WAIT_SECONDS
    while True:
        # a random part, so that many clients don't repeat their requests at the same time
        seconds = wait + random.uniform(0, FIRST_WAIT_SECONDS)  # noqa: S311
        if time.monotonic() + seconds > deadline:
            return
        yield seconds
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
