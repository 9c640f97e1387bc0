"""The errors of windrow, as a tree. The errors of a branch need the same reaction.

    WindrowError
    ├── SpecError            exit 2   the spec, the schema or the command line is wrong: fix it
    │   └── SpecMistakesError      all mistakes of one spec
    ├── RefusedError         exit 1   the data was refused, nothing became visible: a person decides
    │   ├── DataLossError          retention or truncation removed messages that the window needs
    │   │   └── CutOffError            a log ends below the end of an earlier window
    │   ├── IdentityError          another cluster, a recreated topic
    │   │   └── OwnerError       pipeline, ledger, table and registry don't belong together
    │   ├── OverlapError           the range is already committed under another window
    │   ├── GridError              the window isn't on the table's grid
    │   ├── PausedError            somebody has paused the pipeline
    │   ├── SchemaChangedError     the schema and the table's columns differ
    │   ├── DeadLetterLimitError   more dead letters than the limits allow
    │   ├── UnstorableRowsError         rows that the table can't hold: they become dead letters
    │   └── DamagedError           the ledger, or a receipt of the table, can't be read
    ├── UnreachableError     exit 3   broker, sink, ledger or Java can't be reached: try again later
    │   ├── DeadWorkerError        a task's worker died: the driver looks for a poison pill
    │   ├── LostConnectionError    surely nothing was written: try again at once
    │   └── OutcomeUnknownError    a commit was sent and not answered: run the window again
    ├── NotClosedError       exit 4   the window is not over yet: run it later
    │   └── OpenTransactionError       an open transaction may still bring messages of it
    └── BugError             exit 70  a mistake of windrow or a library: report it
        └── AccountingError            the counters disagree

Every error names its stage and what to do, and if known the topic-partition and offset. No
error contains a payload or a secret.
"""

from __future__ import annotations

import errno
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

T = TypeVar("T")

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


_STAGE_WORDS = {
    **dict.fromkeys(("spec", "setup", "check"), ""),
    "freeze": "plan",
    "validate": "transform",
    "stage": "write",
}
"""The stages that a message shows under another word. A stage with an empty word isn't shown."""


def join_first_few(names: Sequence[object], limit: int = 3) -> str:
    """Returns the first names and the number of the others: `a, b, c and 2 more`."""
    rest_count = len(names) - limit
    return ", ".join(map(str, names[:limit])) + (
        f" and {rest_count} more" if rest_count > 0 else ""
    )


def format_count(count: int, noun: str) -> str:
    """Returns a number with its noun: `1 file`, `2,000 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def with_spec(text: str, spec: Path | None) -> str:
    """Inserts the path of a pipeline's file into the commands that a text advises.

    `windrow verify SPEC` becomes `windrow verify orders.yaml`. Without a path the text is
    returned unchanged.
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


def see_runbook(name: str) -> str:
    """Returns the sentence that names the command which shows a runbook."""
    return f" See `windrow help {name}`."


def how_to_install(extra: str) -> str:
    """Returns the advice how to install the packages of an extra.

    - With pip, windrow stays as it is installed, from a checkout or a wheel. Only the
      extra's packages come from an index.
    - An environment that uv made has no pip, so `uv pip` is named.
    - In a project with a uv.lock, `uv add` is named: `uv sync` removes packages that the
      project doesn't declare.
    """
    project, pip = Path(sys.prefix).parent, "pip" if find_spec("pip") else "uv pip"
    of_uv = (project / "uv.lock").is_file()
    command = f"In {project}: uv add" if of_uv else f"In windrow's environment: {pip} install"
    return f"{command} 'windrow-ingest[{extra}]'"


class WindrowError(Exception):
    """The root of all errors.

    All fields are passed to `Exception.__init__`, so that an error survives pickling on
    its way from a Spark worker.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T11:00:00Z")
        try:
            windrow.run_window(pipeline, window, windrow.Request("backfill"))
        except windrow.WindrowError as error:
            print("exit code", error.exit_code, "-", error)
    """

    exit_code: ClassVar[int] = 70
    """The exit code of the command.

    Each branch of the tree has its own code. 70 is the code of a bug; an error outside all
    branches would be one.
    """

    runbook: ClassVar[str] = ""
    """The name of a page in docs/runbooks. The error's advice names the command that shows it."""

    def __init__(
        self,
        message: str,
        stage: Stage,
        advice: str,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Makes an error.

        Args:
            message: what happened.
            stage: the stage in which it happened.
            advice: what to do.
            topic: the topic of the position in the log, if known.
            partition: its partition.
            offset: its offset.
        """
        super().__init__(message, stage, advice, topic, partition, offset)
        self.message = message
        self.stage = stage
        see = see_runbook(self.runbook) if self.runbook else ""
        self.advice = advice if see in advice else f"{advice}{see}"
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        """Returns one paragraph: what happened, where, and what to do."""
        stage = _STAGE_WORDS.get(self.stage, self.stage)
        location = ", ".join(part for part in (stage, self.log_position) if part)
        return (
            f"{self.message} ({location}). {self.advice}"
            if location
            else f"{self.message}. {self.advice}"
        )

    @property
    def log_position(self) -> str:
        """The known part of the position in the log: `topic[0]@7`; empty if nothing is known."""
        partition = "" if self.partition is None else f"[{self.partition}]"
        return f"{self.topic or ''}{partition}{'' if self.offset is None else f'@{self.offset}'}"


class SpecError(WindrowError):
    """The spec, the schema or the command line is wrong.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        try:
            windrow.windows_named(spec, "2026-01-05T09:30:00Z")
        except windrow.SpecError as error:
            print("fix it first:", error)
    """

    exit_code = 2


class SpecMistakesError(SpecError):
    """All mistakes of one spec, one line each."""

    def __str__(self) -> str:
        """Returns the mistakes as a list, then what to do."""
        return f"{self.message}\n{self.advice}"


class RefusedError(WindrowError):
    """The window was refused. This attempt made nothing of it visible.

    A sink whose commits are smaller than a window may have shown a part before.

    Attributes:
        exit_code: the exit code of the command.
        of_setting: True if the pipeline's setup is wrong, not the data of this window.
            Every window is then refused until the setup is fixed. Most classes set it for
            all their errors; for the others, the code that raises the error sets it.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T11:00:00Z")
        try:
            windrow.run_window(pipeline, window, windrow.Request("backfill"))
        except windrow.RefusedError as error:
            print("a person decides:", error.advice)
    """

    exit_code = 1
    of_setting: bool = False


@contextmanager
def refusals_blame_settings(sure: bool = True) -> Iterator[None]:
    """Marks a RefusedError that is raised inside as one of the settings, not of the messages.

    Args:
        sure: False: the error stays as it is.
    """
    try:
        yield
    except RefusedError as error:
        error.of_setting |= sure
        raise


class DataLossError(RefusedError):
    """Messages that the window needs are gone from the topic."""

    runbook = "retention"


class CutOffError(DataLossError):
    """A log ends below an offset that it had reached before.

    A broker may report such an end for a moment after a leader election.
    """


class IdentityError(RefusedError):
    """The cluster, the topic or the ledger is not the one that the table was built from."""

    runbook = "topic-made-anew"


class OwnerError(IdentityError):
    """The pipeline doesn't belong to this ledger, this table, or this schema registry."""

    of_setting = True
    runbook = "restored-backup"


class OverlapError(RefusedError):
    """A range of the plan is already committed under another window.

    The plan comes from another ledger than the table's receipts.
    """

    of_setting = True


class GridError(RefusedError):
    """The window isn't on the grid that the table was begun with."""

    of_setting = True


class PausedError(RefusedError):
    """Somebody has paused the pipeline."""

    of_setting = True


class SchemaChangedError(RefusedError):
    """The schema differs from the table's columns in a way that windrow doesn't apply."""

    of_setting = True
    runbook = "schema-changed"


class DeadLetterLimitError(RefusedError):
    """More dead letters than `max_dead_ratio` or `max_dead_count` allow."""

    runbook = "refused-hour"


class UnstorableRowsError(RefusedError):
    """Rows that a table can't hold. The stager has taken no row of their batch.

    `offset` is the offset of the first of these rows.
    """

    def __init__(
        self,
        message: str,
        stage: Stage,
        advice: str,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        row_indices: Sequence[int] = (),
    ) -> None:
        """Takes the fields of `WindrowError`, and the rows' positions in their batch."""
        super().__init__(message, stage, advice, topic, partition, offset)
        self.row_indices = row_indices


class DamagedError(RefusedError):
    """The ledger or a receipt is missing, damaged, or in the format of a later version.

    No window can be run until that is fixed.
    """

    of_setting = True
    runbook = "restored-backup"


class UnreachableError(WindrowError):
    """A service outside of windrow can't be reached, or did not answer in time.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        try:
            windrow.run_window(pipeline, window, windrow.Request("backfill"))
        except windrow.UnreachableError as error:
            print("try again later:", error.message)
    """

    exit_code = 3


class LostConnectionError(UnreachableError):
    """The connection to a table was lost, and the table was certainly not changed.

    The change was not sent, or the server rolled it back.
    """


class DeadWorkerError(UnreachableError):
    """A task's worker died, or ran out of memory. A message may be the cause, or the machine."""


class OutcomeUnknownError(UnreachableError):
    """A commit was sent and not answered.

    The staged data must not be deleted. The next run checks first whether the commit
    arrived.
    """

    @classmethod
    def of(
        cls, commit: str, reason: str, retry_advice: str = "Run the window again"
    ) -> OutcomeUnknownError:
        """Makes the error.

        Args:
            commit: the words after "The commit": "of window W" or "to TABLE".
            reason: why there was no answer.
            retry_advice: how to try again, as an imperative.
        """
        message = f"The commit {commit} was sent and not answered: {reason}"
        return cls(message, "commit", f"{retry_advice}: it looks first if the commit arrived.")


class NotClosedError(WindrowError):
    """The window, or its delay, is not over yet.

    Attributes:
        exit_code: the exit code of the command.
        until: when the window can be run; None if that isn't known.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-07T09:00:00Z")
        try:
            windrow.run_window(pipeline, window, windrow.Request("backfill"))
        except windrow.NotClosedError as error:
            print("run it again at", error.until)
    """

    exit_code = 4
    until: datetime | None = None


class OpenTransactionError(NotClosedError):
    """An open transaction holds back the end of a topic-partition.

    It may still commit messages that are older than the label.
    """


PLUGIN_ADVICE = (
    "Another try changes nothing. Report it to those who wrote the plugin: `windrow help"
    " write-your-own` says what it must give."
)
"""What to do if a plugin is to blame."""


class BugError(WindrowError):
    """A bug of windrow, of a plugin, or of a library.

    Nothing became visible, and another try fixes nothing.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        try:
            windrow.run_window(pipeline, window, windrow.Request("backfill"))
        except windrow.BugError as error:
            print("please report:", error)
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

        It has the exception's type and its place in the code, but never its text, because
        Arrow, polars and other libraries quote values in their texts. The stack is in a
        note, which only a stack trace shows.
        """
        advice = (
            "Nothing was committed. Report it with its stack trace, which the command shows with"
            " --debug."
        )
        bug, kind = (
            cls(bug_of(error), stage, advice, topic, partition, offset),
            type(error).__qualname__,
        )
        bug.add_note("".join(["Stack trace:\n", *traceback.format_tb(error.__traceback__), kind]))
        return bug


_OF_PLACES = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR}


def path_error_of(error: BaseException, next_step: str) -> UnreachableError | None:
    """Returns the error about a file or folder that the user can fix; None for other errors.

    Args:
        error: any error.
        next_step: what to do once it is fixed, in words.
    """
    if not isinstance(error, OSError) or error.errno not in _OF_PLACES or not error.filename:
        return None
    return UnreachableError(
        f"{error.filename} can't be used: {error.strerror}",
        "setup",
        "See that the place is there, has room, and that you may read and write it; then"
        f" {next_step}.",
    )


_LONGEST_NAME = 300
"""The maximum number of characters that an error quotes of a name that windrow didn't choose."""


def to_printable(name: str) -> str:
    """Returns the printable characters of a name that windrow didn't choose."""
    return "".join(c for c in name if c.isprintable())[:_LONGEST_NAME]


def describe_connection_error(error: BaseException) -> str:
    """Returns the type of an error and of its root cause.

    For a certificate that isn't trusted, it returns the TLS library's reason.
    """
    import ssl  # imported here, because only a connection needs it

    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    if isinstance(root, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {to_printable(root.verify_message)}"
    return ", ".join(dict.fromkeys((type(error).__name__, type(root).__name__)))


def find_package_owners() -> dict[str, str]:
    """Returns the owner of each top-level package: windrow, or a plugin."""
    from importlib.metadata import entry_points  # takes long to load

    return {
        entry.module.partition(".")[
            0
        ]: f"the plugin {entry.dist.name if entry.dist else entry.name}"
        for kind in ("formats", "lookups", "sinks", "steps")
        for entry in entry_points(group=f"windrow.{kind}")
    } | {"windrow": "windrow"}


def foreign_exceptions() -> tuple[type[BaseException], ...]:
    """Returns the classes for an `except` clause around the code of users, plugins or libraries.

    Such code may raise classes that are no Exception: SystemExit, a panic of Rust,
    asyncio's CancelledError. They are all caught, except those that ask the process to end,
    such as Ctrl-C or a cancelled run.
    """
    raised = sys.exc_info()[0] or Exception
    ends = (KeyboardInterrupt, GeneratorExit)
    if not issubclass(raised, (Exception, SystemExit)) and (
        issubclass(raised, ends) or raised.__module__.partition(".")[0] in _ENDING
    ):
        return ()
    return (BaseException,)


_ENDING = {"dagster", "windrow", "_pytest"}
"""Packages whose exceptions ask the process to end, if they don't derive from Exception."""


def bug_of(error: BaseException) -> str:
    """Describes whose bug an unexpected exception is, and where it was raised, without its text."""
    places = [
        (str(frame.f_globals.get("__name__", "?")), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    owner_by_package = find_package_owners()
    roots = (name.partition(".")[0] for name, _ in reversed(places))
    owner = next((owner_by_package[root] for root in roots if root in owner_by_package), "windrow")
    location = "".join(f", at {name}:{line}" for name, line in places[-1:])
    return f"{type(error).__qualname__}: this is a bug in {owner}{location}"


def name_with_owner(part: object) -> str:
    """Returns the name of a function or of an object's class, with the plugin that it is from."""
    kind: Any = part if hasattr(part, "__qualname__") else type(part)
    owner = find_package_owners().get(kind.__module__.partition(".")[0])
    return f"{kind.__module__}.{kind.__qualname__}" + (f" of {owner}" if owner else "")


def check_output(
    component: object, output: T, expected: type | tuple[type, ...] | str, name: str = ""
) -> T:
    """Returns the output of a part of a pipeline, after a check of its type.

    The part may come from a plugin.

    Args:
        component: the part.
        output: the object that the part returned.
        expected: the type of the output, a tuple of allowed types, or the name of a method
            that it must have.
        name: the name of the output in the message, if the part has several.

    Raises:
        BugError: the output has another type.
    """
    if isinstance(expected, str):
        fits, words = callable(getattr(output, expected, None)), f"nothing with a method {expected}"
    else:
        kinds = expected if isinstance(expected, tuple) else (expected,)
        fits, words = isinstance(output, kinds), f"no {' or '.join(k.__name__ for k in kinds)}"
    if fits:
        return output
    raise malformed_output_error(
        component, f"{type(output).__name__}{f' as {name}' if name else ''}, and {words}"
    )


def malformed_output_error(component: object, description: str) -> BugError:
    """Makes the error about a wrong output of a part of a pipeline."""
    return BugError(f"{name_with_owner(component)} gave {description}", "setup", PLUGIN_ADVICE)


class AccountingError(BugError):
    """Independent counters disagree.

    The data is not refused: no setting and no decision fixes a wrong counter.
    """


@contextmanager
def require_extra(extra: str, failure: str) -> Iterator[None]:
    """Raises an error that names the extra to install, if the block can't import a package.

    Args:
        extra: the extra of windrow-ingest that has the package.
        failure: what can't be done without it, as the beginning of a sentence.

    Raises:
        SpecError: a package is missing.
    """
    try:
        yield
    except ImportError as missing:  # Spark raises its own error, with a text, for its packages
        absent = isinstance(missing, ModuleNotFoundError)
        reason = f"{missing.name} isn't installed" if absent else str(missing)
        raise SpecError(f"{failure}: {reason}", "spec", how_to_install(extra)) from missing
