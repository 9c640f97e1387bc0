"""`make demo`: set up once, run the day's windows, show them, check them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from rich.console import Console

from windrow.assets.demo.backfill import aside, day_keys, materialize, say_failure
from windrow.assets.demo.check import CUSTOMER, Verdict, check, check_customers
from windrow.assets.demo.place import (
    CUSTOMERS_SPEC,
    ORDERS_SPEC,
    DemoHome,
    last_full_day,
)
from windrow.assets.demo.produce import produce_customers, produce_day
from windrow.assets.demo.sinks import orders_into, rows_of
from windrow.assets.factory import kafka_table
from windrow.ingest.assemble import open_table
from windrow.ingest.cli.render import committed_line
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.context import Result

WHERE = {"files": "files", "kafka": "topic", "routes": "three tables"}
"""What the rows are in, if not one table."""


def demo(place: DemoHome, orders: int, console: Console, sink: str | None = None) -> bool:
    """Runs the whole demo; returns whether nothing is wrong. Stops what it started.

    `sink`: only the orders, into a sink of `sinks.SINKS`.
    """
    broker = EmbeddedBroker(place.kafka, find_jars())
    was_running = broker.running()
    try:
        _set_up(place, broker, orders, console)
        with aside(place.log):
            definitions, specs = pipelines(place, sink)
        return _ingest(place, definitions, specs, console) and report(place, specs, console)
    finally:
        if not was_running:
            broker.stop()


def pipelines(
    place: DemoHome, sink: str | None = None
) -> tuple[dg.Definitions, list[PipelineSpec]]:
    """The orders' pipeline, and without a `sink` the customers'. Reads the environment."""
    if sink is None:
        from windrow.assets.definitions import defs

        return defs(), [load_spec(ORDERS_SPEC), load_spec(CUSTOMERS_SPEC)]
    spec = load_spec(orders_into(place, sink))
    executor = dg.Definitions(executor=dg.in_process_executor)
    return dg.Definitions.merge(kafka_table(spec), executor), [spec]


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


def _ingest(
    place: DemoHome, definitions: dg.Definitions, specs: list[PipelineSpec], console: Console
) -> bool:
    """Runs the 24 windows of orders, then the customers' micro-batches, through Dagster.

    Also if they are committed already, which shows that nothing is written twice.
    """
    before = [_committed(spec) for spec in specs]
    keys = day_keys(specs[0], place.start())
    with aside(place.log), console.status(f"Running {len(keys)} windows ..."):
        for spec, partitions in zip(specs, (keys, ()), strict=False):
            result = materialize(definitions, spec, partitions)
            if not result.success:
                say_failure(console, result, place.log)
                return False
    if all(before) and before == [_committed(spec) for spec in specs]:
        console.print("[green]Every window is committed already; nothing was written.[/green]")
    return True


def report(place: DemoHome, specs: list[PipelineSpec], console: Console) -> bool:
    """Prints a line for each window, the results of the checks, and the next steps.

    Returns whether nothing is wrong.

    Raises:
        SpecError: there is nothing to check yet.
    """
    orders, *customers = specs
    if not place.is_set_up() or not all(_committed(spec) for spec in specs):
        raise SpecError("There is nothing to check yet", "setup", "Run the demo first: make demo")
    for one in _committed(orders):
        console.print(committed_line(Result(one, recovered=False)))
    verdict = _check_orders(place, orders)
    where = WHERE.get(orders.sink.kind, "table")
    _say(
        console,
        verdict.wrong,
        f"[green]Checked against what was produced:[/green] {verdict.orders:,} orders are in"
        f" the {where} exactly once, {verdict.dead} poison messages and tombstones in the"
        f" dead-letter table exactly once, none of {verdict.aborted} aborted orders anywhere."
        " Nothing lost, nothing twice.",
    )
    wrong = verdict.wrong
    for spec in customers:
        folded = check_customers(place.customers, rows_of(spec, CUSTOMER))
        _say(
            console,
            folded.wrong,
            f"[green]Checked against their own fold:[/green] {folded.changes:,} changes, as"
            f" Debezium writes them, leave {folded.customers:,} customers, and the table has"
            " exactly these, each with its last row.",
        )
        wrong += folded.wrong
    if customers and not wrong:
        console.print(
            "Look at it: [bold]make ui[/bold] opens Dagster with this history; [bold]make"
            f" stop[/bold] ends it. Dead letters are in {_short(orders.sink_path())}_dead.",
            soft_wrap=True,
        )
    for spec in specs:
        console.print(
            f"{spec.id}: {_short(spec.sink_path())}   spec: {_short(str(spec.spec_file))}",
            soft_wrap=True,
        )
    return not wrong


def _check_orders(place: DemoHome, spec: PipelineSpec) -> Verdict:
    """Compares the table of orders with the produced messages."""
    receipts = [one.receipt for one in _committed(spec)]
    dead_letters = open_table(spec)[1]
    dead = [dead_letters.read(r.window, r.attempt) for r in receipts]
    return check(place.manifest, rows_of(spec), dead, receipts)


def _committed(spec: PipelineSpec) -> list[Committed]:
    return sorted(open_table(spec)[0].receipts(), key=lambda one: one.receipt.window)


def _say(console: Console, wrong: Sequence[str], right: str) -> None:
    for one in wrong:
        console.print(f"[red]WRONG[/red] {one}", soft_wrap=True)
    if not wrong:
        console.print(right, soft_wrap=True)


def _short(path: str) -> str:
    """The path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
