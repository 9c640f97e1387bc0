"""`make demo`: set up once, run the day's windows, show them, check them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console

from windrow.assets.demo.backfill import aside, day_keys, materialize, say_failure
from windrow.assets.demo.check import (
    COLUMNS,
    CUSTOMER,
    Folded,
    Verdict,
    check,
    check_customers,
)
from windrow.assets.demo.place import (
    CUSTOMERS_SPEC,
    ORDERS_SPEC,
    DemoHome,
    last_full_day,
)
from windrow.assets.demo.produce import produce_customers, produce_day
from windrow.ingest.assemble import open_table
from windrow.ingest.cli.render import committed_line
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.context import Result


def demo(place: DemoHome, orders: int, console: Console) -> bool:
    """Runs the whole demo; returns whether nothing is wrong. Stops what it started."""
    broker = EmbeddedBroker(place.kafka, find_jars())
    was_running = broker.running()
    try:
        _set_up(place, broker, orders, console)
        return _ingest(place, console) and _report(place, console)
    finally:
        if not was_running:
            broker.stop()


def _set_up(place: DemoHome, broker: EmbeddedBroker, orders: int, console: Console) -> None:
    """Starts the broker, fills the topics unless they are filled, loads the environment."""
    fresh = not place.is_set_up()
    if fresh:
        broker.stop()
        place.clear()
    with console.status("Starting Kafka ..."):
        broker.start()
    start = last_full_day(datetime.now(UTC)) if fresh else place.start()
    if fresh:
        with console.status(f"Producing {orders:,} orders, and customers ..."):
            changes = produce_customers(broker.bootstrap, start, place.customers)
            sent = produce_day(broker.bootstrap, start, orders, place.manifest)
        console.print(
            f"Kafka on {broker.bootstrap}: shop.orders, 4 partitions, {sent:,} messages from"
            f" {start:%Y-%m-%d %H:%M} UTC on"
        )
        console.print(
            f"and shop.customers, 4 partitions, {changes:,} changes of a database's rows",
            soft_wrap=True,
        )
    else:
        console.print(
            f"Kafka on {broker.bootstrap}: both topics as they were produced before, from"
            f" {start:%Y-%m-%d %H:%M} UTC on"
        )
    place.write_env(broker.bootstrap, start)
    place.enter()


def _ingest(place: DemoHome, console: Console) -> bool:
    """Runs the 24 windows through Dagster.

    Also if they are committed already, which shows that nothing is written twice.
    """
    # reads the environment that was loaded just now
    from windrow.assets.definitions import defs

    spec, customers = load_spec(ORDERS_SPEC), load_spec(CUSTOMERS_SPEC)
    before = _version(spec), _version(customers)
    keys = day_keys(spec, place.start())
    with aside(place.log), console.status(f"Running {len(keys)} windows ..."):
        results = [materialize(defs(), spec, keys)]
        results += [materialize(defs(), customers)] if results[0].success else []
    for result in results:
        if not result.success:
            say_failure(console, result, place.log)
            return False
    if None not in before and before == (_version(spec), _version(customers)):
        versions = " and ".join(map(str, before))
        console.print(
            "[green]Every window is committed already; nothing was written[/green] (the tables"
            f" stay at versions {versions})."
        )
    return True


def _report(place: DemoHome, console: Console) -> bool:
    """Prints a line for each window, the results of the checks, and the next steps."""
    committed, verdict = check_orders_table(place)
    folded = check_customers_table(place)
    for one in committed:
        console.print(committed_line(Result(one, recovered=False)))
    say(console, verdict)
    say_customers(console, folded)
    if not (verdict.wrong or folded.wrong):
        console.print(
            "Look at it: [bold]make ui[/bold] opens Dagster with this history; [bold]make"
            " stop[/bold] ends it."
        )
        table = _short(load_spec(ORDERS_SPEC).sink_path())
        console.print(
            f"Table: {table}   dead letters: {table}_dead   spec: {_short(str(ORDERS_SPEC))}",
            soft_wrap=True,
        )
        console.print(
            f"Customers: {_short(load_spec(CUSTOMERS_SPEC).sink_path())}   spec:"
            f" {_short(str(CUSTOMERS_SPEC))}",
            soft_wrap=True,
        )
    return not (verdict.wrong or folded.wrong)


def say_customers(console: Console, folded: Folded) -> None:
    """Prints the result of the customers' check."""
    for wrong in folded.wrong:
        console.print(f"[red]WRONG[/red] {wrong}")
    if not folded.wrong:
        console.print(
            f"[green]Checked against their own fold:[/green] {folded.changes:,} changes, as"
            f" Debezium writes them, leave {folded.customers:,} customers, and the table has"
            " exactly these, each with its last row.",
            soft_wrap=True,
        )


def say(console: Console, verdict: Verdict) -> None:
    """Prints the result of the orders' check."""
    for wrong in verdict.wrong:
        console.print(f"[red]WRONG[/red] {wrong}")
    if not verdict.wrong:
        console.print(
            f"[green]Checked against what was produced:[/green] {verdict.orders:,} orders are in"
            f" the table exactly once, {verdict.dead} poison messages and tombstones in the"
            f" dead-letter table exactly once, none of {verdict.aborted} aborted orders anywhere."
            " Nothing lost, nothing twice.",
            soft_wrap=True,
        )


def check_orders_table(place: DemoHome) -> tuple[list[Committed], Verdict]:
    """Compares the table of orders with the produced messages.

    Raises:
        SpecError: there is nothing to check yet.
    """
    spec = load_spec(ORDERS_SPEC)
    rows = _table(place, spec).to_pyarrow_table(columns=["order_id", *COLUMNS])
    sink, dead_letters = open_table(spec)
    committed = sorted(sink.receipts(), key=lambda one: one.receipt.window)
    receipts = [one.receipt for one in committed]
    dead = [dead_letters.read(r.window, r.attempt) for r in receipts]
    return committed, check(place.manifest, rows, dead, receipts)


def check_customers_table(place: DemoHome) -> Folded:
    """Compares the table of customers with the produced changes.

    Raises:
        SpecError: there is nothing to check yet.
    """
    table = _table(place, load_spec(CUSTOMERS_SPEC))
    return check_customers(place.customers, table.to_pyarrow_table(columns=list(CUSTOMER)))


def _table(place: DemoHome, spec: PipelineSpec) -> DeltaTable:
    if not place.is_set_up() or not DeltaTable.is_deltatable(spec.sink_path()):
        raise SpecError("There is nothing to check yet", "setup", "Run the demo first: make demo")
    return DeltaTable(spec.sink_path())


def _version(spec: PipelineSpec) -> int | None:
    return (
        DeltaTable(spec.sink_path()).version()
        if DeltaTable.is_deltatable(spec.sink_path())
        else None
    )


def _short(path: str) -> str:
    """The path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
