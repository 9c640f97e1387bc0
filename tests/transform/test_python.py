"""The `python` step: a user's function of batches of rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.user_code import (
    FunctionReference,
    ModelReference,
    load_function,
    load_model,
)
from windrow.ingest.testing.contracts.transform import (
    Before,
    TransformContract,
    apply,
    messages_for,
)
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
MORE = """\
import asyncio
import random as chance
import time
import uuid

import pandera.polars as pa
import polars as pl
import pyarrow as arrow

CALLS, SAID, COIN = [], [], chance.Random(1)


class Tagged(pa.DataFrameModel):
    tags: pl.List(pl.Struct({"key": pl.String, "value": pl.String})) = pa.Field(nullable=True)
    deep: pl.Struct({"tags": pl.List(pl.Struct({"key": pl.String, "value": pl.Int64}))})
    mapped: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pa.Field(
        nullable=True, metadata={"map": True}
    )

def upside_down(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.reverse().select("id", name="text")


def by_text(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("text", descending=True).drop("_row").rename({"text": "name"})


def rotated(rows: arrow.RecordBatch) -> arrow.RecordBatch:
    places = [*range(1, rows.num_rows), 0]
    return rows.select(["id", "text"]).take(arrow.array(places)).rename_columns(["id", "name"])


def dealt(rows: pl.DataFrame) -> pl.DataFrame:
    seed = COIN.randrange(10**6)
    return rows.select("id", name="text").sample(fraction=1, shuffle=True, seed=seed)


def filled(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.col("text").forward_fill())


def back_again(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("text").sort("_row").select("id", name="text")


def random(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.Series([uuid.uuid4().hex for _ in range(rows.height)]))


def coin(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.Series(COIN.choices(["heads", "tails"], k=rows.height)))


def rarely(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.Series(COIN.choices("ab", [9, 1], k=rows.height)))


def stamped(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.lit(str(time.time_ns() // 10**7)))


def random_and_moved(rows: pl.DataFrame) -> pl.DataFrame:
    return random(rows.reverse())


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    CALLS.append(rows.height)
    if len(CALLS) == 6:
        raise ValueError("secret")
    return rows.select("id", name="text")


def heard(rows: pl.DataFrame) -> pl.DataFrame:
    assert SAID[0].wait(60)
    return rows.rename({"text": "name"})


def panics(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["text"] == "secret").any():
        raise pl.exceptions.PanicException("secret")
    return rows.rename({"text": "name"})


def cancelled(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["text"] == "secret").any():
        raise asyncio.CancelledError("secret")
    return rows.rename({"text": "name"})


def one_too_far(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(_row=pl.col("_row") + 1).rename({"text": "name"})


def untyped(rows: pl.DataFrame) -> pl.DataFrame:
    no = pl.Series([None] * rows.height)
    empty = pl.Series([[]] * rows.height)
    return pl.DataFrame({"id": rows["id"], "name": no, "tags": empty, "mapped": empty}).select(
        "tags", "mapped", deep=pl.struct(tags="tags")
    )


def nameless(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("id", name=pl.Series([None] * rows.height))


def as_lists(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def as_arrow(rows: arrow.RecordBatch) -> arrow.RecordBatch:
    return rows
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
    (tmp_path / "more.py").write_text(MORE)

    def make(function: str, **more: Any) -> Python:
        file = "odd.py" if f"{function}(" in ODD or function == "bound" else "code.py"
        file = "more.py" if f"{function}(" in MORE else file
        named = FunctionReference(f"{file}:{function}", tmp_path)
        return Python(named, ModelReference("code.py:Named", tmp_path), **more)

    return make


@pytest.fixture
def input_rows() -> Before:
    """Two rows of one message, and one of each other message."""
    return Before(THINGS, ROWS, (0, 0, 1, 2, 3))


class TestSame(TransformContract):
    """A polars function that returns a row for each row."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("upper")  # type: ignore[no-any-return]


class TestFewer(TransformContract):
    """An Arrow function that leaves out rows."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("odd")  # type: ignore[no-any-return]


class TestMore(TransformContract):
    """A function that returns several rows for a row."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("twice")  # type: ignore[no-any-return]


class TestDead(TransformContract):
    """A function that raises for some rows."""

    @pytest.fixture
    def transform(self, step: Any) -> Transform:
        return step("picky", on_error="dead")  # type: ignore[no-any-return]


def test_metadata_columns_are_there(step: Any) -> None:
    """The function sees the requested metadata columns, and needn't return them."""
    placed = step("placed", metadata=(("topic", "_topic"), ("offset", "_offset")))
    output_rows = apply(placed, decoded(ROWS)).rows
    assert output_rows["name"].to_pylist() == [f"t@{n}" for n in range(5)]
    assert output_rows.schema.names == ["id", "name"]


def test_an_exception_fails_the_window_with_its_place(step: Any) -> None:
    """An exception fails the window with the function, line, topic-partition and offsets.

    No value is in the error.
    """
    with pytest.raises(RefusedError) as refused:
        apply(step("picky", setting="transform.steps.0"), decoded(ROWS))
    assert "code.py:picky of transform.steps.0 raised ValueError at " in refused.value.message
    assert refused.value.message.endswith("code.py:28 for a batch of the offsets 0 to 4")
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == ("t", 0, 0)
    assert "secret" not in str(refused.value)


def test_an_exception_can_be_a_dead_letter(step: Any) -> None:
    """With `on_error: dead` only the message for which the function raises is a dead letter."""
    output = apply(step("picky", on_error="dead"), decoded(ROWS))
    assert output.rows["id"].to_pylist() == [1, 2, 3, 5]
    assert [(index, stage) for index, stage, _ in dead(output)] == [(3, "rules")]
    assert output.dead_reason.to_pylist() == ["python:ValueError"]
    assert "secret" not in output.dead_detail[0].as_py()
    exit_output = apply(step("leaves", on_error="dead"), decoded(ROWS))
    assert exit_output.dead_reason.to_pylist() == ["python:SystemExit"]
    for function, kind in {"panics": "PanicException", "cancelled": "CancelledError"}.items():
        raised = apply(step(function, on_error="dead"), decoded(ROWS))
        assert raised.dead_reason.to_pylist() == [f"python:{kind}"]
        assert "secret" not in raised.dead_detail[0].as_py()
        with pytest.raises(RefusedError, match=f"raised {kind} at ") as refused:
            apply(step(function), decoded(ROWS))
        assert "secret" not in str(refused.value)
    single_output = apply(step("picky", on_error="dead"), decoded(ROWS.slice(3, 1)))
    assert (single_output.rows.num_rows, single_output.dead_index.to_pylist()) == (0, [0])


@pytest.mark.parametrize(
    ("function", "more", "message"),
    [
        ("fewer", {}, "it gives 1 row for 5, without _row"),
        ("wrong", {}, "name is binary, by its schema string"),
        ("shuffled", {}, "_row has other numbers than it was given, or another order"),
        ("unsigned", {}, "_row has other numbers than it was given, or another order"),
        ("one_too_far", {}, "_row has other numbers than it was given, or another order"),
        ("upside_down", {}, "gives other values of id, name if the rows come in another order"),
        ("upside_down", {"on_error": "dead"}, "keep _row with each row that it moves"),
        ("by_text", {}, "gives other values of id, name if the rows come in another order"),
        ("rotated", {}, "gives other values of id, name if the rows come in another order"),
        ("dealt", {}, "gives other values of id, name if the rows come in another order"),
        ("random_and_moved", {}, "gives other values of id if the rows come in another order"),
        ("filled", {}, "gives other values of name if the rows come in another order"),
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
    step: Any, function: str, more: dict[str, Any], message: str
) -> None:
    """A function must not return rows without an order, other types, or a changed key."""
    with pytest.raises(SpecError, match=message):
        apply(step(function, **more), decoded(ROWS))


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_rows_show_that_they_are_moved(step: Any, count: int) -> None:
    """A reordering is detected in small batches too.

    Two rows have only one other order, and some functions reorder in the same way.
    """
    for function in ("by_text", "upside_down", "rotated")[: 1 if count == 2 else 3]:
        with pytest.raises(SpecError, match="if the rows come in another order"):
            apply(step(function), decoded(ROWS.slice(0, count)))


@pytest.mark.parametrize("function", ["upper", "back_again", "random"])
def test_a_row_for_each_row_needs_no_number(step: Any, function: str) -> None:
    """A function that returns a row for each row needs no `_row`, even if its values are random."""
    assert apply(step(function), decoded(ROWS)).rows["id"] == ROWS["id"]


@pytest.mark.parametrize("function", ["coin", "rarely", "stamped", "random"])
def test_values_by_chance_are_no_order(step: Any, function: str) -> None:
    """Random values aren't taken for a reordering.

    In small batches they are sometimes equal twice, and sometimes exchanged.
    """
    for number in range(100):
        rows = ROWS.slice(0, 2 + number % 3)
        assert apply(step(function), decoded(rows)).rows["id"] == rows["id"]


def test_a_function_is_asked_about_its_order_once_a_split(step: Any) -> None:
    """A function's order is checked once in a split, in the first batch of more than two rows.

    A swap of two rows doesn't show everything. If the check fails by an exception, it is
    repeated in the next batch. One row has no other order.
    """
    counted = step("counted")
    opened, calls = counted.open(), load_function(counted.function).__globals__["CALLS"]
    for batch in (ROWS.slice(0, 1), ROWS.slice(0, 2), ROWS, ROWS, ROWS):
        assert opened(decoded(batch), messages_for(decoded(batch))).rows["id"] == batch["id"]
    assert calls == [1, 2, 2, 2, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("function", ["as_lists", "as_arrow"])
def test_keys_and_values_are_a_list_unless_the_schema_says_map(step: Any, function: str) -> None:
    """A list of `key` and `value` structs stays a list, unless the model says map.

    This holds at any depth. A map with a null key is refused.
    """
    model = ModelReference("more.py:Tagged", step(function).model.folder)
    schema = Columns.of(load_model(model)).arrow_schema
    input_columns = {
        "tags": [[{"key": "a", "value": "x"}, {"key": "a", "value": None}], None, []],
        "deep": [{"tags": [{"key": "b", "value": 1}]}, {"tags": None}, {"tags": []}],
        "mapped": [[("c", 1)], None, [("d", None), ("e", 2)]],
    }
    rows = pa.RecordBatch.from_pydict(input_columns, schema=schema)
    tagged_step = replace(step(function), model=model)
    assert apply(tagged_step, decoded(rows)).rows.to_pydict() == input_columns
    ints = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    null = pa.array([[{"key": None, "value": 1}]] * 3, ints)
    with pytest.raises(SpecError, match="mapped has a null as an entry or a key"):
        apply(tagged_step, decoded(rows.set_column(2, "mapped", null)))


def test_what_has_no_value_in_a_batch_has_any_type(step: Any) -> None:
    """A column with only nulls or empty lists may have any type.

    A function can't know its type, and other batches may have values.
    """
    assert apply(step("nameless"), decoded(ROWS)).rows["name"].to_pylist() == [None] * 5
    tagged = replace(
        step("untyped"), model=ModelReference("more.py:Tagged", step("untyped").model.folder)
    )
    rows = apply(tagged, decoded(ROWS.slice(0, 1))).rows
    assert rows.to_pylist() == [{"tags": [], "deep": {"tags": []}, "mapped": []}]


def test_a_function_that_hangs_is_named(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A slow function is logged with its name, its step and the number of rows."""
    hearing_step, was_logged = step("heard", setting="transform.steps.1"), threading.Event()
    load_function(hearing_step.function).__globals__["SAID"].append(was_logged)
    caplog.handler.addFilter(lambda _: was_logged.set() or True)  # type: ignore[func-returns-value]
    apply(hearing_step, decoded(ROWS))
    assert caplog.messages[0] == "Waiting for more.py:heard of transform.steps.1: 5 rows"


def test_what_is_told_before_anything_is_read(step: Any) -> None:
    """A function without a readable annotation of its batch raises SpecError.

    This happens before anything is read.
    """
    for function, message in {
        "unsaid": r"\. Annotate",
        "hidden": r"\(NameError: name 'polars' is not defined\)",
        "bound": r"\(TypeError: ",
    }.items():
        with pytest.raises(
            SpecError, match=f"{function} doesn't say which batch it takes ?{message}"
        ):
            step(function).columns(THINGS)
    with pytest.raises(SpecError, match=r"has text of sink\.primary_key otherwise"):
        step("upper", primary_key=("text",)).columns(THINGS)


def test_a_batch_that_fails_though_no_row_does(step: Any) -> None:
    """A batch that fails although each row alone succeeds fails the window.

    There is no message to refuse.
    """
    with pytest.raises(RefusedError, match="raised ValueError at ") as refused:
        apply(step("crowd", on_error="dead"), decoded(ROWS))
    assert "secret" not in str(refused.value)


def test_the_steps_own_column_is_not_taken(step: Any) -> None:
    """Rows with a column `_row`, or a metadata column of that name, are refused."""
    clashing_columns = Columns((*THINGS.columns, Column("_row", pa.int64(), nullable=True)))
    with pytest.raises(SpecError, match="the rows have a column _row"):
        step("upper").columns(clashing_columns)
    with pytest.raises(SpecError, match="the rows have a column _row"):
        step("upper", metadata=(("offset", "_row"),)).columns(THINGS)


def test_what_is_left_out_is_deleted(step: Any) -> None:
    """A row that the function leaves out is deleted in a table with a primary key."""
    output = apply(step("odd", primary_key=("id",)), decoded(ROWS))
    assert output.rows["id"].to_pylist() == [1, 3, 5]
    assert output.deletes is not None
    assert output.deletes.keys["id"].to_pylist() == [2, 4]
    assert columns_of(output.rows).columns[0].name == "id"
