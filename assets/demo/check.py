"""Compares the tables with the produced messages. Pure.

Orders are compared by the tests' checker, customers with a fold of their changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec
import polars as pl
import pyarrow as pa

from windrow.assets.demo.produce import ORDERS
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.testing.checker import check as compare

CUSTOMER = ("customer", "name", "city", "born", "credit", "changed_at")


class Verdict(msgspec.Struct, frozen=True):
    """The numbers of produced messages, and what the checker found wrong."""

    orders: int
    dead: int
    aborted: int
    wrong: tuple[str, ...]


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
    sent = pl.read_parquet(manifest).with_columns(pl.col("kind").cast(pl.String))
    produced = defaultdict[TopicPartition, dict[int, object]](dict)
    lines = sent.select("partition", "offset", "kind", "order_id").iter_rows()
    for partition, offset, kind, order_id in lines:
        if kind != "aborted":
            produced[TopicPartition(ORDERS, partition)][offset] = order_id
    kinds = Counter(sent["kind"])
    # a reader gives the table's files in any order
    in_order = rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    found = compare(produced, [in_order], dead, receipts, "order_id")
    return Verdict(
        kinds["order"],
        kinds["poison"] + kinds["tombstone"],
        kinds["aborted"],
        () if found.ok else (str(found),),
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


def _problem(what: str, rows: pl.DataFrame) -> list[str]:
    """A sentence about customers that are wrong, if there are any."""
    first = ", ".join(rows["customer"].head(5))
    return [f"{rows.height} {what}, the first: {first}"] if rows.height else []


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
