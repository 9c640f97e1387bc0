"""The models of three types of records in one topic."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl


class Order(pp.DataFrameModel):
    id: pl.Int64
    total: pl.Int64


class Visit(pp.DataFrameModel):
    id: pl.String
    page: pl.String = pp.Field(nullable=True)


class Other(pp.DataFrameModel):
    id: pl.Int64
    kind: pl.String = pp.Field(nullable=True)
