"""The strict JSON decoder, one message at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest

from tests.formats.json.documents import documents
from tests.formats.json.models import Nested, Scalars
from tests.formats.json.schemas import ENTRIES
from windrow.ingest.formats.json.strict import MAX_DEPTH, StrictJson
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading, Unknown
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP

SCALARS = Columns.of(Scalars)
NESTED = Columns.of(Nested)
NAMES = [c.name for c in SCALARS.columns]
JSON = {"str": '"a"', "int": "7", "float": "1.5", "bool": "true", "object": "{}", "array": "[]"}
TAKES = {
    "id": {"int"},
    "tiny": {"int"},
    "quantity": {"int"},
    "amount": {"int", "float"},
    "single": {"int", "float"},
    "name": {"str"},
    "paid": {"bool"},
    "price": {"int", "float", "str"},
    "at": {"str"},
    "ms": {"int", "float"},
    "day": {"str"},
    "place": {"object"},
}


def decode(
    message: bytes | str, columns: Columns = SCALARS, unknown: Unknown = "ignore"
) -> list[Any]:
    """Decodes a message with a decoder that is made inside the test.

    Mutation tests (`tests/mutants`) don't see decoders that are made at import.
    """
    return StrictJson(columns, Reading(unknown=unknown)).decode(
        message if isinstance(message, bytes) else message.encode()
    )


def take(name: str, literal: str) -> Any:
    """Returns the value of one column."""
    text = f'{{"{name}":{literal}}}' if name == "id" else f'{{"id":1,"{name}":{literal}}}'
    return decode(text)[NAMES.index(name)]


def refusal(
    message: bytes | str, columns: Columns = SCALARS, unknown: Unknown = "ignore"
) -> tuple[str, str]:
    """Returns the reason and the detail of a refusal."""
    with pytest.raises(RefusedValueError) as caught:
        decode(message, columns, unknown)
    return caught.value.reason, caught.value.detail


def refused(name: str, literal: str) -> str:
    """Returns the reason of the refusal of one column's value."""
    return refusal(f'{{"id":1,"{name}":{literal}}}' if name != "id" else f'{{"id":{literal}}}')[0]


@pytest.mark.parametrize(
    ("column", "kind"),
    [(column, kind) for column, takes in TAKES.items() for kind in JSON if kind not in takes],
)
def test_each_wrong_type_is_refused_with_its_path(column: str, kind: str) -> None:
    """A value of a wrong type is refused.

    The detail has the expected type, the found type and the path.
    """
    reason, detail = refusal(
        f'{{"id":1,"{column}":{JSON[kind]}}}' if column != "id" else f'{{"id":{JSON[kind]}}}'
    )
    assert reason == "wrong_type"
    assert f", got {kind}" in detail
    assert detail.endswith(f" - at $.{column}")


@pytest.mark.parametrize(
    ("column", "literal", "value"),
    [
        ("id", "-9223372036854775808", -(2**63)),
        ("id", "9223372036854775807", 2**63 - 1),
        ("id", "-0", 0),
        ("tiny", "-128", -128),
        ("quantity", "2147483647", 2147483647),
        ("amount", "9007199254740992", 2.0**53),
        ("amount", "-9007199254740992", -(2.0**53)),
        ("amount", "1e2", 100.0),
        ("amount", "5", 5.0),
        ("amount", "1152921504606847000", 2.0**60),
        ("amount", "-9007199254740993", -(2.0**53)),
        ("amount", "123456789012345678901", 123456789012345683968.0),
        ("single", "16777216", 2.0**24),
        ("single", "16777217", 2.0**24),
        ("name", '"\\u00e9\\u0000\\ud83d\\ude00"', "é\0😀"),
        ("price", "12.34", Decimal("12.34")),
        ("price", '"12.34"', Decimal("12.34")),
        ("price", "12.340", Decimal("12.34")),
        ("price", "1234e-2", Decimal("12.34")),
        ("price", "-0.00", Decimal(0)),
        ("price", "99999999.99", Decimal("99999999.99")),
        ("units", "12345678901234567890", Decimal(12345678901234567890)),
        ("units", "1e19", Decimal(10**19)),
        ("at", '"1970-01-01T00:00:01Z"', 1_000_000),
        ("at", '"1970-01-01T05:30:00.25+05:30"', 250_000),
        ("at", '"1969-12-31t23:00:00-01:00"', 0),
        ("at", '"1970-01-01T00:00:00.123456000Z"', 123_456),
        ("at", '"0001-01-01T00:00:00Z"', -62_135_596_800_000_000),
        ("ms", "1", 1_000),
        ("ms", "-1", -1_000),
        ("day", '"2024-02-29"', date(2024, 2, 29)),
        ("name", "null", None),
        ("place", "null", None),
    ],
)
def test_exact_values_are_taken(column: str, literal: str, value: object) -> None:
    """A value that fits its column is taken unchanged."""
    converted = take(column, literal)
    assert (converted, type(converted)) == (value, type(value))


@pytest.mark.parametrize(
    ("column", "literal", "reason"),
    [
        ("id", "2.0", "wrong_type"),
        ("id", "2.7", "wrong_type"),
        ("id", "1e2", "wrong_type"),
        ("id", "9223372036854775808", "out_of_range"),
        ("tiny", "128", "out_of_range"),
        ("quantity", "-2147483649", "out_of_range"),
        ("amount", "1e400", "out_of_range"),
        ("single", "3.5e38", "out_of_range"),
        ("price", "12.345", "out_of_range"),
        ("price", '"100000000.00"', "out_of_range"),
        ("price", "1e999999999999", "out_of_range"),
        ("price", "1e-400", "out_of_range"),
        ("price", '"12,34"', "wrong_format"),
        ("price", '" 1"', "wrong_format"),
        ("price", '"NaN"', "wrong_format"),
        ("price", '"1_0"', "wrong_format"),
        ("price", '"\u0661"', "wrong_format"),
        ("at", '"2024-01-01T00:00:00"', "wrong_format"),
        ("at", '"2024-01-01"', "wrong_format"),
        ("at", '"2023-02-29T00:00:00Z"', "out_of_range"),
        ("at", '"2024-01-01T24:00:00Z"', "out_of_range"),
        ("at", '"2024-01-01T23:59:60Z"', "out_of_range"),
        ("at", '"2024-01-01T00:00:00+24:00"', "out_of_range"),
        ("at", '"0001-01-01T00:00:00+01:00"', "out_of_range"),
        ("at", "1", "wrong_type"),
        ("ms", '"2024-01-01T00:00:00Z"', "wrong_type"),
        ("ms", "true", "wrong_type"),
        ("ms", "253402300800000", "out_of_range"),
        ("day", '"2023-02-29"', "out_of_range"),
        ("day", '"20240229"', "wrong_format"),
        ("day", '"2024-02-29T00:00:00Z"', "wrong_format"),
        ("id", "null", "missing"),
    ],
)
def test_inexact_values_are_refused(column: str, literal: str, reason: str) -> None:
    """A value that would be rounded or guessed is refused."""
    assert refused(column, literal) == reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "not_json"),
        (b" ", "not_json"),
        (b'\xef\xbb\xbf{"id":1}', "not_json"),
        (b'{"id":1} x', "not_json"),
        (b'{"id":1}{"id":2}', "not_json"),
        (b'{"id":1}\n{"id":2}', "not_json"),
        (b'{"id":1}\x00', "not_json"),
        (b'{"id":NaN}', "not_json"),
        (b'{"id":1,"more":-Infinity}', "not_json"),
        (b'{"id":1,}', "not_json"),
        (b'{"id":01}', "not_json"),
        (b"{'id':1}", "not_json"),
        (b'{"id":1,"more":"\t"}', "not_json"),
        (b'{"id":1,"more":"\\ud800"}', "not_json"),
        (b'{"id":1,"\\udc00":1}', "not_json"),
        (b'{"id":1}\xff', "invalid_utf8"),
        (b'{"id":1,"name":"\xed\xa0\x80"}', "invalid_utf8"),
        (b"\xff\xfe{\x00}\x00", "invalid_utf8"),
        (b'{"id":1,"id":1}', "duplicate_key"),
        (b'{"id":1,"\\u0069d":2}', "duplicate_key"),
        (b'{"id":1,"more":1,"more":2}', "duplicate_key"),
        (b'{"id":1,"more":[{"a":1,"a":2}]}', "duplicate_key"),
        (b"null", "wrong_type"),
        (b"[]", "wrong_type"),
        (b"1", "wrong_type"),
        (b"{}", "missing"),
        (b'{"ID":1}', "missing"),
    ],
)
def test_documents_that_are_none_are_refused(message: bytes, reason: str) -> None:
    """A broken document is refused: syntax, encoding and duplicate keys, at any place."""
    assert refusal(message)[0] == reason


def test_a_document_with_bare_floats_that_are_no_numbers() -> None:
    """Bare NaN and infinities are taken if the spec says so, also in fields without a column.

    Other spellings of them are malformed JSON.
    """
    columns = Columns((Column("a", pa.float64(), nullable=True),))
    strict = StrictJson(columns, Reading(non_numeric=True))
    document = b'{"more":[NaN,-Infinity],"a":%s}'
    for name in (b"NaN", b'"NaN"', b"Infinity", b"-Infinity"):
        [value] = strict.decode(document % name)
        assert repr(value) == repr(float(name.strip(b'"')))
    for name in (b"nan", b"-NaN", b"+Infinity", b"inf"):
        with pytest.raises(RefusedValueError, match="JSON is malformed"):
            strict.decode(document % name)


@pytest.mark.parametrize(
    ("message", "reason", "detail"),
    [
        (b'{"id":1}\xff', "invalid_utf8", "Expected UTF-8, got invalid start byte (byte 8)"),
        (b'\xef\xbb\xbf{"id":1}', "not_json", "Expected JSON, got a byte-order mark"),
        (b'{"id":01}', "not_json", "JSON is malformed: Expecting ',' delimiter (character 7)"),
        (b'{"id":1} x', "not_json", "JSON is malformed: Extra data (character 9)"),
        (b'{"id":NaN}', "not_json", "JSON is malformed: it has no NaN and no Infinity"),
        (
            b'{"id":1,"more":-Infinity}',
            "not_json",
            "JSON is malformed: it has no NaN and no Infinity",
        ),
        (
            b'{"id":1,"more":"\\ud800"}',
            "not_json",
            "JSON is malformed: half a surrogate pair in a string",
        ),
        (b"[" * 101, "too_deep", f"Expected at most {MAX_DEPTH} objects and arrays in one another"),
    ],
)
def test_what_is_no_document_has_no_path(message: bytes, reason: str, detail: str) -> None:
    """The detail of a broken document has its position if known, and no path of the model."""
    with pytest.raises(RefusedValueError) as caught:
        decode(message)
    assert caught.value.args == (reason, detail, "")
    assert (caught.value.reason, caught.value.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("message", "reason", "detail"),
    [
        (b"[]", "wrong_type", "Expected object, got array - at $"),
        (b"null", "wrong_type", "Expected object, got null - at $"),
        (b"1.5", "wrong_type", "Expected object, got float - at $"),
        (b'"a"', "wrong_type", "Expected object, got str - at $"),
        (b"{}", "missing", "Object misses a required field - at $.id"),
        (b'{"id":null}', "missing", "Expected a value, got null - at $.id"),
    ],
)
def test_the_detail_of_a_missing_value(message: bytes, reason: str, detail: str) -> None:
    """The detail of a missing value tells whether the object, the field or the value is missing."""
    assert refusal(message) == (reason, detail)


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ('{"id":1,"place":{"zip":"7"}}', "Expected int, got str - at $.place.zip"),
        ('{"id":1,"place":{"geo":{"lat":true}}}', "Expected float, got bool - at $.place.geo.lat"),
        (
            '{"id":1,"place":{"city":"x","city":"y"}}',
            "Object holds the key `city` more than once",
        ),
        (
            '{"id":1,"more":{"secret":1,"secret":2}}',
            "Object holds the key more than once",
        ),
        (
            '{"id":1,"place":{"zip":7,"city":"x","city":"y"}}',
            "Object holds the key `city` more than once",
        ),
        (
            '{"id":1,"place":{"city":"x","zip":7,"city":"y","zip":8}}',
            "Object holds the key `city` more than once",
        ),
        ('{"id":1,"more":{"a":1,"a":2},"more":3}', "Object holds the key more than once"),
        (
            '{"id":1,"id":{"zip":1,"zip":2},"id":3}',
            "Object holds the key `zip` more than once",
        ),
        ('{"id":1,"id":2}', "Object holds the key `id` more than once"),
    ],
)
def test_the_detail_gives_the_path_inside_structs(message: str, detail: str) -> None:
    """The path in a detail has only names of the model, because other names may be data."""
    assert refusal(message)[1] == detail


def test_lists_and_maps_are_taken() -> None:
    """Values in lists and maps follow the same rules, and nulls in them are nulls."""
    message = b'{"id":1,"tags":["a",null],"lines":[{"sku":"s","price":1.50},null,{}],"stock":{"x":1,"y":null}}'  # noqa: E501
    lines = [{"sku": "s", "price": Decimal("1.5")}, None, {}]
    assert decode(message, NESTED) == [1, ["a", None], lines, [("x", 1), ("y", None)]]


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ('"tags":["a",1]', "Expected str, got int - at $.tags[1]"),
        ('"tags":{}', "Expected array, got object - at $.tags"),
        ('"tags":"a"', "Expected array, got str - at $.tags"),
        ('"lines":[{"price":1},{"price":[]}]', "Expected decimal, got array - at $.lines[1].price"),
        ('"stock":{"secret":"x"}', "Expected int, got str - at $.stock[...]"),
        ('"stock":[]', "Expected object, got array - at $.stock"),
        ('"stock":{"x":1,"x":2}', "Object holds the key more than once"),
        (
            '"lines":[{},{"sku":"a","sku":"b"}]',
            "Object holds the key `sku` more than once",
        ),
        (
            '"tags":["a",[{"sku":1,"sku":2}]]',
            "Object holds the key `sku` more than once",
        ),
        ('"more":[7,{"x":1,"x":2}]', "Object holds the key more than once"),
    ],
)
def test_the_detail_gives_the_path_inside_lists_and_maps(field: str, detail: str) -> None:
    """The path in a detail has positions in lists, but no keys of maps, because keys are data."""
    assert refusal(f'{{"id":1,{field}}}', NESTED)[1] == detail


@pytest.mark.parametrize(
    "message",
    ['{"id":1,"more":2}', '{"id":1,"place":{"more":1}}', '{"id":1,"place":{"geo":{"more":1}}}'],
)
def test_unknown_fields(message: str) -> None:
    """Unknown fields are ignored, or refused at any depth of the model."""
    assert decode(message)[0] == 1
    assert refusal(message, SCALARS, "dead")[0] == "unknown_field"


def test_unknown_fields_inside_lists_and_maps() -> None:
    """Unknown fields inside lists and maps are refused too."""
    assert refusal('{"id":1,"lines":[{},{"more":1}]}', NESTED, "dead") == (
        "unknown_field",
        "Object holds a field that the schema doesn't name - at $.lines[1]",
    )
    assert decode('{"id":1,"stock":{"any":1}}', NESTED, "dead")[0] == 1


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ('"tiny":{"a":1}', "Expected int, got object - at $.tiny"),
        ('"tiny":[{"a":1}]', "Expected int, got array - at $.tiny"),
        ('"tags":{"a":1}', "Expected array, got object - at $.tags"),
        ('"lines":{"sku":1}', "Expected array, got object - at $.lines"),
        ('"lines":[{},[{"more":1}]]', "Expected object, got array - at $.lines[1]"),
        ('"stock":[{"a":1}]', "Expected object, got array - at $.stock"),
        ('"place":[{"a":1}]', "Expected object, got array - at $.place"),
    ],
)
def test_a_wrong_type_holds_no_unknown_field(field: str, detail: str) -> None:
    """A value of a wrong type is refused for its type, even if it contains unknown fields."""
    columns = SCALARS if field.startswith(('"tiny', '"place')) else NESTED
    assert refusal(f'{{"id":1,{field}}}', columns, "dead") == ("wrong_type", detail)


def test_unknown_fields_inside_a_map_of_structs() -> None:
    """The keys of a map are data, but the fields of its structs must be in the model."""

    class Shops(pp.DataFrameModel):
        shops: pl.List(pl.Struct({"key": pl.String, "value": pl.Struct({"n": pl.Int64})})) = (
            pp.Field(metadata={"map": True})
        )

    columns = Columns.of(Shops)
    assert decode('{"shops":{"a":{"n":1}}}', columns, "dead") == [[("a", {"n": 1})]]
    assert refusal('{"shops":{"a":{"n":1},"b":{"more":1}}}', columns, "dead") == (
        "unknown_field",
        "Object holds a field that the schema doesn't name - at $.shops[...]",
    )
    twice = '{"shops":{"a":{"n":1,"n":2}}}'
    assert refusal(twice, columns) == (
        "duplicate_key",
        "Object holds the key `n` more than once",
    )


def test_what_is_json_another_parser_says_too(dice: random.Random) -> None:
    """msgspec agrees about which documents are JSON by RFC 8259.

    Two differences are expected: the strict decoder judges depth and duplicate keys first, and
    msgspec limits integers.
    """
    strict, reference = StrictJson(SCALARS), msgspec.json.Decoder(float_hook=str)
    for document in documents(3_000, dice.randrange(1 << 32)):
        reason = parse_error = ""
        try:
            strict.decode(document)
        except RefusedValueError as refused:
            reason = refused.reason
        try:
            reference.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            parse_error = str(error)
        if (
            reason not in {"too_deep", "duplicate_key"}
            and "Integer value out of range" not in parse_error
        ):
            assert (reason in {"not_json", "invalid_utf8"}) == bool(parse_error)


def test_depth_is_counted_not_recursed() -> None:
    """A message with 100,000 brackets, or with slightly more than the limit, is refused.

    Brackets in strings don't count.
    """
    for message in (
        b"[" * 100_000,
        b'{"id":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 100_000,
    ):
        assert refusal(message)[0] == "too_deep"
    assert refusal(b'{"id":1,"more":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")[0] == "too_deep"
    deepest = (
        b'{"id":1,"more":'
        + b"[" * (MAX_DEPTH - 1)
        + b"]" * (MAX_DEPTH - 1)
        + b',"name":"'
        + b"[" * 200
        + b'"}'
    )
    assert decode(deepest)[0] == 1


@pytest.mark.parametrize("closed", [b"[]", b"{}", b'{"a":[]}', b'"["', b'"\\"["'])
def test_what_was_closed_is_no_depth(closed: bytes) -> None:
    """Closed objects and arrays don't add to the depth: the limit is exact among many siblings."""
    siblings = (closed + b",") * 150
    for deeper, is_taken in ((MAX_DEPTH - 2, True), (MAX_DEPTH - 1, False)):
        message = b'{"id":1,"more":[' + siblings + b"[" * deeper + b"]" * deeper + b"]}"
        if is_taken:
            assert decode(message)[0] == 1
        else:
            assert refusal(message)[0] == "too_deep"


@pytest.mark.parametrize(
    ("column", "end"),
    [("id", ""), ("amount", ""), ("price", ""), ("price", ".5"), ("ms", ""), ("at", "")],
)
def test_numbers_of_ten_million_digits_are_refused(column: str, end: str) -> None:
    """A number of ten million digits is refused, and never parsed as a Python integer.

    Python's parser would take quadratic time.
    """
    assert refused(column, "9" * 10_000_000 + end) in {"out_of_range", "wrong_type"}


def test_no_detail_shows_a_value() -> None:
    """No detail shows a value, even if the value is a key, a number or broken text."""
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
    """A column with the name `a.b` reads the field `a.b`, not the path."""

    class Dotted(pp.DataFrameModel):
        x: pl.Int64 = pp.Field(alias="a.b", nullable=True)
        a: pl.Struct({"b": pl.Int64}) = pp.Field(nullable=True)

    columns = Columns.of(Dotted)
    assert decode('{"a":{"b":1}}', columns) == [None, {"b": 1}]
    assert decode('{"a.b":2}', columns) == [2, None]


TEXT = pa.string()
LENIENT = Reading(lenient=True)


def value_of(
    kind: pa.DataType, literal: str, reading: Reading = LENIENT, unknown: Unknown = "ignore"
) -> Any:
    """Returns the value of the only column `a`."""
    columns = Columns((Column("a", kind, nullable=True),))
    return StrictJson(columns, replace(reading, unknown=unknown)).decode(
        f'{{"a":{literal}}}'.encode()
    )[0]


@pytest.mark.parametrize(
    "text", ["{}", "[ ]", '{"b" : [1.50, "\\n"]}', '[{"é":-0},\t"٢"]', f'["é",{"9" * 5_000}]']
)
def test_a_string_takes_an_object_or_a_list_as_it_stands(text: str) -> None:
    """A lenient String column takes an object or a list as its text.

    This holds in lists, maps and structs too. Values of other types are read by the ordinary
    rules.
    """
    assert value_of(TEXT, text) == text
    assert value_of(pa.list_(TEXT), f'[{text}, "y", null,{text}]') == [text, "y", None, text]
    assert value_of(pa.map_(TEXT, TEXT), f'{{"k":{text},"l":1}}') == [("k", text), ("l", "1")]
    inside = pa.struct([("x", TEXT), ("y", TEXT), ("n", pa.int8())])
    assert value_of(inside, f'{{"x":{text},"n":7,"more":{text}}}') == {"x": text, "n": 7}
    for entries in (f'{{"k":{text}}}', f'[{{"key":"k","value":{text}}}]'):
        assert value_of(ENTRIES, entries) == [{"key": "k", "value": text}]


@pytest.mark.parametrize(
    ("kind", "literal", "reading", "reason", "detail"),
    [
        (TEXT, "[]", EXACT, "wrong_type", "Expected str, got array - at $.a"),
        (
            pa.struct([("x", TEXT), ("n", pa.int8())]),
            '{"n":{}}',
            LENIENT,
            "wrong_type",
            "Expected int, got object - at $.a.n",
        ),
        (
            pa.struct([("x", TEXT), ("n", pa.int8())]),
            '{"n":[]}',
            LENIENT,
            "wrong_type",
            "Expected int, got array - at $.a.n",
        ),
        (
            pa.struct([("x", TEXT)]),
            '[{"x":1}]',
            LENIENT,
            "wrong_type",
            "Expected object, got array - at $.a",
        ),
        (
            pa.map_(TEXT, TEXT),
            "[1]",
            LENIENT,
            "wrong_type",
            "Expected object, got array - at $.a",
        ),
        (
            pa.list_(TEXT),
            '{"x":1}',
            LENIENT,
            "wrong_type",
            "Expected array, got object - at $.a",
        ),
        (
            TEXT,
            "1٢",
            LENIENT,
            "not_json",
            "JSON is malformed: Expecting ',' delimiter (character 6)",
        ),
    ],
)
def test_a_string_alone_takes_them(
    kind: pa.DataType, literal: str, reading: Reading, reason: str, detail: str
) -> None:
    """Only String columns take objects and lists. Other types stay strict, and digits are ASCII."""
    with pytest.raises(RefusedValueError) as caught:
        value_of(kind, literal, reading)
    assert (caught.value.reason, caught.value.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("kind", "inside", "literal", "value"),
    [
        (TEXT, LENIENT, "[1]", "[1]"),
        (pa.int8(), LENIENT, '"7"', 7),
        (
            pa.struct([("x", TEXT), ("y", TEXT)]),
            Reading(fields=(("x", LENIENT),)),
            '{"x":[1],"y":"s"}',
            {"x": "[1]", "y": "s"},
        ),
        (pa.list_(TEXT), Reading(items=LENIENT), "[[1]]", ["[1]"]),
        (
            pa.map_(TEXT, TEXT),
            Reading(items=Reading(fields=(("value", LENIENT),))),
            '{"k":[1]}',
            [("k", "[1]")],
        ),
    ],
)
def test_each_place_is_read_by_its_own_rules(
    kind: pa.DataType, inside: Reading, literal: str, value: object
) -> None:
    """A field, an item and a map's value can each have their own rules.

    A message's schema may state them.
    """
    assert value_of(kind, literal, Reading(fields=(("a", inside),))) == value
    with pytest.raises(RefusedValueError, match="Expected"):
        value_of(kind, literal, EXACT)


def test_unknown_fields_inside_entries_that_are_written_as_an_object() -> None:
    """The keys of an object that replaces a list of entries are data.

    Unknown fields in its values are refused.
    """
    inner = pa.struct([("n", pa.int8())])
    kind = pa.list_(pa.struct([("key", TEXT), ("value", inner)]))
    assert value_of(kind, '{"k":{"n":1}}', EXACT, "dead") == [{"key": "k", "value": {"n": 1}}]
    with pytest.raises(RefusedValueError) as caught:
        value_of(kind, '{"k":{"n":1,"more":1}}', EXACT, "dead")
    assert (caught.value.reason, caught.value.detail) == (
        "unknown_field",
        "Object holds a field that the schema doesn't name - at $.a[...]",
    )


def test_timestamps_by_what_the_columns_say() -> None:
    """A timestamp is read in its column's zone. A finer one is cut and noted, or refused."""
    columns = Columns((Column("a", TIMESTAMP, nullable=True, zone="Etc/GMT-1"),))
    strict, message = StrictJson(columns), b'{"a":"1970-01-01 01:00:00.0000019"}'
    assert (strict.decode(message), strict.truncation.done) == ([1], True)
    with pytest.raises(RefusedValueError, match="whole microseconds"):
        StrictJson(replace(columns, finer="dead")).decode(message)
