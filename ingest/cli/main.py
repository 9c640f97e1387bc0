"""The command `windrow`: arguments in, exit code out.

0 done, or already done     1 data refused     2 bad spec or usage     3 something can't be reached     4 not yet closed
70 a bug in windrow
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from dotenv import load_dotenv

from ingest.cli.output import telling
from ingest.errors import SpecError

app = typer.Typer(
    name="windrow", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
    help="Kafka topics become tables, one bounded window at a time, exactly once.",
    epilog="Exit codes: 0 done or already done, 1 data refused, 2 bad spec or usage, 3 something can't be reached, 4 not yet closed, "
    "70 a bug in windrow.",
)  # fmt: skip
broker_app = typer.Typer(no_args_is_help=True, help="A real single-node Kafka for development.")
app.add_typer(broker_app, name="broker")

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="The pipeline's YAML file.", show_default=False)]
WindowText = Annotated[
    str, typer.Option("--window", metavar="W", help="The instant at which the window starts, or START/END on the grid.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"windrow {metadata.version('windrow')}")
        raise typer.Exit


def _look(spec: Path) -> None:
    """Whether the file is there, before seconds go into loading Spark and Arrow."""
    if not spec.is_file():
        raise SpecError(f"The spec {spec} can't be read: there is no such file", "spec", "Give the path of a pipeline's YAML file.")


@app.callback()
def prepare(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,  # noqa: ARG001  # its callback answers
) -> None:
    """The working directory's .env stands behind the environment; what is set already stays."""
    load_dotenv(Path.cwd() / ".env", override=False)


@app.command()
def plan(spec: Spec, window: WindowText, json: Json = False, debug: Debug = False) -> None:
    """Show what a run would read, and how each offset was found; freezes and writes nothing."""
    with telling(json=json, debug=debug) as output:
        _look(spec)
        from ingest.cli.commands import show_plan  # noqa: PLC0415

        show_plan(output, spec, window)


@app.command()
def run(spec: Spec, window: WindowText, json: Json = False, debug: Debug = False) -> None:
    """Commit windows, exactly once; one that is committed already is only reported."""
    with telling(json=json, debug=debug) as output:
        _look(spec)
        from ingest.cli.commands import run_windows  # noqa: PLC0415

        run_windows(output, spec, window)


@app.command()
def replay(
    spec: Spec,
    window: WindowText,
    accept_fewer: Annotated[bool, typer.Option("--accept-fewer", help="Replace although messages are gone since.")] = False,
    request: Annotated[str | None, typer.Option(help="The same text makes a repeated replay one and the same.", show_default=False)] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Replace committed windows: the same offsets again, with today's schema. A window that isn't committed yet is committed."""
    with telling(json=json, debug=debug) as output:
        _look(spec)
        from ingest.cli.commands import run_windows  # noqa: PLC0415

        run_windows(output, spec, window, replace=True, accept_fewer=accept_fewer, request=request)


@app.command()
def show(
    spec: Spec,
    window: Annotated[str | None, typer.Option("--window", metavar="W", help="Only these windows.", show_default=False)] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of windows.")] = False,
    attempt: Annotated[str | None, typer.Option(help="With --dead: of this attempt, which was refused.", show_default=False)] = None,
    payload: Annotated[bool, typer.Option("--payload", help="With --dead: keys and values too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 100,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the committed windows, or their dead letters."""
    if (payload or attempt) and not dead:
        raise typer.BadParameter("--payload and --attempt go with --dead")
    if attempt and not window:
        raise typer.BadParameter("--attempt goes with --window")
    with telling(json=json, debug=debug) as output:
        _look(spec)
        from ingest.cli.commands import show_dead, show_windows  # noqa: PLC0415

        if dead:
            show_dead(output, spec, window, attempt, limit, payload=payload)
        else:
            show_windows(output, spec, window, limit)


@app.command()
def verify(spec: Spec, json: Json = False, debug: Debug = False) -> None:
    """Hold the table's receipts against ledger, rows and topic."""
    with telling(json=json, debug=debug) as output:
        _look(spec)
        from ingest.cli.commands import verify_all  # noqa: PLC0415

        verify_all(output, spec)


@app.command()
def doctor(
    spec: Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="The pipeline's YAML file.", show_default=False)] = None,
    rebuild_ledger: Annotated[bool, typer.Option("--rebuild-ledger", help="Restore a lost ledger from the table's receipts.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the machine, and with SPEC everything that the pipeline stands on."""
    if rebuild_ledger and spec is None:
        raise typer.BadParameter("--rebuild-ledger needs SPEC")
    with telling(json=json, debug=debug) as output:
        from ingest.cli import commands  # noqa: PLC0415

        if rebuild_ledger and spec is not None:
            commands.rebuild_ledger(output, spec)
        else:
            commands.run_doctor(output, spec)


@broker_app.command("run")
def broker_run(
    folder: Annotated[
        Path | None, typer.Option(help="Where it keeps its files. [default: $WINDROW_HOME/broker or .windrow/broker]")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port. [default: as last time, else a free one]")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run it in the foreground until Ctrl-C."""
    with telling(json=json, debug=debug) as output:
        from ingest.cli.commands import default_folder, run_broker  # noqa: PLC0415

        run_broker(output, folder or default_folder(), port)


def main() -> None:
    """The entry point of the command."""
    app()


if __name__ == "__main__":
    main()
