"""What can go wrong, as a tree whose branches are reactions.

    WindrowError
    ├── SpecError            exit 2   the spec, the schema or the command line is wrong: fix it
    │   └── SpecMistakesError      all that is wrong with one spec
    ├── RefusedError         exit 1   the data was refused, nothing became visible: a person decides
    │   ├── DataLossError          retention or truncation removed what the window needs
    │   │   └── CutOffError            a log ends below where a window ended before
    │   ├── IdentityError          another cluster, a recreated topic
    │   │   └── OwnerError       pipeline, ledger, table and registry don't belong together
    │   ├── OverlapError           the range is already committed under another window
    │   ├── GridError              the window does not lie on the table's grid
    │   ├── SchemaChangedError     the schema and the table's columns differ
    │   ├── DeadLetterLimitError   more dead letters than the limits allow
    │   ├── UnfitRowsError         rows that the table has no place for: they become dead letters
    │   └── DamagedError           the ledger, or a receipt of the table, can't be read any more
    ├── UnreachableError     exit 3   broker, sink, ledger or Java can't be reached: try again later
    │   ├── LostConnectionError    surely nothing was written: the same may be tried again at once
    │   └── OutcomeUnknownError    a commit was sent and not answered: run the window again
    ├── NotClosedError       exit 4   the window is not over yet: come back
    │   └── OpenTransactionError       an open transaction may still bring messages of its time
    └── BugError             exit 70  a mistake of windrow or a library: report it
        └── AccountingError            the counters disagree

Every error names its stage, where possible its topic-partition and offset, and what to
do. No error carries a payload or a secret.
"""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

Stage = Literal[
    "spec",
    "plan",
    "freeze",
    "read",
    "decode",
    "validate",
    "stage",
    "check",
    "commit",
    "ledger",
    "setup",
]


def with_spec(text: str, spec: Path | None) -> str:
    """The text with a pipeline's file in the commands that it advises, `windrow verify
    SPEC`, where the file is known.
    """
    return (
        text
        if spec is None
        else re.sub(
            r"\b(windrow [a-z]+(?: [a-z]+)?) SPEC\b",
            lambda m: f"{m[1]} {shlex.quote(str(spec))}",
            text,
        )
    )


class WindrowError(Exception):
    """The root.

    All fields go to `Exception.__init__`, so that every error survives pickling on its
    way from a Spark worker.
    """

    exit_code: ClassVar[int] = 70
    """What the command ends with.

    Each branch says its own; an error of no branch would be a mistake of ours.
    """

    def __init__(
        self,
        what: str,
        stage: Stage,
        do: str,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        """`what` happened in which `stage`, and what the reader should `do`;
        coordinates where there are any.
        """
        super().__init__(what, stage, do, topic, partition, offset)
        self.what = what
        self.stage = stage
        self.do = do
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        """One clear paragraph: what happened, where, what to do.

        Of a spec the stage goes without saying.
        """
        stage = "" if self.stage == "spec" else self.stage
        where = ", ".join(part for part in (stage, self.place) if part)
        return f"{self.what} ({where}). {self.do}" if where else f"{self.what}. {self.do}"

    @property
    def place(self) -> str:
        """Where in the log, as far as that is known: `topic[0]@7`, or nothing."""
        partition = "" if self.partition is None else f"[{self.partition}]"
        return f"{self.topic or ''}{partition}{'' if self.offset is None else f'@{self.offset}'}"


class SpecError(WindrowError):
    """The spec, the schema or the command line is wrong."""

    exit_code = 2


class SpecMistakesError(SpecError):
    """Everything that is wrong with one spec; one line each."""

    def __str__(self) -> str:
        """The mistakes as a list, then what to do."""
        return f"{self.what}\n{self.do}"


class RefusedError(WindrowError):
    """The window was refused; nothing of it became visible.

    `of_setting`: it is how the pipeline is set up that is wrong, not the window's data.
    Every window is refused until that is fixed, and then this one can be run like any
    other. Most classes say it of all their errors; of others it depends on where they
    are raised.
    """

    exit_code = 1
    of_setting: bool = False


@contextmanager
def refusing_all(sure: bool = True) -> Iterator[None]:
    """Say of what is refused inside that every window is, if that is sure."""
    try:
        yield
    except RefusedError as error:
        error.of_setting |= sure
        raise


class DataLossError(RefusedError):
    """Messages that the window needs are gone from the topic."""


class CutOffError(DataLossError):
    """A log ends below an offset that it had reached before: right after an election a
    broker may say so for a moment.
    """


class IdentityError(RefusedError):
    """The cluster, the topic or the ledger is not the one that the table was built from."""


class OwnerError(IdentityError):
    """The pipeline doesn't belong together with its ledger, the table that its sink
    names, or the schema registry.
    """

    of_setting = True


class OverlapError(RefusedError):
    """A range of the plan is already committed under another window: the plan was made
    by another ledger than the table's.
    """

    of_setting = True


class GridError(RefusedError):
    """The window does not lie on the grid that the table was begun with."""

    of_setting = True


class SchemaChangedError(RefusedError):
    """The schema and the table's columns differ in a way that windrow does not apply by itself."""

    of_setting = True


class DeadLetterLimitError(RefusedError):
    """More dead letters than `max_dead_ratio` or `max_dead_count` allow."""


class UnfitRowsError(RefusedError):
    """Rows that a table has no place for, raised by a stager that has taken none of their batch.

    `offset` is that of the first of them.
    """

    def __init__(
        self,
        what: str,
        stage: Stage,
        do: str,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        rows: Sequence[int] = (),
    ) -> None:
        """As `WindrowError`; `rows`: which they are, by their positions in the batch."""
        super().__init__(what, stage, do, topic, partition, offset)
        self.rows = rows


class DamagedError(RefusedError):
    """The ledger, or a receipt that the table names, is missing, damaged or of a later
    form: to be fixed before any window can be run.
    """

    of_setting = True


class UnreachableError(WindrowError):
    """Something outside can't be reached, or did not answer in time."""

    exit_code = 3


class LostConnectionError(UnreachableError):
    """The way to a table was lost before a change was sent, or its server took the
    change back by itself.
    """


class OutcomeUnknownError(UnreachableError):
    """A commit was sent and not answered. Nothing may be deleted; the next run looks first."""


class NotClosedError(WindrowError):
    """The window, or its delay, is not over yet."""

    exit_code = 4


class OpenTransactionError(NotClosedError):
    """An open transaction holds the end of a topic-partition back, and may still bring
    messages from before the label.
    """


class BugError(WindrowError):
    """A mistake of windrow's own, or of what it stands on: report it.

    Nothing became visible; trying again fixes nothing.
    """

    exit_code = 70

    @classmethod
    def of(
        cls,
        error: BaseException,
        stage: Stage,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> BugError:
        """The bug that an exception shows which nobody foresaw.

        It carries the exception's type and the places in the code, never the text:
        Arrow, polars and others quote values in theirs. How it came there is a note,
        which a stack trace shows and nothing else does.
        """
        kind, came = type(error).__qualname__, list(traceback.walk_tb(error.__traceback__))
        place = "".join(
            f", at {frame.f_globals.get('__name__', '?')}:{line}" for frame, line in came[-1:]
        )
        what = f"{kind}: this is a bug in windrow{place}"
        do = (
            "Nothing was committed. Report it with its stack trace, which the command shows with"
            " --debug."
        )
        bug = cls(what, stage, do, topic, partition, offset)
        bug.add_note(
            "".join(["How it came there:\n", *traceback.format_tb(error.__traceback__), kind])
        )
        return bug


class AccountingError(BugError):
    """Independent counters disagree.

    The data is not refused: whichever counter is wrong, no setting and no decision fixes it.
    """
