"""The checks of a model: which rows fail which check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandera.errors import SchemaErrors

from tests.formats.json.models import Nested
from tests.profiles import examples
from tests.transform.orders import Order, rows
from windrow.ingest.errors import SpecError
from windrow.ingest.transform import rules as rules_module
from windrow.ingest.transform.rules import Rules


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((-2, "EUR", 1, "S-1"), "check:id:greater_than_or_equal_to"),
        ((2, "CNY", 1, "S-1"), "check:currency:isin"),
        ((2, "EUR", 10, "S-1"), "check:quantity:in_range"),
        ((2, "EUR", 1, "X-1"), "check:sku:str_matches"),
        ((3, "EUR", 1, "S-1"), "check:id:even"),
        ((2, "EUR", 1, "S-12345"), "check:sku:short"),
        ((400, "EUR", 9, "S-1"), "check:*:cheap"),
    ],
)
def test_every_kind_of_check_refuses_its_row_only(row: tuple[Any, ...], reason: str) -> None:
    """Each kind of check refuses its own row only, with column and check as reason.

    A null passes in a nullable column.
    """
    good = (2, None, 1, "S-1")
    (failure,) = Rules(Order).failures(rows(good, row, good))
    assert (failure.rows.tolist(), failure.reason) == ([1], reason)


def test_a_row_fails_once_under_its_first_check() -> None:
    """A row fails once, under its first check."""
    failures = Rules(Order).failures(rows((-3, "CNY", 99, "X"), (2, "CNY", 1, "S-1")))
    assert [(f.reason, f.rows.tolist()) for f in failures] == [
        ("check:id:greater_than_or_equal_to", [0]),
        ("check:currency:isin", [1]),
    ]


def test_good_rows_no_rows_no_rules() -> None:
    """Good rows, no rows and a model without checks have no failures."""
    assert Rules(Order).failures(rows((2, "EUR", 1, "S-1"))) == []
    assert Rules(Order).failures(rows((2, "EUR", 1, "S-1")).slice(0, 0)) == []
    assert Rules(Nested).failures(pa.record_batch([pa.array([1])], names=["id"])) == []


def test_the_detail_holds_the_check_not_the_value() -> None:
    """The detail of a failure has the check and not the value, because it may be logged."""
    (failure,) = Rules(Order).failures(rows((2, "hunter2", 1, "S-1")))
    assert failure.detail == "Failed isin(['EUR', 'USD']) - at $.currency"


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit])
@pytest.mark.parametrize("element_wise", [True, False])
def test_a_check_that_raises_fails_the_window(
    raised: type[BaseException], element_wise: bool
) -> None:
    """A check that raises fails the window, also with SystemExit.

    The error has no text of the exception, because it may contain values.
    """

    class Crashing(pp.DataFrameModel):
        id: pl.Int64

        @pp.check("id", name="odd", element_wise=element_wise)
        def odd(cls, value: int) -> bool:  # noqa: N805
            raise raised(f"hunter{value}")

    says = f"odd of Crashing failed as a whole: it raised {raised.__name__}"
    with pytest.raises(SpecError, match=says) as caught:
        Rules(Crashing).failures(pa.record_batch([pa.array([2, 4])], names=["id"]))
    assert "hunter" not in str(caught.value)


def test_a_check_on_the_whole_batch_fails_the_window() -> None:
    """A check of the whole batch fails the window, because the ends of batches are arbitrary."""

    class Whole(pp.DataFrameModel):
        id: pl.Int64

        @pp.dataframe_check(name="mean")
        def mean(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(pl.col("id").mean() < 1)

    for ids in ([2, 4], [-2, -4]):
        with pytest.raises(
            SpecError, match="mean of Whole failed as a whole: it must give one verdict per row"
        ):
            Rules(Whole).failures(pa.record_batch([pa.array(ids)], names=["id"]))


@pytest.mark.parametrize("verdict", [pl.col("id"), pl.col("id").filter(pl.col("id") > 2) > 0])
def test_a_check_that_gives_no_verdict_per_row_fails_the_window(verdict: pl.Expr) -> None:
    """A check without a boolean for each row fails the window."""

    class Odd(pp.DataFrameModel):
        id: pl.Int64

        @pp.check("id", name="odd")
        def odd(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(verdict)

    with pytest.raises(
        SpecError, match="odd of Odd failed as a whole: it must give one verdict per row"
    ):
        Rules(Odd).failures(pa.record_batch([pa.array([2, 4])], names=["id"]))


def test_a_single_verdict_for_all_rows_fails_the_window() -> None:
    """A check with a single verdict for all rows fails the window, even if the verdict is true.

    The next batch may have another verdict.
    """

    class Sure(pp.DataFrameModel):
        id: pl.Int64 = pp.Field(ge=0)

        @pp.check("id", name="sure")
        def sure(cls, data: pp.PolarsData) -> bool:  # noqa: N805
            return True

    with pytest.raises(
        SpecError, match="sure of Sure failed as a whole: it must give one verdict per row"
    ):
        Rules(Sure).failures(pa.record_batch([pa.array([2, 4])], names=["id"]))


def test_a_check_that_only_warns_refuses_nothing() -> None:
    """A check that only warns refuses nothing, as in pandera."""

    class Warned(pp.DataFrameModel):
        id: pl.Int64 = pp.Field(ge=0, raise_warning=True)

    assert Rules(Warned).failures(pa.record_batch([pa.array([-2])], names=["id"])) == []


def test_a_check_may_look_at_nulls() -> None:
    """A check with `ignore_na=False` sees nulls, and a missing verdict refuses the row."""

    class Looking(pp.DataFrameModel):
        id: pl.Int64 = pp.Field(nullable=True, ge=0, ignore_na=False)

    (failure,) = Rules(Looking).failures(
        pa.record_batch([pa.array([1, None, 2], pa.int64())], names=["id"])
    )
    assert failure.rows.tolist() == [1]


_ROWS = st.tuples(
    st.integers(-4, 130),
    st.sampled_from(["EUR", "USD", "CNY", None]),
    st.integers(-1, 12),
    st.sampled_from(["S-1", "S-12345", "X-1", ""]),
)


@settings(max_examples=examples(100, short=8))
@given(st.lists(_ROWS, min_size=1, max_size=12))
def test_all_at_once_is_what_pandera_says_one_after_the_other(
    values: list[tuple[Any, ...]],
) -> None:
    """The failures are those of pandera's own `validate`, each under its first check."""
    reason_by_row = {
        row: failure.reason
        for failure in Rules(Order).failures(rows(*values))
        for row in failure.rows.tolist()
    }
    assert reason_by_row == _first_refused(pl.DataFrame(rows(*values)), Order.to_schema())


def _first_refused(frame: pl.DataFrame, schema: pp.DataFrameSchema) -> dict[int, str]:
    checks = pp.DataFrameSchema(
        {
            name: pp.Column(None, checks=c.checks, nullable=True)
            for name, c in schema.columns.items()
        },
        checks=schema.checks,
    )
    reason_by_row: dict[int, str] = {}
    try:
        checks.validate(frame, lazy=True)
    except SchemaErrors as errors:
        for error in errors.schema_errors:
            column = "*" if isinstance(error.schema, pp.DataFrameSchema) else error.schema.name
            for row, passed in enumerate(error.check_output.to_series()):
                if not passed:
                    reason_by_row.setdefault(row, f"check:{column}:{error.check.name}")
    return reason_by_row


def test_the_environment_can_not_switch_checks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """PANDERA_VALIDATION_ENABLED doesn't switch off the checks.

    A table must not depend on it.
    """
    from pandera.config import CONFIG

    monkeypatch.setattr(CONFIG, "validation_enabled", False)
    assert len(Rules(Order).failures(rows((-2, "EUR", 1, "S-1")))) == 1


def test_checks_on_maps_see_what_the_model_declares() -> None:
    """A check sees a map column as a list of key/value structs, as the model declares it."""

    class Stock(pp.DataFrameModel):
        stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
            nullable=True, metadata={"map": True}
        )

        @pp.check("stock", name="some")
        def some(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(pl.col(data.key).list.len() > 0)

    batch = pa.record_batch(
        [pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()))], names=["stock"]
    )
    assert [f.rows.tolist() for f in Rules(Stock).failures(batch)] == [[1]]


def _frames_made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    frame_columns: list[list[str]] = []
    real = rules_module.frame_of

    def seen(batch: pa.RecordBatch) -> pl.DataFrame:
        frame_columns.append(batch.schema.names)
        return real(batch)

    monkeypatch.setattr(rules_module, "frame_of", seen)
    return frame_columns


def test_columns_that_no_rule_reads_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only columns that the rules read are converted to polars, so others cost nothing."""

    class Two(pp.DataFrameModel):
        id: pl.Int64 = pp.Field(ge=0)
        text: pl.String
        price: pl.Float64 = pp.Field(in_range={"min_value": 0, "max_value": 9}, nullable=True)

    batch = pa.record_batch(
        [pa.array([1, -1]), pa.array(["a", "b"]), pa.array([None, 1.0])],
        names=["id", "text", "price"],
    )
    rules = Rules(Two)
    rules.failures(batch)
    frame_columns = _frames_made(monkeypatch)
    assert [failure.rows.tolist() for failure in rules.failures(batch)] == [[1]]
    assert frame_columns == [["id", "price"]]


def test_a_check_of_ones_own_sees_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own check sees every column, because the columns that it reads are unknown."""

    class Beside(pp.DataFrameModel):
        id: pl.Int64 = pp.Field(ge=0)
        least: pl.Int64

        @pp.check("id", name="enough")
        def enough(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(pl.col(data.key) >= pl.col("least"))

    frame_columns = _frames_made(monkeypatch)
    batch = pa.record_batch([pa.array([1, 3, -1]), pa.array([2, 2, -2])], names=["id", "least"])
    failures = [(f.reason, f.rows.tolist()) for f in Rules(Beside).failures(batch)]
    assert failures == [("check:id:greater_than_or_equal_to", [2]), ("check:id:enough", [0])]
    assert all(names == ["id", "least"] for names in frame_columns)


_TEXTS = st.one_of(st.none(), st.sampled_from(["", "S-1", "S-12345", "XS-1", "EUR", "é"]))
_NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
_OF_NUMBERS = st.sampled_from(
    [
        pp.Check.eq(1),
        pp.Check.ne(1),
        pp.Check.gt(0),
        pp.Check.ge(0),
        pp.Check.lt(0),
        pp.Check.le(0),
        pp.Check.in_range(-1, 2),
        pp.Check.in_range(-1, 2, include_min=False, include_max=False),
        pp.Check.isin([0, 2]),
        pp.Check.notin([0, 2]),
        pp.Check.ge(0, ignore_na=False),
    ]
)
_OF_TEXTS = st.sampled_from(
    [
        pp.Check.eq("EUR"),
        pp.Check.ne("EUR"),
        pp.Check.isin(["EUR", ""]),
        pp.Check.notin(["EUR", ""]),
        pp.Check.str_matches("S-"),
        pp.Check.str_contains("S-"),
        pp.Check.str_startswith("S"),
        pp.Check.str_endswith("1"),
        pp.Check.str_length(1, 4),
        pp.Check.isin(["S-1"], ignore_na=False),
    ]
)


@given(
    st.lists(st.tuples(_NUMBERS, _TEXTS), min_size=1, max_size=8),
    st.lists(_OF_NUMBERS, max_size=3),
    st.lists(_OF_TEXTS, max_size=3),
)
def test_every_built_in_check_is_what_pandera_makes_of_it(
    values: list[tuple[int | None, str | None]],
    of_numbers: list[pp.Check],
    of_texts: list[pp.Check],
) -> None:
    """Each built-in check refuses the same rows as pandera's `validate`.

    It is built once for all batches.
    """
    schema = pp.DataFrameSchema(
        {
            "number": pp.Column(pl.Int64, of_numbers, nullable=True),
            "text": pp.Column(pl.String, of_texts, nullable=True),
        }
    )
    model: Any = SimpleNamespace(to_schema=lambda: schema, __name__="Any")
    numbers, texts = zip(*values, strict=True)
    batch = pa.record_batch(
        [pa.array(numbers, pa.int64()), pa.array(texts, pa.string())], names=["number", "text"]
    )
    rules = Rules(model)
    for _ in range(2):
        reason_by_row = {
            row: failure.reason
            for failure in rules.failures(batch)
            for row in failure.rows.tolist()
        }
        assert reason_by_row == _first_refused(pl.DataFrame(batch), schema)
