"""Dates and instants from their texts. Compiled. What the strict way refuses, and what it takes only with effort, is not certain: -1."""

from __future__ import annotations

import numpy as np

from ingest.compiled.making import part
from ingest.decode.shared.calendar import MAX_MICROS, MIN_MICROS
from ingest.decode.shared.numbers import is_digit
from ingest.decode.shared.octets import byte

_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_NONE = -1_000_000
_QUOTE, _ZULU = b'"Z'


@part
def two(data, at):
    """The number that two digits make; below zero if they are none."""
    tens, ones = byte(data, at) - 48, byte(data, at + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else _NONE


@part
def civil(data, at):
    """Days since 1970 of YYYY-MM-DD, which ten bytes are; None is a number below all of them. The calendar is the proleptic Gregorian."""
    year, month, day = two(data, at) * 100 + two(data, at + 2), two(data, at + 5), two(data, at + 8)
    if year < 1 or month < 1 or month > 12 or day < 1 or byte(data, at + 4) != 45 or byte(data, at + 7) != 45:
        return 10 * _NONE
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS[month] + leap:
        return 10 * _NONE
    y = year - (month <= 2)  # years that begin in March: the day that comes and goes is the last one
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return y * 365 + y // 4 - y // 100 + y // 400 + of_year - 719_468


@part
def day(data, at, end):
    """Of a date at `at`, with or without a Z: behind it, and its days since 1970."""
    days = civil(data, at) if at + 10 <= end else 10 * _NONE
    if days <= 10 * _NONE:
        return -1, 0
    return at + 10 + (at + 10 < end and byte(data, at + 10) == _ZULU), days


@part
def instant(data, at, end, sql):
    """Of a timestamp at `at`: behind it, and its microseconds since 1970. Nothing but its end, or a closing quote, may follow.

    It is of RFC 3339, or as in SQL: with a blank between date and time, and in UTC where there is no offset.
    """
    between = byte(data, at + 10) if at + 19 <= end else 0
    if (between != 32 if sql else between | 32 != ord("t")) or byte(data, at + 13) != 58 or byte(data, at + 16) != 58:
        return -1, 0
    days, hours, minutes, seconds = civil(data, at), two(data, at + 11), two(data, at + 14), two(data, at + 17)
    if days <= 10 * _NONE or not (0 <= hours <= 23 and 0 <= minutes <= 59 and 0 <= seconds <= 59):
        return -1, 0
    at += 19
    micros = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000
    if at < end and byte(data, at) == 46:
        at, fraction = fraction_end(data, at + 1, end)
        micros += fraction
    shift = 0
    if not sql or at < 0 or (at < end and byte(data, at) != _QUOTE):
        at, shift = offset_end(data, at, end)
    micros -= shift * 60_000_000
    return (-1, 0) if at < 0 or micros < MIN_MICROS or micros > MAX_MICROS else (at, micros)


@part
def fraction_end(data, at, end):
    """Behind the digits of a second, or -1 if there are none or finer ones than microseconds; the microseconds."""
    begin, micros, unit = at, 0, 100_000
    while is_digit(data, at, end):
        digit = byte(data, at) - 48
        if digit and not unit:
            return -1, 0
        micros += digit * unit
        unit //= 10
        at += 1
    return (at, micros) if at > begin else (-1, 0)


@part
def offset_end(data, at, end):
    """Behind Z or +HH:MM, or -1; its minutes."""
    if at < 0 or at >= end:
        return -1, 0
    sign = byte(data, at)
    if sign | 32 == ord("z"):
        return at + 1, 0
    if sign not in (43, 45) or at + 6 > end or byte(data, at + 3) != 58:
        return -1, 0
    hours, minutes = two(data, at + 1), two(data, at + 4)
    if not (0 <= hours <= 23 and 0 <= minutes <= 59):
        return -1, 0
    shift = hours * 60 + minutes
    return at + 6, shift if sign == 43 else -shift
