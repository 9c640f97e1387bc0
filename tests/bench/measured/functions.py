"""Functions for the cost of a `spark` step and a `python` step."""

from __future__ import annotations

import polars as pl
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def same(rows: DataFrame) -> DataFrame:
    """Returns all rows unchanged."""
    return rows


def newest(rows: DataFrame) -> DataFrame:
    """Returns the newest row of each order."""
    order = Window.partitionBy("order_id").orderBy(
        f.desc("_timestamp"), f.desc("_partition"), f.desc("_offset")
    )
    return rows.withColumn("n", f.row_number().over(order)).where("n = 1").drop("n")


def rounded(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with amounts in hundredths."""
    return rows.with_columns(amount=(pl.col("amount") * 100).round())
