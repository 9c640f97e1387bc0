"""The `python` step: a user's function over batches of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.user_code import FunctionReference, ModelReference
from windrow.ingest.testing.contracts.transform import Before, TransformContract, apply
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.transform.python.step import Python

CODE = """\
import pandera.polars as pa
import polars as pl
import pyarrow as arrow
import pyarrow.compute as pc


class Named(pa.DataFrameModel):
    id: pl.Int64
    name: pl.String = pa.Field(nullable=True)


def upper(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(name=pl.col("text").str.to_uppercase())


def odd(rows: arrow.RecordBatch) -> arrow.RecordBatch:
    return rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 1)).rename_columns(
        ["id", "name", *rows.schema.names[2:]]
    )


def twice(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, rows]).sort("_row").rename({"text": "name"})


def picky(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["text"] == "secret").any():
        raise ValueError(f"no {rows['text'].to_list()}")
    return rows.rename({"text": "name"})


def placed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(name=pl.col("_topic") + "@" + pl.col("_offset").cast(pl.String))


def fewer(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.head(1).select("id", name="text")


def wrong(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.lit(b"\\xff"))


def shuffled(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.reverse().rename({"text": "name"})


def other_key(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col("id") + 1, name="text")


def unsigned(rows: pl.DataFrame) -> pl.DataFrame:
    swapped = rows[[0, 2, 1, 3, 4]]
    return swapped.with_columns(pl.col("_row").cast(pl.UInt64)).rename({"text": "name"})


def crowd(rows: pl.DataFrame) -> pl.DataFrame:
    if rows.height > 1:
        raise ValueError("secret")
    return rows.rename({"text": "name"})


def nothing(rows: pl.DataFrame):
    return None


def unsaid(rows):
    return rows
"""
ODD = """\
import functools

import polars as pl
import pyarrow as arrow


def hidden(rows: "polars.DataFrame"):
    return rows


bound = functools.partial(hidden)


def leaves(rows: pl.DataFrame):
    if (rows["text"] == "secret").any():
        raise SystemExit("secret")
    return rows.rename({"text": "name"})


def doubled(rows: arrow.RecordBatch):
    return arrow.RecordBatch.from_arrays([*rows.columns[:2], rows["id"]], ["id", "name", "id"])


def moody(rows: pl.DataFrame):
    return [1] if rows.height == 1 else leaves(rows)
"""
THINGS = Columns((Column("id", pa.int64(), nullable=False), Column("text", pa.string(), True)))
ROWS = pa.RecordBatch.from_arrays(
    [pa.array([1, 2, 3, 4, 5]), pa.array(["a", "b", None, "secret", "e"])],
    schema=THINGS.arrow_schema,
)


@pytest.fixture
def step(tmp_path: Path) -> Any:
    """`step(function, ...)`: a step of the functions above."""
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "odd.py").write_text(ODD)

    def make(function: str, **more: Any) -> Python:
        file = "odd.py" if f"{function}(" in ODD or function == "bound" else "code.py"
        named = FunctionReference(f"{file}:{function}", tmp_path)
        return Python(named, ModelReference("code.py:Named", tmp_path), **more)

    return make


@pytest.fixture
def before() -> Before:
    """Of one message two rows, of the others one each."""
    return Before(THINGS, ROWS, (0, 0, 1, 2, 3))


class TestSame(TransformContract):
    """A row for each row, as polars has it."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("upper")  # type: ignore[no-any-return]


class TestFewer(TransformContract):
    """Rows left out, as Arrow has them."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("odd")  # type: ignore[no-any-return]


class TestMore(TransformContract):
    """Several rows of one."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("twice")  # type: ignore[no-any-return]


class TestDead(TransformContract):
    """A function that raises, row by row."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("picky", on_error="dead")  # type: ignore[no-any-return]


def test_metadata_columns_are_there(step: Any) -> None:
    """The function sees those that the spec asks for, and needn't give them back."""
    placed = step("placed", metadata=(("topic", "_topic"), ("offset", "_offset")))
    found = apply(placed, decoded(ROWS)).rows
    assert found["name"].to_pylist() == [f"t@{n}" for n in range(5)]
    assert found.schema.names == ["id", "name"]


def test_an_exception_fails_the_window_with_its_place(step: Any) -> None:
    """The function, the line, the topic-partition and the offsets are named, no value is."""
    with pytest.raises(RefusedError) as refused:
        apply(step("picky", setting="transform.steps.0"), decoded(ROWS))
    assert "code.py:picky of transform.steps.0 raised ValueError at " in refused.value.what
    assert refused.value.what.endswith("code.py:28 for a batch of the offsets 0 to 4")
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == ("t", 0, 0)
    assert "secret" not in str(refused.value)


def test_an_exception_can_be_a_dead_letter(step: Any) -> None:
    """Of the message alone at which the function raises; the others go on."""
    found = apply(step("picky", on_error="dead"), decoded(ROWS))
    assert found.rows["id"].to_pylist() == [1, 2, 3, 5]
    assert [(index, stage) for index, stage, _ in dead(found)] == [(3, "rules")]
    assert found.dead_reason.to_pylist() == ["python:ValueError"]
    assert "secret" not in found.dead_detail[0].as_py()
    left = apply(step("leaves", on_error="dead"), decoded(ROWS))
    assert left.dead_reason.to_pylist() == ["python:SystemExit"]
    alone = apply(step("picky", on_error="dead"), decoded(ROWS.slice(3, 1)))
    assert (alone.rows.num_rows, alone.dead_index.to_pylist()) == (0, [0])


@pytest.mark.parametrize(
    ("function", "more", "said"),
    [
        ("fewer", {}, "it gives 1 rows for 5, without _row"),
        ("wrong", {}, "name is binary, by its schema string"),
        ("shuffled", {}, "_row has other numbers than it was given, or another order"),
        ("unsigned", {}, "_row has other numbers than it was given, or another order"),
        ("nothing", {}, "gave NoneType"),
        ("nothing", {"on_error": "dead"}, "gave NoneType"),
        ("moody", {"on_error": "dead"}, "gave list"),
        ("doubled", {}, "it gives no column id, or several"),
        ("other_key", {"primary_key": ("id",)}, "it changes sink.primary_key"),
        ("twice", {"primary_key": ("id",)}, "it makes several rows of one"),
        ("odd", {"primary_key": ("id",), "versioned": True}, "with sink.version nothing"),
    ],
)
def test_what_a_function_must_not_give(
    step: Any, function: str, more: dict[str, Any], said: str
) -> None:
    """Rows that nobody can place, other types than the schema's, and what a key forbids."""
    with pytest.raises(SpecError, match=said):
        apply(step(function, **more), decoded(ROWS))


def test_what_is_told_before_anything_is_read(step: Any) -> None:
    """A function that doesn't say which batch it takes, or not so that it can be read, and a
    schema without the key.
    """
    for function, why in {
        "unsaid": r"\. Annotate",
        "hidden": r"\(NameError: name 'polars' is not defined\)",
        "bound": r"\(TypeError: ",
    }.items():
        with pytest.raises(SpecError, match=f"{function} doesn't say which batch it takes ?{why}"):
            step(function).columns(THINGS)
    with pytest.raises(SpecError, match=r"has text of sink\.primary_key otherwise"):
        step("upper", primary_key=("text",)).columns(THINGS)


def test_a_batch_that_fails_though_no_row_does(step: Any) -> None:
    """It ends the window with the sentence, for there is no message to refuse."""
    with pytest.raises(RefusedError, match="raised ValueError at ") as refused:
        apply(step("crowd", on_error="dead"), decoded(ROWS))
    assert "secret" not in str(refused.value)


def test_the_steps_own_column_is_not_taken(step: Any) -> None:
    """Rows with a column `_row`, or a metadata column of that name, are refused."""
    taken = Columns((*THINGS.columns, Column("_row", pa.int64(), nullable=True)))
    with pytest.raises(SpecError, match="the rows have a column _row"):
        step("upper").columns(taken)
    with pytest.raises(SpecError, match="the rows have a column _row"):
        step("upper", metadata=(("offset", "_row"),)).columns(THINGS)


def test_what_is_left_out_is_deleted(step: Any) -> None:
    """In a table with a primary key."""
    found = apply(step("odd", primary_key=("id",)), decoded(ROWS))
    assert found.rows["id"].to_pylist() == [1, 3, 5]
    assert found.deletes is not None
    assert found.deletes.keys["id"].to_pylist() == [2, 4]
    assert columns_of(found.rows).columns[0].name == "id"
