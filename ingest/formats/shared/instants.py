"""Functions that read dates and timestamps from their texts.

Compiled. `pos` is the index of the value's first byte. A returned index of -1 means that the
value isn't certain, so the strict way reads the message and either takes or refuses it.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.shared.integers import MAX_MICROS, MIN_MICROS
from windrow.ingest.formats.shared.numbers import LONG, MOST_DIGITS, is_digit, number
from windrow.ingest.formats.shared.octets import byte
from windrow.ingest.native.compiling import part

_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_NONE = -1_000_000
_QUOTE, _ZULU = b'"Z'

_U = np.uint64
_MOST_TENS = MOST_DIGITS
"""Exponent of the largest power of ten that fits in 64 bits."""
_FURTHEST = _U(MAX_MICROS)
"""Largest distance of a timestamp from 1970, in microseconds."""


@part
def two(data, pos):
    """Returns the number of two digits; a number below zero if they aren't digits."""
    tens, ones = byte(data, pos) - 48, byte(data, pos + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else _NONE


@part
def civil(data, pos):
    """Returns the days since 1970 of the ten bytes YYYY-MM-DD.

    Returns `10 * _NONE`, which is below all days, if the bytes aren't a date of the
    proleptic Gregorian calendar.
    """
    year, month, day = (
        two(data, pos) * 100 + two(data, pos + 2),
        two(data, pos + 5),
        two(data, pos + 8),
    )
    if (
        year < 1
        or month < 1
        or month > 12
        or day < 1
        or byte(data, pos + 4) != 45
        or byte(data, pos + 7) != 45
    ):
        return 10 * _NONE
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS[month] + leap:
        return 10 * _NONE
    # Years are counted from March, so that a leap day is the last day of its year.
    y = year - (month <= 2)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return y * 365 + y // 4 - y // 100 + y // 400 + of_year - 719_468


@part
def day(data, pos, end):
    """Reads a date, with or without a Z after it.

    Returns:
        The index after the date, or -1; and its days since 1970.
    """
    days = civil(data, pos) if pos + 10 <= end else 10 * _NONE
    if days <= 10 * _NONE:
        return -1, 0
    return pos + 10 + (pos + 10 < end and byte(data, pos + 10) == _ZULU), days


@part
def instant(data, pos, end, utc, truncates):
    """Reads a timestamp of ISO 8601, with a T or a blank between date and time.

    Only the end or a closing quote may follow.

    Args:
        data: the bytes of all messages.
        pos: the index of the first byte.
        end: the index after the last byte that may be read.
        utc: True if a timestamp without an offset is UTC; False if it needs an offset.
        truncates: whether a timestamp finer than a microsecond is truncated; else it isn't
            certain.

    Returns:
        The index after the timestamp, or -1; its microseconds since 1970; and whether it
        was truncated.
    """
    separator = byte(data, pos + 10) if pos + 16 <= end else 0
    if (separator | 32 != ord("t") and separator != 32) or byte(data, pos + 13) != 58:
        return -1, 0, False
    days, hours, minutes, seconds = civil(data, pos), two(data, pos + 11), two(data, pos + 14), 0
    pos += 16
    fraction, is_cut = 0, False
    if pos + 3 <= end and byte(data, pos) == 58:
        seconds = two(data, pos + 1)
        pos += 3
        if pos < end and byte(data, pos) == 46:
            pos, fraction, is_cut = fraction_end(data, pos + 1, end)
    if (
        days <= 10 * _NONE
        or not (0 <= hours <= 23 and 0 <= minutes <= 59 and 0 <= seconds <= 59)
        or (is_cut and not truncates)
    ):
        return -1, 0, False
    micros = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    if not utc or pos < 0 or (pos < end and byte(data, pos) != _QUOTE):
        pos, shift = offset_end(data, pos, end)
        micros -= shift * 60_000_000
    return (
        (-1, 0, False)
        if pos < 0 or micros < MIN_MICROS or micros > MAX_MICROS
        else (pos, micros, is_cut)
    )


@part
def epoch(data, pos, end, power, truncates):
    """Reads a number of units since 1970, of 10**power microseconds each.

    Returns:
        The same as `instant`.
    """
    pos, literal_kind, negative, digits, shift = number(data, pos, end)
    shift += power
    if pos < 0 or literal_kind == LONG or abs(shift) > _MOST_TENS:
        return -1, 0, False
    tens = _U(1)
    for _ in range(abs(shift)):
        tens *= _U(10)
    if shift < 0:
        magnitude, is_cut = digits // tens, digits % tens != _U(0)
    else:
        if digits > _FURTHEST // tens:
            return -1, 0, False
        magnitude, is_cut = digits * tens, False
    if magnitude > _FURTHEST or (is_cut and not truncates):
        return -1, 0, False
    micros = -np.int64(magnitude) - is_cut if negative else np.int64(magnitude)
    return (-1, 0, False) if micros < MIN_MICROS or micros > MAX_MICROS else (pos, micros, is_cut)


@part
def fraction_end(data, pos, end):
    """Reads the digits of a fraction of a second.

    Returns:
        The index after them, or -1 without any digit; the microseconds; and whether the
        digits are finer than a microsecond.
    """
    begin, micros, unit, is_cut = pos, 0, 100_000, False
    while is_digit(data, pos, end):
        digit = byte(data, pos) - 48
        is_cut |= digit > 0 and unit == 0
        micros += digit * unit
        unit //= 10
        pos += 1
    return pos if pos > begin else -1, micros, is_cut


@part
def offset_end(data, pos, end):
    """Reads an offset: Z, +HH:MM, +HHMM or +HH.

    Returns:
        The index after the offset, or -1; and its minutes.
    """
    if pos < 0 or pos >= end:
        return -1, 0
    sign = byte(data, pos)
    if sign | 32 == ord("z"):
        return pos + 1, 0
    if sign not in (43, 45) or pos + 3 > end:
        return -1, 0
    hours, minutes = two(data, pos + 1), 0
    pos += 3
    colon = pos < end and byte(data, pos) == 58
    if colon or is_digit(data, pos, end):
        pos += colon
        minutes = two(data, pos) if pos + 2 <= end else _NONE
        pos += 2
    if not (0 <= hours <= 23 and 0 <= minutes <= 59):
        return -1, 0
    shift = hours * 60 + minutes
    return pos, shift if sign == 43 else -shift
