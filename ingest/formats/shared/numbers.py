"""Functions that read numbers from their digits.

Compiled. `pos` is the index of the number's first byte. A returned index of -1 means that
the number isn't certain, so the strict way reads it. A single is a float of 32 bits.

A double is made in one of two ways. Both are proven to round as IEEE 754 requires:

1. If the digits and the power of ten are both exact doubles, one multiplication or division
   is enough (W. D. Clinger, How to Read Floating Point Numbers Accurately).
2. Otherwise the digits are multiplied with 128 bits of the power of five (D. Lemire, Number
   Parsing at a Gigabyte per Second, after M. Eisel). In rare cases the product leaves the
   rounding open, and the number isn't certain.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.shared.nodes import FLOAT32, INTEGER
from windrow.ingest.formats.shared.octets import byte
from windrow.ingest.native.compiling import inlined, leading_zeros, part

MOST_DIGITS = 19
"""Largest number of digits that always fits into 64 bits without a sign."""
WHOLE, FRACTION, LONG = 0, 1, 2
"""Kinds of numbers that `number` returns.

- `WHOLE`: an integer.
- `FRACTION`: a number with a fraction or an exponent.
- `LONG`: a number with more than `MOST_DIGITS` digits.
"""

_U = np.uint64
_LARGEST_SINGLE, _LEAST_SINGLE = (
    float(np.finfo(np.float32).max),
    float(np.finfo(np.float32).smallest_normal),
)
_LOST, _HALFWAY = (1 << 29) - 1, 1 << 28
"""Bits of a double that a single lacks, and their value halfway between two singles."""
_FAR = 1_000
"""Largest exponent that is read; it is larger than the exponents of all doubles."""
_EXACT_POWERS = np.array([float(10**i) for i in range(23)])
_LEAST_POWER, _MOST_POWER = -325, 308


def _power_of_five(power: int) -> int:
    """Returns the highest 128 bits of 5**power; the first bit is 1.

    They are truncated; for a negative power they are rounded up. Lemire's proof requires
    this.
    """
    value: int = 5 ** abs(power)
    if power >= 0:
        return (
            value << 128 - value.bit_length()
            if value.bit_length() <= 128
            else value >> value.bit_length() - 128
        )
    divisor = value
    bits = (divisor - 1).bit_length()
    if power >= -27:
        return (1 << bits + 127) // divisor + 1
    value = (1 << 2 * bits + 128) // divisor + 1
    return value >> value.bit_length() - 128


_FIVES = [_power_of_five(power) for power in range(_LEAST_POWER, _MOST_POWER + 1)]
_FIVES_HIGH = np.array([five >> 64 for five in _FIVES], np.uint64)
_FIVES_LOW = np.array([five & (1 << 64) - 1 for five in _FIVES], np.uint64)


@inlined
def is_digit(data, pos, end):
    """Returns whether a digit is at `pos`, before `end`."""
    return pos < end and 48 <= byte(data, pos) <= 57


@part
def number(data, pos, end):
    """Reads a number.

    Returns:
        The index after the number, or -1; its kind; whether it is negative; its digits as
        an integer; and the power of ten that this integer is multiplied with.
    """
    negative = pos < end and byte(data, pos) == 45
    pos += negative
    digits, n, power, literal_kind = _U(0), 0, 0, WHOLE
    if not is_digit(data, pos, end):
        return -1, LONG, negative, digits, power
    if byte(data, pos) == 48:
        pos += 1
    else:
        while is_digit(data, pos, end):
            digits = digits * _U(10) + _U(byte(data, pos) - 48)
            pos, n = pos + 1, n + 1
    if pos < end and byte(data, pos) == 46:
        pos, literal_kind = pos + 1, FRACTION
        begin = pos
        while is_digit(data, pos, end):
            digits = digits * _U(10) + _U(byte(data, pos) - 48)
            # After an overflow `digits` may be 0 again, so `n` is checked, too.
            pos, n = pos + 1, n + (n > 0 or digits != 0)
        power = begin - pos
        if not power:
            return -1, LONG, negative, digits, power
    if pos < end and byte(data, pos) | 32 == 101:
        literal_kind = FRACTION
        pos, exponent = exponent_end(data, pos + 1, end)
        power += exponent
    return pos, LONG if n > MOST_DIGITS else literal_kind, negative, digits, power


@part
def exponent_end(data, pos, end):
    """Reads an exponent, from the byte after its letter.

    Returns:
        The index after the exponent, or -1; and the exponent. An exponent above `_FAR`
        isn't certain either, because many zeros after the point may compensate for it.
    """
    negative = pos < end and byte(data, pos) == 45
    pos += negative or (pos < end and byte(data, pos) == 43)
    if not is_digit(data, pos, end):
        return -1, 0
    exponent = 0
    while is_digit(data, pos, end):
        exponent = exponent * 10 + byte(data, pos) - 48
        if exponent > _FAR:
            return -1, 0
        pos += 1
    return pos, -exponent if negative else exponent


@inlined
def double(digits, power):
    """Returns whether the result is certain, and the double nearest to digits * 10**power."""
    if digits == 0:
        return True, 0.0
    if digits <= _U(1 << 53) and -22 <= power <= 22:
        exact = np.float64(digits)
        return True, exact * _EXACT_POWERS[power] if power >= 0 else exact / _EXACT_POWERS[-power]
    if power < _LEAST_POWER or power > _MOST_POWER:
        return False, 0.0
    return wide_double(digits, power)


@inlined
def numeric(data, pos, end, kind, low, high):
    """Reads a number for a column of integers or floats.

    Returns:
        The index after the number, or -1; and the column's value: an integer from `low` to
        `high`, or the bits of a double.
    """
    pos, literal_kind, negative, digits, power = number(data, pos, end)
    if pos < 0 or literal_kind == LONG:
        return -1, 0
    if kind == INTEGER:
        if literal_kind != WHOLE or digits > _U(1 << 63) - _U(not negative):
            return -1, 0
        value = -np.int64(digits) if negative else np.int64(digits)
        return (-1, 0) if value < low or value > high else (pos, value)
    is_exact, size = double(digits, power)
    if not is_exact or (kind == FLOAT32 and not rounds_alike(size)):
        return -1, 0
    if negative:
        size = -size
    return pos, np.float64(size).view(np.int64)


@inlined
def rounds_alike(size):
    """Returns whether a double rounds to the same single as the number it was read from.

    This is certain if the double isn't halfway between two singles, and the single isn't
    subnormal or infinite.
    """
    return size == 0.0 or (
        _LEAST_SINGLE <= size <= _LARGEST_SINGLE
        and np.float64(size).view(np.int64) & _LOST != _HALFWAY
    )


@part
def wide_double(digits, power):
    """Makes a double by multiplying the digits with 128 bits of the power of five.

    The caller makes sure that the table has the power, and that `digits` isn't 0. A
    subnormal or infinite result isn't certain.

    Returns:
        The same as `double`.
    """
    shift = leading_zeros(digits)
    digits <<= shift
    high, low = product(digits, _FIVES_HIGH[power - _LEAST_POWER])
    if high & _U(0x1FF) == _U(0x1FF):
        more, _ = product(digits, _FIVES_LOW[power - _LEAST_POWER])
        low += more
        high += _U(low < more)
    if low == _U(0xFFFF_FFFF_FFFF_FFFF):
        return False, 0.0
    upper = high >> _U(63)
    mantissa = high >> (upper + _U(9))
    exponent = ((217_706 * power) >> 16) + 63 + np.int64(upper) - np.int64(shift) + 1023
    if exponent <= 0:
        return False, 0.0
    if (
        low <= _U(1)
        and -4 <= power <= 23
        and mantissa & _U(3) == _U(1)
        and mantissa << (upper + _U(9)) == high
    ):
        mantissa &= ~_U(1)  # exactly between two doubles: IEEE 754 rounds to the even one
    mantissa = (mantissa + (mantissa & _U(1))) >> _U(1)
    if mantissa >= _U(1 << 53):
        mantissa, exponent = _U(1 << 52), exponent + 1
    if exponent >= 2047:
        return False, 0.0
    bits = (mantissa & _U((1 << 52) - 1)) | _U(exponent) << _U(52)
    return True, np.uint64(bits).view(np.float64)


@part
def product(a, b):
    """Returns the high and low half of the product of two numbers of 64 bits."""
    mask, half = _U(0xFFFF_FFFF), _U(32)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    cross = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (cross >> half), (cross << half) | (low & mask)


MOST_DECIMAL_TEXT = 1_000
"""Largest number of characters of a decimal that the strict way takes."""


@part
def decimal(data, pos, end, precision, scale):
    """Reads a decimal. A decimal with an exponent isn't certain.

    Returns:
        The index after the decimal, or -1; and the high and low half of its value times
        10**scale.
    """
    begin, failed = pos, (-1, _U(0), _U(0))
    negative = pos < end and byte(data, pos) == 45
    pos += negative
    if not is_digit(data, pos, end):
        return failed
    first, second, tens, n = _U(0), _U(0), _U(1), 0
    places = -1  # number of digits after the point; -1 before the point
    leading = byte(data, pos) == 48
    while pos < end and pos - begin <= MOST_DECIMAL_TEXT:
        c = byte(data, pos)
        if c == 46 and places < 0:
            if not is_digit(data, pos + 1, end):
                return failed
            places, leading = 0, False
        elif 48 <= c <= 57:
            if places == scale and c != 48:
                return failed
            if places < scale:
                first, second, tens, n = with_digit(first, second, tens, n, c - 48)
                places += places >= 0
            if leading and is_digit(data, pos + 1, end):
                return failed
        else:
            break
        pos += 1
    if pos - begin > MOST_DECIMAL_TEXT or (pos < end and byte(data, pos) | 32 == 101):
        return failed
    for _ in range(scale - max(places, 0)):
        first, second, tens, n = with_digit(first, second, tens, n, 0)
    if n > precision:
        return failed
    high, low = product(first, tens)
    low += second
    high += _U(low < second)
    if negative:
        high, low = negate(high, low)
    return pos, high, low


@part
def with_digit(first, second, tens, n, digit):
    """Adds a digit to a decimal that is being read.

    Returns:
        The first 19 digits as a number; the later digits as a number; 10 to the number of
        later digits; and the count of all digits without leading zeros.
    """
    if n < MOST_DIGITS:
        first = first * _U(10) + _U(digit)
        return first, second, tens, n + (first != 0)
    return first, second * _U(10) + _U(digit), tens * _U(10), n + 1


_BASE64 = np.full(256, -1, np.int64)
for _value, _letter in enumerate(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
):
    _BASE64[_letter] = _value
_BOUNDS_HIGH = np.array([10**digits >> 64 for digits in range(39)], np.uint64)
_BOUNDS_LOW = np.array([10**digits & (1 << 64) - 1 for digits in range(39)], np.uint64)
_MOST_OCTETS, _PADDING = 16, ord("=")


@part
def read_unscaled(data, pos, end, precision, power):
    """Reads base64 as the bytes of a decimal's unscaled integer.

    Returns:
        The index after the base64, or -1; and the high and low half of the integer, times
        `power` if `power` is more than 1.
    """
    failed = (-1, _U(0), _U(0))
    high = low = _U(0)
    octets, bits, waiting, digits = 0, 0, 0, 0
    while pos < end and _BASE64[data[np.uintp(pos)]] >= 0:
        waiting, bits, digits = (
            (waiting << 6 | _BASE64[data[np.uintp(pos)]]) & 0xFFFF,
            bits + 6,
            digits + 1,
        )
        pos += 1
        if bits < 8:
            continue
        bits -= 8
        octet = waiting >> bits & 0xFF
        if not octets and octet >= 128:
            high = low = ~_U(0)
        high, low, octets = high << _U(8) | low >> _U(56), low << _U(8) | _U(octet), octets + 1
        if octets > _MOST_OCTETS:
            return failed
    while digits % 4 and pos < end and byte(data, pos) == _PADDING:
        pos, digits = pos + 1, digits + 1
    if power < 0 or not octets or digits % 4 or waiting & (1 << bits) - 1:
        return failed
    negative = high >> _U(63)
    if negative:
        high, low = negate(high, low)
    if power > 1:
        if high:
            return failed
        high, low = product(low, _U(power))
    if high > _BOUNDS_HIGH[precision] or (
        high == _BOUNDS_HIGH[precision] and low >= _BOUNDS_LOW[precision]
    ):
        return failed
    if negative:
        high, low = negate(high, low)
    return pos, high, low


@inlined
def negate(high, low):
    """Returns the number of 128 bits with the opposite sign."""
    low = ~low + _U(1)
    return ~high + _U(low == 0), low
