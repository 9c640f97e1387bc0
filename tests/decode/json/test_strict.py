"""Strict JSON, line by line of the table in the design: one message at a time."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pandera.polars as pp
import polars as pl
import pytest

from ingest.decode.json.strict import MAX_DEPTH, Strict
from ingest.decode.json.values import RefusedValueError
from ingest.schema.columns import Columns
from tests.decode.json.models import Nested, Scalars

SCALARS = Strict(Columns.of(Scalars), "ignore")
NAMES = [c.name for c in Columns.of(Scalars).columns]
NESTED = Strict(Columns.of(Nested), "ignore")
JSON = {"str": '"a"', "int": "7", "float": "1.5", "bool": "true", "object": "{}", "array": "[]"}
TAKES = {
    "id": {"int"}, "tiny": {"int"}, "quantity": {"int"}, "amount": {"int", "float"}, "single": {"int", "float"}, "name": {"str"},
    "paid": {"bool"},
    "price": {"int", "float", "str"}, "at": {"str"}, "ms": {"int"}, "day": {"str"}, "place": {"object"},
}  # fmt: skip


def take(name: str, literal: str) -> Any:
    """The value of one column."""
    text = f'{{"{name}":{literal}}}' if name == "id" else f'{{"id":1,"{name}":{literal}}}'
    return SCALARS.decode(text.encode())[NAMES.index(name)]


def refusal(message: bytes | str, strict: Strict = SCALARS) -> tuple[str, str]:
    """Reason and detail."""
    with pytest.raises(RefusedValueError) as caught:
        strict.decode(message if isinstance(message, bytes) else message.encode())
    return caught.value.reason, caught.value.detail


def refused(name: str, literal: str) -> str:
    """The reason for one column."""
    return refusal(f'{{"id":1,"{name}":{literal}}}' if name != "id" else f'{{"id":{literal}}}')[0]


@pytest.mark.parametrize(("column", "kind"), [(column, kind) for column, takes in TAKES.items() for kind in JSON if kind not in takes])
def test_each_wrong_type_is_refused_with_its_path(column: str, kind: str) -> None:
    """Nothing is cast: the detail says what was expected, what came and where."""
    reason, detail = refusal(f'{{"id":1,"{column}":{JSON[kind]}}}' if column != "id" else f'{{"id":{JSON[kind]}}}')
    assert reason == "wrong_type"
    assert f"got {kind} - at $.{column}" in detail


@pytest.mark.parametrize(
    ("column", "literal", "value"),
    [
        ("id", "-9223372036854775808", -(2**63)), ("id", "9223372036854775807", 2**63 - 1), ("id", "-0", 0), ("tiny", "-128", -128),
        ("quantity", "2147483647", 2147483647),
        ("amount", "9007199254740992", 2.0**53), ("amount", "-9007199254740992", -(2.0**53)), ("amount", "1e2", 100.0),
        ("amount", "5", 5.0), ("single", "16777216", 2.0**24),
        ("name", '"\\u00e9\\u0000\\ud83d\\ude00"', "é\0😀"), ("price", "12.34", Decimal("12.34")), ("price", '"12.34"', Decimal("12.34")),
        ("price", "12.340", Decimal("12.34")),
        ("price", "1234e-2", Decimal("12.34")), ("price", "-0.00", Decimal(0)), ("price", "99999999.99", Decimal("99999999.99")),
        ("units", "12345678901234567890", Decimal(12345678901234567890)),
        ("units", "1e19", Decimal(10**19)), ("at", '"1970-01-01T00:00:01Z"', 1_000_000),
        ("at", '"1970-01-01T05:30:00.25+05:30"', 250_000), ("at", '"1969-12-31t23:00:00-01:00"', 0),
        ("at", '"1970-01-01T00:00:00.123456000Z"', 123_456), ("at", '"0001-01-01T00:00:00Z"', -62_135_596_800_000_000),
        ("ms", "1", 1_000), ("ms", "-1", -1_000),
        ("day", '"2024-02-29"', date(2024, 2, 29)), ("name", "null", None), ("place", "null", None),
    ],
)  # fmt: skip
def test_exact_values_are_taken(column: str, literal: str, value: object) -> None:
    """What fits is taken as it is."""
    taken = take(column, literal)
    assert (taken, type(taken)) == (value, type(value))


@pytest.mark.parametrize(
    ("column", "literal", "reason"),
    [
        ("id", "2.0", "wrong_type"), ("id", "2.7", "wrong_type"), ("id", "1e2", "wrong_type"),
        ("id", "9223372036854775808", "out_of_range"), ("tiny", "128", "out_of_range"),
        ("quantity", "-2147483649", "out_of_range"), ("amount", "9007199254740993", "out_of_range"),
        ("amount", "123456789012345678901", "out_of_range"),
        ("amount", "1e400", "out_of_range"), ("single", "16777217", "out_of_range"), ("single", "3.5e38", "out_of_range"),
        ("price", "12.345", "out_of_range"),
        ("price", '"100000000.00"', "out_of_range"), ("price", "1e999999999999", "out_of_range"), ("price", "1e-400", "out_of_range"),
        ("price", '"12,34"', "wrong_format"),
        ("price", '" 1"', "wrong_format"), ("price", '"NaN"', "wrong_format"), ("price", '"1_0"', "wrong_format"),
        ("price", '"\u0661"', "wrong_format"),
        ("at", '"2024-01-01T00:00:00"', "wrong_format"), ("at", '"2024-01-01 00:00:00Z"', "wrong_format"),
        ("at", '"2024-01-01"', "wrong_format"), ("at", '"2023-02-29T00:00:00Z"', "out_of_range"),
        ("at", '"2024-01-01T24:00:00Z"', "out_of_range"), ("at", '"2024-01-01T23:59:60Z"', "out_of_range"),
        ("at", '"2024-01-01T00:00:00.1234567Z"', "out_of_range"),
        ("at", '"2024-01-01T00:00:00+24:00"', "out_of_range"), ("at", '"0001-01-01T00:00:00+01:00"', "out_of_range"),
        ("at", "1", "wrong_type"), ("ms", '"2024-01-01T00:00:00Z"', "wrong_type"),
        ("ms", "1.0", "wrong_type"), ("ms", "253402300800000", "out_of_range"), ("day", '"2023-02-29"', "out_of_range"),
        ("day", '"20240229"', "wrong_format"),
        ("day", '"2024-02-29T00:00:00Z"', "wrong_format"), ("id", "null", "missing"),
    ],
)  # fmt: skip
def test_inexact_values_are_refused(column: str, literal: str, reason: str) -> None:
    """Nothing is rounded, truncated or guessed."""
    assert refused(column, literal) == reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "not_json"), (b" ", "not_json"), (b'\xef\xbb\xbf{"id":1}', "not_json"), (b'{"id":1} x', "not_json"),
        (b'{"id":1}{"id":2}', "not_json"), (b'{"id":1}\n{"id":2}', "not_json"),
        (b'{"id":1}\x00', "not_json"), (b'{"id":NaN}', "not_json"), (b'{"id":1,"more":-Infinity}', "not_json"),
        (b'{"id":1,}', "not_json"), (b'{"id":01}', "not_json"), (b"{'id':1}", "not_json"),
        (b'{"id":1,"more":"\t"}', "not_json"), (b'{"id":1,"more":"\\ud800"}', "not_json"), (b'{"id":1,"\\udc00":1}', "not_json"),
        (b'{"id":1}\xff', "invalid_utf8"),
        (b'{"id":1,"name":"\xed\xa0\x80"}', "invalid_utf8"), (b"\xff\xfe{\x00}\x00", "invalid_utf8"),
        (b'{"id":1,"id":1}', "duplicate_key"), (b'{"id":1,"\\u0069d":2}', "duplicate_key"),
        (b'{"id":1,"more":1,"more":2}', "duplicate_key"), (b'{"id":1,"more":[{"a":1,"a":2}]}', "duplicate_key"), (b"null", "wrong_type"),
        (b"[]", "wrong_type"), (b"1", "wrong_type"),
        (b"{}", "missing"), (b'{"ID":1}', "missing"),
    ],
)  # fmt: skip
def test_documents_that_are_none_are_refused(message: bytes, reason: str) -> None:
    """Syntax, encoding and duplicate keys, wherever they are in the message."""
    assert refusal(message)[0] == reason


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ('{"id":1,"place":{"zip":"7"}}', "Expected int, got str - at $.place.zip"),
        ('{"id":1,"place":{"geo":{"lat":true}}}', "Expected float, got bool - at $.place.geo.lat"),
        ('{"id":1,"place":{"city":"x","city":"y"}}', "Object holds the key `city` more than once - at $.place"),
        ('{"id":1,"more":{"secret":1,"secret":2}}', "Object holds the key more than once - at $[...]"),
    ],
)
def test_the_detail_gives_the_path_inside_structs(message: str, detail: str) -> None:
    """Names of the schema only: others may be data."""
    assert refusal(message)[1] == detail


def test_lists_and_maps_are_taken() -> None:
    """The same rules inside; nulls inside are nulls."""
    message = b'{"id":1,"tags":["a",null],"lines":[{"sku":"s","price":1.50},null,{}],"stock":{"x":1,"y":null}}'
    lines = [{"sku": "s", "price": Decimal("1.5")}, None, {"sku": None, "price": None}]
    assert NESTED.decode(message) == [1, ["a", None], lines, [("x", 1), ("y", None)]]


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ('"tags":["a",1]', "Expected str, got int - at $.tags[1]"), ('"tags":{}', "Expected array, got object - at $.tags"),
        ('"tags":"a"', "Expected array, got str - at $.tags"),
        ('"lines":[{"price":1},{"price":[]}]', "Expected decimal, got array - at $.lines[1].price"),
        ('"stock":{"secret":"x"}', "Expected int, got str - at $.stock[...]"),
        ('"stock":[]', "Expected object, got array - at $.stock"),
        ('"stock":{"x":1,"x":2}', "Object holds the key more than once - at $.stock"),
    ],
)  # fmt: skip
def test_the_detail_gives_the_path_inside_lists_and_maps(field: str, detail: str) -> None:
    """Positions in lists; the keys of a map are data and aren't shown."""
    assert refusal(f'{{"id":1,{field}}}', NESTED)[1] == detail


@pytest.mark.parametrize("message", ['{"id":1,"more":2}', '{"id":1,"place":{"more":1}}', '{"id":1,"place":{"geo":{"more":1}}}'])
def test_unknown_fields(message: str) -> None:
    """Ignored, or refused at any depth of the schema."""
    assert SCALARS.decode(message.encode())[0] == 1
    assert refusal(message, Strict(Columns.of(Scalars), "dead"))[0] == "unknown_field"


def test_unknown_fields_inside_lists_and_maps() -> None:
    """Also there."""
    strict = Strict(Columns.of(Nested), "dead")
    assert refusal('{"id":1,"lines":[{},{"more":1}]}', strict) == (
        "unknown_field",
        "Object holds a field that the schema doesn't name - at $.lines[1]",
    )
    assert strict.decode(b'{"id":1,"stock":{"any":1}}')[0] == 1


def test_unknown_fields_inside_a_map_of_structs() -> None:
    """A map's keys are data, the fields of its values are the schema's."""

    class Shops(pp.DataFrameModel):
        shops: pl.List(pl.Struct({"key": pl.String, "value": pl.Struct({"n": pl.Int64})})) = pp.Field(metadata={"map": True})

    strict = Strict(Columns.of(Shops), "dead")
    assert strict.decode(b'{"shops":{"a":{"n":1}}}') == [[("a", {"n": 1})]]
    assert refusal('{"shops":{"a":{"n":1},"b":{"more":1}}}', strict) == (
        "unknown_field",
        "Object holds a field that the schema doesn't name - at $.shops[...]",
    )


def test_depth_is_counted_not_recursed() -> None:
    """100,000 brackets are a refusal, as is a little more than the limit; brackets in strings don't count."""
    for message in (b"[" * 100_000, b'{"id":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' * 100_000):
        assert refusal(message)[0] == "too_deep"
    assert refusal(b'{"id":1,"more":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")[0] == "too_deep"
    deepest = b'{"id":1,"more":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b',"name":"' + b"[" * 200 + b'"}'
    assert SCALARS.decode(deepest)[0] == 1


@pytest.mark.parametrize(("column", "end"), [("id", ""), ("amount", ""), ("price", ""), ("price", ".5"), ("ms", ""), ("at", "")])
def test_numbers_of_ten_million_digits_are_refused(column: str, end: str) -> None:
    """They are never turned into Python integers, which takes quadratic time."""
    assert refused(column, "9" * 10_000_000 + end) in {"out_of_range", "wrong_type"}


def test_no_detail_shows_a_value() -> None:
    """Not even where the refused value is a key, a number or a piece of broken text."""
    secrets = [
        '{"id":"hunter2"}',
        '{"id":1,"price":"hunter2"}',
        '{"id":1,"at":"hunter2"}',
        '{"hunter2":1,"hunter2":2}',
        '{"id":hunter2}',
        "hunter2",
        '{"id":1,"place":{"zip":"hunter2"}}',
    ]
    assert all("hunter2" not in refusal(message)[1] for message in secrets)


def test_a_column_named_like_another_ones_path() -> None:
    """`a.b` is a name, not a path."""

    class Dotted(pp.DataFrameModel):
        x: pl.Int64 = pp.Field(alias="a.b", nullable=True)
        a: pl.Struct({"b": pl.Int64}) = pp.Field(nullable=True)

    strict = Strict(Columns.of(Dotted), "ignore")
    assert strict.decode(b'{"a":{"b":1}}') == [None, {"b": 1}]
    assert strict.decode(b'{"a.b":2}') == [2, None]
