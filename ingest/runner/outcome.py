"""The outcome of one try at a split, as data: the staged result, or the error.

If a task raised an error, Spark would retry it without need, and return only the error's text.
So every engine runs a task by `outcome_of` on the worker, which turns an error into data. On
the driver, `result_of` returns the result or raises the error again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windrow.ingest import errors
from windrow.ingest.errors import (
    BugError,
    DeadWorkerError,
    Stage,
    WindrowError,
    foreign_exceptions,
)
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged


class ErrorData(msgspec.Struct, frozen=True):
    """A WindrowError as data. Fields that aren't explained here are those of WindrowError.

    Attributes:
        kind: the name of its class in `ingest.errors`.
        notes: the notes that a stack trace shows with the error.
    """

    kind: str
    message: str = msgspec.field(name="what")
    stage: Stage
    advice: str = msgspec.field(name="do")
    topic: str | None
    partition: int | None
    offset: int | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: WindrowError) -> ErrorData:
        """Returns the error as data.

        A subclass that a transform or a format defines becomes its nearest base class in
        windrow.
        """
        kind = next(
            kind.__name__
            for kind in type(error).__mro__
            if getattr(errors, kind.__name__, None) is kind
        )
        notes = tuple(getattr(error, "__notes__", ()))
        return cls(
            kind,
            error.message,
            error.stage,
            error.advice,
            error.topic,
            error.partition,
            error.offset,
            notes,
        )

    def error(self) -> WindrowError:
        kind: type[WindrowError] = getattr(errors, self.kind)
        error = kind(self.message, self.stage, self.advice, self.topic, self.partition, self.offset)
        for note in self.notes:
            error.add_note(note)
        return error


class _Outcome(msgspec.Struct, frozen=True):
    staged: Staged | None = None
    failure: ErrorData | None = None


def outcome_of(task: Callable[[Split], Staged], split: Split) -> str:
    """Runs one try, and returns its outcome as text.

    An interrupt is raised again, and the engine handles it. A `sys.exit` in the code of a user
    or a plugin counts as an error.
    """
    try:
        return to_json(_Outcome(staged=task(split)))
    except foreign_exceptions() as failed:  # an interrupt is raised again
        return to_json(_Outcome(failure=ErrorData.of(as_error(failed, split))))


def as_error(failed: BaseException, split: Split) -> WindrowError:
    """Turns the error of a try at a split into a WindrowError.

    An unexpected error becomes a BugError, without the error's text.
    """
    if isinstance(failed, WindrowError):
        return failed
    if isinstance(failed, MemoryError):
        message, advice = (
            "A task ran out of memory",
            (
                "Nothing was committed. Run the window again where there is more, or with fewer"
                " tasks at once."
            ),
        )
        return DeadWorkerError(message, "stage", advice, split.topic, split.partition, split.start)
    return BugError.of(failed, "stage", split.topic, split.partition, split.start)


def result_of(outcome: str) -> Staged:
    """Returns the result of a try.

    Raises:
        WindrowError: the task's error.
        BugError: the task raised an unexpected error.
    """
    ended = from_json(outcome, _Outcome)
    if ended.staged is None:
        assert ended.failure is not None, "a try ends in a result or in an error"
        raise ended.failure.error()
    return ended.staged
