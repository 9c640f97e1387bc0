"""The arguments of the command `windrow`, and its exit codes.

    0   done, or already done            4     not yet closed
    1   data refused                     70    a bug in windrow
    2   bad spec or usage                130   interrupted
    3   something can't be reached

A command's modules are imported when it is called, so that help and completion are quick.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from windrow.ingest.cli.arguments import (
    Anyway,
    Commands,
    Conf,
    Connect,
    Debug,
    FreshLookups,
    Json,
    KeepGoing,
    Master,
    NextOrWindow,
    RequestText,
    SomeWindows,
    Spec,
    TryAgain,
    Who,
    WindowText,
    spark_options,
)
from windrow.ingest.cli.dead_arguments import dead_app
from windrow.ingest.cli.infer_arguments import Bootstrap, PipelineId, infer
from windrow.ingest.cli.output import command_output
from windrow.ingest.model.instants import use_zone
from windrow.ingest.model.source import Isolation

app = typer.Typer(
    cls=Commands,
    name="windrow",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Kafka topics become tables, one bounded window at a time, exactly once.",
    epilog=(
        "Exit codes: 0 done or already done, 1 data refused, 2 bad spec or usage, 3 something can't"
        " be reached, 4 not yet closed, 70 a bug in windrow, 130 interrupted."
    ),
)
broker_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="A real single-node Kafka for development."
)
app.add_typer(broker_app, name="broker")
app.add_typer(dead_app, name="dead")
spark_app = typer.Typer(cls=Commands, no_args_is_help=True, help="The Spark that windows run on.")
app.add_typer(spark_app, name="spark")


def _version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        typer.echo(
            f"windrow {metadata.version('windrow-ingest')}, of the distribution windrow-ingest"
        )
        raise typer.Exit


@app.callback()
def prepare(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Load the working directory's .env; variables that are set already stay."""
    del version  # its callback has printed the version
    from dotenv import load_dotenv

    load_dotenv(Path.cwd() / ".env", override=False)
    # deltalake's log about a missing region or sign-in is left out: the error says the same
    os.environ.setdefault("RUST_LOG", "warn,aws_config=error")
    use_zone("UTC")  # functions of a spec may ask for local time, which must not be the machine's


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="The folder for the files; it is made if it doesn't exist.",
            file_okay=False,
        ),
    ] = Path(),
    bootstrap: Bootstrap = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic; it needn't exist yet.", show_default=False)
    ] = None,
    pipeline: PipelineId = None,
    grid: Annotated[
        str, typer.Option(help="hourly, daily, a cron expression or batch.")
    ] = "hourly",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a template of a pipeline's files, defs.yaml and schema.py; overwrites nothing.

    `infer` infers them from a topic instead.
    """
    with command_output(json=json, debug=debug) as output:
        from windrow.ingest.cli.infer import begin_pipeline
        from windrow.ingest.infer.new_pipeline import PLACEHOLDER
        from windrow.ingest.infer.request import DEFAULT_BOOTSTRAP, PipelineRequest

        request = PipelineRequest(
            PLACEHOLDER if topic is None else topic,
            bootstrap or DEFAULT_BOOTSTRAP,
            id=pipeline,
            grid=grid,
        )
        begin_pipeline(output, folder, request)


app.command()(infer)


@app.command()
def plan(spec: Spec, window: NextOrWindow = None, json: Json = False, debug: Debug = False) -> None:
    """Show what a run would read, and how each offset was found; freezes and writes nothing."""
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.plan import show_plan

        show_plan(output, spec, window)


@app.command()
def run(
    spec: Spec,
    window: NextOrWindow = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Commit micro-batches up to the stable end of the topics as it is now."
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="With --window: also if its receipt is lost, so that rows may come twice.",
        ),
    ] = False,
    due: Annotated[
        bool,
        typer.Option(
            "--due",
            help="Run all windows that `windrow due` shows, the oldest first, and that of --window"
            " with them; go on with the others where one is refused.",
        ),
    ] = False,
    keep_going: KeepGoing = False,
    fresh_lookups: FreshLookups = False,
    try_again: TryAgain = False,
    request: RequestText = None,
    anyway: Anyway = False,
    master: Master = None,
    conf: Conf = None,
    connect: Connect = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Commit windows, or the next micro-batch, exactly once.

    A window that is committed already is only reported.
    """
    if drain and window:
        raise typer.BadParameter("--drain and --window exclude each other")
    if again and not window:
        raise typer.BadParameter("--again goes with --window")
    if due and (drain or again):
        raise typer.BadParameter("--due excludes --drain and --again")
    spark = spark_options(master, conf, connect)
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.run import run_named
        from windrow.ingest.cli.servers import engine_at

        with engine_at(spark) as engine:
            run_named(
                output,
                spec,
                window,
                engine,
                drain=drain,
                accept_duplicates=again,
                due=due,
                keep_going=keep_going,
                fresh_lookups=fresh_lookups,
                try_again=try_again,
                request=request,
                anyway=anyway,
            )


@app.command()
def replay(
    spec: Spec,
    window: WindowText,
    accept_fewer: Annotated[
        bool,
        typer.Option(
            "--accept-fewer",
            help=(
                "Replace although messages have gone since, or were edited for a dead-letter"
                " replay."
            ),
        ),
    ] = False,
    bring_back: Annotated[
        bool,
        typer.Option("--bring-back", help="Replace although the rows have expired."),
    ] = False,
    keep_going: KeepGoing = False,
    fresh_lookups: FreshLookups = False,
    try_again: TryAgain = False,
    request: RequestText = None,
    anyway: Anyway = False,
    master: Master = None,
    conf: Conf = None,
    connect: Connect = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Replace committed windows: read the same offsets again, with today's schema.

    A window that isn't committed yet is committed.
    """
    spark = spark_options(master, conf, connect)
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.run import replay_windows
        from windrow.ingest.cli.servers import engine_at

        with engine_at(spark) as engine:
            replay_windows(
                output,
                spec,
                window,
                engine,
                accept_fewer=accept_fewer,
                bring_back=bring_back,
                keep_going=keep_going,
                fresh_lookups=fresh_lookups,
                try_again=try_again,
                request=request,
                anyway=anyway,
            )


@app.command()
def pause(
    spec: Spec,
    why: Annotated[str, typer.Option(help="The reason, which everybody is told.")],
    who: Who = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let no window begin, by whomever, until `resume`; those that are being read are finished."""
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.pause import set_paused

        set_paused(output, spec, paused=True, who=who, reason=why)


@app.command()
def resume(
    spec: Spec,
    why: Annotated[str, typer.Option(help="What was done meanwhile.", show_default=False)] = "",
    who: Who = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """End a pause: schedules and runs go on."""
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.pause import set_paused

        set_paused(output, spec, paused=False, who=who, reason=why)


@app.command()
def rebase(
    spec: Spec,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="The start of new topics (default: offset 0; required for a new cluster).",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Record it.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how to go on with a topic that was made anew, or a replaced cluster.

    With --yes, record it. For the forms of a POSITION see: windrow peek --help
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.rebase import rebase_pipeline

        rebase_pipeline(output, spec, start, yes=yes)


@app.command()
def rebind(
    spec: Spec,
    yes: Annotated[bool, typer.Option("--yes", help="Record it.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how to go on after the table was moved, or lost for good; with --yes, record it."""
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.rebase import rebind_pipeline

        rebind_pipeline(output, spec, yes=yes)


@app.command()
def peek(
    spec: Spec,
    start: Annotated[str, typer.Option(metavar="POSITION", help="The first position.")] = (
        "earliest"
    ),
    stop: Annotated[
        str,
        typer.Option(metavar="POSITION", help="The position after the last message."),
    ] = "latest",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most so many messages (default: 20; with --out all).",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only this topic of the pipeline.", show_default=False)
    ] = None,
    isolation: Annotated[
        Isolation | None, typer.Option(help="In place of the spec's.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .parquet or .jsonl file.", show_default=False),
    ] = None,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Show the rows that they become after each step, of 10 messages by default.",
        ),
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show messages as they are in the topics, with keys and values.

    Uses neither table nor ledger.

    A POSITION is earliest, latest, an instant (timestamp:2026-01-02T03:00:00Z or, in
    epoch milliseconds, timestamp:1767322800000), a consumer group's committed offsets
    (committed:GROUP), or offsets of one topic
    ('partition:0,offset:42;partition:1,offset:300'). ?fail, ?earliest or ?latest after it
    says what to do if it has no answer, as in committed:GROUP?earliest
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.peek import peek_messages

        peek_messages(output, spec, start, stop, limit, topic, isolation, out, rows=rows)


@app.command("try")
def try_steps(
    spec: Spec,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Lines, each the value of a message."),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many lines (default: 10).")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the rows that the lines of a file become, step by step.

    Asks no broker, and writes nothing.
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.peek import try_lines

        try_lines(output, spec, file, limit)


@app.command()
def lag(
    spec: Spec,
    alter_offsets: Annotated[
        bool,
        typer.Option(
            "--alter-offsets",
            help="Commit the newest window's end offsets to source.offsets_group.",
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it every ten seconds, until Ctrl-C.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how far the table is behind the topics, in messages and in time."""
    if watch and (json or alter_offsets):
        raise typer.BadParameter("--watch excludes --json and --alter-offsets")
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli import lag as verb

        if watch:
            verb.watch_lag(output, spec)
        else:
            verb.show_lag(output, spec, altering=alter_offsets)


@app.command()
def show(
    spec: Spec,
    window: SomeWindows = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 100,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the committed windows."""
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.windows import show_windows

        show_windows(output, spec, window, limit)


@app.command()
def state(spec: Spec, window: WindowText, json: Json = False, debug: Debug = False) -> None:
    """Show whether windows are complete: all their messages are read, as far as that can be known.

    Exit code 0: complete, or late, which is complete with messages in later windows.
    4: open, or not committed.
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.windows import show_states

        show_states(output, spec, window)


@app.command()
def due(spec: Spec, json: Json = False, debug: Debug = False) -> None:
    """Show which windows a schedule would run now: closed, and neither committed nor refused.

    It looks at the windows of the newest two days, at least 48.
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.windows import show_due

        show_due(output, spec)


@app.command()
def verify(
    spec: Spec,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Read every row and dead letter back and compare it with its receipt."
        ),
    ] = False,
    restore_receipts: Annotated[
        bool,
        typer.Option(
            "--restore-receipts", help="Show which lost receipts the ledger's copies can restore."
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --restore-receipts: restore them.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the table's receipts with the ledger, the rows and the topics."""
    if yes and not restore_receipts:
        raise typer.BadParameter("--yes goes with --restore-receipts")
    if deep and restore_receipts:
        raise typer.BadParameter("--deep and --restore-receipts exclude each other")
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli import verify as verb

        if restore_receipts:
            verb.restore_receipts(output, spec, yes=yes)
        else:
            verb.verify_all(output, spec, deep=deep)


@app.command()
def maintain(
    spec: Spec,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Join the small files of each window, expire old versions, and remove unneeded files.

    The section `maintain` of the spec has the limits. Rows stay the same, but those of old
    windows go if there is a `maintain.keep_rows`. Runs may go on meanwhile. Unneeded files are
    those of old versions, and those that runs have left which died, or were refused. A run that
    takes longer than `maintain.keep_files` loses no row: its commit is refused, and its window
    can be run again.
    """
    with command_output(json=json, debug=debug, spec=spec) as output:
        from windrow.ingest.cli.maintain import maintain_table

        maintain_table(output, spec, dry_run=dry_run)


@app.command()
def doctor(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC]", help="The pipeline's YAML file.", show_default=False),
    ] = None,
    rebuild_ledger: Annotated[
        bool,
        typer.Option("--rebuild-ledger", help="Restore a lost ledger from the table's receipts."),
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Also check every executor, on which tasks of `run` would run."
        ),
    ] = False,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Also write a file to each of the sink's folders, and remove it."
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    connect: Connect = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check this machine, and with SPEC all systems that the pipeline uses."""
    if rebuild_ledger and (spec is None or cluster or write):
        raise typer.BadParameter("--rebuild-ledger needs SPEC, and excludes --cluster and --write")
    if write and spec is None:
        raise typer.BadParameter("--write needs SPEC")
    if cluster and (spec is None or (master is None and connect is None)):
        raise typer.BadParameter("--cluster needs SPEC, and --master or --connect")
    if not cluster and (master or conf or connect):
        raise typer.BadParameter("--master, --conf and --connect go with --cluster")
    spark = spark_options(master, conf, connect)
    with command_output(json=json, debug=debug, spec=spec, must_exist=False) as output:
        from windrow.ingest.cli import doctor as verb

        if rebuild_ledger and spec is not None:
            verb.rebuild_ledger(output, spec)
        elif cluster:
            from windrow.ingest.cli.servers import engine_at

            with engine_at(spark) as engine:
                verb.run_doctor(output, spec, engine, write=write)
        else:
            verb.run_doctor(output, spec, write=write)


@app.command("prepare")
def prepare_machine(json: Json = False, debug: Debug = False) -> None:
    """Do once what runs would do for themselves: after an install, or where an image is built.

    Machine code for this processor, the packages' bytecode, and Java's archive of Spark's
    classes, with which Spark starts in 0.6 of the time. Takes a minute or two.
    """
    with command_output(json=json, debug=debug) as output:
        from windrow.ingest.cli import prepare as verb

        verb.prepare(output)


@app.command("help")
def show_page(
    page: Annotated[
        str | None, typer.Argument(metavar="[PAGE]", help="Its name; none: all names.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a page of the documentation, such as a runbook that a message names."""
    with command_output(json=json, debug=debug) as output:
        from windrow.ingest.cli.pages import show_page as show

        show(output, page)


@broker_app.command("run")
def broker_run(
    folder: Annotated[
        Path | None,
        typer.Option(
            help="The folder of its files. [default: $WINDROW_HOME/broker or .windrow/broker]"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Its port. [default: as last time, else a free one]"),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run it in the foreground until Ctrl-C."""
    with command_output(json=json, debug=debug) as output:
        from windrow.ingest.cli.servers import run_broker

        run_broker(output, folder, port)


@spark_app.command("run")
def spark_run(
    master: Master = None,
    host: Annotated[
        str, typer.Option(help="The address; other machines' access needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Its port; 0: any that is free.")
    ] = 15002,
    conf: Conf = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a Spark Connect server, for `--connect`, in the foreground until Ctrl-C.

    The token that clients must know is in the environment, as
    SPARK_CONNECT_AUTHENTICATE_TOKEN.
    """
    settings = spark_options(master, conf, None).properties
    with command_output(json=json, debug=debug) as output:
        from windrow.ingest.cli.servers import run_spark

        run_spark(output, master, host, port, settings)


def main() -> None:
    """Starts the command `windrow`."""
    # Python's garbage collector scans all objects repeatedly while modules are imported, and when
    # Python ends. That takes longest if Spark is imported.
    gc.set_threshold(50_000)
    atexit.register(_freeze)
    app()


def _freeze() -> None:
    """Hides all objects from the collector, except if DuckDB is imported.

    DuckDB would report them as leaks.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":
    main()
