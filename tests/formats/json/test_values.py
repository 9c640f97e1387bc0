"""One JSON value becomes one value of a column, or a refusal with its reason and path.

Each limit has its own small case.
"""

from __future__ import annotations

import base64
import math
import pickle
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from windrow.ingest.formats.json.values import LongInteger, converter, integer, number_in
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Column, field_of
from windrow.ingest.schema.dtypes import TIMESTAMP

BOUNDS = {8: 127, 16: 32_767, 32: 2_147_483_647, 64: 9_223_372_036_854_775_807}


def convert_value(
    kind: pa.DataType, value: object, epoch: str | None = None, reading: Reading = EXACT
) -> object:
    """Returns the value that a column of this type gets."""
    return converter(kind, epoch, reading)(value, "$.a")


def refused(
    kind: pa.DataType, value: object, epoch: str | None = None, reading: Reading = EXACT
) -> tuple[str, str]:
    """Returns the reason and the detail of the refusal."""
    with pytest.raises(RefusedValueError) as error:
        convert_value(kind, value, epoch, reading)
    return error.value.reason, error.value.detail


@pytest.mark.parametrize(
    ("path", "detail"), [("$.a[3]", "Expected this - at $.a[3]"), ("", "Expected this")]
)
def test_a_refusal_comes_out_of_another_process_as_it_was(path: str, detail: str) -> None:
    """A RefusedValueError survives pickling, so it can come from a Spark worker."""
    for refusal in (
        RefusedValueError("wrong", "Expected this", path),
        pickle.loads(pickle.dumps(RefusedValueError("wrong", "Expected this", path))),
    ):
        assert (refusal.reason, refusal.detail, refusal.args) == (
            "wrong",
            detail,
            ("wrong", "Expected this", path),
        )
    assert RefusedValueError("wrong", "Expected this").detail == "Expected this - at $"


def test_a_short_literal_is_an_integer_and_a_long_one_is_kept() -> None:
    """An integer literal of up to 20 characters becomes an int; a longer one, a LongInteger."""
    assert integer("9" * 20) == 10**20 - 1
    assert (integer("9" * 21), type(integer("9" * 21))) == ("9" * 21, LongInteger)
    assert type(integer("-" + "9" * 19)) is int


@pytest.mark.parametrize("bits", BOUNDS)
def test_integers_end_where_their_bits_do(bits: int) -> None:
    """An integer column takes exactly the integers of its bits."""
    kind, top = getattr(pa, f"int{bits}")(), BOUNDS[bits]
    assert [convert_value(kind, n) for n in (top, -top - 1)] == [top, -top - 1]
    for beyond in (top + 1, -top - 2):
        assert refused(kind, beyond) == (
            "out_of_range",
            f"Expected an integer of {bits} bits - at $.a",
        )
    assert refused(kind, LongInteger("9" * 30)) == (
        "out_of_range",
        "Expected an integer of 64 bits - at $.a",
    )
    assert refused(kind, True) == ("wrong_type", "Expected int, got bool - at $.a")


@pytest.mark.parametrize(("bits", "digits"), [(64, 53), (32, 24)])
def test_an_integer_is_the_nearest_float(bits: int, digits: int) -> None:
    """An integer of any size becomes the nearest float.

    JavaScript and Go write doubles so.
    """
    kind = getattr(pa, f"float{bits}")()
    for n in (2**digits, 2**digits + 2, 2**63, 3 * 2**90):
        assert [convert_value(kind, number) for number in (n, -n, LongInteger(n))] == [
            float(n),
            -float(n),
            float(n),
        ]
    for n in (2**digits + 1, -(2**digits) - 1, 1152921504606847000, LongInteger("1" * 30)):
        assert convert_value(kind, n) == (float(n) if bits == 64 else np.float32(float(n)))
    for beyond in (LongInteger("9" * 400), LongInteger("-" + "9" * 400)):
        assert refused(kind, beyond) == (
            "out_of_range",
            f"Expected a float of {bits} bits - at $.a",
        )
    assert refused(kind, "1") == ("wrong_type", "Expected float, got str - at $.a")
    assert refused(kind, b"1e999") == ("out_of_range", f"Expected a float of {bits} bits - at $.a")


def test_a_single_is_smaller_than_a_double() -> None:
    """A float32 takes the nearest value by the digits, not by way of the double.

    A number that fits a double may be too large for it.
    """
    assert convert_value(pa.float64(), b"1e39") == 1e39
    assert convert_value(pa.float32(), b"3e38") == np.float32(3e38)
    assert convert_value(pa.float32(), b"7.0064923216240854e-46") == 2.0**-149
    assert convert_value(pa.float32(), b"7.0064923216240853e-46") == 0.0
    below, halfway, above = (
        b"1.0000000596046447753906249999",
        b"1.000000059604644775390625",
        b"1.0000000596046447753906250001",
    )
    assert [convert_value(pa.float32(), literal) for literal in (below, halfway, above)] == [
        1,
        1,
        1 + 2**-23,
    ]
    next_to_halfway, halfway_below_even = b"1.00000005960464493", b"1.000000178813934326171875"
    assert [
        convert_value(pa.float32(), literal) for literal in (next_to_halfway, halfway_below_even)
    ] == [
        1 + 2**-23,
        1 + 2**-22,
    ]
    assert refused(pa.float32(), b"1e39") == (
        "out_of_range",
        "Expected a float of 32 bits - at $.a",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"123.45", "123.45"),
        (b"-123.45", "-123.45"),
        (b"0.01", "0.01"),
        (b"123.4500", "123.45"),
        (b"1e2", "100"),
        (b"1.5E-1", "0.15"),
        (b"1e-0000000000000000001", "0.1"),
        ("1." + "0" * 998, "1"),
        (999, "999"),
        ("7.10", "7.1"),
        (b"0.000", "0"),
        (b"-0", "0"),
        (b"0e99999999999999999999999", "0"),
        (LongInteger("0" * 1), "0"),
    ],
)
def test_decimals_by_their_digits(value: object, expected: str) -> None:
    """A Decimal(5, 2) takes numbers that fit exactly, however they are written."""
    assert convert_value(pa.decimal128(5, 2), value) == Decimal(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"0.01", "0.01"), (b"-0.99", "-0.99"), ("0.10", "0.1"), (b"99e-2", "0.99"), (b"0", "0")],
)
def test_a_decimal_may_have_all_its_digits_after_the_point(value: object, expected: str) -> None:
    """A Decimal(2, 2) doesn't count zeros before the first significant digit."""
    assert convert_value(pa.decimal128(2, 2), value) == Decimal(expected)
    assert refused(pa.decimal128(2, 2), b"1") == (
        "out_of_range",
        "Expected a decimal of 2 digits, 2 of them after the point - at $.a",
    )


FIVE_TWO = "Expected a decimal of 5 digits, 2 of them after the point"


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (b"1000", "out_of_range", FIVE_TWO),
        (b"0.001", "out_of_range", FIVE_TWO),
        (b"1e3", "out_of_range", FIVE_TWO),
        (b"1e-3", "out_of_range", FIVE_TWO),
        (b"1e123456789012345678901", "out_of_range", FIVE_TWO),
        (b"1e-00000000000000000001", "out_of_range", FIVE_TWO),
        ("1." + "0" * 999, "out_of_range", FIVE_TWO),
        (LongInteger("1" * 30), "out_of_range", FIVE_TWO),
        ("1,5", "wrong_format", "Expected a decimal number"),
        ("", "wrong_format", "Expected a decimal number"),
        ("01", "wrong_format", "Expected a decimal number"),
        ("+1", "wrong_format", "Expected a decimal number"),
        (True, "wrong_type", "Expected decimal, got bool"),
        ([], "wrong_type", "Expected decimal, got array"),
    ],
)
def test_what_is_no_such_decimal(value: object, reason: str, detail: str) -> None:
    """A value that is too large, too fine, too long or no number is refused.

    The detail says what the column holds.
    """
    assert refused(pa.decimal128(5, 2), value) == (reason, f"{detail} - at $.a")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.0000010Z", 1),
        ("1970-01-01T01:30:00+01:30", 0),
        ("1969-12-31T22:30:00-01:30", 0),
        ("1970-01-01T01:30:00+0130", 0),
        ("1970-01-01 05:00:00+05", 0),
        ("1969-12-31T19:00-05:00", 0),
        ("1970-01-01 00:00Z", 0),
        ("1970-01-01T23:59:00+23:59", 0),
        ("1970-01-01 01:00:00 +0100", 0),
        ("1970-01-01 00:00:00 UTC", 0),
        ("1970-01-01T01:00+01:00[Europe/Berlin]", 0),
        ("1970-01-01T00:00:00.5Z[UTC]", 500_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_instants_in_microseconds(text: str, micros: int) -> None:
    """Timestamps become microseconds since 1970 in UTC."""
    assert convert_value(pa.timestamp("us", tz="UTC"), text) == micros


FORM = "Expected an RFC 3339 timestamp with an offset"
ZONELESS = f"{FORM}: one that has none needs decode.zone"
EPOCHS = ": numbers need decode.timestamps, which is epoch_s or epoch_ms then, or another unit"
CALENDAR, YEARS = (
    "Expected a timestamp that the calendar has",
    "Expected a timestamp in the years 1 to 9999",
)


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        ("1970-01-01T00:00:00", "wrong_format", ZONELESS),
        ("1970-01-01 00:00", "wrong_format", ZONELESS),
        ("1970-01-01T00Z", "wrong_format", FORM),
        ("1970-01-01T00:00:00+1", "wrong_format", FORM),
        ("1970-01-01T00:00:00+01:0", "wrong_format", FORM),
        ("1970-01-01T00:00.5Z", "wrong_format", FORM),
        ("1970-01-01T00:00:00  Z", "wrong_format", FORM),
        ("1970-01-01T00:00:00[UTC]", "wrong_format", FORM),
        ("1970-01-01T00:00:00Z[]", "wrong_format", FORM),
        ("1970-01-01T00:00:00Z[!UTC]", "wrong_format", FORM),
        ("1970-01-01T00:00:00UTC+1", "wrong_format", FORM),
        ("1970-01-01T00:00:00,5Z", "wrong_format", FORM),
        ("1970-02-30T00:00:00Z", "out_of_range", CALENDAR),
        ("1970-01-01T24:00:00Z", "out_of_range", CALENDAR),
        ("1970-01-01T00:00:00+24:00", "out_of_range", CALENDAR),
        ("1970-01-01T00:00:00+00:60", "out_of_range", CALENDAR),
        ("0001-01-01T00:00:00+00:01", "out_of_range", YEARS),
        ("9999-12-31T23:59:59-00:01", "out_of_range", YEARS),
        (5, "wrong_type", f"Expected a timestamp, got int{EPOCHS}"),
        (LongInteger("1" * 30), "wrong_type", f"Expected a timestamp, got int{EPOCHS}"),
        (b"5.5", "wrong_type", f"Expected a timestamp, got float{EPOCHS}"),
        ({}, "wrong_type", "Expected a timestamp, got object"),
    ],
)
def test_what_is_no_instant(value: object, reason: str, detail: str) -> None:
    """A timestamp without an offset, of another form or outside the calendar is refused.

    The detail gives the reason and the path.
    """
    assert refused(pa.timestamp("us", tz="UTC"), value) == (reason, f"{detail} - at $.a")


@pytest.mark.parametrize(
    ("value", "unit", "micros"),
    [
        ("2026-01-05T09:00:00.123456789Z", None, 1_767_603_600_123_456),
        ("1969-12-31T23:59:59.9999999Z", None, -1),
        (b"1767603600.123456789", "s", 1_767_603_600_123_456),
        (b"-0.0000001", "s", -1),
        (b"1.0005E-3", "ms", 1),
        (b"-1e-30", "us", -1),
        (1_767_603_600_123_456_789, "ns", 1_767_603_600_123_456),
        (-1, "ns", -1),
        (-1_001, "ns", -2),
    ],
)
def test_what_is_finer_than_a_microsecond(value: object, unit: str | None, micros: int) -> None:
    """A finer timestamp is rounded down to the microsecond and noted, also before 1970.

    With `finer: dead` it is refused.
    """
    kind, cut = pa.timestamp("us", tz="UTC"), Truncation("truncate")
    assert (converter(kind, unit, EXACT, cut)(value, "$.a"), cut.done) == (micros, True)
    with pytest.raises(RefusedValueError) as error:
        converter(kind, unit, EXACT, Truncation("dead"))(value, "$.a")
    assert (error.value.reason, error.value.detail) == (
        "out_of_range",
        "Expected a timestamp of whole microseconds - at $.a",
    )


@pytest.mark.parametrize(
    ("value", "unit"),
    [("2026-01-05T09:00:00.123456000Z", None), (b"1.500000", "s"), (b"15e-1", "ms"), (1_000, "ns")],
)
def test_what_is_no_finer_loses_nothing(value: object, unit: str | None) -> None:
    """Trailing zeros beyond the microsecond don't count as truncation."""
    cut = Truncation("truncate")
    converter(pa.timestamp("us", tz="UTC"), unit, EXACT, cut)(value, "$.a")
    assert not cut.done


TWICE = (
    "Expected a timestamp with an offset, where the clocks of Europe/Berlin showed it twice or"
    " never"
)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-01-05T10:00:00.123456", 1_767_603_600_123_456),
        ("2026-07-01 02:00", 1_782_864_000_000_000),
        ("2026-01-05T10:00:00+02:00", 1_767_600_000_000_000),
        ("2026-03-29 01:59:59", 1_774_745_999_000_000),
        ("2026-03-29 02:30:00", None),
        ("2026-10-25 02:30:00", None),
        ("2026-10-25 02:30:00+01:00", 1_792_891_800_000_000),
    ],
)
def test_a_timestamp_in_a_zone_that_is_stated(text: str, micros: int | None) -> None:
    """A timestamp without an offset is read in the stated zone.

    Local times that occur twice or never are refused. The column's own zone overrides the
    spec's.
    """
    kind, berlin = pa.timestamp("us", tz="UTC"), Reading(zone="Europe/Berlin")
    for zone, reading in (
        (None, berlin),
        ("Europe/Berlin", EXACT),
        ("Europe/Berlin", Reading("epoch_ms")),
    ):
        convert = converter(kind, None, reading, None, zone)
        if micros is not None:
            assert convert(text, "$.a") == micros
        else:
            with pytest.raises(RefusedValueError) as error:
                convert(text, "$.a")
            assert (error.value.reason, error.value.detail) == (
                "out_of_range",
                f"{TWICE} - at $.a",
            )


FIRST, LAST = -62_135_596_800, 253_402_300_799  # seconds


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_an_epoch_is_an_integer_of_its_unit(unit: str, factor: int) -> None:
    """An epoch is an integer of its unit, in the years 1 to 9999, and is read exactly.

    A text is refused.
    """
    kind, unit_per_second = pa.timestamp("us", tz="UTC"), 1_000_000 // factor
    for value, micros in (
        (0, 0),
        (7, 7 * factor),
        (-1, -factor),
        (LAST * unit_per_second, LAST * 1_000_000),
        (-62_135_596_800 * unit_per_second, -62_135_596_800_000_000),
    ):
        converted = convert_value(kind, value, unit)
        assert (converted, type(converted)) == (micros, int)
    for beyond in ((LAST + 1) * unit_per_second, FIRST * unit_per_second - 1):
        assert refused(kind, beyond, unit) == ("out_of_range", f"{YEARS} - at $.a")
    assert refused(kind, LongInteger("9" * 30), unit) == (
        "out_of_range",
        "Expected an integer of 64 bits - at $.a",
    )
    assert refused(kind, "1970-01-01T00:00:00Z", unit) == (
        "wrong_type",
        "Expected int, got str - at $.a",
    )


def test_days_and_others_are_taken_as_they_are() -> None:
    """Dates and other plain types are taken unchanged, and values of other types are refused."""
    assert convert_value(pa.date32(), "2026-02-28") == date(2026, 2, 28)
    assert refused(pa.date32(), "2026-02-29") == (
        "out_of_range",
        "Expected a date that the calendar has - at $.a",
    )
    assert refused(pa.date32(), "20260228") == (
        "wrong_format",
        "Expected an ISO 8601 date - at $.a",
    )
    assert refused(pa.date32(), 5) == ("wrong_type", "Expected str, got int - at $.a")
    assert (convert_value(pa.string(), ""), convert_value(pa.bool_(), False)) == ("", False)
    assert refused(pa.string(), b"1.5") == ("wrong_type", "Expected str, got float - at $.a")
    assert refused(pa.bool_(), 0) == ("wrong_type", "Expected bool, got int - at $.a")


def test_the_path_leads_into_structs_lists_and_maps() -> None:
    """The path has names of the model and positions. Keys of maps are data and aren't shown.

    A null in a nullable place stays null.
    """
    kind = pa.struct([("l", pa.list_(pa.int8())), ("m", pa.map_(pa.string(), pa.int8()))])
    assert convert_value(kind, {"l": [1, None], "m": {"k": 2, "n": None}}) == {
        "l": [1, None],
        "m": [("k", 2), ("n", None)],
    }
    assert convert_value(kind, {}) == {}
    assert refused(kind, {"l": [1, "x"]})[1] == "Expected int, got str - at $.a.l[1]"
    assert refused(kind, {"m": {"k": "x"}})[1] == "Expected int, got str - at $.a.m[...]"
    assert refused(kind, [])[1] == "Expected object, got array - at $.a"
    assert refused(kind, {"l": {}})[1] == "Expected array, got object - at $.a.l"
    assert refused(kind, {"m": 5})[1] == "Expected object, got int - at $.a.m"


LENIENT = Reading(lenient=True)
MICROS = 1_767_603_600_000_000


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int8(), "127", 127),
        (pa.int8(), "-128", -128),
        (pa.int64(), "-0", 0),
        (pa.int64(), b"1.0", 1),
        (pa.int64(), b"-1e3", -1000),
        (pa.int64(), "12.50e1", 125),
        (pa.int64(), b"0.0e999999", 0),
        (pa.int64(), b"9223372036854775807.0", 2**63 - 1),
        (pa.int64(), b"-9223372036854775808.000", -(2**63)),
        (pa.int64(), 5, 5),
        (pa.float64(), "0.1", 0.1),
        (pa.float64(), "7", 7.0),
        (pa.float64(), b"1.5", 1.5),
        (pa.float64(), "-0.0", -0.0),
        (pa.float64(), "-0", -0.0),
        (pa.bool_(), "true", True),
        (pa.bool_(), "False", False),
        (pa.bool_(), "TRUE", True),
        (pa.bool_(), False, False),
        (pa.string(), 12, "12"),
        (pa.string(), b"1.50", "1.50"),
        (pa.string(), b"1E5", "1E5"),
        (pa.string(), True, "true"),
        (pa.string(), False, "false"),
        (pa.string(), LongInteger("9" * 30), "9" * 30),
        (pa.string(), "x", "x"),
        (pa.float64(), "1152921504606847000", 2.0**60),
        (pa.decimal128(9, 2), "1.5", Decimal("1.5")),
        (pa.decimal128(9, 2), b"1.5", Decimal("1.5")),
    ],
)
def test_a_value_of_another_kind_that_says_the_same(
    kind: pa.DataType, value: object, expected: object
) -> None:
    """A lenient spec takes numbers in strings, and whole numbers in any form.

    A String column takes the text of the message.
    """
    assert repr(convert_value(kind, value, reading=LENIENT)) == repr(expected)


def test_floats_that_are_no_numbers() -> None:
    """NaN and the infinities are taken by three names, bare or in quotes, if the spec says so.

    Only float columns take them.
    """
    bare = [float(name) for name in ("nan", "inf", "-inf")]
    for lenient in (False, True):
        reading = Reading(lenient=lenient, non_numeric=True)
        for kind in (pa.float64(), pa.float32()):
            for value, want in zip(["NaN", "Infinity", "-Infinity", *bare], bare * 2, strict=True):
                assert repr(convert_value(kind, value, reading=reading)) == repr(want)
            for value in ("nan", "inf", "+Infinity", "-NaN", ""):
                assert refused(kind, value, reading=reading)[0] in {"wrong_type", "wrong_format"}
        for kind in (pa.int64(), pa.decimal128(9, 2), pa.string(), pa.bool_(), pa.date32()):
            assert refused(kind, math.nan, reading=reading)[0] == "wrong_type"
    assert refused(pa.float64(), "NaN") == ("wrong_type", "Expected float, got str - at $.a")


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.int8(), "128", "out_of_range"),
        (pa.int64(), b"1.5", "out_of_range"),
        (pa.int64(), "1.5", "out_of_range"),
        (pa.int64(), b"1e-1", "out_of_range"),
        (pa.int64(), b"9223372036854775808.0", "out_of_range"),
        (pa.int64(), "9" * 30, "out_of_range"),
        (pa.int64(), b"1e99999999999999999999999", "out_of_range"),
        (pa.int64(), True, "wrong_type"),
        (pa.int64(), [], "wrong_type"),
        (pa.int64(), "", "wrong_format"),
        (pa.int64(), " 1", "wrong_format"),
        (pa.int64(), "+1", "wrong_format"),
        (pa.int64(), "01", "wrong_format"),
        (pa.int64(), "0x1", "wrong_format"),
        (pa.int64(), "1_0", "wrong_format"),
        (pa.int64(), "\u0661", "wrong_format"),
        (pa.int64(), "1\n", "wrong_format"),
        (pa.float64(), "1e400", "out_of_range"),
        (pa.float64(), "nan", "wrong_format"),
        (pa.float64(), "NaN", "wrong_format"),
        (pa.float32(), "3.5e38", "out_of_range"),
        (pa.float64(), True, "wrong_type"),
        (pa.bool_(), 1, "wrong_type"),
        (pa.bool_(), "1", "wrong_type"),
        (pa.bool_(), "yes", "wrong_type"),
        (pa.bool_(), "", "wrong_type"),
        (pa.string(), [], "wrong_type"),
        (pa.string(), {}, "wrong_type"),
        (pa.date32(), 1, "wrong_type"),
        (pa.timestamp("us", "UTC"), 1, "wrong_type"),
        (pa.decimal128(9, 2), True, "wrong_type"),
    ],
)
def test_what_would_lose_something_is_refused_all_the_same(
    kind: pa.DataType, value: object, reason: str
) -> None:
    """A lenient spec still refuses a value that would lose digits, is too large or is ambiguous."""
    assert refused(kind, value, reading=LENIENT)[0] == reason


def test_leniency_reaches_into_structs_lists_and_maps() -> None:
    """Leniency applies inside structs, lists and maps too."""
    kind = pa.struct([("a", pa.list_(pa.int8())), ("b", pa.map_(pa.string(), pa.string()))])
    assert convert_value(kind, {"a": ["1"], "b": {"x": 2}}, reading=LENIENT) == {
        "a": [1],
        "b": [("x", "2")],
    }
    assert refused(kind, {"a": ["1"]})[0] == "wrong_type"
    assert convert_value(pa.timestamp("us", "UTC"), "7", "ms", LENIENT) == 7000
    assert refused(pa.timestamp("us", "UTC"), "7", "ms")[0] == "wrong_type"


@pytest.mark.parametrize(
    ("form", "value", "micros"),
    [
        ("sql", "2026-01-05 09:00:00", MICROS),
        ("sql", "2026-01-05 09:00:00.5", MICROS + 500_000),
        ("sql", "2026-01-05 10:00:00+01:00", MICROS),
        ("sql", "2026-01-05 09:00:00Z", MICROS),
        ("sql", "2026-01-05 09:00:00.100000000", MICROS + 100_000),
        ("epoch_s", MICROS // 10**6, MICROS),
        ("epoch_ms", MICROS // 1000, MICROS),
        ("epoch_us", MICROS, MICROS),
        ("epoch_ns", MICROS * 1000, MICROS),
        ("epoch_s", b"1767603600.000", MICROS),
        ("epoch_s", b"17676036e2", MICROS),
        ("epoch_s", b"0e1000", 0),
        ("epoch_s", b"0." + b"0" * 998, 0),
        ("sql", "2026-01-05T09:00", MICROS),
    ],
)
def test_timestamps_of_other_forms(form: Any, value: object, micros: int) -> None:
    """Timestamps are read in SQL's form, in UTC or with an offset, and as numbers.

    This holds in lists too. The column's own unit overrides the spec's form.
    """
    kind, reading = pa.timestamp("us", "UTC"), Reading(form)
    assert convert_value(kind, value, reading=reading) == micros
    assert convert_value(pa.list_(kind), [value, None], reading=reading) == [micros, None]
    assert convert_value(kind, 7, "s", reading) == 7_000_000


@pytest.mark.parametrize(
    ("form", "value", "reason"),
    [
        ("sql", "2026-01-05", "wrong_format"),
        ("sql", "2026-01-05  09:00:00", "wrong_format"),
        ("sql", "2026-02-30 09:00:00", "out_of_range"),
        ("sql", 7, "wrong_type"),
        ("iso-8601", "2026-01-05 09:00:00", "wrong_format"),
        ("epoch_ms", "2026-01-05T09:00:00Z", "wrong_type"),
        ("epoch_s", 253_402_300_800, "out_of_range"),
        ("epoch_s", b"1e9999999999", "out_of_range"),
    ],
)
def test_a_timestamp_is_of_the_one_form(form: Any, value: object, reason: str) -> None:
    """Only the spec's form of timestamps is taken; no other form is tried."""
    assert refused(pa.timestamp("us", "UTC"), value, reading=Reading(form))[0] == reason


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-0", b"-0"),
        ("1.0", b"1.0"),
        ("1e5", b"1e5"),
        ("9" * 25, LongInteger("9" * 25)),
    ],
)
def test_a_number_in_a_text_is_what_the_parser_makes_of_it(text: str, number: object) -> None:
    """A number in a text has the same value and type as the parser gives it."""
    converted = number_in(text, "$.a")
    assert (converted, type(converted)) == (number, type(number))


BYTES = Reading(decimals="base64", dates="epoch_days")


def unscaled(number: int) -> str:
    """Returns an unscaled decimal in base64, as Connect writes it."""
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big")).decode()


@pytest.mark.parametrize(
    ("value", "reading", "expected"),
    [
        ("MDk=", BYTES, "123.45"),
        ("/w==", BYTES, "-0.01"),
        ("AA==", BYTES, "0"),
        (b"2.5", BYTES, "2.5"),
        (7, BYTES, "7"),
        ({"scale": 2, "value": "MDk="}, BYTES, "123.45"),
        ({"scale": 1, "value": "AMg="}, BYTES, "20"),
        ({"scale": -1, "value": "AQ=="}, BYTES, "10"),
        ("AMg=", Reading(decimals="base64", scale=1), "20"),
        ("AMg=", Reading(decimals="base64", scale=3), "0.2"),
        ("AMg=", Reading(decimals="base64", scale=0), "200"),
        ("Ag==", Reading(decimals="base64", scale=-2), "200"),
        (unscaled(7 * 10**902), Reading(decimals="base64", scale=902), "7"),
    ],
)
def test_decimals_as_bytes(value: object, reading: Reading, expected: str) -> None:
    """Decimals as bytes have the stated scale or the column's. A number keeps its own digits."""
    assert convert_value(pa.decimal128(5, 2), value, reading=reading) == Decimal(expected)


@pytest.mark.parametrize(
    ("value", "scale", "reason"),
    [
        ("MDk=", 4, "out_of_range"),
        ("D0JA", None, "out_of_range"),
        ("AMg=", -2, "out_of_range"),
        ("AQ==", 10**9, "out_of_range"),
        ("f" * 4_000, None, "out_of_range"),
        ({"scale": 3, "value": "MDk="}, None, "out_of_range"),
        (unscaled(7 * 10**903), 903, "out_of_range"),
        ("MDk=\n", None, "wrong_format"),
        ("", None, "wrong_format"),
        ({"scale": 10**19, "value": "AQ=="}, None, "out_of_range"),
        ({"scale": "2", "value": "MDk="}, None, "wrong_format"),
        ({"value": "MDk="}, None, "wrong_format"),
        ({"scale": 2}, None, "wrong_format"),
        ([2], None, "wrong_type"),
    ],
)
def test_bytes_that_are_no_such_decimal(value: object, scale: int | None, reason: str) -> None:
    """A decimal as bytes that doesn't fit is refused. Nothing is rounded or guessed."""
    assert (
        refused(pa.decimal128(5, 2), value, reading=Reading(decimals="base64", scale=scale))[0]
        == reason
    )


def test_a_date_as_days() -> None:
    """A date as days lies between the first day of year 1 and the last day of 9999.

    A text of digits is refused. A date as text may end with Z.
    """
    assert [
        convert_value(pa.date32(), days, reading=BYTES) for days in (0, -719_162, 2_932_896)
    ] == [
        date(1970, 1, 1),
        date.min,
        date.max,
    ]
    assert [refused(pa.date32(), days, reading=BYTES)[0] for days in (-719_163, 2_932_897)] == [
        "out_of_range"
    ] * 2
    assert [refused(pa.date32(), value, reading=BYTES)[0] for value in ("2017-09-15", b"1.0")] == [
        "wrong_type"
    ] * 2
    assert convert_value(
        pa.date32(), b"1.0", reading=Reading(dates="epoch_days", lenient=True)
    ) == date(1970, 1, 2)
    assert convert_value(pa.date32(), "2017-09-15Z") == date(2017, 9, 15)
    assert [
        refused(pa.date32(), text)[0]
        for text in ("2017-09-15z", "2017-09-15ZZ", "2017-09-15+00:00")
    ] == ["wrong_format"] * 3


def test_every_form_holds_at_any_depth() -> None:
    """The forms of values apply inside structs, lists and maps too."""
    inner = pa.struct(
        [("day", pa.date32()), ("price", pa.decimal128(5, 2)), ("at", pa.timestamp("us", "UTC"))]
    )
    value, read = (
        {"day": 1, "price": "MDk=", "at": 2},
        {
            "day": date(1970, 1, 2),
            "price": Decimal("123.45"),
            "at": 2_000,
        },
    )
    reading = Reading("epoch_ms", decimals="base64", dates="epoch_days")
    assert convert_value(pa.list_(inner), [value], reading=reading) == [read]
    assert convert_value(
        pa.map_(pa.string(), pa.list_(inner)), {"k": [value]}, reading=reading
    ) == [("k", [read])]


def test_a_list_of_entries_may_be_an_object() -> None:
    """A list of entries may be written as an object, with values of any type, at any depth.

    A list of entries that is written as a list is read as usual.
    """
    entries = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    assert convert_value(pa.struct([("tags", entries)]), {"tags": {"a": 1, "b": None}}) == {
        "tags": [{"key": "a", "value": 1}, {"key": "b", "value": None}]
    }
    assert convert_value(entries, [{"key": "a", "value": 1}]) == [{"key": "a", "value": 1}]
    assert refused(entries, {"a": "x"}) == ("wrong_type", "Expected int, got str - at $.a[...]")
    assert refused(pa.list_(pa.int64()), {"a": 1})[0] == "wrong_type"


WHOLE, DAYS = "Expected a whole number of 64 bits", "Expected a date that the calendar has"
OF_SCALE = "Expected a decimal's scale, and its value in base64"
DIGITS = "Expected a number of at most 1,000 digits"


@pytest.mark.parametrize(
    ("kind", "value", "reading", "reason", "detail"),
    [
        (pa.int64(), "", LENIENT, "wrong_format", "Expected a number"),
        (pa.int64(), "1.5", LENIENT, "out_of_range", WHOLE),
        (pa.int8(), "128", LENIENT, "out_of_range", "Expected an integer of 8 bits"),
        (pa.float64(), "", LENIENT, "wrong_format", "Expected a number"),
        (pa.float64(), "1e400", LENIENT, "out_of_range", "Expected a float of 64 bits"),
        (pa.string(), [], LENIENT, "wrong_type", "Expected str, got array"),
        (pa.bool_(), 1, LENIENT, "wrong_type", "Expected bool, got int"),
        (pa.decimal128(5, 2), {"scale": 2}, BYTES, "wrong_format", OF_SCALE),
        (pa.decimal128(5, 2), [2], BYTES, "wrong_type", "Expected decimal, got array"),
        (
            pa.decimal128(5, 2),
            "?",
            BYTES,
            "wrong_format",
            "Expected the bytes of a decimal in base64",
        ),
        (pa.decimal128(5, 2), "f" * 4_000, BYTES, "out_of_range", FIVE_TWO),
        (pa.decimal128(5, 2), "D0JA", BYTES, "out_of_range", FIVE_TWO),
        (pa.date32(), 2_932_897, BYTES, "out_of_range", DAYS),
        (pa.date32(), "2017-09-15", BYTES, "wrong_type", "Expected int, got str"),
        (
            pa.timestamp("us", "UTC"),
            "2026-01-05",
            Reading("sql"),
            "wrong_format",
            "Expected an ISO 8601 timestamp",
        ),
        (pa.timestamp("us", "UTC"), b"1e1001", Reading("epoch_s"), "out_of_range", DIGITS),
        (pa.timestamp("us", "UTC"), b"0e1001", Reading("epoch_s"), "out_of_range", DIGITS),
        (
            pa.timestamp("us", "UTC"),
            b"0." + b"0" * 999,
            Reading("epoch_s"),
            "out_of_range",
            DIGITS,
        ),
        (pa.timestamp("us", "UTC"), 10**21, Reading("epoch_ns"), "out_of_range", YEARS),
    ],
)
def test_the_detail_where_values_are_of_other_forms(
    kind: pa.DataType, value: object, reading: Reading, reason: str, detail: str
) -> None:
    """The detail of other forms has the expected form and the path."""
    assert refused(kind, value, reading=reading) == (reason, f"{detail} - at $.a")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("x", pa.timestamp("us", "UTC"))]), {"x": "0.0001"}),
        (pa.list_(pa.timestamp("us", "UTC")), ["0.0001"]),
        (pa.map_(pa.string(), pa.timestamp("us", "UTC")), {"k": "0.0001"}),
        (
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.timestamp("us", "UTC"))])),
            {"k": "0.0001"},
        ),
    ],
)
def test_what_is_cut_is_noted_at_any_depth(kind: pa.DataType, value: object) -> None:
    """Truncation is noted at any depth, also for numbers in strings; or the value is refused."""
    cut, reading = Truncation("truncate"), Reading("epoch_ms", lenient=True)
    converter(kind, None, reading, cut)(value, "$.a")
    assert cut.done
    with pytest.raises(RefusedValueError, match="whole microseconds"):
        converter(kind, None, reading, Truncation("dead"))(value, "$.a")


def test_fields_of_structs_may_have_a_unit_and_a_zone() -> None:
    """Fields of structs may have a unit and a zone, as the columns that they come from."""
    ms = field_of(Column("ms", TIMESTAMP, nullable=True, epoch="ms"))
    berlin = field_of(Column("at", TIMESTAMP, nullable=True, zone="Europe/Berlin"))
    assert convert_value(pa.struct([ms, berlin]), {"ms": 7, "at": "1970-01-01 01:00"}) == {
        "ms": 7_000,
        "at": 0,
    }


def test_what_a_message_states_wins() -> None:
    """The unit that a message states overrides the column's own unit."""
    assert Reading("epoch_us", stated=True).unit("ms") == "us"
    assert Reading(stated=True).unit("ms") is None


def test_rules_of_a_place_are_its_own_or_those_around_it() -> None:
    """A field or an item has its own rules, or else inherits the rules around it.

    It doesn't inherit the rules for other fields or items.
    """
    around = Reading(fields=(("a", LENIENT),), items=LENIENT)
    assert (around.field("a"), around.field("b"), around.item()) == (LENIENT, EXACT, LENIENT)
    assert Reading(fields=(("a", LENIENT),)).item() == EXACT


@pytest.mark.parametrize(
    ("kind", "reading", "value", "expected"),
    [
        (pa.struct([("x", pa.int8())]), Reading(fields=(("x", LENIENT),)), {"x": "7"}, {"x": 7}),
        (pa.list_(pa.int8()), Reading(items=LENIENT), ["7"], [7]),
        (
            pa.map_(pa.string(), pa.int8()),
            Reading(items=Reading(fields=(("value", LENIENT),))),
            {"k": "7"},
            [("k", 7)],
        ),
    ],
)
def test_each_place_is_read_by_its_own_rules(
    kind: pa.DataType, reading: Reading, value: object, expected: object
) -> None:
    """A field, an item and a map's value are each read by their own rules."""
    assert convert_value(kind, value, reading=reading) == expected
    assert refused(kind, value)[0] == "wrong_type"
