"""Compares the tables with the produced messages: orders one by one, customers with a fold.

It doesn't rely on windrow's own counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec
import polars as pl
import pyarrow as pa

from windrow.ingest.assemble import open_table
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.dead_letters import DeadLetters

CUSTOMER = ("customer", "name", "city", "born", "credit", "changed_at")
_PLACE = ["partition", "offset"]
_NO_DEAD = pa.table({"_partition": pa.array([], pa.int32()), "_offset": pa.array([], pa.int64())})


class Verdict(msgspec.Struct, frozen=True):
    """The numbers of produced messages, and a sentence about each problem."""

    orders: int
    dead: int
    aborted: int
    wrong: tuple[str, ...]


def check(manifest: Path, rows: pa.Table, dead: pa.Table, receipts: Iterable[Receipt]) -> Verdict:
    """Compares the tables with the manifest.

    Args:
        manifest: a line per produced message: partition, offset, kind, order_id.
        rows: the table's `order_id`, `_partition`, `_offset`.
        dead: the committed dead letters' `_partition`, `_offset`.
        receipts: the receipts of all windows.
    """
    sent = pl.read_parquet(manifest).with_columns(pl.col("kind").cast(pl.String))
    orders, aborted = (
        sent.filter(pl.col("kind") == "order"),
        sent.filter(pl.col("kind") == "aborted"),
    )
    refused = sent.filter(pl.col("kind").is_in(["poison", "tombstone"]))
    table, letters = (
        _frame(rows.select(["_partition", "_offset", "order_id"])),
        _frame(dead.select(["_partition", "_offset"])),
    )
    wrong = [
        *_compare("orders", orders.select(*_PLACE, "order_id"), table),
        *_compare("dead letters", refused.select(_PLACE), letters),
        *_problem("aborted orders are visible", table.join(aborted, on=_PLACE, how="semi")),
        *_totals(sent, list(receipts)),
    ]
    return Verdict(orders.height, refused.height, aborted.height, tuple(wrong))


def check_table(
    manifest: Path, spec: PipelineSpec, rows: pa.Table
) -> tuple[list[Committed], Verdict]:
    """Compares a pipeline's table, dead letters and receipts with the manifest.

    `rows`: as of `check`, read by another reader than windrow's.
    """
    sink, dead_letters = open_table(spec)
    committed = sorted(sink.receipts(), key=lambda one: one.receipt.window)
    receipts = [one.receipt for one in committed]
    return committed, check(manifest, rows, _places_of_dead(dead_letters, receipts), receipts)


def _places_of_dead(store: DeadLetters, receipts: Iterable[Receipt]) -> pa.Table:
    """The partitions and offsets of the committed dead letters of some windows."""
    every = (
        store.read(r.window, r.attempt).select(_NO_DEAD.column_names).cast(_NO_DEAD.schema)
        for r in receipts
    )
    return pa.concat_tables([_NO_DEAD, *every])


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = cast("pl.DataFrame", pl.from_arrow(table))
    return frame.rename({"_partition": "partition", "_offset": "offset"}).with_columns(
        pl.col("partition").cast(pl.Int32)
    )


def _compare(what: str, wanted: pl.DataFrame, found: pl.DataFrame) -> list[str]:
    """Problems unless both have the same messages, each once."""
    columns = wanted.columns
    return [
        *_problem(f"{what} are lost", wanted.join(found, on=columns, how="anti")),
        *_problem(f"{what} were never produced", found.join(wanted, on=columns, how="anti")),
        *_problem(
            f"{what} are there more than once",
            found.group_by(columns).len().filter(pl.col("len") > 1),
        ),
    ]


def _problem(what: str, rows: pl.DataFrame) -> list[str]:
    if rows.is_empty():
        return []
    if "customer" in rows.columns:
        return [f"{rows.height} {what}, the first: {', '.join(rows['customer'].head(5))}"]
    first = ", ".join(f"{p}@{o}" for p, o in rows.select(_PLACE).head(5).iter_rows())
    return [f"{rows.height} {what}, the first (partition@offset): {first}"]


def _totals(sent: pl.DataFrame, receipts: list[Receipt]) -> list[str]:
    """Compares each receipt's counts with the messages produced into its offsets."""
    wrong = []
    for receipt in receipts:
        inside = pl.concat(
            [
                sent.head(0),
                *(_inside(sent, s.partition, s.start, s.stop) for s in receipt.plan.splits),
            ]
        )
        kinds = dict(inside.group_by("kind").len().iter_rows())
        valid, dead = kinds.get("order", 0), kinds.get("poison", 0) + kinds.get("tombstone", 0)
        counts = receipt.counts
        if (counts.read, counts.valid, counts.dead, counts.aborted) != (
            valid + dead,
            valid,
            dead,
            kinds.get("aborted", 0),
        ):
            wrong.append(
                f"window {receipt.window.key}: produced {kinds}, the receipt says {counts}"
            )
    return wrong


def _inside(sent: pl.DataFrame, partition: int, start: int, stop: int) -> pl.DataFrame:
    return sent.filter(
        (pl.col("partition") == partition) & (pl.col("offset") >= start) & (pl.col("offset") < stop)
    )


class Folded(msgspec.Struct, frozen=True):
    """The numbers of changes and of customers after them, and a sentence per problem."""

    changes: int
    customers: int
    wrong: tuple[str, ...]


def folded(changes: pl.DataFrame) -> pl.DataFrame:
    """Each customer's last row; customers whose last change is a deletion have none."""
    last = changes.sort("partition", "offset").group_by("customer", maintain_order=True).last()
    return last.filter(~pl.col("gone")).select(CUSTOMER)


def check_customers(manifest: Path, rows: pa.Table) -> Folded:
    """Compares the table's rows with the manifest of the changes.

    Args:
        manifest: a line per change: partition, offset, the columns of the row after it,
            and `gone` if it is a deletion.
        rows: the table's rows.
    """
    changes = pl.read_parquet(manifest)
    wanted, found = (
        folded(changes),
        cast("pl.DataFrame", pl.from_arrow(rows.select(list(CUSTOMER)))),
    )
    wrong = [
        *_problem(
            "customers are lost, or don't have their last row",
            wanted.join(found, on=CUSTOMER, how="anti", nulls_equal=True),
        ),
        *_problem(
            "customers should not be there",
            found.join(wanted, on=CUSTOMER, how="anti", nulls_equal=True),
        ),
        *_problem(
            "customers are there more than once",
            found.group_by("customer").len().filter(pl.col("len") > 1),
        ),
    ]
    return Folded(changes.height, wanted.height, tuple(wrong))
