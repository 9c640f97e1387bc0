"""Orders for CSV, which holds neither lists nor structs: these columns become JSON texts."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql.functions import to_json

from windrow.assets.defs.orders.schema import Order


class FlatOrder(Order):
    """An order whose columns are numbers, texts and times."""

    tags: pl.String = pa.Field(nullable=True)  # type: ignore[assignment]
    ship_to: pl.String = pa.Field(nullable=True)  # type: ignore[assignment]


def flat(orders: DataFrame) -> DataFrame:
    """Writes the list and the struct as JSON."""
    return orders.withColumns({name: to_json(name) for name in ("tags", "ship_to")})
