"""Failures of runs: windrow's errors as Dagster's, without a stack; and which are retried.

An error is one sentence, with its parts as metadata.

Dagster shows the stack of an exception from its own executor on: a dozen frames that say
nothing of the data. It doesn't for one that another process of the user's code reported
(`ShownAloneError`); the exceptions here are of that class. Only a bug has a stack, from
windrow's own frame on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import TracebackException

import dagster as dg

from windrow.assets.dagster_internals import ErrorInfo, ShownAloneError
from windrow.ingest.config.dagster import DagsterSpec
from windrow.ingest.errors import (
    BugError,
    UnreachableError,
    WindrowError,
    error_of_place,
    mistakes,
)


class WindowFailedError(dg.Failure, ShownAloneError):
    """The step has failed, without a retry."""


def failure_of(subject: str, error: BaseException) -> WindowFailedError:
    """Makes a failure of an error.

    Args:
        subject: what failed, as the beginning of a sentence: `Window 2026-01-05-00:00`.
        error: one of windrow's errors, or any other, which is a bug.
    """
    error = as_windrow_error(error)
    error_info = error_info_of(subject, error)
    parts: dict[str, str | int] = {
        "window": subject.removeprefix("Window "),
        "what": error.what,
        "where": error.place or f"the {error.stage} step",
        "do": error.do,
        "kind": type(error).__name__,
        "exit_code": error.exit_code,
    }
    failure = WindowFailedError(
        error_info.message.rstrip("\n"), metadata=parts, allow_retries=False
    )
    failure.show_alone(error_info)
    return failure


@contextmanager
def raise_as_failure(subject: str) -> Iterator[None]:
    """Raises errors of the block as failures, without a retry."""
    try:
        yield
    except mistakes() as error:  # raised again, unknown ones as a bug
        raise failure_of(subject, error) from None


def error_info_of(subject: str, error: WindrowError) -> ErrorInfo:
    """The sentence; a bug has its stack, with the worker's, as the cause."""
    stack = (
        ErrorInfo.from_traceback(TracebackException.from_exception(error))
        if isinstance(error, BugError)
        else None
    )
    return ErrorInfo(f"{sentence_of(subject, error)}\n", [], type(error).__name__, cause=stack)


def sentence_of(subject: str, error: WindrowError) -> str:
    """The sentence of an error behind what failed; a window has the name that Dagster gives it."""
    text = str(error)
    if subject.startswith("Window ") and text.startswith("Window "):
        return re.sub(r"^Window \S+?(?=:?\s)", lambda _: subject, text)
    return f"{subject}: {text}"


def as_windrow_error(error: BaseException) -> WindrowError:
    """Words an error that is none of windrow's: of a file or folder, or else a bug."""
    if isinstance(error, WindrowError):
        return error
    if (place_error := error_of_place(error, "materialize it again")) is not None:
        return place_error
    bug = BugError.of(error, "setup")
    bug.do = (
        "Report it with the stack trace. If the window has a receipt, what that says is true;"
        " without one, nothing of the window is visible."
    )
    return bug


# --------------------------------------------------------------------------------------------------


class WindowRetryError(dg.RetryRequested, ShownAloneError):
    """The step has failed, and is retried."""


def again_or_failure(
    subject: str, error: Exception, tries: int, dagster: DagsterSpec
) -> WindowRetryError | WindowFailedError:
    """Makes a retry of an error if something was unreachable, else a failure.

    After the last retry it is a failure, too. The assets have no policy of Dagster's: it would
    apply that to a cancelled run, too, whose interrupted step would begin again and commit.

    Args:
        subject: as of `failure_of`.
        error: as of `failure_of`.
        tries: the number of retries until now.
        dagster: the spec's section `dagster`, which says how many there are.
    """
    if not isinstance(error, UnreachableError) or tries >= dagster.retries:
        return failure_of(subject, error)
    wait = dagster.retry_wait.total_seconds() * 2**tries
    retry = WindowRetryError(dagster.retries, wait)
    retry.show_alone(
        ErrorInfo(
            f"Tried again in {wait:g} s.\n",
            [],
            type(error).__name__,
            cause=error_info_of(subject, error),
        )
    )
    return retry
