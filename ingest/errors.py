"""The errors of windrow: a tree whose branches are the reactions to them.

    WindrowError
    ├── SpecError            exit 2   the spec, the schema or the command line is wrong: fix it
    │   └── SpecMistakesError      all mistakes of one spec
    ├── RefusedError         exit 1   the data was refused, nothing became visible: a person decides
    │   ├── DataLossError          retention or truncation removed what the window needs
    │   │   └── CutOffError            a log ends below the end of an earlier window
    │   ├── IdentityError          another cluster, a recreated topic
    │   │   └── OwnerError       pipeline, ledger, table and registry don't belong together
    │   ├── OverlapError           the range is already committed under another window
    │   ├── GridError              the window does not lie on the table's grid
    │   ├── SchemaChangedError     the schema and the table's columns differ
    │   ├── DeadLetterLimitError   more dead letters than the limits allow
    │   ├── UnstorableRowsError         rows that the table can't hold: they become dead letters
    │   └── DamagedError           the ledger, or a receipt of the table, can't be read
    ├── UnreachableError     exit 3   broker, sink, ledger or Java can't be reached: try again later
    │   ├── LostConnectionError    surely nothing was written: try again at once
    │   └── OutcomeUnknownError    a commit was sent and not answered: run the window again
    ├── NotClosedError       exit 4   the window is not over yet: run it later
    │   └── OpenTransactionError       an open transaction may still bring messages of it
    └── BugError             exit 70  a mistake of windrow or a library: report it
        └── AccountingError            the counters disagree

Every error names its stage, if known the topic-partition and offset, and what to do. No
error carries a payload or a secret.
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


def first_few(names: Sequence[object], most: int = 3) -> str:
    """The first names, and the number of the rest: `a, b, c and 2 more`."""
    rest = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {rest} more" if rest > 0 else "")


def with_spec(text: str, spec: Path | None) -> str:
    """Puts the path of a pipeline's file into the commands that a text advises.

    `windrow verify SPEC` becomes `windrow verify orders.yaml`; without a path the text
    stays as it is.
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


def how_to_install(extra: str) -> str:
    """Words the remedy for packages of an extra that aren't installed.

    pip takes windrow itself as it is installed, from a checkout or a wheel, and asks an
    index for the extra's packages only.
    """
    return f"In windrow's environment: pip install 'windrow-ingest[{extra}]'"


class WindrowError(Exception):
    """The root of all errors.

    All fields are passed to `Exception.__init__`, so that an error survives pickling on
    its way from a Spark worker.
    """

    exit_code: ClassVar[int] = 70
    """The exit code of the command.

    Each branch of the tree has its own; an error of no branch would be a bug of
    windrow.
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
        """Takes what happened, the stage, what to do, and the place in the log, if any."""
        super().__init__(what, stage, do, topic, partition, offset)
        self.what = what
        self.stage = stage
        self.do = do
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        """One paragraph: what happened, where, and what to do.

        The stage "spec" is left out.
        """
        stage = "" if self.stage == "spec" else self.stage
        where = ", ".join(part for part in (stage, self.place) if part)
        return f"{self.what} ({where}). {self.do}" if where else f"{self.what}. {self.do}"

    @property
    def place(self) -> str:
        """The position in the log as far as it is known: `topic[0]@7`, or an empty text."""
        partition = "" if self.partition is None else f"[{self.partition}]"
        return f"{self.topic or ''}{partition}{'' if self.offset is None else f'@{self.offset}'}"


class SpecError(WindrowError):
    """The spec, the schema or the command line is wrong."""

    exit_code = 2


class SpecMistakesError(SpecError):
    """All mistakes of one spec, one line each."""

    def __str__(self) -> str:
        """The mistakes as a list, then what to do."""
        return f"{self.what}\n{self.do}"


class RefusedError(WindrowError):
    """The window was refused; nothing of it became visible by this commit.

    A sink whose commits are smaller than a window may have shown a part before.

    `of_setting`: the pipeline's setup is wrong, not the data of this window. Every
    window is refused until that is fixed; then this window can be run like any other.
    Most classes set it for all their errors; for the others it depends on the place
    that raises.
    """

    exit_code = 1
    of_setting: bool = False


@contextmanager
def refusing_all(sure: bool = True) -> Iterator[None]:
    """Sets `of_setting` on a RefusedError that is raised inside, if `sure`."""
    try:
        yield
    except RefusedError as error:
        error.of_setting |= sure
        raise


class DataLossError(RefusedError):
    """Messages that the window needs are gone from the topic."""


class CutOffError(DataLossError):
    """A log ends below an offset that it had reached before.

    Right after the election of a leader a broker may say so for a moment.
    """


class IdentityError(RefusedError):
    """The cluster, the topic or the ledger is not the one that the table was built from."""


class OwnerError(IdentityError):
    """The pipeline doesn't belong to this ledger, this table, or this schema registry."""

    of_setting = True


class OverlapError(RefusedError):
    """A range of the plan is already committed under another window.

    The plan was made by another ledger than the table's.
    """

    of_setting = True


class GridError(RefusedError):
    """The window does not lie on the grid that the table was begun with."""

    of_setting = True


class SchemaChangedError(RefusedError):
    """The schema differs from the table's columns in a way that windrow doesn't apply."""

    of_setting = True


class DeadLetterLimitError(RefusedError):
    """More dead letters than `max_dead_ratio` or `max_dead_count` allow."""


class UnstorableRowsError(RefusedError):
    """A table can't hold some rows; the stager has taken none of their batch.

    `offset` is that of the first of these rows.
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
        """Takes the fields of `WindrowError`, and the rows' positions in their batch."""
        super().__init__(what, stage, do, topic, partition, offset)
        self.rows = rows


class DamagedError(RefusedError):
    """The ledger or a receipt of the table is missing, damaged or of a later form.

    No window can be run until that is fixed.
    """

    of_setting = True


class UnreachableError(WindrowError):
    """Something outside can't be reached, or did not answer in time."""

    exit_code = 3


class LostConnectionError(UnreachableError):
    """The connection to a table was lost, and surely nothing was changed.

    Either the change had not been sent, or the server rolled it back.
    """


class OutcomeUnknownError(UnreachableError):
    """A commit was sent and not answered.

    Nothing may be deleted; the next run looks first if the commit arrived.
    """

    @classmethod
    def of(cls, commit: str, why: str, again: str = "Run the window again") -> OutcomeUnknownError:
        """Makes the error.

        `commit`: goes on after "The commit": "of window W" or "to TABLE". `again`: how to
        try again, as an imperative.
        """
        what = f"The commit {commit} was sent and not answered: {why}"
        return cls(what, "commit", f"{again}: it looks first if the commit arrived.")


class NotClosedError(WindrowError):
    """The window, or its delay, is not over yet."""

    exit_code = 4


class OpenTransactionError(NotClosedError):
    """An open transaction holds back the end of a topic-partition.

    It may still bring messages from before the label.
    """


class BugError(WindrowError):
    """A bug of windrow, or of a library.

    Nothing became visible, and another try fixes nothing.
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
        """Makes the error for an unexpected exception.

        It carries the exception's type and place in the code, never its text: Arrow,
        polars and other libraries quote values in their texts. The stack is in a note,
        which only a stack trace shows.
        """
        kind, frames = type(error).__qualname__, list(traceback.walk_tb(error.__traceback__))
        line = "".join(
            f", at {frame.f_globals.get('__name__', '?')}:{line}" for frame, line in frames[-1:]
        )
        what = f"{kind}: this is a bug in windrow{line}"
        do = (
            "Nothing was committed. Report it with its stack trace, which the command shows with"
            " --debug."
        )
        bug = cls(what, stage, do, topic, partition, offset)
        bug.add_note("".join(["Stack trace:\n", *traceback.format_tb(error.__traceback__), kind]))
        return bug


class AccountingError(BugError):
    """Independent counters disagree.

    The data is not refused: no setting and no decision fixes a wrong counter.
    """


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Names the extra to install, where a package of it is missing.

    `what`: what can't be done without it, as the beginning of a sentence.

    Raises:
        SpecError: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise SpecError(
            f"{what}: {missing.name} isn't installed", "spec", how_to_install(extra)
        ) from missing
