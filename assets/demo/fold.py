"""The check of the customers: what the table holds against a fold of all changes that
were produced.

Nothing of windrow's is believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import polars as pl
import pyarrow as pa

COLUMNS = ("customer", "name", "city", "born", "credit", "changed_at")


class Folded(msgspec.Struct, frozen=True):
    """How many changes were produced, how many customers they leave, and everything
    that is wrong with the table.
    """

    changes: int
    customers: int
    wrong: tuple[str, ...]


def folded(changes: pl.DataFrame) -> pl.DataFrame:
    """What is left when the changes of each customer are done one after the other:
    `gone` says that there is no row any more.
    """
    last = changes.sort("partition", "offset").group_by("customer", maintain_order=True).last()
    return last.filter(~pl.col("gone")).select(COLUMNS)


def check_customers(manifest: Path, rows: pa.Table) -> Folded:
    """Hold the table's rows against the manifest of the changes.

    Args:
        manifest: what was produced: partition, offset, gone, and the columns of the row
            from then on.
        rows: the table's.
    """
    changes = pl.read_parquet(manifest)
    wanted, found = folded(changes), cast("pl.DataFrame", pl.from_arrow(rows.select(list(COLUMNS))))
    wrong = [
        *_said(
            "customers are lost, or not as they were last",
            wanted.join(found, on=COLUMNS, how="anti", nulls_equal=True),
        ),
        *_said(
            "customers are there that should not be",
            found.join(wanted, on=COLUMNS, how="anti", nulls_equal=True),
        ),
        *_said(
            "customers are there more than once",
            found.group_by("customer").len().filter(pl.col("len") > 1),
        ),
    ]
    return Folded(changes.height, wanted.height, tuple(wrong))


def _said(what: str, customers: pl.DataFrame) -> list[str]:
    first = ", ".join(customers["customer"].head(5))
    return [] if customers.is_empty() else [f"{customers.height} {what}, the first: {first}"]
