"""Columns of a model, and models that are refused."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any, ClassVar, Optional

import pandera as pandas_pandera
import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest

from tests.formats.json.models import Nested, Scalars
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.metadata_types import refuse_wrong


def make_model(annotation: Any, field: Any = None, **config: Any) -> Any:
    """Returns a model with one column `x`."""
    body: dict[str, Any] = {
        "__annotations__": {"x": annotation},
        "Config": type("Config", (), config),
        "__module__": __name__,
    }
    if field is not None:
        body["x"] = field
    return type("Made", (pp.DataFrameModel,), body)


def refused(model: Any) -> str:
    """Returns the text of the refusal."""
    with pytest.raises(SpecError) as caught:
        Columns.of(model)
    return str(caught.value)


def test_types_and_nullability_come_from_the_model() -> None:
    """Each polars type has one Arrow type, and only nullable columns may be null."""
    schema = Columns.of(Scalars).arrow_schema
    assert schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert schema.field("at").type == schema.field("ms").type == pa.timestamp("us", tz="UTC")
    assert schema.field("price").type == pa.decimal128(10, 2)
    assert schema.field("place").type.field("zip").type == pa.int16()
    assert [f.name for f in schema][-1] == "o'd\"d /~é.[0]"
    assert all(f.nullable for f in schema if f.name != "id")


def test_a_decimal_that_says_what_pandera_would_make_of_none_is_taken() -> None:
    """A written Decimal(28, 0) is accepted, although pandera makes the same of an empty Decimal."""
    assert Columns.of(make_model(pl.Decimal(28, 0))).columns[0].type == pa.decimal128(28, 0)


def test_lists_and_maps() -> None:
    """A list stays a list, and a list of key/value structs with `map` becomes a map."""
    schema = Columns.of(Nested).arrow_schema
    assert schema.field("tags").type == pa.list_(pa.string())
    assert schema.field("stock").type == pa.map_(pa.string(), pa.int64())
    assert pa.types.is_list(schema.field("lines").type)


def test_described_names_type_and_nullability() -> None:
    """`described` returns the names, types and nullability that a receipt records."""
    assert Columns.of(Scalars).described()[:2] == (("id", "int64 not null"), ("tiny", "int8"))


def test_descriptions_and_checks_are_kept_for_people() -> None:
    """A column has its description and the texts of its checks."""
    columns = Columns.of(make_model(pl.Int64, pp.Field(ge=0, description="how many")))
    assert (columns.columns[0].description, columns.columns[0].constraints) == (
        "how many",
        ("greater_than_or_equal_to(0)",),
    )


def test_columns_survive_pickling() -> None:
    """Columns can be pickled, because they travel to executors."""
    columns = Columns.of(Nested)
    assert pickle.loads(pickle.dumps(columns)) == columns


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (pl.UInt32, "no unsigned integers"),
        (pl.UInt64, "Decimal(20, 0)"),
        (pl.Categorical, "isin"),
        (pl.Enum(["a"]), "isin"),
        (pl.Object, "supported are"),
        (pl.Duration("us"), "Int64"),
        (pl.Time, "String"),
        (pl.Array(pl.Int8, 2), "List"),
        (pl.Datetime("us"), "Datetime('us', 'UTC')"),
        (pl.Datetime("ns", "UTC"), "Datetime('us', 'UTC')"),
        (pl.Datetime("us", "Europe/Paris"), "Datetime('us', 'UTC')"),
        (pl.Null, "supported are"),
        (pl.List(pl.UInt8), "no unsigned integers"),
        (pl.Struct({"a": pl.Int8, "A": pl.Int8}), "differ by case"),
        (pl.Struct({"a": pl.Time}), "String"),
        (pl.List, "List(String)"),
        (pl.Struct, "Struct({'city'"),
        (pl.Decimal, "Decimal(18, 2)"),
        (Decimal, "Decimal(18, 2)"),
        (pl.Decimal(5, 7), "Decimal(18, 2)"),
        (pl.Decimal(39, 2), "Decimal(18, 2)"),
        (pl.Decimal(0, 0), "Decimal(18, 2)"),
        (pl.Datetime, "Datetime('us', 'UTC')"),
        (pl.Array, "List"),
        (pl.Enum, "isin"),
        (pl.Duration, "Int64"),
        (list, "List(String)"),
        (pl.List(pl.List), "List(String)"),
        (pl.List(pl.Struct), "Struct({'city'"),
        (pl.List(pl.Decimal), "Decimal(18, 2)"),
        (pl.List(pl.Array), "List"),
        (pl.List(pl.Enum), "isin"),
        (pl.Struct({"a": pl.List}), "List(String)"),
        (pl.List(pl.Datetime), "UTC"),
        (pl.Struct({"a": pl.Decimal}), "Decimal(18, 2)"),
        (pl.Struct({"a": pl.Decimal(5, 7)}), "Decimal(18, 2)"),
        (pl.List(pl.Object), "supported are"),
    ],
)
def test_a_type_that_no_table_holds_is_refused(annotation: Any, message: str) -> None:
    """A type that no table holds raises SpecError with the column and a type to use."""
    text = refused(make_model(annotation))
    assert "x: " in text
    assert message in text


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pp.Field(unique=True), "unique"),
        (pp.Field(coerce=True), "coerce"),
        (pp.Field(regex=True), "regex"),
        (pp.Field(default=1), "default"),
        (pp.Field(ge=0, raise_warning=True), "raise_warning"),
        (pp.Field(metadata={"epoch": "ms"}), "epoch"),
        (pp.Field(metadata={"map": True}), "map"),
        (pp.Field(alias="a\x00b"), "control characters"),
    ],
)
def test_a_field_that_would_change_or_lose_data_is_refused(field: Any, message: str) -> None:
    """A field option that would be ignored, or that holds only within a batch, is refused."""
    assert message in refused(make_model(pl.Int64, field))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"unique": ["x"]}, "unique"),
        ({"coerce": True}, "coerce"),
        ({"add_missing_columns": True}, "add_missing_columns"),
        ({"drop_invalid_rows": True}, "drop_invalid_rows"),
        ({"dtype": pl.Int64}, "all columns at once"),
    ],
)
def test_a_config_that_would_change_or_lose_data_is_refused(
    config: dict[str, Any], message: str
) -> None:
    """A config option that would be ignored, or that holds only within a batch, is refused."""
    assert message in refused(make_model(pl.Int64, **config))


def test_a_field_that_pandera_leaves_out_is_a_mistake() -> None:
    """A field that pandera ignores because of its underscore is refused with the way out.

    The error has the name as written. Inherited fields are found, and a private constant is no
    field.
    """

    class Above(pp.DataFrameModel):
        _id: pl.Int64
        _limit: ClassVar[int] = 3

    class Event(Above):
        id: pl.Int64
        __deleted: pl.String = pp.Field(nullable=True)
        _op = pp.Field()
        _topic: pl.String

    text = refused(Event)
    for name in ("_id", "__deleted", "_op"):
        assert (
            f"{name}: pandera leaves out a field that is called so: call it otherwise, with"
            f' pa.Field(alias="{name}")' in text
        )
    assert "_limit" not in text
    renaming_advice = (
        "that is a metadata column's name, unless the spec renames it under metadata: do so, or"
    )
    assert f'pa.Field(alias="_topic"); {renaming_advice}' in text
    assert text.count(renaming_advice) == 1
    (column,) = Columns.of(make_model(pl.String, pp.Field(alias="_topic"))).columns
    with pytest.raises(SpecError, match="column _topic of the schema has the name of metadata"):
        refuse_wrong([column.name], DEFAULT)
    refuse_wrong([column.name], {**DEFAULT, "topic": "_of"})
    assert [
        column.name
        for column in Columns.of(make_model(pl.Int64, pp.Field(alias="__deleted"))).columns
    ] == ["__deleted"]


def test_an_unknown_epoch_unit_is_refused() -> None:
    """An unknown unit of `epoch` raises SpecError with the known units."""
    assert "one of s, ms, us, ns" in refused(
        make_model(pl.Datetime("us", "UTC"), pp.Field(metadata={"epoch": "ps"}))
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"zone": "Berlin"}, "must be the name of a time zone"),
        ({"zone": "../UTC"}, "must be the name of a time zone"),
        ({"zone": 1}, "must be the name of a time zone"),
        ({"zone": "UTC", "epoch": "s"}, "without metadata epoch"),
    ],
)
def test_a_zone_that_there_is_not(metadata: dict[str, Any], message: str) -> None:
    """An unknown zone, or a zone of a number, is refused; a known zone becomes the column's."""
    assert message in refused(make_model(pl.Datetime("us", "UTC"), pp.Field(metadata=metadata)))
    good = Columns.of(
        make_model(pl.Datetime("us", "UTC"), pp.Field(metadata={"zone": "Europe/Berlin"}))
    )
    assert [column.zone for column in good.columns] == ["Europe/Berlin"]


@pytest.mark.parametrize(
    ("annotation", "metadata", "message"),
    [
        (pl.Int64, {"aliases": "old"}, "must be a list of names"),
        (pl.Int64, {"aliases": [""]}, "must be a list of names"),
        (pl.Int64, {"aliases": ["x"]}, "which is a column's name or alias already"),
        (pl.Int64, {"aliases": ["a", "a"]}, None),
        (pl.Int8, {"default": 300}, "metadata default is no value of int8"),
        (pl.Int64, {"path": 5}, "metadata path must be names"),
        (pl.Int64, {"path": "a..b"}, "metadata path must be names"),
        (pl.Int64, {"path": []}, "metadata path must be names"),
        (pl.Int64, {"default": 1.5}, "metadata default is no value of int64"),
        (pl.Int64, {"default": "1"}, "no value of int64"),
        (pl.Decimal(9, 2), {"default": Decimal("1.005")}, "no value of decimal128(9, 2)"),
        (pl.List(pl.Int64), {"default": [1, None]}, None),
        (pl.String, {"default": None}, None),
    ],
)
def test_what_a_writers_schema_may_lack(
    annotation: Any, metadata: dict[str, Any], message: str | None
) -> None:
    """An alias must be no other name, and a default must be an exact value of its column.

    Both survive pickling.
    """
    model = make_model(annotation, pp.Field(metadata=metadata))
    if message is not None:
        assert message in refused(model)
        return
    (column,) = pickle.loads(pickle.dumps(Columns.of(model))).columns
    assert column.aliases == tuple(metadata.get("aliases", ()))
    assert (None if column.default is None else column.default.as_py()) == metadata.get("default")


def test_an_optional_column_is_refused() -> None:
    """An optional column is refused, because a row has every column."""
    assert "nullable=True" in refused(make_model(Optional[pl.Int64]))  # pandera's own spelling  # noqa: UP045


def test_parsers_are_refused() -> None:
    """Parsers are refused, because pandera's polars backend doesn't run them."""

    class Parsed(pp.DataFrameModel):
        x: pl.Int64

        @pandas_pandera.dataframe_parser
        def parse(cls, data: Any) -> Any:  # pandera's own form  # noqa: N805
            return data

    assert "parsers" in refused(Parsed)


def test_everything_is_reported_at_once() -> None:
    """All faults of a model are reported at once."""

    class Wrong(pp.DataFrameModel):
        a: pl.UInt8
        b: pl.Time
        B: pl.Int64 = pp.Field(unique=True)

    text = refused(Wrong)
    assert all(part in text for part in ("a: ", "b: ", "B: unique", "'b' and 'B' differ by case"))


def test_an_empty_model_is_refused() -> None:
    """A model without columns is refused."""
    assert "no columns" in refused(type("Empty", (pp.DataFrameModel,), {"__module__": __name__}))
