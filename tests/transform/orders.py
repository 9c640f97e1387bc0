"""A model with a check of each kind, and rows of it."""

from __future__ import annotations

from typing import Any

import pandera.polars as pp
import polars as pl
import pyarrow as pa


class Order(pp.DataFrameModel):
    """Built-in checks, a check of a column, a check of each element, and a check of whole rows."""

    id: pl.Int64 = pp.Field(ge=0)
    currency: pl.String = pp.Field(isin=["EUR", "USD"], nullable=True)
    quantity: pl.Int32 = pp.Field(in_range={"min_value": 1, "max_value": 9})
    sku: pl.String = pp.Field(str_matches="^S-")

    @pp.check("id", name="even")
    def even(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
        return data.lazyframe.select(pl.col(data.key) % 2 == 0)

    @pp.check("sku", name="short", element_wise=True)
    def short(cls, value: str) -> bool:  # noqa: N805
        return len(value) < 6

    @pp.dataframe_check(name="cheap")
    def cheap(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
        return data.lazyframe.select(pl.col("id") * pl.col("quantity") < 1000)


def rows(*values: tuple[Any, ...]) -> pa.RecordBatch:
    """Returns a batch of orders."""
    columns = list(zip(*values, strict=True))
    types = [pa.int64(), pa.string(), pa.int32(), pa.string()]
    return pa.record_batch(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)],
        names=["id", "currency", "quantity", "sku"],
    )
