"""The arguments of the commands below `windrow dead`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windrow.ingest.cli.arguments import (
    Anyway,
    Commands,
    Debug,
    Json,
    KeepGoing,
    SomeWindows,
    Spec,
)
from windrow.ingest.cli.output import command_output

dead_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Dead letters: the messages that were refused."
)

OfStage = Annotated[
    str | None,
    typer.Option(
        "--stage",
        help="Only those of this stage: key, header, value, schema or rules.",
        show_default=False,
    ),
]
WithReason = Annotated[
    str | None,
    typer.Option("--reason", help="Only those with this reason.", show_default=False),
]
OfAttempt = Annotated[
    str | None,
    typer.Option(
        "--attempt", help="With --window: of this attempt, which was refused.", show_default=False
    ),
]


@dead_app.command("show")
def dead_show(
    spec: Spec,
    window: SomeWindows = None,
    stage: OfStage = None,
    reason: WithReason = None,
    attempt: OfAttempt = None,
    payload: Annotated[
        bool, typer.Option("--payload", help="Keys and values too; with --out headers, too.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many; a file has all.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .parquet or .jsonl file.", show_default=False),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show refused messages and the reasons, of committed windows or of named ones."""
    if attempt is not None and window is None:
        raise typer.BadParameter("--attempt goes with --window")
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.admin.chosen_dead_letters import Chosen
        from windrow.ingest.cli.dead import DeadRequest, show_dead

        dead_request = DeadRequest(window, Chosen(stage, reason), attempt, payload)
        show_dead(output, spec, dead_request, limit, out)


@dead_app.command("replay")
def dead_replay(
    spec: Spec,
    window: SomeWindows = None,
    stage: OfStage = None,
    reason: WithReason = None,
    edit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A Python file whose function edit(message) repairs each message, or returns None."
            ),
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be replayed.")
    ] = False,
    keep_going: KeepGoing = False,
    anyway: Anyway = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Add dead letters that today's schema accepts to their own windows, exactly once.

    A message that is refused again stays as it was. If a window isn't committed, run it
    instead.
    """
    if window is None and reason is None and stage is None:
        raise typer.BadParameter("name --window, --reason or --stage")
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.admin.chosen_dead_letters import Chosen
        from windrow.ingest.cli.dead import DeadRequest, replay_dead

        dead_request = DeadRequest(window, Chosen(stage, reason), None, payload=False)
        replay_dead(
            output, spec, dead_request, edit, dry_run=dry_run, keep_going=keep_going, anyway=anyway
        )
