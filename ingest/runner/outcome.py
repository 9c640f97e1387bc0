"""The outcome of one try at a split, as data: the staged result, or the error.

An error that a task raises would make Spark try again in vain, and only its text would
come back. So every engine runs its tasks by `outcome_of`, on any machine, and gets the
result, or the error as it was raised, by `result_of`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windrow.ingest import errors
from windrow.ingest.errors import (
    BugError,
    Stage,
    UnreachableError,
    WindrowError,
    mistakes,
)
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged


class ErrorData(msgspec.Struct, frozen=True):
    """An error as data. `notes`: those that a stack trace shows with it."""

    kind: str
    what: str
    stage: Stage
    do: str
    topic: str | None
    partition: int | None
    offset: int | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: WindrowError) -> ErrorData:
        """Returns the error as data.

        One of a class that a transform or a format made for itself becomes the nearest
        of windrow's own classes.
        """
        kind = next(
            kind.__name__
            for kind in type(error).__mro__
            if getattr(errors, kind.__name__, None) is kind
        )
        notes = tuple(getattr(error, "__notes__", ()))
        return cls(
            kind,
            error.what,
            error.stage,
            error.do,
            error.topic,
            error.partition,
            error.offset,
            notes,
        )

    def error(self) -> WindrowError:
        kind: type[WindrowError] = getattr(errors, self.kind)
        error = kind(self.what, self.stage, self.do, self.topic, self.partition, self.offset)
        for note in self.notes:
            error.add_note(note)
        return error


class _Outcome(msgspec.Struct, frozen=True):
    staged: Staged | None = None
    failure: ErrorData | None = None


def outcome_of(task: Callable[[Split], Staged], split: Split) -> str:
    """Runs one try, and returns its outcome as text.

    It doesn't catch the end of the process itself (an interrupt, a kill): the engine
    handles that. A `sys.exit` in the code of a user or a plugin is a mistake like any other.
    """
    try:
        return to_json(_Outcome(staged=task(split)))
    except mistakes() as failed:  # an interrupt is raised again
        return to_json(_Outcome(failure=ErrorData.of(as_error(failed, split))))


def as_error(failed: BaseException, split: Split) -> WindrowError:
    """Turns the error of a try at a split into one of windrow's own.

    An unforeseen one is a bug, and its text is never shown.
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
        return UnreachableError(message, "stage", advice, split.topic, split.partition, split.start)
    return BugError.of(failed, "stage", split.topic, split.partition, split.start)


def result_of(outcome: str) -> Staged:
    """Returns the result of a try.

    Raises:
        WindrowError: the task's own error, as it was raised; a BugError for an
            unforeseen one.
    """
    ended = from_json(outcome, _Outcome)
    if ended.staged is None:
        assert ended.failure is not None, "a try ends in a result or in an error"
        raise ended.failure.error()
    return ended.staged
