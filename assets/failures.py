"""Converts windrow's errors to failures and retries of Dagster.

An error is one sentence, with its parts as metadata.

Dagster shows the stack of an exception from its own executor on: a dozen frames that say
nothing about the data. It shows no such stack for an error that another process of the
user's code reported (`ShownAloneError`), so the exceptions here have that class. Only a bug
has a stack, which begins at windrow's own frame.
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
    foreign_exceptions,
    path_error_of,
)


class WindowFailedError(dg.Failure, ShownAloneError):
    """The step has failed, and isn't retried."""


def failure_of(subject: str, error: BaseException) -> WindowFailedError:
    """Makes a failure from an error.

    Args:
        subject: what failed, as the beginning of a sentence: `Window 2026-01-05-00:00`.
        error: one of windrow's errors; any other error counts as a bug.
    """
    error = as_windrow_error(error)
    error_info = error_info_of(subject, error)
    parts: dict[str, str | int] = {
        "window": subject.removeprefix("Window "),
        "what": error.message,
        "where": error.log_position or f"the {error.stage} step",
        "do": error.advice,
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
    except foreign_exceptions() as error:  # raised again; an unknown error counts as a bug
        raise failure_of(subject, error) from None


def error_info_of(subject: str, error: WindrowError) -> ErrorInfo:
    """Returns the error's sentence. A bug has its stack, with the worker's, as the cause."""
    stack = (
        ErrorInfo.from_traceback(TracebackException.from_exception(error))
        if isinstance(error, BugError)
        else None
    )
    return ErrorInfo(f"{sentence_of(subject, error)}\n", [], type(error).__name__, cause=stack)


def sentence_of(subject: str, error: WindrowError) -> str:
    """Returns what failed and the error's text. A window has the name that Dagster shows for it."""
    text = str(error)
    if subject.startswith("Window ") and text.startswith("Window "):
        return re.sub(r"^Window \S+?(?=:?\s)", lambda _: subject, text)
    return f"{subject}: {text}"


def as_windrow_error(error: BaseException) -> WindrowError:
    """Converts any error to one of windrow's: about a file or folder, or else a bug."""
    if isinstance(error, WindrowError):
        return error
    if (place_error := path_error_of(error, "materialize it again")) is not None:
        return place_error
    bug = BugError.of(error, "setup")
    bug.advice = (
        "Report it with the stack trace. If the window has a receipt, what that says is true;"
        " without one, nothing of the window is visible."
    )
    return bug


# --------------------------------------------------------------------------------------------------


class WindowRetryError(dg.RetryRequested, ShownAloneError):
    """The step has failed, and Dagster retries it."""


def retry_or_failure(
    subject: str, error: Exception, tries: int, dagster: DagsterSpec
) -> WindowRetryError | WindowFailedError:
    """Makes a retry if something was unreachable, else a failure.

    After the last retry it makes a failure, too. The assets don't use Dagster's retry
    policy, which also applies to cancelled runs: an interrupted step would begin again and
    commit.

    Args:
        subject: what failed, as for `failure_of`.
        error: the error, as for `failure_of`.
        tries: the number of retries until now.
        dagster: the spec's section `dagster`, which limits the number of retries.
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
