"""Conversion of a JSON value to a value of a column.

The rules of a dialect (`json_dialects.Reading`) say how values are written. A value is refused
if its conversion would lose a part of it, or would need a guess. Only the part of a timestamp
that is finer than a microsecond may be lost (`Truncation`).

The parser hands over numbers in these types, so that no digit is lost before it is checked:

- an integer with a short literal as an int, with a longer one as a `LongInteger`;
- a number with a fraction or an exponent as its literal in bytes, because no other JSON value
  is bytes;
- bare `NaN` and infinities, where the dialect allows them, as a float.

A message may hold millions of numbers, so these types take little memory.
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from windrow.ingest.formats.shared.budget import OVER_BUDGET, entry_cost, item_cost
from windrow.ingest.formats.shared.integers import EPOCH, MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Finer, epoch_of, zone_of
from windrow.ingest.schema.dtypes import EPOCH_UNITS, map_type


class LongInteger(str):
    """Literal of an integer with more characters than 64 bits need.

    It isn't converted to an int, which could take quadratic time.
    """

    __slots__ = ()


def integer(literal: str) -> int | LongInteger | bytes:
    """Converts the JSON literal of an integer.

    `-0` stays a literal, because it is -0.0 in a column of floats.
    """
    if literal == "-0":
        return _MINUS_ZERO
    return int(literal) if len(literal) <= _LONGEST_INT else LongInteger(literal)


Convert = Callable[[Any, str], Any]
"""Converts a JSON value to a Python object that pyarrow takes for the column.

It is called with a value that isn't null, and the value's path. It raises
`RefusedValueError` if it refuses the value.
"""

_KINDS: dict[type, str] = {
    int: "int",
    LongInteger: "int",
    bytes: "float",
    float: "float",
    str: "str",
    bool: "bool",
    dict: "object",
    list: "array",
    type(None): "null",
}
_MINUS_ZERO = b"-0"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt"
    r" ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?: ?([Zz]|UTC|([+-])([0-9]{2})(?::?([0-9]{2}))?)(?:\[[A-Za-z0-9_+/-]+\])?)?"
)
_DOTNET_INSTANT = re.compile(r"/Date\((-?[0-9]{1,18})(?:[+-][0-9]{4})?\)/")
"""Milliseconds since 1970 as .NET writes them. The offset behind them changes no instant."""
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})Z?")
_MICROSECOND = timedelta(microseconds=1)
_WHOLE_DIGITS = 19  # the most digits of an integer of 64 bits
_LONGEST_INT = 20  # a sign and the 19 digits of 2**63
# The most characters of a decimal: far more than a column holds, and fast to compute with.
_LONGEST_DECIMAL = 1_000
_MOST_BITS = 3_000  # some 900 digits, about `_LONGEST_DECIMAL`
_MICROS_DIGITS = 6
_NUMBERS = ": numbers need decode.timestamps, which is epoch_s or epoch_ms then, or another unit"


def wrong_type(expected: str, value: object, path: str) -> RefusedValueError:
    """Returns a refusal in msgspec's words: `Expected int, got str - at $.amount`."""
    return RefusedValueError("wrong_type", f"Expected {expected}, got {_KINDS[type(value)]}", path)


class Source(Truncation):
    """Message whose values are converted.

    Attributes:
        text: the message's text.
        spans: the begin and end in `text` of each object and each list, by the `id` of its
            Python object. Only noted if `noting` is True.
        noting: whether a column takes objects and lists as texts.
        budget: the bytes of columns that the remaining items of the message may take; by
            default there is no limit.
    """

    def __init__(self, finer: Finer = "truncate") -> None:
        super().__init__(finer)
        self.budget = 1 << 62
        self.text = ""
        self.spans: dict[int, tuple[int, int]] = {}
        self.noting = False

    def spend(self, cost: int, path: str) -> None:
        """Subtracts the cost of a list's items, or of a map's entries, from the budget."""
        self.budget -= cost
        if self.budget < 0:
            raise RefusedValueError("too_large", OVER_BUDGET, path)


def refuse_unknown(document: dict[str, Any], only: AbstractSet[str] | None, path: str) -> None:
    """Refuses an object with fields that aren't in `only`; None allows all fields."""
    if only is not None and not document.keys() <= only:
        raise RefusedValueError(
            "unknown_field", "Object holds a field that the schema doesn't name", path
        )


def converter(
    kind: pa.DataType,
    epoch: str | None = None,
    reading: Reading = EXACT,
    truncation: Truncation | None = None,
    zone: str | None = None,
) -> Convert:
    """Returns the conversion to a column's type.

    Args:
        kind: the column's type.
        epoch: the column's unit in the model.
        reading: the rules for reading values.
        truncation: the rule for timestamps finer than a microsecond.
        zone: the column's zone in the model.
    """
    truncation = truncation or Truncation()
    if pa.types.is_struct(kind):
        return _to_struct(kind, reading, truncation)
    if pa.types.is_map(kind):
        return _to_map(kind, reading, truncation, entry_cost(kind.item_type))
    if pa.types.is_list(kind):
        return _to_list(kind, reading, truncation)
    if pa.types.is_timestamp(kind):
        unit = reading.unit(epoch, zone)
        if unit is None:
            # If the message's own schema gives the form, no option is worth advising.
            return _to_instant(reading.clock(zone), truncation, "" if reading.stated else _NUMBERS)
        return (
            _number_first(_to_epoch(unit, truncation))
            if reading.lenient
            else _to_epoch(unit, truncation)
        )
    if pa.types.is_integer(kind):
        return _whole_first(_to_int(kind.bit_width)) if reading.lenient else _to_int(kind.bit_width)
    if pa.types.is_floating(kind):
        to_float = (
            _number_first(_to_float(kind.bit_width))
            if reading.lenient
            else _to_float(kind.bit_width)
        )
        return _non_numeric_first(to_float) if reading.non_numeric else to_float
    if pa.types.is_decimal(kind):
        return (
            _to_decimal(kind.precision, kind.scale)
            if reading.decimals == "numeric"
            else _to_unscaled(kind, reading.scale)
        )
    if pa.types.is_date(kind) and reading.dates == "epoch_days":
        return _whole_first(_to_days) if reading.lenient else _to_days
    if reading.lenient and pa.types.is_boolean(kind):
        return _to_switch
    if reading.lenient and pa.types.is_string(kind):
        return _to_text(_source(truncation))
    return {pa.string(): _to_str, pa.bool_(): _to_bool, pa.date32(): _to_day}[kind]


def _source(truncation: Truncation) -> Source:
    """Returns the message whose values are converted; outside messages nothing has a limit."""
    return truncation if isinstance(truncation, Source) else Source()


def number_in(text: str, path: str) -> int | LongInteger | bytes:
    """Returns the number in a text, in the types of this module.

    Raises:
        RefusedValueError: the text isn't a number by JSON's grammar.
    """
    if _WHOLE.fullmatch(text):
        return integer(text)
    if _NUMBER.fullmatch(text):
        return text.encode()
    raise RefusedValueError("wrong_format", "Expected a number", path)


def _number_first(convert: Convert) -> Convert:
    """Returns a conversion that also takes numbers in strings."""
    return lambda value, path: convert(
        number_in(value, path) if type(value) is str else value, path
    )


def _non_numeric_first(convert: Convert) -> Convert:
    """Returns a conversion to floats that also takes NaN and infinities."""
    return lambda value, path: (
        float(value)
        if type(value) is float or value in ("NaN", "Infinity", "-Infinity")
        else convert(value, path)
    )


def _whole_first(convert: Convert) -> Convert:
    """Returns a conversion to integers that also takes numbers in strings.

    It also takes numbers with a fraction or an exponent, if they are whole.
    """
    message = "Expected a whole number of 64 bits"

    def convert_integer(value: Any, path: str) -> Any:
        return convert(
            (
                int(_to_fitting_decimal(value.decode(), _WHOLE_DIGITS, 0, message, path))
                if type(value) is bytes
                else value
            ),
            path,
        )

    return _number_first(convert_integer)


def keep_null(convert: Convert) -> Convert:
    """Returns a conversion that keeps null."""
    return lambda value, path: None if value is None else convert(value, path)


def _to_str(value: Any, path: str) -> str:
    if type(value) is not str:
        raise wrong_type("str", value, path)
    return value


def _to_bool(value: Any, path: str) -> bool:
    if type(value) is not bool:
        raise wrong_type("bool", value, path)
    return value


def _to_text(source: Source) -> Convert:
    """Returns a conversion that takes a string, or the text of any other value."""
    source.noting = True

    def convert(value: Any, path: str) -> str:
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) is bytes:
            return value.decode()
        if type(value) in (int, LongInteger):
            return str(value)
        if id(value) in source.spans and type(value) in (dict, list):
            begin, end = source.spans[id(value)]
            return source.text[begin:end]
        return _to_str(value, path)

    return convert


def _to_switch(value: Any, path: str) -> bool:
    """Converts a boolean, or the string `true` or `false` in upper or lower case."""
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return _to_bool(value, path)


def _integer(value: Any, path: str) -> int:
    if type(value) is LongInteger:
        raise RefusedValueError("out_of_range", "Expected an integer of 64 bits", path)
    if value == _MINUS_ZERO:
        return 0
    if type(value) is not int:
        raise wrong_type("int", value, path)
    return value


def _to_int(bits: int) -> Convert:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any, path: str) -> int:
        number = _integer(value, path)
        if not low <= number <= high:
            raise RefusedValueError("out_of_range", f"Expected an integer of {bits} bits", path)
        return number

    return convert


def _to_float(bits: int) -> Convert:
    """Returns a conversion that rounds a number once, from its digits.

    It also takes an integer, because JavaScript and Go write a double below 1e21 as an
    integer: `1152921504606847000` is 2**60.
    """

    def convert(value: Any, path: str) -> float:
        if type(value) not in (int, LongInteger, bytes):
            raise wrong_type("float", value, path)
        literal = value.decode() if type(value) is bytes else str(value)
        number = float(literal) if bits == 64 else _single(literal)
        if math.isinf(number):
            raise RefusedValueError("out_of_range", f"Expected a float of {bits} bits", path)
        return number

    return convert


def _single(literal: str) -> float:
    """Returns the float of 32 bits nearest to a number.

    Rounding the nearest double is wrong if that double is halfway between two singles and
    the number isn't. So if the number is between two doubles, the odd one of them is
    rounded, because an odd double is never halfway.
    """
    number = float(literal)
    if number and math.isfinite(number) and not struct.pack("<d", number)[0] & 1:
        exact, double = Decimal(literal), Decimal(number)
        number = (
            number
            if exact == double
            else math.nextafter(number, math.inf if exact > double else -math.inf)
        )
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf


def _to_decimal(precision: int, scale: int) -> Convert:
    """Returns a conversion of the digits of a literal or a string to a decimal.

    Trailing zeros beyond the scale are taken, because nothing is lost.
    """
    message = f"Expected a decimal of {precision} digits, {scale} of them after the point"

    def convert(value: Any, path: str) -> Decimal:
        if type(value) not in (str, int, LongInteger, bytes):
            raise wrong_type("decimal", value, path)
        text = value.decode() if type(value) is bytes else str(value)
        if len(text) > _LONGEST_DECIMAL:
            raise RefusedValueError("out_of_range", message, path)
        if _NUMBER.fullmatch(text) is None:
            raise RefusedValueError("wrong_format", "Expected a decimal number", path)
        return _to_fitting_decimal(text, precision, scale, message, path)

    return convert


def _to_unscaled(kind: pa.DataType, stated: int | None) -> Convert:
    """Returns a conversion of a decimal that Kafka Connect wrote as bytes in base64.

    The bytes are the unscaled integer in two's complement, the highest byte first.
    Debezium's decimals of variable scale are an object with the scale and these bytes.
    A JSON number is read by its digits.

    Args:
        kind: the column's type.
        stated: the scale in the message's schema; None for the column's scale.
    """
    message = f"Expected a decimal of {kind.precision} digits, {kind.scale} of them after the point"
    numeric = _to_decimal(kind.precision, kind.scale)

    def convert(value: Any, path: str) -> Any:
        scale, text = (kind.scale if stated is None else stated), value
        if type(value) is dict:
            scale, text = value.get("scale"), value.get("value")
            if type(scale) is not int or type(text) is not str:
                raise RefusedValueError(
                    "wrong_format", "Expected a decimal's scale, and its value in base64", path
                )
        if type(text) is not str:
            return numeric(value, path)
        try:
            octets = binascii.a2b_base64(text, strict_mode=True)
        except ValueError:
            octets = b""
        if not octets:
            raise RefusedValueError(
                "wrong_format", "Expected the bytes of a decimal in base64", path
            )
        number = int.from_bytes(octets, "big", signed=True)
        if number.bit_length() > _MOST_BITS:
            raise RefusedValueError("out_of_range", message, path)
        return _to_fitting_decimal(f"{number}e{-scale}", kind.precision, kind.scale, message, path)

    return convert


def _to_fitting_decimal(text: str, precision: int, scale: int, message: str, path: str) -> Decimal:
    """Returns the decimal of a literal.

    It computes with the digits' count only, so that a large exponent costs nothing.

    Raises:
        RefusedValueError: with `message`; the decimal doesn't fit.
    """
    mantissa, _, exponent = text.lower().partition("e")
    integer_digits, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (integer_digits + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Decimal(0)
    if len(exponent) > _LONGEST_INT:
        raise RefusedValueError("out_of_range", message, path)
    power = int(exponent or 0) - len(fraction) + len(digits) - len(significant)
    if power < -scale or len(significant) + power > precision - scale:
        raise RefusedValueError("out_of_range", message, path)
    return Decimal((int(mantissa.startswith("-")), tuple(map(int, significant)), power))


def _to_instant(zone: str | None, truncation: Truncation, numbers: str) -> Convert:
    """Returns a conversion of a text with date and time to microseconds since 1970.

    Args:
        zone: the zone of texts without an offset; None if each text needs an offset.
        truncation: the rule for timestamps finer than a microsecond.
        numbers: the advice that the refusal of a number ends with.
    """
    clock = None if zone is None else ZoneInfo(zone)
    message = (
        "Expected an RFC 3339 timestamp with an offset"
        if zone is None
        else "Expected an ISO 8601 timestamp"
    )

    def convert(value: Any, path: str) -> int:
        if type(value) is not str:
            kind = _KINDS[type(value)]
            hint = numbers if kind in {"int", "float"} else ""
            raise RefusedValueError("wrong_type", f"Expected a timestamp, got {kind}{hint}", path)
        match = _INSTANT.fullmatch(value)
        if match is None and (dotnet := _DOTNET_INSTANT.fullmatch(value)) is not None:
            return _in_calendar(int(dotnet[1]) * 1_000, path)
        if match is None or (match[5] is None and clock is None):
            hint = "" if match is None else ": one that has none needs decode.zone"
            raise RefusedValueError("wrong_format", message + hint, path)
        day, clock_time, seconds, fraction, offset, sign, hours, minutes = match.groups(default="")
        try:
            local = datetime.fromisoformat(
                f"{day}T{clock_time}:{seconds or '00'}.{fraction[:_MICROS_DIGITS]:0<6}"
            )
            shift = timedelta() if not sign else _offset(int(hours), int(minutes or "0"))
        except ValueError:
            raise RefusedValueError(
                "out_of_range", "Expected a timestamp that the calendar has", path
            ) from None
        if not offset and clock is not None:
            shift = _local_offset(local, clock, path)
        if fraction[_MICROS_DIGITS:].strip("0"):
            truncation.note_cut(path)
        micros = (local - EPOCH + (shift if sign == "-" else -shift)) // _MICROSECOND
        return _in_calendar(micros, path)

    return convert


def _local_offset(local: datetime, zone: ZoneInfo, path: str) -> timedelta:
    """Returns the offset from UTC of a zone's clocks when they showed a local time.

    Raises:
        RefusedValueError: the clocks showed this time twice, or never.
    """
    first, last = (
        local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)
    )
    if first != last:
        raise RefusedValueError(
            "out_of_range",
            f"Expected a timestamp with an offset, where the clocks of {zone.key} showed it twice"
            " or never",
            path,
        )
    return first


def _offset(hours: int, minutes: int) -> timedelta:
    if hours > 23 or minutes > 59:  # RFC 3339, time-numoffset
        raise ValueError
    return timedelta(hours=hours, minutes=minutes)


def _in_calendar(micros: int, path: str) -> int:
    if not MIN_MICROS <= micros <= MAX_MICROS:
        raise RefusedValueError("out_of_range", "Expected a timestamp in the years 1 to 9999", path)
    return micros


def _to_epoch(unit: str, truncation: Truncation) -> Convert:
    """Returns a conversion of a number of units since 1970 to microseconds.

    A part finer than a microsecond is cut off, towards the past.
    """

    def convert(value: Any, path: str) -> int:
        digits, power = (
            _scale(value.decode(), EPOCH_UNITS[unit], path)
            if type(value) is bytes
            else (_integer(value, path), EPOCH_UNITS[unit])
        )
        if power >= 0:
            return _in_calendar(digits * 10**power, path)
        micros, finer = divmod(digits, 10**-power)
        if finer:
            truncation.note_cut(path)
        return _in_calendar(micros, path)

    return convert


def _scale(text: str, power: int, path: str) -> tuple[int, int]:
    """Multiplies a number with a power of ten.

    Returns:
        An integer and a power of ten, both of bounded size.
    """
    mantissa, _, exponent = text.lower().partition("e")
    integer_digits, _, fraction = mantissa.partition(".")
    if len(text) > _LONGEST_DECIMAL or abs(int(exponent or 0)) > _LONGEST_DECIMAL:
        raise RefusedValueError(
            "out_of_range", f"Expected a number of at most {_LONGEST_DECIMAL:,} digits", path
        )
    return int(integer_digits + fraction), power + int(exponent or 0) - len(fraction)


def _to_day(value: Any, path: str) -> date:
    if type(value) is not str:
        raise wrong_type("str", value, path)
    match = _DAY.fullmatch(value)
    if match is None:
        raise RefusedValueError("wrong_format", "Expected an ISO 8601 date", path)
    try:
        return date.fromisoformat(match[1])
    except ValueError:
        raise RefusedValueError(
            "out_of_range", "Expected a date that the calendar has", path
        ) from None


def _to_days(value: Any, path: str) -> date:
    days = _integer(value, path)
    if not MIN_DAYS <= days <= MAX_DAYS:
        raise RefusedValueError("out_of_range", "Expected a date that the calendar has", path)
    return (EPOCH + timedelta(days)).date()


def _to_struct(kind: pa.DataType, reading: Reading, truncation: Truncation) -> Convert:
    fields = [
        (f.name, converter(f.type, epoch_of(f), reading.field(f.name), truncation, zone_of(f)))
        for f in kind
    ]
    only = {f.name for f in kind} if reading.unknown == "dead" else None

    def convert(value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise wrong_type("object", value, path)
        refuse_unknown(value, only, path)
        # Arrow takes a missing field as null; many structs of nulls would take much memory.
        return {
            name: convert_field(field, f"{path}.{name}")
            for name, convert_field in fields
            if (field := value.get(name)) is not None
        }

    return convert


def _to_list(kind: pa.DataType, reading: Reading, truncation: Truncation) -> Convert:
    """Returns a conversion of an array to a list.

    If the items are structs of a key and a value, it also takes an object.
    """
    convert_item = keep_null(converter(kind.value_type, None, reading.item(), truncation))
    entries, cost, source = map_type(kind), item_cost(kind.value_type), _source(truncation)
    of_map = None if entries is None else _to_map(entries, reading, truncation, cost)

    def convert(value: Any, path: str) -> list[Any]:
        if of_map is not None and type(value) is dict:
            return [{"key": key, "value": item} for key, item in of_map(value, path)]
        if type(value) is not list:
            raise wrong_type("array", value, path)
        source.spend(cost * len(value), path)
        return [convert_item(item, f"{path}[{i}]") for i, item in enumerate(value)]

    return convert


def _to_map(kind: pa.DataType, reading: Reading, truncation: Truncation, cost: int) -> Convert:
    source = _source(truncation)
    convert_value = keep_null(
        converter(kind.item_type, None, reading.item().field("value"), truncation)
    )

    def convert(value: Any, path: str) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise wrong_type("object", value, path)
        source.spend(cost * len(value), path)
        # A map's keys are data, so the path has no key.
        return [(key, convert_value(item, f"{path}[...]")) for key, item in value.items()]

    return convert
