"""Transforms in sequence change columns and numbers of rows, and account for each message."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.delta.pieces import delta_pieces
from tests.transform.small import Explode, Only, Rename
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.transform import Apply, Transform
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.transform import (
    Before,
    TransformContract,
    apply,
    messages_for,
)
from windrow.ingest.testing.contracts.with_dead_letters import read_dead
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader
from windrow.ingest.transform.chain import Chain, columns_after
from windrow.ingest.transform.validate import Validate

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = Window("carts", START, START + timedelta(hours=1))
TP = TopicPartition("shop.carts", 0)
SCHEMAS = """\
import pandera.polars as pa
import polars as pl


class Cart(pa.DataFrameModel):
    cart: pl.Int64 = pa.Field(ge=0)
    prices: pl.List(pl.Int64) = pa.Field(nullable=True)


class Line(pa.DataFrameModel):
    cart: pl.Int64
    price: pl.Int64 = pa.Field(le=100)
"""
CARTS = Columns(
    (
        Column("cart", pa.int64(), nullable=False),
        Column("prices", pa.list_(pa.int64()), nullable=True),
    )
)


@pytest.fixture
def input_rows() -> Before:
    """Rows of carts: three of one message, two of another, and one of each other message."""
    prices = [[1, 20], [], None, [3], [40, None], [5, 60], [70], None]
    rows = [pa.array(range(len(prices)), pa.int64()), pa.array(prices, pa.list_(pa.int64()))]
    return Before(
        CARTS, pa.RecordBatch.from_arrays(rows, schema=CARTS.arrow_schema), (0, 0, 0, 1, 2, 3, 3, 5)
    )


class TestExplode(TransformContract):
    """Several rows or none for a row."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Explode("prices")


class TestOnly(TransformContract):
    """Fewer rows."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Only("cart", 2)


class TestRename(TransformContract):
    """Other columns."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Rename("prices", "all prices")


class TestNone(TransformContract):
    """An empty chain."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Chain()


class TestChain(TransformContract):
    """All transforms in sequence, with the rules of a model last."""

    @pytest.fixture
    def transform(self, tmp_path: Path) -> Transform:
        (tmp_path / "schemas.py").write_text(SCHEMAS.replace("le=100", "le=50"))
        return Chain(
            (
                Explode("prices"),
                Rename("prices", "price"),
                Only("price", 2),
                Validate(ModelReference("schemas.py:Line", tmp_path)),
            )
        )


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (Rename("prices", "CART"), "'cart' and 'CART' differ by case only, and tables don't tell"),
        (Rename("prices", "cart"), "'cart' comes twice"),
        (Rename("prices", ""), "'' is not a name"),
    ],
)
def test_names_are_looked_at_behind_each_step(second: Transform, message: str) -> None:
    """Names that differ by case only are refused after the step that makes them.

    A later step that removes one of them could take the other one's values.
    """
    with pytest.raises(SpecError, match=re.escape(message)) as refused:
        Chain((Only("cart", 2), second, Rename("CART", "price"))).columns(CARTS)
    assert "tests.transform.small.Rename can't be used" in str(refused.value)


@pytest.mark.parametrize(
    "nested", [pa.list_, lambda kind: pa.map_(pa.string(), kind), pa.large_list]
)
def test_names_within_structs_are_looked_at(nested: Any) -> None:
    """Fields of a struct that differ by case only are refused, at any depth."""
    kind = nested(pa.struct([("a", pa.int64()), ("A", pa.int64())]))
    input_columns = Columns((Column("s", pa.struct([("in", kind)]), nullable=True),))
    with pytest.raises(SpecError, match="'a' and 'A' differ by case only"):
        columns_after(Only("s", 2), input_columns)


@dataclass(frozen=True)
class Noting:
    """A transform that records its calls."""

    name: str
    noted: list[str]

    def columns(self, input_columns: Columns) -> Columns:
        self.noted.append(f"columns {self.name}")
        return input_columns

    def open(self) -> Apply:
        self.noted.append(f"open {self.name}")
        return lambda decoded, _: self.noted.append(self.name) or decoded  # type: ignore[func-returns-value]


def test_a_chain_goes_from_first_to_last(input_rows: Before) -> None:
    """A chain applies its transforms in order, to columns and to rows.

    Each transform is opened once, not for each batch.
    """
    noted: list[str] = []
    chain = Chain((Noting("a", noted), Noting("b", noted)))
    chain.columns(CARTS)
    step = chain.open()
    messages = messages_for(input_rows.decoded())
    step(step(input_rows.decoded(), messages), messages)
    assert noted == ["columns a", "columns b", "open a", "open b", "a", "b", "a", "b"]


def test_rows_of_a_message_that_fail_take_it_with_them(input_rows: Before, tmp_path: Path) -> None:
    """A message whose row fails is refused for its first failing row, with all its rows.

    A null is refused if the rules allow none.
    """
    (tmp_path / "schemas.py").write_text(SCHEMAS.replace("le=100", "le=50"))
    chain = Chain(
        (
            Explode("prices"),
            Rename("prices", "price"),
            Validate(ModelReference("schemas.py:Line", tmp_path)),
        )
    )
    output = apply(chain, input_rows.decoded())
    assert list(
        zip(output.row_index.to_pylist(), output.rows["price"].to_pylist(), strict=True)
    ) == [
        (1, 1),
        (1, 20),
        (3, 3),
    ]
    dead_letters = list(
        zip(
            output.dead_index.to_pylist(),
            output.dead_reason.to_pylist(),
            output.dead_detail.to_pylist(),
            strict=True,
        )
    )
    assert dead_letters[1:3] == [
        (5, "check:price:not_nullable", "Failed not_nullable - at $.price"),
        (7, "check:price:less_than_or_equal_to", "Failed less_than_or_equal_to(50) - at $.price"),
    ]
    assert (output.dead_stage.to_pylist(), output.filtered) == (
        ["value", "rules", "rules", "value"],
        2,
    )


# --------------------------------------------------------------------------------------------------


def pipeline(folder: Path, transform: Transform | None, *carts: bytes) -> Pipeline:
    """Returns the pipeline of a spec with this transform, on a topic in memory."""
    (folder / "schemas.py").write_text(SCHEMAS)
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    for i, value in enumerate(carts):
        broker.produce(TP, value, timestamp=START + timedelta(seconds=i))
    attributes = {
        "id": "carts",
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TP.topic},
        "window": {"grid": "hourly", "start": START},
        "decode": {"schema": "schemas.py:Cart"},
        "sink": {"path": str(folder / "table")},
        "state": str(folder / "state.db"),
        "metadata": {"ordinal": "_ordinal", "timestamp": "none"},
        "limits": {"max_dead_ratio": 1.0},
    }
    assembled = assemble(parse_spec(attributes, folder), LocalEngine(), transform)
    return replace(assembled, broker=broker, reader=partial(MemoryReader, broker, rows_max=2))


def table(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows in their stored order."""
    return [
        row
        for piece in delta_pieces(str(folder / "table"))
        for row in piece.drop(["_topic", "_partition", "_window"]).to_pylist()
    ]


def test_the_table_has_the_columns_that_the_chain_gives(tmp_path: Path) -> None:
    """The table has the columns and rows that the chain returns, with their rules and counts."""
    chain = Chain(
        (
            Explode("prices"),
            Only("prices", 10),
            Rename("prices", "price"),
            Validate(ModelReference("schemas.py:Line", tmp_path)),
        )
    )
    carts = [
        b'{"cart":1,"prices":[11,2,33]}',
        b'{"cart":2,"prices":[1]}',
        b'{"cart":3}',
        b'{"cart":4,"prices":[44,101]}',
        b"poison",
        b'{"cart":-5,"prices":[55]}',
    ]
    carts_pipeline = pipeline(tmp_path, chain, *carts)
    receipt = run(carts_pipeline, HOUR, Request("r")).committed.receipt
    assert table(tmp_path) == [
        {"cart": 1, "price": 11, "_offset": 0, "_ordinal": 0},
        {"cart": 1, "price": 33, "_offset": 0, "_ordinal": 1},
        {"cart": -5, "price": 55, "_offset": 5, "_ordinal": 0},
    ]
    counts = receipt.counts
    assert (counts.read, counts.valid, counts.rows, counts.dead, counts.filtered) == (6, 2, 3, 2, 2)
    assert receipt.schema == (("cart", "int64 not null"), ("price", "int64 not null"))
    dead = read_dead(carts_pipeline.sink, carts_pipeline.dead_letters, HOUR)
    assert (dead["_offset"].to_pylist(), dead["stage"].to_pylist()) == ([3, 4], ["rules", "value"])
    assert carts_pipeline.columns().columns[1].constraints == ("less_than_or_equal_to(100)",)


def test_without_a_transform_the_schemas_rules_hold(tmp_path: Path) -> None:
    """A spec without transforms applies the rules of its model."""
    carts_pipeline = pipeline(tmp_path, None, b'{"cart":1}', b'{"cart":-1}')
    counts = run(carts_pipeline, HOUR, Request("r")).committed.receipt.counts
    assert (counts.valid, counts.rows, counts.dead) == (1, 1, 1)
    assert [row["cart"] for row in table(tmp_path)] == [1]


def test_a_chain_that_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    """A chain that doesn't fit its columns raises SpecError before anything is read."""
    with pytest.raises(SpecError, match="no column price"):
        pipeline(tmp_path, Chain((Only("price", 1),)))
    with pytest.raises(
        SpecError, match="price: missing; prices: list<item: int64>, not in the schema"
    ):
        pipeline(tmp_path, Chain((Validate(ModelReference("schemas.py:Line", tmp_path)),)))
    turned = Columns(
        (Column("price", pa.int64(), nullable=False), Column("cart", pa.int64(), nullable=False))
    )
    with pytest.raises(SpecError, match="come in the order price, cart"):
        Validate(ModelReference("schemas.py:Line", tmp_path)).columns(turned)
