"""A pipeline's step that takes as long as a call of a service."""

from __future__ import annotations

import threading

import pandera.polars as pa
import polars as pl


class Scored(pa.DataFrameModel):
    """Orders, each with the probability that it is fraud."""

    order_id: pl.Int64
    customer: pl.String
    score: pl.Float64 = pa.Field(ge=0, le=1, description="0: certainly not")


def scored(rows: pl.DataFrame) -> pl.DataFrame:
    """Calls no service, but takes as long."""
    threading.Event().wait(0.7)
    return rows.with_columns(score=pl.lit(0.5))
