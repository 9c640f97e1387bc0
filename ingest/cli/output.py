"""The output of a command: a JSON document or text on stdout, errors on stderr, an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import TextIO

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from windrow.ingest.errors import (
    BugError,
    NotClosedError,
    SpecError,
    WindrowError,
    bug_of,
    foreign_exceptions,
    path_error_of,
    with_spec,
)
from windrow.ingest.settings.paths import split_spec_path

BUG = BugError.exit_code
"""The exit code of a bug, for windrow's own errors and all others (EX_SOFTWARE of sysexits.h)."""

INTERRUPTED = 130
"""The exit code after Ctrl-C (128 + SIGINT, as in shells), and after SIGTERM."""

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""The signals of Ctrl-C and of supervisors (`kill`, systemd, the stop of a container)."""

WIDE = 100_000
"""The maximum width of a table in a file or a pipe, in characters. No table is wider."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as JSON. A bug has no message, because its text may quote anything.

    Attributes:
        kind: the class of the error.
        exit_code: the exit code of the command.
        message: what happened, and what to do.
        stage: the stage in which it happened.
        topic: the topic of the position in the log, if known.
        partition: its partition.
        offset: its offset.
        until: when the window can be run, if it isn't closed yet.
    """

    kind: str
    exit_code: int
    message: str = ""
    stage: str = ""
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    until: datetime | None = None


class Interrupted(BaseException):
    """Raised by Ctrl-C or SIGTERM.

    It isn't Python's KeyboardInterrupt, because libraries print a stack trace of that
    before they raise it again.
    """


class Output:
    """The output of one command.

    With JSON, stdout gets one document and nothing else, even if libraries and child
    processes print.

    Attributes:
        json: whether the output is JSON.
        spec: the pipeline's file, or FILE:ID, which replaces SPEC in the commands of a text.
        documents: the documents of each pipeline, if the command has several.
        stderr: the console of stderr.
        exit_code: the exit code of the command.
        is_interrupted: True after Ctrl-C or SIGTERM.
    """

    def __init__(
        self, *, json: bool, spec: Path | None = None, file_output: Output | None = None
    ) -> None:
        self.json = json
        self.spec = spec
        self.documents = dict[str, object]()
        self._file_output = file_output
        self.stderr = _console(sys.stderr)
        self.exit_code = 0
        self.is_interrupted = False
        self._stream = _kept_stdout() if json and file_output is None else sys.stdout
        self._stdout = _console(sys.stdout)
        self._document: object = None

    def show(self, document: object, *text: RenderableType) -> None:
        """Shows a result: with JSON a document, which replaces an earlier one, else text."""
        self._document = document
        if not self.json:
            for part in text:
                if isinstance(part, Text):
                    part.plain = with_spec(part.plain, self.spec)
                # only a terminal cuts a table, and measuring takes as long as printing
                self._stdout.print(
                    _uncut(self._stdout, part)
                    if isinstance(part, Table) and self._stdout.is_terminal
                    else part
                )

    def head(self, path: Path) -> None:
        """Prints the name of a pipeline before its output."""
        console = self.stderr if self.json else self._stdout
        console.print(Text(f"{path}", style="bold"))

    def say(self, text: str) -> None:
        """Prints a line about the progress to stderr."""
        self.stderr.print(text)

    def fail(self, error: WindrowError) -> None:
        """Shows an error. With JSON, the document has it in addition to the result so far."""
        error.advice = with_spec(error.advice, self.spec)
        kind, log_position = type(error).__name__, (error.topic, error.partition, error.offset)
        until = error.until if isinstance(error, NotClosedError) else None
        self._end(
            str(error),
            Problem(kind, error.exit_code, str(error), error.stage, *log_position, until),
        )

    def fail_by_bug(self, error: BaseException) -> None:
        """Shows an error that isn't one of windrow's, without its text (see --debug)."""
        kind = type(error).__name__
        self._end(
            f"{bug_of(error)}. Run the command again with --debug for the stack trace, and report"
            " it.",
            Problem(kind, BUG),
        )

    def raise_if_interrupted(self) -> None:
        """Raises `Interrupted` again if it was lost.

        Python drops an exception that a signal handler raises during a callback of its
        garbage collector.
        """
        if self.is_interrupted:
            raise Interrupted

    def stop(self) -> None:
        """Shows that the command was interrupted."""
        message = (
            "Interrupted. A window is committed whole or not at all: run the same command again,"
            " it goes on from there."
        )
        self._end(message, Problem(Interrupted.__name__, INTERRUPTED, message))

    def _end(self, text: str, problem: Problem) -> None:
        self.say(text)
        self.exit_code = problem.exit_code
        document = msgspec.to_builtins(self._document)
        self._document = {**(document if isinstance(document, dict) else {}), "error": problem}

    def finish(self) -> None:
        """Prints the JSON document, once."""
        if self._file_output is not None:
            self._file_output.documents[split_spec_path(Path(str(self.spec)))[1] or ""] = (
                self._document
            )
        elif self.json and self._document is not None:
            print(
                msgspec.json.format(msgspec.json.encode(self._document)).decode(),
                file=self._stream,
                flush=True,
            )
        self._document = None


_FILE_OUTPUT: ContextVar[Output | None] = ContextVar("file_output", default=None)
"""The output of a command that is called for each pipeline of a file, during the calls."""


def _kept_stdout() -> TextIO:
    """Returns a stream to the process's stdout, and redirects file descriptor 1 to stderr.

    C libraries and child processes write to the file descriptor, not to `sys.stdout`.
    """
    if sys.stdout is not sys.__stdout__:
        return sys.stdout
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return stdout


def _uncut(console: Console, table: Table) -> Table:
    """Returns a table whose words and numbers aren't cut.

    If its columns are too wide for the terminal, each cell gets its own line.
    """
    for column in table.columns:
        column.min_width = max(
            console.measure(cell).minimum for cell in (column.header, *column.cells)
        )
    lines = Segment.split_lines(console.render(table))
    if max(map(Segment.get_line_length, lines)) <= console.width:
        return table
    records = Table(
        "",
        Column(overflow="fold"),
        title=table.title,
        title_justify="left",
        box=None,
        show_header=False,
    )
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, row, strict=True):
            records.add_row(column.header, cell)
        records.add_row()
    return records


def _console(stream: TextIO) -> Console:
    return Console(
        file=stream,
        emoji=False,
        markup=False,
        highlight=False,
        soft_wrap=True,
        width=None if stream.isatty() else WIDE,
    )


@contextmanager
def _interruptible(output: Output) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM raise `Interrupted`, once.

    A second signal is ignored. It would interrupt the clean-up after the first one, which
    takes seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        for sign in _INTERRUPTS:
            signal.signal(sign, signal.SIG_IGN)
        output.is_interrupted = True
        raise Interrupted

    previous_handlers = {sign: signal.signal(sign, interrupt) for sign in _INTERRUPTS}
    try:
        yield
    finally:
        for sign, handler in previous_handlers.items():
            if signal.getsignal(sign) is interrupt:
                signal.signal(sign, handler)


@contextmanager
def command_output(
    *, json: bool, debug: bool, spec: Path | None = None, must_exist: bool = True
) -> Iterator[Output]:
    """Makes the output of a command. Errors of the block become a paragraph and an exit code.

    Args:
        json: whether the output is JSON.
        debug: print the stack trace first.
        spec: the pipeline's file.
        must_exist: refuse a missing spec at once, before Spark and Arrow are imported,
            which takes seconds.
    """
    output = Output(json=json, spec=spec, file_output=_FILE_OUTPUT.get())
    try:
        with redirect_stdout(sys.stderr), _interruptible(output):
            if spec is not None and must_exist and not split_spec_path(spec)[0].exists():
                raise SpecError(
                    f"The spec {spec} can't be read: there is no such file",
                    "spec",
                    "Give the path of a pipeline's YAML file.",
                )
            yield output
    # no other handler follows before the terminal; a plugin may call sys.exit
    except (Interrupted, *foreign_exceptions()) as error:  # type: ignore[misc]  # they are classes
        if debug:
            traceback.print_exc()
        shown_error = path_error_of(error, "run the same command again") or error
        if isinstance(shown_error, Interrupted):
            output.stop()
        elif isinstance(shown_error, WindrowError):
            output.fail(shown_error)
        else:
            output.fail_by_bug(shown_error)
    output.finish()
    if output.exit_code:
        raise typer.Exit(output.exit_code)


def call_for_each(call: Callable[[Path], object], paths: Sequence[Path], *, json: bool) -> None:
    """Calls a command for each pipeline of a file. All documents become one, by the ids.

    A pipeline that fails doesn't stop the others. The exit code is that of the first one
    that failed; the last line on stderr names all that failed.

    Args:
        call: the command, with `FILE:ID`.
        paths: `FILE:ID` of each pipeline.
        json: whether the output is JSON.
    """
    output, failed = Output(json=json), list[str]()
    token = _FILE_OUTPUT.set(output)
    try:
        for path in paths:
            output.head(path)
            try:
                call(path)
            except typer.Exit as ended:
                output.exit_code = output.exit_code or ended.exit_code
                failed += [f"{path} ({ended.exit_code})"] if ended.exit_code else []
                if ended.exit_code == INTERRUPTED:
                    break
    finally:
        _FILE_OUTPUT.reset(token)
    if failed:
        output.say(
            f"Of {len(paths):,} pipelines these ended with another exit code than 0:"
            f" {', '.join(failed)}"
        )
    output.show({"pipelines": output.documents})
    output.finish()
    raise typer.Exit(output.exit_code)


def stop_event() -> threading.Event:
    """Returns an event that Ctrl-C and SIGTERM set from now on."""
    stopped = threading.Event()
    for sign in _INTERRUPTS:
        signal.signal(sign, lambda *_: stopped.set())
    return stopped
