"""The columns of the orders table, and their rules."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Order(pa.DataFrameModel):
    """One order of the shop."""

    order_id: pl.Int64 = pa.Field(ge=1)
    amount: pl.Decimal(12, 2) = pa.Field(ge=0)
    note: pl.String = pa.Field(nullable=True)
