"""The grids of windows, in UTC: hourly, daily, any cron expression, and `batch`.

Pure. UTC has no daylight saving, so each label is an instant that exists exactly once. The
labels of a cron grid are the times of the expression. A window is the time between two
neighbouring labels. The labels of `batch` are sequence numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from cronsim import CronSim, CronSimError

from windrow.ingest.errors import GridError, SpecError, format_count
from windrow.ingest.model.boundary import Label, label_text
from windrow.ingest.model.instants import InstantError, parse_instant
from windrow.ingest.model.plan import Window

BATCH = "batch"
"""The grid of micro-batches."""

NAMED = {"hourly": "0 * * * *", "daily": "0 0 * * *"}
"""The cron expressions of the grids with a name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLE = datetime(2023, 12, 31, 23, 59, tzinfo=UTC)
_LAST = datetime(9000, 1, 1, tzinfo=UTC)
"""The end of all windows. Python's calendar ends in 9999, so neighbours and delays still fit."""

_LENGTH_MAX = 500
_WINDOWS_MAX = 100_000
_FIELD = re.compile(r"\*(/\d{1,4})?|\d{1,4}(-\d{1,4}(/\d{1,4})?)?(,\d{1,4}(-\d{1,4}(/\d{1,4})?)?)*")
_RANGE = re.compile(r"(\d+)-(\d+)")
_KEY = re.compile(r"(\d{4}-\d\d-\d\d)(?:-(\d\d:\d\d))?")
_BATCH = re.compile(r"(?:batch-)?(\d{1,9})")
_ONE = re.compile(r"\d{4}-\d\d-\d\d.*")


def cron(grid: str) -> str:
    """Returns the grid as a cron expression of five fields.

    Raises:
        SpecError: the grid doesn't exist, or it is `batch`, which has no times.
    """
    expression = NAMED.get(grid, grid)
    fault = "they have no cron expression" if grid == BATCH else cron_fault(expression)
    if fault:
        raise SpecError(
            f"There is no grid {grid!r} of windows in time: {fault}",
            "plan",
            f"Use {', '.join(NAMED)} or a cron expression of five fields of digits, * , - and /,"
            " such as '*/15 * * * *'.",
        )
    return expression


@lru_cache(maxsize=64)
def cron_fault(expression: str) -> str:
    """Describes why Dagster and other programs may read an expression differently.

    The text is empty if they all read it in the same way. These are refused:

    - names and letters
    - `*` within a list
    - a step without a range (`5/15`)
    - a range of one value, or a backward range
    - a step over all days of the month together with days of the week (`*/2 * 1`), because
      some programs combine them by "and", others by "or"
    - the leap day alone, because Dagster leaves out the first one
    """
    fields = expression.split(" ")
    if len(expression) > _LENGTH_MAX or len(fields) != 5:
        return f"it has {format_count(len(fields), 'field')}"
    if malformed_fields := [field for field in fields if not _FIELD.fullmatch(field)]:
        return (
            f"{malformed_fields[0]!r} is no number, list, range such as 1-5 or 1-5/2, nor * or */15"
        )
    if any(int(a) >= int(b) for a, b in _RANGE.findall(expression)):
        return "a range must go upwards"
    days = {fields[2], fields[4]}
    if "*" not in days and any(day.startswith("*") for day in days):
        return "some programs read days of the month and of the week as both, others as either"
    if fields[2:] == ["29", "2", "*"]:
        return "Dagster leaves out the first 29 February"
    try:
        next(CronSim(expression, _EPOCH))
    except (CronSimError, StopIteration) as error:
        return (
            f"there is no such {str(error).removeprefix('Bad ') or 'instant'}; minutes are 0 to 59,"
            " hours 0 to 23, days 1 to 31, months 1 to 12, days of the week 0 to 7"
        )
    return ""


def label_after(grid: str, moment: datetime) -> datetime:
    """Returns the first label after an instant."""
    return next(_later(grid, moment))


def label_before(grid: str, moment: datetime) -> datetime:
    """Returns the last label before an instant."""
    return next(iter(CronSim(cron(grid), moment.astimezone(UTC), reverse=True)))


def at_or_before(grid: str, moment: datetime) -> datetime:
    """Returns the last label at or before an instant."""
    return label_before(grid, moment + timedelta(microseconds=1))


def neighbours(grid: str, label: Label) -> tuple[Label | None, Label]:
    """Returns the labels right before and right after a label; None before micro-batch 0."""
    if isinstance(label, int):
        return label - 1 if label else None, label + 1
    return label_before(grid, label), label_after(grid, label)


def window_at(pipeline_id: str, grid: str, start: datetime) -> Window:
    """Returns the window that starts at an instant of the grid.

    Raises:
        GridError: the instant isn't on the grid; the message names the nearest ones that
            are.
        SpecError: the instant is before 1970, where Kafka has no timestamps, or at or after
            the year 9000.
    """
    start = start.astimezone(UTC)
    if start < _EPOCH:
        raise SpecError(
            f"{label_text(start)} lies before 1970",
            "plan",
            "Kafka's timestamps begin there: choose a later window.",
        )
    if start >= _LAST:
        raise SpecError(
            f"{label_text(start)} lies too far in the future",
            "plan",
            f"Choose a window before {label_text(_LAST)}.",
        )
    floor, end = at_or_before(grid, start), label_after(grid, start)
    if floor != start:
        raise GridError(
            f"{label_text(start)} is not on the {grid} grid of pipeline {pipeline_id}",
            "plan",
            f"The nearest starts are {label_text(floor)} or {label_text(end)}.",
        )
    return Window(pipeline_id, floor, end)


def batch_at(pipeline_id: str, number: int) -> Window:
    """Returns the micro-batch with a number."""
    return Window(pipeline_id, number, number + 1)


def parse_windows(pipeline_id: str, grid: str, text: str) -> list[Window]:
    """Returns the windows that a text names.

    The text is a start or `start/end`. A start is an instant, a partition key, or a
    micro-batch's number or name. `start/end` means all windows between the two.

    Raises:
        SpecError: the text is neither, has no time zone, names more than 100,000 windows,
            or its end is not after its start.
        GridError: an instant isn't on the grid; the message names the nearest ones that
            are.
    """
    first, slash, last = text.partition("/")
    if slash and not (first.strip() and last.strip()):
        raise SpecError(
            f"{text!r} says only one end of several windows",
            "plan",
            f"Write START/END, or for one window its start alone: {first or last or 'START'}.",
        )
    if grid == BATCH:
        start = _number(first)
        numbers = range(start, _number(last) if slash else start + 1)
        if not numbers:
            raise _reversed_error(text)
        _refuse_many(text, len(numbers))
        return [batch_at(pipeline_id, n) for n in numbers]
    window = window_at(pipeline_id, grid, _instant(grid, first))
    if not slash:
        return [window]
    end = window_at(pipeline_id, grid, _instant(grid, last)).start
    labels: list[Label] = [window.start]
    if window.span and isinstance(end, datetime):
        labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 1)
    _refuse_many(text, len(labels) - 1)
    windows = [Window(pipeline_id, a, b) for a, b in pairwise(labels)]
    if not windows:
        raise _reversed_error(text)
    return windows


def labels_between(grid: str, start: datetime, upto: datetime) -> list[datetime]:
    """Returns the grid's labels after `start` and up to `upto`, ascending.

    `start` and `upto` needn't be on the grid.
    """
    return list(_until(grid, start, upto))


@lru_cache(maxsize=8)
def some_labels(grid: str) -> tuple[datetime, ...]:
    """Returns the first labels since 2024: a thousand, or fewer if 20 years have fewer."""
    return tuple(islice(_until(grid, _SAMPLE, _SAMPLE + timedelta(days=20 * 365)), 1000))


def shortest_window(grid: str) -> timedelta:
    """Returns the shortest time between two of `some_labels`."""
    return min(end - start for start, end in pairwise(some_labels(grid)))


def _until(grid: str, start: datetime, upto: datetime) -> Iterator[datetime]:
    return takewhile(lambda label: label <= upto, _later(grid, start))


def labels_back(grid: str, upto: datetime, count: int) -> list[datetime]:
    """Returns the last `count` labels at or before `upto`, ascending."""
    return list(
        islice(
            CronSim(cron(grid), upto.astimezone(UTC) + timedelta(microseconds=1), reverse=True),
            count,
        )
    )[::-1]


def _later(grid: str, moment: datetime) -> Iterator[datetime]:
    return iter(CronSim(cron(grid), moment.astimezone(UTC)))


def is_closed(window: Window, delay: timedelta, now: datetime) -> bool:
    """Returns whether the window's end is at least `delay` in the past.

    A micro-batch ends when its end is frozen, so it is always closed.
    """
    return window.span is None or now >= window.span[1] + delay


def _reversed_error(text: str) -> SpecError:
    return SpecError(
        f"{text} has no window in it: its end isn't later than its start",
        "plan",
        "Give start/end with the later one second; the end is not part of it.",
    )


def _refuse_many(text: str, count: int) -> None:
    if count > _WINDOWS_MAX:
        raise SpecError(
            f"{text} names more than {_WINDOWS_MAX:,} windows",
            "plan",
            "Name fewer of them at a time.",
        )


def _number(text: str) -> int:
    match = _BATCH.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"{text!r} is not a micro-batch",
            "plan",
            f"Write its number, or its name as in batch-000000007{_several(text, _BATCH)}.",
        )
    return int(match[1])


def _several(text: str, name_pattern: re.Pattern[str]) -> str:
    """Returns the advice how to name several windows, for a text of two names with dots between."""
    ends = text.split("..")
    return (
        f"; several windows as {'/'.join(ends)}"
        if len(ends) == 2 and all(map(name_pattern.fullmatch, ends))
        else ""
    )


def _instant(grid: str, text: str) -> datetime:
    """Reads an instant, or Dagster's partition key of the window that starts then."""
    key = _KEY.fullmatch(text.strip())
    if key and (key[2] or grid == "daily"):
        text = f"{key[1]}T{key[2] or '00:00'}:00Z"
    try:
        return parse_instant(text)
    except InstantError as error:
        raise SpecError(
            f"{text!r} {error.message}",
            "plan",
            f"{error.advice[0].upper()}{error.advice[1:]}{_several(text, _ONE)}.",
        ) from None
