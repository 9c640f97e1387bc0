"""How one try at a split ended, as data that travels: what the task staged, or its error.

Raised inside a task, an error would be tried again in vain, and only a text of it would
come back. So every engine runs its tasks by `tried`, wherever that is, and gets the
result, or the error as it was raised, by `brought_back`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windrow.ingest import errors
from windrow.ingest.errors import BugError, Stage, UnreachableError, WindrowError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged


class ErrorData(msgspec.Struct, frozen=True):
    """An error as data. `notes`: what a stack trace shows beside it."""

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
        """The error as it is; one of a kind that a transform or a format made for
        itself, as the nearest of windrow's own.
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
        """The error again."""
        kind: type[WindrowError] = getattr(errors, self.kind)
        error = kind(self.what, self.stage, self.do, self.topic, self.partition, self.offset)
        for note in self.notes:
            error.add_note(note)
        return error


class _Outcome(msgspec.Struct, frozen=True):
    staged: Staged | None = None
    failure: ErrorData | None = None


def tried(task: Callable[[Split], Staged], split: Split) -> str:
    """One try: what came of it, as text.

    What ends the process itself (an interrupt, a kill) isn't caught: it is the engine's to answer.
    """
    try:
        return to_json(_Outcome(staged=task(split)))
    except BaseException as failed:
        if not isinstance(failed, Exception) and not is_panic(failed):
            raise
        return to_json(_Outcome(failure=ErrorData.of(as_error(failed, split))))


def as_error(failed: BaseException, split: Split) -> WindrowError:
    """What a try at a split ended with, as an error of windrow's own: one that nobody
    foresaw is a bug, and its text is never told.
    """
    if isinstance(failed, WindrowError):
        return failed
    if isinstance(failed, MemoryError):
        what, do = (
            "A task ran out of memory",
            (
                "Nothing was committed. Run the window again where there is more, or with fewer"
                " tasks at once."
            ),
        )
        return UnreachableError(what, "stage", do, split.topic, split.partition, split.start)
    return BugError.of(failed, "stage", split.topic, split.partition, split.start)


def brought_back(outcome: str) -> Staged:
    """The result of a try.

    Raises:
        WindrowError: the task's own error, as it was raised; a BugError for one that
            nobody foresaw.
    """
    ended = from_json(outcome, _Outcome)
    if ended.staged is None:
        assert ended.failure is not None, "a try ends in a result or in an error"
        raise ended.failure.error()
    return ended.staged


def is_panic(error: BaseException) -> bool:
    """A panic of Rust code: no Exception, each library has a class of its own for it,
    and they share this name alone.
    """
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")
