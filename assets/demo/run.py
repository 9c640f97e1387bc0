"""`make demo`: sets up once, runs the day's windows, shows them, checks them."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import dagster as dg
import msgspec
import polars as pl
import pyarrow as pa
from rich.console import Console

from windrow.assets.dagster_internals import range_tags
from windrow.assets.demo.orders import HOURS
from windrow.assets.demo.place import (
    CUSTOMERS_SPEC,
    ORDERS_SPEC,
    DemoHome,
    last_full_day,
)
from windrow.assets.demo.produce import ORDERS, produce_customers, produce_day
from windrow.assets.demo.sinks import orders_into, rows_of
from windrow.assets.factory import kafka_table
from windrow.assets.names import job_name, upstream_keys
from windrow.assets.partitions import key_of
from windrow.ingest.assemble import open_table
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.runner.context import Result
from windrow.ingest.testing.checker import check as compare

WHERE = {"files": "files", "kafka": "topic", "routes": "three tables"}
"""Where the rows are, if not in one table."""


def demo(home: DemoHome, orders: int, console: Console, sink: str | None = None) -> bool:
    """Runs the whole demo, and stops the broker at the end if the demo started it.

    Args:
        home: the demo's folders.
        orders: the number of orders to produce.
        console: the console for messages.
        sink: only the orders are ingested, into this sink of `sinks.SINKS`.

    Returns:
        True if everything is right.
    """
    broker = EmbeddedBroker(home.kafka, find_jars())
    was_running = broker.running()
    try:
        _set_up(home, broker, orders, console)
        with aside(home.log):
            definitions, specs = pipelines(home, sink)
        return _ingest(home, definitions, specs, console) and report(home, specs, console)
    finally:
        if not was_running:
            broker.stop()


def pipelines(home: DemoHome, sink: str | None = None) -> tuple[dg.Definitions, list[PipelineSpec]]:
    """Returns the pipeline of the orders, and without a `sink` that of the customers too.

    The environment is read.
    """
    if sink is None:
        from windrow.assets.definitions import defs

        return defs(), [load_spec(ORDERS_SPEC), load_spec(CUSTOMERS_SPEC)]
    spec = load_spec(orders_into(home, sink))
    executor = dg.Definitions(executor=dg.in_process_executor)
    return dg.Definitions.merge(kafka_table(spec), executor), [spec]


def _set_up(home: DemoHome, broker: EmbeddedBroker, orders: int, console: Console) -> None:
    """Starts the broker, fills the topics unless they are filled, loads the environment."""
    fresh = not home.is_set_up()
    if fresh:
        broker.stop()
        home.clear()
    with console.status("Starting Kafka ..."):
        broker.start()
    start = last_full_day(datetime.now(UTC)) if fresh else home.start()
    if fresh:
        with console.status(f"Producing {orders:,} orders, and customers ..."):
            change_count = produce_customers(broker.bootstrap, start, home.customers)
            message_count = produce_day(broker.bootstrap, start, orders, home.manifest)
        console.print(
            f"Kafka on {broker.bootstrap}: shop.orders, 4 partitions, {message_count:,} messages"
            f" from {start:%Y-%m-%d %H:%M} UTC on"
        )
        console.print(
            f"and shop.customers, 4 partitions, {change_count:,} changes of a database's rows",
            soft_wrap=True,
        )
    else:
        console.print(
            f"Kafka on {broker.bootstrap}: both topics as they were produced before, from"
            f" {start:%Y-%m-%d %H:%M} UTC on"
        )
    home.write_env(broker.bootstrap, start)
    home.enter()


def _ingest(
    home: DemoHome, definitions: dg.Definitions, specs: list[PipelineSpec], console: Console
) -> bool:
    """Runs the 24 windows of orders through Dagster, then the customers' micro-batches.

    It also does so if they are already committed, which shows that no row is written twice.
    """
    committed_before = [_read_committed(spec) for spec in specs]
    keys = day_keys(specs[0], home.start())
    with aside(home.log), console.status(f"Running {len(keys)} windows ..."):
        for spec, partitions in zip(specs, (keys, ()), strict=False):
            result = materialize(definitions, spec, partitions)
            if not result.success:
                say_failure(console, result, home.log)
                return False
    if all(committed_before) and committed_before == [_read_committed(spec) for spec in specs]:
        console.print("[green]Every window is committed already; nothing was written.[/green]")
    return True


def report(home: DemoHome, specs: list[PipelineSpec], console: Console) -> bool:
    """Prints a line for each window, the results of the checks, and the next steps.

    Returns True if everything is right.

    Raises:
        SpecError: there is nothing to check yet.
    """
    orders, *customers = specs
    if not home.is_set_up() or not all(_read_committed(spec) for spec in specs):
        raise SpecError("There is nothing to check yet", "setup", "Run the demo first: make demo")
    for committed in _read_committed(orders):
        console.print(Result(committed, recovered=False).describe())
    verdict = _check_orders(home, orders)
    where = WHERE.get(orders.sink.kind, "table")
    _say(
        console,
        verdict.mistakes,
        f"[green]Checked against what was produced:[/green] {verdict.orders:,} orders are in"
        f" the {where} exactly once, {verdict.dead} poison messages and tombstones in the"
        f" dead-letter table exactly once, none of {verdict.aborted} aborted orders anywhere."
        " Nothing lost, nothing twice.",
    )
    mistakes = verdict.mistakes
    for spec in customers:
        folded = check_customers(home.customers, rows_of(spec, CUSTOMER))
        _say(
            console,
            folded.mistakes,
            f"[green]Checked against their own fold:[/green] {folded.changes:,} changes, as"
            f" Debezium writes them, leave {folded.customers:,} customers, and the table has"
            " exactly these, each with its last row.",
        )
        mistakes += folded.mistakes
    if customers and not mistakes:
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
    return not mistakes


def _check_orders(home: DemoHome, spec: PipelineSpec) -> Verdict:
    """Compares the table of orders with the produced messages."""
    receipts = [committed.receipt for committed in _read_committed(spec)]
    dead_letters = open_table(spec)[1]
    dead = [dead_letters.read(r.window, r.attempt) for r in receipts]
    return check(home.manifest, rows_of(spec), dead, receipts)


def _read_committed(spec: PipelineSpec) -> list[Committed]:
    return sorted(open_table(spec)[0].receipts(), key=lambda committed: committed.receipt.window)


def _say(console: Console, mistakes: Sequence[str], right: str) -> None:
    for mistake in mistakes:
        console.print(f"[red]WRONG[/red] {mistake}", soft_wrap=True)
    if not mistakes:
        console.print(right, soft_wrap=True)


def _short(path: str) -> str:
    """Returns the path relative to the working directory, if it is below that."""
    working_folder = Path.cwd()
    return (
        str(Path(path).relative_to(working_folder))
        if Path(path).is_relative_to(working_folder)
        else path
    )


# --------------------------------------------------------------------------------------------------


_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize(
    defs: dg.Definitions, spec: PipelineSpec, keys: Sequence[str] = ()
) -> dg.ExecuteInProcessResult:
    """Observes the topic, then runs the windows of `keys`, or else the waiting micro-batches.

    Both runs are in the history of DAGSTER_HOME afterwards.
    """
    instance = dg.DagsterInstance.get()
    defs.resolve_implicit_global_asset_job_def().execute_in_process(
        run_config=_QUIET, instance=instance, asset_selection=upstream_keys(spec)
    )
    tags = range_tags(dg.PartitionKeyRange(keys[0], keys[-1])) if keys else {}
    return defs.resolve_job_def(job_name(spec)).execute_in_process(
        run_config=_QUIET, instance=instance, raise_on_error=False, tags=tags
    )


def day_keys(spec: PipelineSpec, start: datetime) -> list[str]:
    """Returns the partition keys of the day's windows, from `start` on."""
    window = in_time(spec.window)
    return [key_of(window, start + timedelta(hours=n)) for n in range(HOURS)]


def say_failure(console: Console, result: dg.ExecuteInProcessResult, log: Path) -> None:
    """Prints the reason why a run failed: the error of its first failed step."""
    errors = [e.step_failure_data.error_display_string for e in result.get_step_failure_events()]
    reason = errors[0] if errors else "the run failed before its first step"
    console.print(f"[red]The run failed.[/red] {reason}\nMore in {log}", soft_wrap=True)


@contextmanager
def aside(log: Path) -> Iterator[None]:
    """Sends stderr to a file until the end of the block.

    Spark's JVM and Dagster write to the file descriptor itself, not through Python.
    """
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)


# --------------------------------------------------------------------------------------------------


CUSTOMER = ("customer", "name", "city", "born", "credit", "changed_at")


class Verdict(msgspec.Struct, frozen=True):
    """The numbers of produced messages, and the mistakes that the check found."""

    orders: int
    dead: int
    aborted: int
    mistakes: tuple[str, ...]


def check(
    manifest: Path, rows: pa.Table, dead: Iterable[pa.Table], receipts: Iterable[Receipt]
) -> Verdict:
    """Compares the tables with the manifest.

    Args:
        manifest: a line per produced message: partition, offset, kind, order_id.
        rows: the table's columns of `sinks.ROW`.
        dead: the same metadata columns of the committed dead letters.
        receipts: the receipts of all windows.
    """
    messages = pl.read_parquet(manifest).with_columns(pl.col("kind").cast(pl.String))
    produced = defaultdict[TopicPartition, dict[int, object]](dict)
    lines = messages.select("partition", "offset", "kind", "order_id").iter_rows()
    for partition, offset, kind, order_id in lines:
        if kind != "aborted":
            produced[TopicPartition(ORDERS, partition)][offset] = order_id
    kinds = Counter(messages["kind"])
    # a reader returns the table's files in any order
    in_order = rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    comparison = compare(produced, [in_order], dead, receipts, "order_id")
    return Verdict(
        kinds["order"],
        kinds["poison"] + kinds["tombstone"],
        kinds["aborted"],
        () if comparison.ok else (str(comparison),),
    )


class Folded(msgspec.Struct, frozen=True):
    """The number of changes, the number of customers after them, and a sentence per mistake."""

    changes: int
    customers: int
    mistakes: tuple[str, ...]


def fold(changes: pl.DataFrame) -> pl.DataFrame:
    """Returns each customer's last row, without customers whose last change is a deletion."""
    last = changes.sort("partition", "offset").group_by("customer", maintain_order=True).last()
    return last.filter(~pl.col("gone")).select(CUSTOMER)


def _describe_problem(description: str, rows: pl.DataFrame) -> list[str]:
    """Returns a sentence about customers that are wrong, if there are any."""
    first = ", ".join(rows["customer"].head(5))
    return [f"{rows.height} {description}, the first: {first}"] if rows.height else []


def check_customers(manifest: Path, rows: pa.Table) -> Folded:
    """Compares the table's rows with the manifest of the changes.

    Args:
        manifest: a line per change: partition, offset, the columns of the row after it,
            and `gone` if it is a deletion.
        rows: the table's rows.
    """
    changes = pl.read_parquet(manifest)
    expected, actual = (
        fold(changes),
        cast("pl.DataFrame", pl.from_arrow(rows.select(list(CUSTOMER)))),
    )
    mistakes = [
        *_describe_problem(
            "customers are lost, or don't have their last row",
            expected.join(actual, on=CUSTOMER, how="anti", nulls_equal=True),
        ),
        *_describe_problem(
            "customers should not be there",
            actual.join(expected, on=CUSTOMER, how="anti", nulls_equal=True),
        ),
        *_describe_problem(
            "customers are there more than once",
            actual.group_by("customer").len().filter(pl.col("len") > 1),
        ),
    ]
    return Folded(changes.height, expected.height, tuple(mistakes))
