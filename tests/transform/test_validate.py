"""The rules of a schema: which rows fail which check of the model, and what becomes of their messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest

from ingest.decode.json.decoder import JsonDecoder
from ingest.errors import SpecError
from ingest.ports.decoder import Decoded
from ingest.schema.columns import Columns
from ingest.transform.validate import Rules, Validate
from tests.contracts.transform_contract import Before, TransformContract
from tests.contracts.values import dead, valued
from tests.decode.json.models import Nested


class Order(pp.DataFrameModel):
    """Built-in checks, a check of a column, one of each element, one of whole rows."""

    id: pl.Int64 = pp.Field(ge=0)
    currency: pl.String = pp.Field(isin=["EUR", "USD"], nullable=True)
    quantity: pl.Int32 = pp.Field(in_range={"min_value": 1, "max_value": 9})
    sku: pl.String = pp.Field(str_matches="^S-")

    @pp.check("id", name="even")
    def even(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
        return data.lazyframe.select(pl.col(data.key) % 2 == 0)

    @pp.check("sku", name="short", element_wise=True)
    def short(cls, value: str) -> bool:  # noqa: N805
        return len(value) < 6

    @pp.dataframe_check(name="cheap")
    def cheap(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
        return data.lazyframe.select(pl.col("id") * pl.col("quantity") < 1000)


def rows(*values: tuple[Any, ...]) -> pa.RecordBatch:
    """A batch of orders."""
    columns = list(zip(*values, strict=True))
    types = [pa.int64(), pa.string(), pa.int32(), pa.string()]
    return pa.record_batch([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["id", "currency", "quantity", "sku"])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((-2, "EUR", 1, "S-1"), "check:id:greater_than_or_equal_to"), ((2, "CNY", 1, "S-1"), "check:currency:isin"),
        ((2, "EUR", 10, "S-1"), "check:quantity:in_range"),
        ((2, "EUR", 1, "X-1"), "check:sku:str_matches"), ((3, "EUR", 1, "S-1"), "check:id:even"),
        ((2, "EUR", 1, "S-12345"), "check:sku:short"),
        ((400, "EUR", 9, "S-1"), "check:*:cheap"),
    ],
)  # fmt: skip
def test_every_kind_of_check_refuses_its_row_only(row: tuple[Any, ...], reason: str) -> None:
    """The reason names column and check; rows around it pass, a null passes where it may be."""
    good = (2, None, 1, "S-1")
    (failure,) = Rules(Order).failures(rows(good, row, good))
    assert (failure.rows.tolist(), failure.reason) == ([1], reason)


def test_a_row_fails_once_under_its_first_check() -> None:
    """However many checks it fails."""
    failures = Rules(Order).failures(rows((-3, "CNY", 99, "X"), (2, "CNY", 1, "S-1")))
    assert [(f.reason, f.rows.tolist()) for f in failures] == [("check:id:greater_than_or_equal_to", [0]), ("check:currency:isin", [1])]


def test_good_rows_no_rows_no_rules() -> None:
    """Nothing fails."""
    assert Rules(Order).failures(rows((2, "EUR", 1, "S-1"))) == []
    assert Rules(Order).failures(rows((2, "EUR", 1, "S-1")).slice(0, 0)) == []
    assert Rules(Nested).failures(pa.record_batch([pa.array([1])], names=["id"])) == []


def test_the_detail_holds_the_check_not_the_value() -> None:
    """A dead letter's text may be logged."""
    (failure,) = Rules(Order).failures(rows((2, "hunter2", 1, "S-1")))
    assert failure.detail == "Failed isin(['EUR', 'USD']) - at $.currency"


def test_a_check_that_raises_fails_the_window() -> None:
    """It says nothing of any row; the text of what it raised may hold values and isn't shown."""

    class Crashing(pp.DataFrameModel):
        id: pl.Int64

        @pp.check("id", name="odd", element_wise=True)
        def odd(cls, value: int) -> bool:  # noqa: N805
            raise ZeroDivisionError(f"hunter{value}")

    with pytest.raises(SpecError, match="odd of Crashing failed as a whole") as caught:
        Rules(Crashing).failures(pa.record_batch([pa.array([2, 4])], names=["id"]))
    assert "hunter" not in str(caught.value)


def test_a_check_on_the_whole_batch_fails_the_window() -> None:
    """Where a batch ends is chance: such a check means nothing."""

    class Whole(pp.DataFrameModel):
        id: pl.Int64

        @pp.dataframe_check(name="mean")
        def mean(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(pl.col("id").mean() < 1)

    with pytest.raises(SpecError, match="one verdict per row"):
        Rules(Whole).failures(pa.record_batch([pa.array([2, 4])], names=["id"]))


def test_the_environment_can_not_switch_checks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandera reads PANDERA_VALIDATION_ENABLED; a table must not depend on it."""
    from pandera.config import CONFIG

    monkeypatch.setattr(CONFIG, "validation_enabled", False)
    assert len(Rules(Order).failures(rows((-2, "EUR", 1, "S-1")))) == 1


def test_checks_on_maps_see_what_the_model_declares() -> None:
    """A map column is a list of key/value structs to a check, as its annotation says."""

    class Stock(pp.DataFrameModel):
        stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(nullable=True, metadata={"map": True})

        @pp.check("stock", name="some")
        def some(cls, data: pp.PolarsData) -> pl.LazyFrame:  # noqa: N805
            return data.lazyframe.select(pl.col(data.key).list.len() > 0)

    batch = pa.record_batch([pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()))], names=["stock"])
    assert [f.rows.tolist() for f in Rules(Stock).failures(batch)] == [[1]]


# ------------------------------------------------------------------------------------------------------------------- as a transform


ORDERS = Columns.of(Order)
RULED = "import pandera.polars as pp\nimport polars as pl\nclass M(pp.DataFrameModel):\n    id: pl.Int64 = pp.Field(ge=0)\n"


class TestValidate(TransformContract):
    """The rules of a schema keep the contract of every transform."""

    @pytest.fixture
    def transform(self) -> Validate:
        return Validate("test_validate.py:Order", Path(__file__).parent)

    @pytest.fixture
    def before(self) -> Before:
        good, bad, worse = (2, "EUR", 1, "S-1"), (-3, "CNY", 99, "X"), (400, None, 9, "S-1")
        batch = rows(good, bad, good, worse, good, good, bad)
        return Before(ORDERS, pa.RecordBatch.from_arrays(batch.columns, schema=ORDERS.arrow_schema), (0, 1, 1, 2, 3, 3, 4))


def both(folder: Path) -> Callable[[pa.RecordBatch], Decoded]:
    """Decode and validate by the model in a folder."""
    decode, validate = JsonDecoder("m.py:M", folder).open(), Validate("m.py:M", folder).open()
    return lambda messages: validate(decode(messages))


def test_a_failed_check_is_a_dead_letter_of_its_own_stage(tmp_path: Path) -> None:
    """Its index is the message's, not the row's; dead letters of both stages stand in message order."""
    (tmp_path / "m.py").write_text(RULED)
    decoded = both(tmp_path)(valued([b"x", b'{"id":-1}', b'{"id":1}', None, b'{"id":-2}']))
    assert (decoded.row_index.to_pylist(), decoded.rows.column("id").to_pylist()) == ([2], [1])
    check = "check:id:greater_than_or_equal_to"
    assert dead(decoded) == [(0, "decode", "not_json"), (1, "validate", check), (3, "decode", "tombstone"), (4, "validate", check)]


def test_a_mended_schema_counts_in_the_same_process(tmp_path: Path) -> None:
    """Workers live on between runs; a retry after mending the file sees the new rules."""
    (tmp_path / "m.py").write_text(RULED)
    assert both(tmp_path)(valued([b'{"id":-1}'])).rows.num_rows == 0
    (tmp_path / "m.py").write_text(RULED.replace("ge=0", "ge=-5"))
    assert both(tmp_path)(valued([b'{"id":-1}'])).rows.num_rows == 1


def test_the_schema_is_loaded_once_for_all_who_ask(tmp_path: Path) -> None:
    """Decoder, rules and columns of one process share the model; only another content of the file is loaded again."""
    (tmp_path / "m.py").write_text(RULED + "import pathlib\nwith (pathlib.Path(__file__).parent / 'loads').open('a') as f: f.write('x')\n")
    for _ in range(2):
        both(tmp_path)(valued([b'{"id":1}']))
        Validate("m.py:M", tmp_path).columns(JsonDecoder("m.py:M", tmp_path).columns)
    assert (tmp_path / "loads").read_text() == "x"
