"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Spec = Annotated[
    Path, typer.Argument(metavar="SPEC", help="The pipeline's YAML file.", show_default=False)
]
_W = (
    "The instant at which the window starts, or Dagster's partition key; or the micro-batch's"
    " number or name. START/END for several."
)
WindowText = Annotated[str, typer.Option("--window", metavar="W", help=_W, show_default=False)]
NextOrWindow = Annotated[
    str | None,
    typer.Option(
        "--window", metavar="W", help=f"{_W} Left out: the next micro-batch.", show_default=False
    ),
]
RequestText = Annotated[
    str | None,
    typer.Option(
        "--request",
        help="The same text makes a repeated command one and the same.",
        show_default=False,
    ),
]
_K = "Pass over windows of START/END that are refused for their data, and go on with the others."
KeepGoing = Annotated[bool, typer.Option("--keep-going", help=_K)]

_A = "Run on a Spark that is up: sc://HOST:PORT, as `windrow spark run` says it."
Connect = Annotated[
    str | None, typer.Option("--connect", metavar="ADDRESS", help=_A, show_default=False)
]
_M = (
    "Run on a cluster's master, such as spark://HOST:7077, or on so many threads here, as local[4]."
)
Master = Annotated[
    str | None, typer.Option("--master", metavar="MASTER", help=_M, show_default=False)
]
_C = "A Spark property; several times for several."
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help=_C, show_default=False)
]
_T = "Holds the token that the server asks for."
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help=_T, show_default=False)
]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


def properties(conf: list[str] | None) -> dict[str, str]:
    """Spark properties as they were given, by name."""
    settings = dict(each.partition("=")[::2] for each in conf or [])
    if not all(name and value for name, value in settings.items()):
        raise typer.BadParameter("--conf takes NAME=VALUE")
    return settings
