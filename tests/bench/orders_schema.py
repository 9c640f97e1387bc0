"""The model of the benchmark's orders: the columns that the peers parse, with rules."""

from __future__ import annotations

from typing import ClassVar

import pandera.polars as pa
import polars as pl


class Order(pa.DataFrameModel):
    """An order of the benchmark's topic."""

    order_id: pl.Int64 = pa.Field(ge=0)
    customer: pl.String
    amount: pl.Float64 = pa.Field(ge=0)
    currency: pl.String = pa.Field(isin=["EUR", "USD", "CNY"])
    sku: pl.String
    quantity: pl.Int32 = pa.Field(in_range={"min_value": 1, "max_value": 100})
    created_at: pl.Int64
    note: pl.String = pa.Field(nullable=True)

    class Config:
        """Allows no other columns."""

        strict: ClassVar[bool] = True
