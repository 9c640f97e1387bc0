"""Calls that are repeated after temporary errors."""

from __future__ import annotations

import time

import pytest

from windrow.ingest.retry import LONGEST_WAIT_SECONDS, growing_waits, retry


@pytest.mark.parametrize(
    ("retriable", "waits", "tries"),
    [(True, (0.0, 0.0), 3), (True, (0.0,), 2), (True, (), 1), (False, (0.0, 0.0), 1)],
)
def test_a_call_is_repeated_while_its_error_may_pass_and_a_wait_is_left(
    retriable: bool, waits: tuple[float, ...], tries: int
) -> None:
    """A call is repeated until it succeeds or no wait is left; the last error is raised
    unchanged.
    """
    calls = 0

    def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise TimeoutError(calls)
        return "it"

    if tries == 3:
        assert retry(call, lambda _: retriable, waits) == "it"
    else:
        with pytest.raises(TimeoutError, match=str(tries)):
            retry(call, lambda _: retriable, waits)
    assert calls == tries


def test_waits_grow_up_to_a_bound_and_end_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waits grow up to a limit, and end before the deadline."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waits = list[float]()
    for wait in growing_waits(20.0):
        waits.append(wait)
        now += wait
    assert 17.0 < now <= 20.0
    assert waits[:5] == sorted(waits[:5])
    assert LONGEST_WAIT_SECONDS <= waits[-1] <= 1.1 * LONGEST_WAIT_SECONDS
    assert list(growing_waits(now)) == []
