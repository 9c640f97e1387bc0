"""The demo's output: the table of windows, and the results of the checks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from windrow.assets.demo.check import Folded, Verdict
from windrow.ingest.model.receipt import Receipt


def windows_table(receipts: Sequence[Receipt]) -> Table:
    """One line per window: offsets per partition, read, written, dead, seconds."""
    partitions = sorted({m.partition for r in receipts for m in r.plan.stop.marks})
    table = Table(
        title="orders: 24 windows",
        caption="offsets are half-open: start..stop",
        box=None,
        pad_edge=False,
    )
    table.add_column("window (UTC)", no_wrap=True)
    for partition in partitions:
        table.add_column(f"offsets [{partition}]", justify="right", no_wrap=True)
    for name in ("read", "written", "dead", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in receipts:
        table.add_row(*_line(r, partitions))
    totals = [
        f"{sum(numbers):,}"
        for numbers in zip(
            *((r.counts.read, r.counts.rows, r.counts.dead) for r in receipts), strict=True
        )
    ]
    table.add_section()
    table.add_row(
        "all",
        *[""] * len(partitions),
        *totals,
        f"{sum(r.seconds for r in receipts):.1f}",
        style="bold",
    )
    return table


def _line(r: Receipt, partitions: Sequence[int]) -> list[str]:
    starts = {m.partition: m.offset for m in r.plan.start.marks}
    stops = {m.partition: m.offset for m in r.plan.stop.marks}
    ranges = [f"{starts.get(p, 0)}..{stops.get(p, 0)}" for p in partitions]
    return [
        f"{r.window.start:%m-%d %H:%M}",
        *ranges,
        f"{r.counts.read:,}",
        f"{r.counts.rows:,}",
        f"{r.counts.dead:,}",
        f"{r.seconds:.1f}",
    ]


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


def say(console: Console, verdict: Verdict, where: str = "table") -> None:
    """Prints the result of the orders' check. `where`: the place of the rows, in words."""
    for wrong in verdict.wrong:
        console.print(f"[red]WRONG[/red] {wrong}")
    if not verdict.wrong:
        console.print(
            f"[green]Checked against what was produced:[/green] {verdict.orders:,} orders are in"
            f" the {where} exactly once, {verdict.dead} poison messages and tombstones in the"
            f" dead-letter table exactly once, none of {verdict.aborted} aborted orders anywhere."
            " Nothing lost, nothing twice.",
            soft_wrap=True,
        )
