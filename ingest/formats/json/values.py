"""Conversion of one JSON value to a value of a column: exactly, or not at all.

No digit of a number is lost before it is checked.

Values are read by the rules of a dialect (`dialects.Reading`). What would lose something, or
need a guess, is always refused. One thing alone may be lost: what of a timestamp is finer than
a microsecond (`Truncation`).

An integer comes as an int if its literal is short, else as a `LongInteger`. A number
with a fraction or an exponent comes as its literal in bytes, a type that no other JSON
value has; `NaN` and the infinities, where they may stand bare, as a float. A message may
hold millions of numbers, so each is of the smallest type that identifies it.
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

from windrow.ingest.formats.shared.integers import EPOCH, MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Finer, epoch_of, zone_of
from windrow.ingest.schema.dtypes import EPOCH_UNITS, map_type


class LongInteger(str):
    """Literal of an integer with more characters than 64 bits need.

    Turning it into an int could take quadratic time.
    """

    __slots__ = ()


def integer(literal: str) -> int | LongInteger | bytes:
    """Makes an integer of its JSON literal; `-0` stays one: in a column of floats it is -0.0."""
    if literal == "-0":
        return _MINUS_ZERO
    return int(literal) if len(literal) <= _LONGEST_INT else LongInteger(literal)


Convert = Callable[[Any, str], Any]
"""Converts a JSON value, never null, to what pyarrow takes for the column.

The text is the value's path. Raises `RefusedValueError`.
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
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})Z?")
_MICROSECOND = timedelta(microseconds=1)
_WHOLE_DIGITS = 19  # of any integer of 64 bits
_LONGEST_INT = 20  # a sign and the 19 digits of 2**63
# characters; far more than any column holds, and short enough to compute with
_LONGEST_DECIMAL = 1_000
_MOST_BITS = 3_000  # about as many digits
_MICROS_DIGITS = 6
_NUMBERS = ": numbers need decode.timestamps, which is epoch_s or epoch_ms then, or another unit"


def wrong_type(expected: str, value: object, path: str) -> RefusedValueError:
    """A refusal in msgspec's words: `Expected int, got str - at $.amount`."""
    return RefusedValueError("wrong_type", f"Expected {expected}, got {_KINDS[type(value)]}", path)


class Source(Truncation):
    """The message whose values are converted.

    `spans`: where each object and each list is in its `text`, by its `id`; noted only for
    columns that take these as texts (`noting`).
    """

    def __init__(self, finer: Finer = "truncate") -> None:
        super().__init__(finer)
        self.text = ""
        self.spans: dict[int, tuple[int, int]] = {}
        self.noting = False


def refuse_unknown(document: dict[str, Any], only: AbstractSet[str] | None, path: str) -> None:
    """Refuses an object with other fields than `only` these; None: it may have any."""
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

    `epoch`, `zone`: those of the column in the model.
    """
    truncation = truncation or Truncation()
    if pa.types.is_struct(kind):
        return _to_struct(kind, reading, truncation)
    if pa.types.is_map(kind):
        return _to_map(kind, reading, truncation)
    if pa.types.is_list(kind):
        return _to_list(kind, reading, truncation)
    if pa.types.is_timestamp(kind):
        unit = reading.unit(epoch, zone)
        if unit is None:
            # where the message's own schema gives the form no option counts
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
        return _to_text(truncation if isinstance(truncation, Source) else Source())
    return {pa.string(): _to_str, pa.bool_(): _to_bool, pa.date32(): _to_day}[kind]


def number_in(text: str, path: str) -> int | LongInteger | bytes:
    """Number in a text, by JSON's grammar and as JSON's parser hands it over."""
    if _WHOLE.fullmatch(text):
        return integer(text)
    if _NUMBER.fullmatch(text):
        return text.encode()
    raise RefusedValueError("wrong_format", "Expected a number", path)


def _number_first(convert: Convert) -> Convert:
    """A conversion that takes numbers in strings, too."""
    return lambda value, path: convert(
        number_in(value, path) if type(value) is str else value, path
    )


def _non_numeric_first(convert: Convert) -> Convert:
    """A conversion to floats that takes those that are no numbers, too."""
    return lambda value, path: (
        float(value)
        if type(value) is float or value in ("NaN", "Infinity", "-Infinity")
        else convert(value, path)
    )


def _whole_first(convert: Convert) -> Convert:
    """A conversion to integers that takes numbers in strings, too.

    Also numbers with a fraction or an exponent, if they are whole.
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
    """A conversion that keeps null."""
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
    """Takes a string; or anything else as it is in the message."""
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
    """A boolean; or `true` or `false` in a string, in any case."""
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
    """Rounds a number once, from its digits.

    Also an integer, for a double below 1e21 is written as one: `1152921504606847000` by
    JavaScript and Go is 2**60.
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
    """The float of 32 bits nearest to a number.

    Rounding the nearest double could be wrong, if that lies halfway between two
    singles. So if the number isn't a double, the odd one of the two doubles around it
    is rounded: an odd one never lies halfway.
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
    """Reads a decimal from the digits of a literal or a string.

    Trailing zeros beyond the scale lose nothing, and are taken.
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
    """Reads a decimal as Connect writes its bytes, in base64.

    The bytes are the unscaled integer in two's complement, the highest byte first.
    Debezium's decimals of variable scale are an object with the scale and these bytes.
    A JSON number is read by its digits.
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
    """The decimal of a literal, if it fits.

    By arithmetic on the digits alone, so that an exponent of any size costs nothing.
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
    """Reads a text with date and time as microseconds since 1970.

    `zone`: the zone of texts without an offset; None: each needs one. `numbers`: what is said of a
    number.
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
    """Offset from UTC of a zone's clocks when they showed this time."""
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
    """Reads a number of units since 1970 as microseconds.

    What is finer is cut off, towards the past.
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
    """A number times a power of ten, as an integer and a power of ten.

    Both are of bounded size.
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
        (
            f.name,
            keep_null(
                converter(f.type, epoch_of(f), reading.field(f.name), truncation, zone_of(f))
            ),
        )
        for f in kind
    ]
    only = {f.name for f in kind} if reading.unknown == "dead" else None

    def convert(value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise wrong_type("object", value, path)
        refuse_unknown(value, only, path)
        return {
            name: convert_field(value.get(name), f"{path}.{name}") for name, convert_field in fields
        }

    return convert


def _to_list(kind: pa.DataType, reading: Reading, truncation: Truncation) -> Convert:
    """Reads an array; or an object, if the items are entries with a key and a value."""
    convert_item = keep_null(converter(kind.value_type, None, reading.item(), truncation))
    entries = map_type(kind)
    of_map = None if entries is None else _to_map(entries, reading, truncation)

    def convert(value: Any, path: str) -> list[Any]:
        if of_map is not None and type(value) is dict:
            return [{"key": key, "value": item} for key, item in of_map(value, path)]
        if type(value) is not list:
            raise wrong_type("array", value, path)
        return [convert_item(item, f"{path}[{i}]") for i, item in enumerate(value)]

    return convert


def _to_map(kind: pa.DataType, reading: Reading, truncation: Truncation) -> Convert:
    convert_value = keep_null(
        converter(kind.item_type, None, reading.item().field("value"), truncation)
    )

    def convert(value: Any, path: str) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise wrong_type("object", value, path)
        # a map's keys are data
        return [(key, convert_value(item, f"{path}[...]")) for key, item in value.items()]

    return convert
