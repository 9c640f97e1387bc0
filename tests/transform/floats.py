"""Models of one float column: nullable or not, with and without a check."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl


class Double(pp.DataFrameModel):
    x: pl.Float64


class Single(pp.DataFrameModel):
    x: pl.Float32


class AtLeast(pp.DataFrameModel):
    x: pl.Float64 = pp.Field(ge=2.0)


class MoreThan(pp.DataFrameModel):
    x: pl.Float64 = pp.Field(gt=2.0)


class Nullable(pp.DataFrameModel):
    x: pl.Float32 = pp.Field(nullable=True)


class NullableAtLeast(pp.DataFrameModel):
    x: pl.Float64 = pp.Field(ge=2.0, nullable=True)


class NullableAtMost(pp.DataFrameModel):
    x: pl.Float64 = pp.Field(le=2.0, nullable=True)


MODELS = (Double, Single, AtLeast, MoreThan, Nullable, NullableAtLeast, NullableAtMost)
