"""The arguments of the commands below `windrow transactions`."""

from __future__ import annotations

from typing import Annotated

import typer

from windrow.ingest.cli.arguments import Commands, Debug, Json, SomeWindows, Spec
from windrow.ingest.cli.output import command_output

transactions_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Transactions that runs of a Kafka sink left open."
)


@transactions_app.command("list")
def transactions_list(spec: Spec, json: Json = False, debug: Debug = False) -> None:
    """Show where open transactions hold readers back, and which windows aren't finished.

    With the transactional ids of their runs.
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.transactions import list_transactions

        list_transactions(output, spec)


@transactions_app.command("abort")
def transactions_abort(
    spec: Spec,
    window: SomeWindows = None,
    yes: Annotated[bool, typer.Option("--yes", help="End them.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --yes: also where somebody still writes.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which transactions of dead runs hold readers back, and with --yes end them.

    The next run of a window does that by itself. A run that is still alive is fenced, and
    begins its part again: nothing is lost or published twice.
    """
    if force and not yes:
        raise typer.BadParameter("--force goes with --yes")
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.transactions import abort_transactions

        abort_transactions(output, spec, window, yes=yes, force=force)
