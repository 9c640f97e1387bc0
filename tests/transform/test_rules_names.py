"""Checks of columns whose names polars reads as patterns."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest

from windrow.ingest.transform.rules import Rules


class Patterns(pp.DataFrameModel):
    """Column names that are patterns, which would match `ab` and `a` too."""

    a: pl.Int64
    ab: pl.Int64
    column_0: pl.Int64 = pp.Field(le=100)
    star: pl.Int64 = pp.Field(alias="*", ge=0)
    regex: pl.Int64 = pp.Field(alias="^a.*$", ge=10)

    @pp.check("^a.*$", name="even", element_wise=True)
    def even(cls, value: int) -> bool:  # noqa: N805
        return value % 2 == 0

    @pp.dataframe_check(name="smaller")
    def smaller(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
        return data.lazyframe.select(pl.col("a") < pl.col("ab"))


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        ((-1, 1, -5, 0, 10), []),
        ((-1, 1, -5, -1, 10), ["check:*:greater_than_or_equal_to"]),
        ((-1, 1, -5, 0, 8), ["check:^a.*$:greater_than_or_equal_to"]),
        ((-1, 1, -5, 0, 11), ["check:^a.*$:even"]),
        ((-1, 1, 101, 0, 10), ["check:column_0:less_than_or_equal_to"]),
        ((1, -1, -5, 0, 10), ["check:*:smaller"]),
    ],
)
def test_a_check_judges_its_own_column_whatever_it_is_called(
    row: tuple[int, ...], reasons: list[str]
) -> None:
    """A column named `*` or like a regular expression is checked by its exact name.

    Its neighbours may have values that its check forbids.
    """
    good = (-3, -2, 0, 1, 12)
    columns = [pa.array(values, pa.int64()) for values in zip(good, row, strict=True)]
    batch = pa.record_batch(columns, names=["a", "ab", "column_0", "*", "^a.*$"])
    failures = Rules(Patterns).failures(batch)
    assert [(f.reason, f.rows.tolist()) for f in failures] == [(reason, [1]) for reason in reasons]
