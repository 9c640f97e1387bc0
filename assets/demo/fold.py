"""Compares the customers' table with a fold of all produced changes.

It doesn't rely on windrow's own counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import polars as pl
import pyarrow as pa

COLUMNS = ("customer", "name", "city", "born", "credit", "changed_at")


class Folded(msgspec.Struct, frozen=True):
    """The numbers of changes and of customers after them, and a sentence per problem."""

    changes: int
    customers: int
    wrong: tuple[str, ...]


def folded(changes: pl.DataFrame) -> pl.DataFrame:
    """Each customer's last row; customers whose last change is a deletion have none."""
    last = changes.sort("partition", "offset").group_by("customer", maintain_order=True).last()
    return last.filter(~pl.col("gone")).select(COLUMNS)


def check_customers(manifest: Path, rows: pa.Table) -> Folded:
    """Compares the table's rows with the manifest of the changes.

    Args:
        manifest: a line per change: partition, offset, the columns of the row after it,
            and `gone` if it is a deletion.
        rows: the table's rows.
    """
    changes = pl.read_parquet(manifest)
    wanted, found = folded(changes), cast("pl.DataFrame", pl.from_arrow(rows.select(list(COLUMNS))))
    wrong = [
        *_problem(
            "customers are lost, or don't have their last row",
            wanted.join(found, on=COLUMNS, how="anti", nulls_equal=True),
        ),
        *_problem(
            "customers should not be there",
            found.join(wanted, on=COLUMNS, how="anti", nulls_equal=True),
        ),
        *_problem(
            "customers are there more than once",
            found.group_by("customer").len().filter(pl.col("len") > 1),
        ),
    ]
    return Folded(changes.height, wanted.height, tuple(wrong))


def _problem(what: str, customers: pl.DataFrame) -> list[str]:
    first = ", ".join(customers["customer"].head(5))
    return [] if customers.is_empty() else [f"{customers.height} {what}, the first: {first}"]
