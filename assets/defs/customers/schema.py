"""The columns of the customers table, and their rules."""

from __future__ import annotations

from typing import Annotated

import pandera.polars as pa
import polars as pl


class Customer(pa.DataFrameModel):
    """One customer of the shop, as its database has it now."""

    customer: pl.String = pa.Field(str_length={"min_value": 1, "max_value": 64})
    name: pl.String
    city: pl.String = pa.Field(nullable=True)
    born: pl.Date = pa.Field(nullable=True)
    credit: Annotated[pl.Decimal, 12, 2] = pa.Field(ge=0)
    changed_at: Annotated[pl.Datetime, "us", "UTC"] = pa.Field(metadata={"epoch": "ms"})
