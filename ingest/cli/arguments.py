"""Arguments of several commands."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer
from typer.core import TyperGroup

from windrow.ingest.errors import WindrowError

Spec = Annotated[
    Path,
    typer.Argument(
        metavar="SPEC",
        help="The pipeline's YAML file; of a file with several all of them, or FILE:ID.",
        show_default=False,
    ),
]
_WINDOW_HELP = (
    "The instant at which the window starts, or Dagster's partition key; or the micro-batch's"
    " number or name. START/END for several."
)
WindowText = Annotated[
    str, typer.Option("--window", metavar="W", help=_WINDOW_HELP, show_default=False)
]
NextOrWindow = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="W",
        help=f"{_WINDOW_HELP} Left out: the next micro-batch.",
        show_default=False,
    ),
]
SomeWindows = Annotated[
    str | None,
    typer.Option(
        "--window", metavar="W", help="Only this window, or those of START/END.", show_default=False
    ),
]
RequestText = Annotated[
    str | None,
    typer.Option(
        "--request",
        help="An id of the request: a command repeated with the same id is one request.",
        show_default=False,
    ),
]
FreshLookups = Annotated[
    bool,
    typer.Option(
        "--fresh-lookups",
        help=(
            "Look up in tables as they are now, not in the versions that the windows are pinned to."
        ),
    ),
]
TryAgain = Annotated[
    bool,
    typer.Option(
        "--try-again",
        help="Decode messages again that are left out because they killed a process before.",
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going",
        help=(
            "Pass over windows of START/END that are refused for their data, and go on with the"
            " others."
        ),
    ),
]
Anyway = Annotated[bool, typer.Option("--anyway", help="Go on although the pipeline is paused.")]
Who = Annotated[
    str | None, typer.Option(help="Your name (default: the user's).", show_default=False)
]
Connect = Annotated[
    str | None,
    typer.Option(
        "--connect",
        metavar="ADDRESS",
        help="Run on a Spark Connect server: sc://HOST:PORT, as `windrow spark run` prints it.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help=(
            "Run on a cluster's master, such as spark://HOST:7077, or on threads of this machine,"
            " such as local[4]."
        ),
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A Spark property; may be repeated.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


class Commands(TyperGroup):
    """A group of commands with better errors than typer's.

    If a file is given without a command, the error says so. An option that is given twice
    is refused: typer would silently use the last value.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that the first argument names."""
        if not ctx.resilient_parsing and args[0] not in self.commands and Path(args[0]).is_file():
            ctx.fail(
                f"{args[0]} is a file: write a command of {ctx.command_path} before it, one of"
                f" {', '.join(self.commands)}"
            )
        name, command, rest = cast("Any", super().resolve_command(ctx, args))
        if not ctx.resilient_parsing:
            command_context = typer.Context(command, parent=ctx, info_name=name)
            texts, remaining_arguments, given_options = command.make_parser(
                command_context
            ).parse_args(list(rest))
            for option in given_options:
                if given_options.count(option) > 1 and not (option.multiple or option.is_flag):
                    command_context.fail(f"{option.opts[0]} may be given once. {option.help or ''}")
            if remaining_arguments and any(
                "--window" in parameter.opts for parameter in command.params
            ):
                command_context.fail(
                    f"Write --window before {remaining_arguments[0]}, if a window is meant"
                )
            for parameter in command.params:
                path = texts.get(parameter.name)
                if str(parameter.metavar).strip("[]") == "SPEC" and isinstance(path, str):
                    command = _for_each_pipeline(command, parameter.name, Path(path))
        return name, command, rest


_SINGLE_PIPELINE_PARAMETERS = ("out", "watch", "file")
"""Parameters of commands that can't be called for several pipelines."""


def _for_each_pipeline(command: Any, parameter: str, path: Path) -> Any:
    """Returns a command that is called for each pipeline of a spec's file.

    It is the command itself if the path names one pipeline, or a file with only one.
    """
    try:
        if not path.is_file() or b"for_each" not in path.read_bytes():
            return command
    except OSError:
        return command  # which reports it
    from windrow.ingest.cli.output import call_for_each
    from windrow.ingest.config.load import load_specs

    try:
        paths = [Path(f"{path}:{spec.id}") for spec in load_specs(path)]
    except WindrowError:
        return command  # which reports it

    def call(**arguments: Any) -> None:
        given = [name for name in _SINGLE_PIPELINE_PARAMETERS if arguments.get(name)]
        if given:
            raise typer.BadParameter(
                f"{path} has {len(paths)} pipelines, and {given[0]} is of one: name {paths[0]}"
            )
        call_for_each(
            lambda path: command.callback(**{**arguments, parameter: path}),
            paths,
            json=arguments["json"],
        )

    each = copy(command)
    each.callback = call
    return each


class SparkOptions(msgspec.Struct, frozen=True):
    """The Spark that tasks run on: a master with properties, or a Spark Connect server."""

    master: str | None
    properties: dict[str, str]
    connect: str | None


def spark_options(master: str | None, conf: list[str] | None, connect: str | None) -> SparkOptions:
    """Collects a command's Spark options; refuses options that have no effect."""
    from windrow.ingest.config.dagster import is_master  # loads pydantic

    if master is not None and not is_master(master):
        raise typer.BadParameter(f"--master {master}: this machine is local, local[4] or local[*]")
    if connect is not None and (master is not None or conf):
        raise typer.BadParameter(
            "--connect excludes --master and --conf: give them to the server, windrow spark run"
            " --conf NAME=VALUE"
        )
    return SparkOptions(master, properties(conf), connect)


def properties(conf: list[str] | None) -> dict[str, str]:
    """Returns the Spark properties of --conf, by name."""
    settings = dict(setting.partition("=")[::2] for setting in conf or [])
    if len(settings) < len(conf or []) or not all(map(all, settings.items())):
        raise typer.BadParameter("--conf takes NAME=VALUE, each NAME once")
    return settings
