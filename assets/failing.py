"""Failures in windrow's words: one sentence, its parts as metadata, and no stack of
Dagster's own frames below it.

Dagster keeps of an exception the frames from its own executor down to the `raise`: a
dozen of them that say nothing of the data. Of one that comes from a process of the
user's code it keeps what that process told, as it was told
(`DagsterUserCodeProcessError`). The exceptions here are of that kind too, and tell the
sentence alone. Only a bug brings its stack, from our own frame on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import TracebackException, format_tb

import dagster as dg

# not among the public names; dagster is pinned to 1.13
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]  # Dagster itself takes it from there

from windrow.ingest.errors import BugError, UnreachableError, WindrowError


class _ToldAloneError(DagsterUserCodeProcessError):
    """Dagster shows of it what `show_alone` was given, nothing else."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text, user_code_process_error_infos=[])  # type: ignore[no-untyped-call]

    def show_alone(self, info: SerializableErrorInfo) -> None:
        """Have Dagster show this and nothing else."""
        self.user_code_process_error_infos = [info]


class WindowFailedError(dg.Failure, _ToldAloneError):
    """The step has failed for good."""


class WindowRetryError(dg.RetryRequested, _ToldAloneError):
    """The step is to be tried again."""


def failure_of(what: str, error: Exception) -> WindowFailedError:
    """The failure that an error of windrow's, or a bug, is shown as.

    Args:
        what: what was being done, as the beginning of a sentence: `Window 2026-01-05-00:00`.
        error: why it could not be done.
    """
    told = _told(what, error)
    failure = WindowFailedError(
        told.message.rstrip("\n"), metadata=_parts(what, error), allow_retries=False
    )
    failure.show_alone(told)
    return failure


def again_or_failure(
    what: str, error: Exception, policy: dg.RetryPolicy, tries: int
) -> WindowRetryError | WindowFailedError:
    """The retry that an error is worth, if something outside could not be reached;
    else, and after the last try, the failure.

    Args:
        what: as of `failure_of`.
        error: as of `failure_of`.
        policy: how often and how long after.
        tries: how often the step was tried again before.
    """
    if not isinstance(error, UnreachableError) or tries >= policy.max_retries:
        return failure_of(what, error)
    wait = policy.calculate_delay(tries + 1)
    retry = WindowRetryError(policy.max_retries, wait)
    retry.show_alone(
        SerializableErrorInfo(
            f"Tried again in {wait:g} s.\n", [], type(error).__name__, cause=_told(what, error)
        )
    )
    return retry


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Errors inside are shown as failures, without a retry."""
    try:
        yield
    except Exception as error:  # raised again, as a bug if nobody foresaw it  # noqa: BLE001
        raise failure_of(what, error) from None


def _told(what: str, error: Exception) -> SerializableErrorInfo:
    if isinstance(error, BugError):
        return SerializableErrorInfo(
            f"{what}: {error}\n", [], type(error).__name__, cause=_stack(error)
        )
    if isinstance(error, WindrowError):
        return SerializableErrorInfo(f"{what}: {error}\n", [], type(error).__name__)
    return SerializableErrorInfo(
        f"{what}: a bug in windrow: {type(error).__name__}\n",
        [],
        type(error).__name__,
        cause=_stack(error),
    )


def _stack(error: Exception) -> SerializableErrorInfo:
    """How it came to a bug, in the worker too.

    Of what nobody foresaw without its text: libraries quote values and addresses in theirs.
    """
    if isinstance(error, BugError):
        return SerializableErrorInfo.from_traceback(TracebackException.from_exception(error))
    return SerializableErrorInfo(
        f"{type(error).__name__}\n", format_tb(error.__traceback__), type(error).__name__
    )


def _parts(what: str, error: Exception) -> Mapping[str, str | int]:
    if isinstance(error, WindrowError):
        said = {"what": error.what, "where": _where(error), "do": error.do}
        return {
            "window": what.removeprefix("Window "),
            **said,
            "kind": type(error).__name__,
            "exit_code": error.exit_code,
        }
    do = (
        "Report it with the stack trace. What the window's receipt says holds; without one nothing"
        " of it is visible."
    )
    return {
        "window": what.removeprefix("Window "),
        "what": f"{type(error).__name__}, which nobody foresaw",
        "do": do,
        "kind": type(error).__name__,
        "exit_code": BugError.exit_code,
    }


def _where(error: WindrowError) -> str:
    """The topic-partition and offset, as far as there are any; else the stage."""
    place = error.topic or f"the {error.stage} step"
    if error.partition is not None:
        place += f"[{error.partition}]"
    return place if error.offset is None else f"{place}@{error.offset}"
