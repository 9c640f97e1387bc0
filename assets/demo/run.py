"""`make demo`: set up once, run the day's windows, show them, check them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console

from windrow.assets.demo.backfill import aside, backfill, drain, failure
from windrow.assets.demo.check import Verdict, check, dead_of
from windrow.assets.demo.fold import COLUMNS, Folded, check_customers
from windrow.assets.demo.orders import HOURS
from windrow.assets.demo.place import PROJECT, DemoHome, SparkPlace, last_full_day
from windrow.assets.demo.produce import produce_customers, produce_day
from windrow.assets.demo.report import say, say_customers, windows_table
from windrow.assets.demo.spark import spark_at
from windrow.assets.factory import standing_on
from windrow.assets.names import SPARK_KEY
from windrow.assets.partitions import key_of
from windrow.ingest.assemble import open_table
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.receipt import Receipt

SPEC = PROJECT / "assets" / "defs" / "orders" / "defs.yaml"
CUSTOMERS = PROJECT / "assets" / "defs" / "customers" / "defs.yaml"


def demo(
    place: DemoHome,
    orders: int,
    console: Console,
    sink: str | None = None,
    spark: SparkPlace | None = None,
) -> bool:
    """The whole demo; whether everything was as it should be. Stops what it started.

    `sink`: only the orders, into this kind. `spark`: where tasks run, if not in a Spark
    of the demo's own; then it begins anew, for windows that are committed have no
    tasks.
    """
    broker = EmbeddedBroker(place.kafka, find_jars())
    was_running = broker.running()
    try:
        _set_up(place, broker, orders, console, anew=spark is not None)
        if sink is not None:
            from windrow.assets.demo.sinks import (
                sink_demo,
            )  # brings every kind's library

            return sink_demo(place, sink, broker.bootstrap, console)
        return _ingest(place, console, spark) and _report(place, console)
    finally:
        if not was_running:
            broker.stop()


def _set_up(
    place: DemoHome, broker: EmbeddedBroker, orders: int, console: Console, *, anew: bool
) -> None:
    """Broker up; the topic filled if it isn't yet; the environment entered.

    `anew`: as if nothing were there.
    """
    fresh = anew or not place.is_set_up()
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


def _ingest(place: DemoHome, console: Console, kind: SparkPlace | None) -> bool:
    """Run the 24 windows through Dagster; a second time, too: that is how one sees that
    nothing is written.
    """
    from windrow.assets.definitions import (
        defs,
    )  # reads the environment that was entered just now

    spec, customers = load_spec(SPEC), load_spec(CUSTOMERS)
    before = _version(spec), _version(customers)
    keys = [key_of(in_time(spec.window), place.start() + timedelta(hours=n)) for n in range(HOURS)]
    with aside(place.log), spark_at(kind, place.spark) as spark:
        if kind is not None:
            console.print(f"Tasks run on {spark.connect or spark.master}", soft_wrap=True)
        results = [backfill(standing_on(defs(), {SPARK_KEY: spark}), spec, keys, console)]
        results += (
            [drain(standing_on(defs(), {SPARK_KEY: spark}), customers)]
            if results[0].success
            else []
        )
    for result in results:
        if not result.success:
            console.print(
                f"[red]The run failed.[/red] {failure(result)}\nMore in {place.log}", soft_wrap=True
            )
            return False
    if None not in before and before == (_version(spec), _version(customers)):
        versions = " and ".join(map(str, before))
        console.print(
            "[green]Every window is committed already; nothing was written[/green] (the tables"
            f" stay at versions {versions})."
        )
    return True


def _report(place: DemoHome, console: Console) -> bool:
    """The table of windows, the check, and where to look next."""
    spec = load_spec(SPEC)
    receipts, verdict = verdict_on(place, spec)
    folded = verdict_on_customers(place)
    console.print(windows_table(receipts))
    say(console, verdict)
    say_customers(console, folded)
    if not (verdict.wrong or folded.wrong):
        console.print(
            "Look at it: [bold]make ui[/bold] opens Dagster with this history; [bold]make"
            " stop[/bold] ends it."
        )
        table = _short(spec.sink_path())
        console.print(
            f"Table: {table}   dead letters: {table}_dead   spec: {_short(str(SPEC))}",
            soft_wrap=True,
        )
        console.print(
            f"Customers: {_short(load_spec(CUSTOMERS).sink_path())}   spec:"
            f" {_short(str(CUSTOMERS))}",
            soft_wrap=True,
        )
    return not (verdict.wrong or folded.wrong)


def verdict_on(place: DemoHome, spec: PipelineSpec) -> tuple[list[Receipt], Verdict]:
    """Receipts and tables as they are now, held against the manifest.

    Raises:
        SpecError: there is nothing to check yet.
    """
    if not place.is_set_up() or not DeltaTable.is_deltatable(spec.sink_path()):
        raise _nothing()
    sink, dead_letters = open_table(spec)
    receipts = sorted((c.receipt for c in sink.receipts()), key=lambda r: r.window)
    rows = DeltaTable(spec.sink_path()).to_pyarrow_table(
        columns=["order_id", "_partition", "_offset"]
    )
    return receipts, check(place.manifest, rows, dead_of(dead_letters, receipts), receipts)


def verdict_on_customers(place: DemoHome) -> Folded:
    """The table of customers as it is now, held against their changes.

    Raises:
        SpecError: there is nothing to check yet.
    """
    path = load_spec(CUSTOMERS).sink_path()
    if not place.is_set_up() or not DeltaTable.is_deltatable(path):
        raise _nothing()
    return check_customers(
        place.customers, DeltaTable(path).to_pyarrow_table(columns=list(COLUMNS))
    )


def _nothing() -> SpecError:
    return SpecError("There is nothing to check yet", "setup", "Run the demo first: make demo")


def _version(spec: PipelineSpec) -> int | None:
    return (
        DeltaTable(spec.sink_path()).version()
        if DeltaTable.is_deltatable(spec.sink_path())
        else None
    )


def _short(path: str) -> str:
    """Relative to where the reader stands, if it is below."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
