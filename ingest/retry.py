"""Calls that are repeated after errors that may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
"""Pause between the first two tries of a call, and the longest one between two."""


def retry(
    call: Callable[[], T], is_retriable: Callable[[Exception], bool], pauses: Iterable[float]
) -> T:
    """Calls a function again after errors that may pass; returns its answer.

    Args:
        call: the function.
        is_retriable: returns whether an error is worth another try.
        pauses: the seconds before each further try; behind the last one, or after an error that
            isn't worth another try, the error is raised.
    """
    left = iter(pauses)
    while True:
        try:
            return call()
        except Exception as error:
            if not is_retriable(error) or (pause := next(left, None)) is None:
                raise
        time.sleep(pause)


def growing_pauses(deadline: float) -> Iterator[float]:
    """Returns pauses that double, as many as end before a deadline of the monotonic clock."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        # at random, so that many clients don't all repeat their requests at once
        seconds = pause + random.uniform(0, FIRST_PAUSE_SECONDS)  # noqa: S311
        if time.monotonic() + seconds > deadline:
            return
        yield seconds
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
