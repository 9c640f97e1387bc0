"""The `windrow` command, run in the process of the test."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from windrow.ingest.cli.main import app


@dataclass(frozen=True)
class CommandResult:
    """What a command returned and wrote.

    Attributes:
        exit_code: the exit code.
        stdout: the text on standard output.
        stderr: the text on standard error.
        output: both, in the order in which they were written.
        exception: the error that the command didn't catch.
    """

    exit_code: int
    stdout: str
    stderr: str
    output: str
    exception: BaseException | None = None


@cache
def _build_command() -> Any:
    """Builds the command with its options once; that takes longer than most commands."""
    return get_command(app)


def run_command(*words: str, env: Mapping[str, str] | None = None) -> CommandResult:
    """Runs the command with these arguments, as `typer.testing.CliRunner.invoke` does.

    Args:
        words: the arguments.
        env: variables of the environment during the command.
    """
    exit_code, exception = 0, None
    with CliRunner().isolation(env=env) as (stdout, stderr, output):
        try:
            _build_command().main(list(words), prog_name="windrow")
        except SystemExit as error:
            exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except Exception as error:  # noqa: BLE001 - a test judges it
            exit_code, exception = 1, error
        for text_stream in (sys.stdout, sys.stderr):
            text_stream.flush()
        texts = [stream.getvalue().decode() for stream in (stdout, stderr, output)]
    return CommandResult(exit_code, *texts, exception)
