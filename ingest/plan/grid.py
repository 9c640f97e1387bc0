"""Windows lie on a grid in UTC, counted from 1970-01-01T00:00:00Z. Pure.

UTC has no daylight saving, so every day has 24 hours and each label is an instant that exists once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ingest.errors import GridError, SpecError
from ingest.model import Window, instant

_STEPS = {"hourly": timedelta(hours=1), "daily": timedelta(days=1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def step(grid: str) -> timedelta:
    """How long a window of the grid is.

    Raises:
        SpecError: there is no such grid.
    """
    if grid not in _STEPS:
        raise SpecError(f"There is no grid {grid!r}", "plan", f"Use one of: {', '.join(_STEPS)}.")
    return _STEPS[grid]


def window_at(pipeline: str, grid: str, start: datetime) -> Window:
    """The window that starts at an instant of the grid.

    Raises:
        GridError: the instant is not on the grid; names the nearest that are.
        SpecError: the instant lies before 1970, where Kafka's timestamps have no meaning.
    """
    length = step(grid)
    if start < _EPOCH:
        raise SpecError(f"{instant(start)} lies before 1970", "plan", "Kafka's timestamps begin there: choose a later window.")
    floor = _floor(start, length)
    if floor != start:
        near = f"{instant(floor)} or {instant(floor + length)}"
        raise GridError(f"{instant(start)} is not on the {grid} grid of pipeline {pipeline}", "plan", f"The nearest starts are {near}.")
    return Window(pipeline, floor, floor + length)


def parse_windows(pipeline: str, grid: str, text: str) -> list[Window]:
    """The windows a text names: an instant at which one starts, or `start/end` for all from start until end.

    Raises:
        SpecError: the text is neither, has no time zone, or its end is not after its start.
        GridError: an instant is not on the grid; names the nearest that are.
    """
    first, slash, last = text.partition("/")
    window = window_at(pipeline, grid, _instant(first))
    if not slash:
        return [window]
    end = window_at(pipeline, grid, _instant(last)).start
    if end <= window.start:
        raise SpecError(f"{text} ends before it starts", "plan", "Give start/end with the later instant second; the end is not part of it.")
    later = labels_between(grid, window.start, end)[:-1]
    return [window, *(window_at(pipeline, grid, at) for at in later)]


def labels_between(grid: str, after: datetime, upto: datetime) -> list[datetime]:
    """The grid's instants later than `after` and not later than `upto`, ascending; neither needs to be on the grid."""
    length = step(grid)
    lowest = _floor(after, length) + length
    count = max(0, (_floor(upto, length) - lowest) // length + 1)
    return [lowest + i * length for i in range(count)]


def is_closed(window: Window, delay: timedelta, now: datetime) -> bool:
    """Whether the window's end lies at least `delay` in the past."""
    return now >= window.end + delay


def _floor(moment: datetime, length: timedelta) -> datetime:
    return _EPOCH + (moment - _EPOCH) // length * length


def _instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise SpecError(f"{text!r} is not an instant", "plan", "Write it like 2026-01-02T03:00:00Z.") from error
    if moment.tzinfo is None:
        raise SpecError(f"{text!r} has no time zone", "plan", f"Write {text.strip()}Z if UTC is meant.")
    return moment.astimezone(UTC)
