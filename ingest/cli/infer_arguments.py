"""The arguments of `windrow infer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from windrow.ingest.cli.arguments import Debug, Json
from windrow.ingest.cli.output import command_output
from windrow.ingest.infer.request import (
    DEFAULT_BOOTSTRAP,
    SAMPLED_MESSAGES,
    PipelineRequest,
    SampledFormat,
)

Bootstrap = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The cluster's address.", show_default=False),
]
PipelineId = Annotated[
    str | None,
    typer.Option("--id", help="The pipeline's id (default: from the topic).", show_default=False),
]
Grid = Annotated[
    str | None,
    typer.Option(
        help="hourly, daily, a cron expression or batch (default: by the age of the messages).",
        show_default=False,
    ),
]


def infer(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="The topic, or a regular expression of several; with --check only this one.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="The folder for the files; it is made if it doesn't exist (default: this one).",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The cluster's name in a windrow.yaml.", show_default=False
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A schema registry, if windrow.yaml names none.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        SampledFormat | None,
        typer.Option(
            "--format", help="The messages' format, if it can't be inferred.", show_default=False
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="With --format csv: the names of the fields, in order.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="DATABASE.TABLE", help="For change data: the table.", show_default=False
        ),
    ] = None,
    pipeline: PipelineId = None,
    grid: Grid = None,
    sample: Annotated[
        int, typer.Option(min=1, max=100_000, help="Newest messages per topic-partition.")
    ] = SAMPLED_MESSAGES,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC",
            help="Write nothing: check whether a pipeline's topics fit its schema.",
            show_default=False,
        ),
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC",
            help="Show the changes of a pipeline's schema that take what is new in its topics.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --update: write them.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a pipeline's files, defs.yaml and schema.py, inferred from a topic.

    Its messages or a registry's schemas tell the format and the columns; nothing is
    overwritten. Of a pattern, such as 'shop[.](.*)', one defs.yaml has all topics, each with
    a schema.

    With --check SPEC: check the newest messages, by the pipeline's decoder and rules, and
    the registry's newest schemas. Exit code 1 if more messages would be dead letters than
    the limits allow, or if a column can't come from a schema.

    With --update SPEC: show new nullable fields, at any depth, and wider integers, that the
    schema lacks and the table takes by sink.evolve; with --yes, write them into the schema.
    """
    beginning = {
        "DIR": folder,
        "--bootstrap": bootstrap,
        "--cluster": cluster,
        "--format": format_,
        "--columns": columns,
        "--table": table,
        "--id": pipeline,
        "--grid": grid,
    }
    spec = check or update
    if spec is not None:
        name = "--check" if check is not None else "--update"
        _refuse_given(beginning, f"doesn't go with {name}, because the spec says it")
    elif topic is None or (bootstrap is None and cluster is None):
        raise typer.BadParameter(
            "Missing argument: name a TOPIC and its cluster, by --bootstrap HOST:PORT or --cluster"
            " NAME; or a pipeline with --check SPEC or --update SPEC"
        )
    if check is not None and update is not None:
        raise typer.BadParameter("--check doesn't go with --update")
    if yes and update is None:
        raise typer.BadParameter("--yes goes with --update")
    if cluster is not None:
        _refuse_given(
            {"--bootstrap": bootstrap, "--registry": registry},
            "doesn't go with --cluster, which says it",
        )
    with command_output(json=json, debug=debug, spec=spec) as output:
        if check is not None:
            from windrow.ingest.cli.infer import check_topics

            check_topics(output, check, topic, registry, sample)
            return
        if update is not None:
            from windrow.ingest.cli.infer import update_model

            update_model(output, update, topic, registry, sample, yes=yes)
            return
        from windrow.ingest.cli.infer import infer_pipeline

        names = () if columns is None else tuple(name.strip() for name in columns.split(","))
        request = PipelineRequest(
            str(topic),
            bootstrap or DEFAULT_BOOTSTRAP,
            cluster,
            registry,
            pipeline,
            grid,
            format_,
            names,
            table,
        )
        infer_pipeline(output, folder or Path(), request, sample)


def _refuse_given(options: Mapping[str, object], reason: str) -> None:
    given_options = [name for name, value in options.items() if value is not None]
    if given_options:
        raise typer.BadParameter(f"{given_options[0]} {reason}")
