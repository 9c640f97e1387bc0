"""The columns of the orders table, and their rules."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pandera.polars as pa
import polars as pl


class Order(pa.DataFrameModel):
    """One order of the shop, as it was placed."""

    order_id: pl.Int64 = pa.Field(ge=1)
    customer: pl.String = pa.Field(str_length={"min_value": 1, "max_value": 64})
    amount: Annotated[pl.Decimal, 12, 2] = pa.Field(ge=0)
    currency: pl.String = pa.Field(isin=["EUR", "USD", "CNY"])
    sku: pl.String = pa.Field(str_matches=r"^SKU-\d{5}$")
    quantity: pl.Int32 = pa.Field(in_range={"min_value": 1, "max_value": 100})
    created_at: Annotated[pl.Datetime, "us", "UTC"]
    express: pl.Boolean
    tags: Annotated[pl.List, pl.String()] = pa.Field(nullable=True)
    ship_to: Annotated[pl.Struct, {"city": pl.String(), "postcode": pl.String()}] = pa.Field(
        nullable=True
    )
    note: pl.String = pa.Field(nullable=True)

    class Config:
        """Exactly these columns are allowed."""

        strict: ClassVar[bool] = True
