"""Schemas of one column, and one that is none."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Line(pa.DataFrameModel):
    """A text."""

    line: pl.String


class Bytes(pa.DataFrameModel):
    """Bytes."""

    body: pl.Binary


class Two(pa.DataFrameModel):
    """One column too many."""

    line: pl.String
    more: pl.String
