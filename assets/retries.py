"""Retries of runs in Dagster: how often, how long they wait, and of which errors."""

from __future__ import annotations

import dagster as dg
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

from windrow.assets.failures import ShownAloneError, WindowFailedError, failure_of, shown_of
from windrow.ingest.errors import UnreachableError

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""Retries after an unreachable system; refused data is not tried again.

It is no policy of the assets: Dagster would apply that to a cancelled run, too, whose
interrupted step would begin again and commit.
"""


class WindowRetryError(dg.RetryRequested, ShownAloneError):
    """The step has failed, and is retried."""


def again_or_failure(
    what: str, error: Exception, tries: int
) -> WindowRetryError | WindowFailedError:
    """Makes a retry of an error if something was unreachable, else a failure.

    After the last retry it is a failure, too.

    Args:
        what: as of `failures.failure_of`.
        error: as of `failures.failure_of`.
        tries: the number of retries until now.
    """
    if not isinstance(error, UnreachableError) or tries >= RETRY.max_retries:
        return failure_of(what, error)
    wait = RETRY.calculate_delay(tries + 1)
    retry = WindowRetryError(RETRY.max_retries, wait)
    retry.show_alone(
        SerializableErrorInfo(
            f"Tried again in {wait:g} s.\n", [], type(error).__name__, cause=shown_of(what, error)
        )
    )
    return retry
