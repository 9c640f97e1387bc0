"""The demo's command line: `python -m windrow.assets.demo run|check|ui|stop|forget`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from windrow import WindrowError
from windrow.assets.demo.place import PROJECT, DemoHome

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="A real Kafka, a day of orders and customers, the checks.",
)
Kind = Literal[
    "delta",
    "delta-keyed",
    "files",
    "files-csv",
    "files-jsonl",
    "iceberg",
    "iceberg-keyed",
    "kafka",
    "postgres",
    "postgres-keyed",
    "routes",
    "sqlite",
]
Home = Annotated[Path, typer.Option(help="The demo's folder; by default the project itself.")]

# wide enough for a sentence in a log or a pipe
console = Console() if sys.stdout.isatty() else Console(width=140)


@app.command()
def run(
    messages: Annotated[
        int, typer.Option(min=480, help="How many orders to produce, at the first run.")
    ] = 240_000,
    home: Home = PROJECT,
    sink: Annotated[
        Kind | None, typer.Option(help="Only the orders, into another kind of sink.")
    ] = None,
) -> None:
    """Produce once, run the 24 windows of orders and all changes of customers, check them."""
    # half a second that the other commands don't need
    from windrow.assets.demo.run import demo

    if not demo(DemoHome(home.resolve()), messages, console, sink):
        raise typer.Exit(1)


@app.command()
def check(home: Home = PROJECT) -> None:
    """Compare the tables with the produced messages."""
    from windrow.assets.demo.run import pipelines, report

    demo_home = DemoHome(home.resolve())
    demo_home.enter()
    if not report(demo_home, pipelines(demo_home)[1], console):
        raise typer.Exit(1)


@app.command()
def ui(home: Home = PROJECT) -> None:
    """Broker and Dagster's UI on loopback, until Ctrl-C."""
    from windrow.assets.demo.ui import serve

    demo_home = DemoHome(home.resolve())
    demo_home.enter()
    serve(demo_home, console)


@app.command()
def stop(home: Home = PROJECT) -> None:
    """End the broker and the UI, if they are running."""
    from windrow.assets.demo.ui import stop as stop_all

    console.print("Stopping ...")
    ended = stop_all(DemoHome(home.resolve()))
    console.print(f"Stopped {' and '.join(ended)}." if ended else "Nothing was running.")


@app.command()
def forget(home: Home = PROJECT) -> None:
    """Take the demo's variables out of .env."""
    DemoHome(home.resolve()).forget()


def main() -> None:
    """Calls a command. One of windrow's errors becomes a paragraph, not a stack trace."""
    try:
        app()
    except WindrowError as error:
        console.print(f"[red]{error}[/red]")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
