"""Windows lie on a grid in UTC, and others are refused with the nearest ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import dagster as dg
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from windrow.ingest.errors import GridError, SpecError, WindrowError
from windrow.ingest.model.grid import (
    BATCH,
    at_or_before,
    batch_at,
    cron,
    is_closed,
    label_after,
    label_before,
    labels_back,
    labels_between,
    neighbours,
    parse_windows,
    window_at,
)
from windrow.ingest.model.plan import Window

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """Returns random fields of cron expressions that a grid may have."""
    number = st.integers(low, high)
    stretch = (
        st.tuples(number, number)
        .filter(lambda ab: ab[0] < ab[1])
        .map(lambda ab: f"{ab[0]}-{ab[1]}")
    )
    stepped = st.tuples(stretch, st.integers(1, high)).map(lambda sn: f"{sn[0]}/{sn[1]}")
    listed = st.lists(st.one_of(number.map(str), stretch, stepped), min_size=1, max_size=3).map(
        ",".join
    )
    return st.one_of(st.just("*"), st.integers(1, high + 3).map(lambda n: f"*/{n}"), listed)


def is_grid(expression: str) -> bool:
    """Returns whether the expression is a grid. Some combinations are refused."""
    try:
        return cron(expression) == expression
    except SpecError:
        return False


TIMES = st.tuples(field(0, 59), field(0, 23))
DAYS = st.one_of(
    st.just(("*", "*", "*")),
    st.tuples(field(1, 31), field(1, 12), st.just("*")),
    st.tuples(field(1, 31), st.just("*"), field(0, 7)),
)
CRONS = (
    st.tuples(TIMES, DAYS).map(lambda fields: " ".join([*fields[0], *fields[1]])).filter(is_grid)
)
STARTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@settings(max_examples=examples(60))
@given(CRONS, STARTS)
@example("0 6 1-7 * 1", datetime(2026, 1, 1, tzinfo=UTC))
@example("0 0 * * 7", datetime(2026, 1, 1, tzinfo=UTC))
@example("59 23 31 12 *", datetime(2026, 1, 1, tzinfo=UTC))
@example("*/60 */30 * * */2", datetime(2026, 1, 1, tzinfo=UTC))
def test_dagster_sees_the_same_windows(expression: str, moment: datetime) -> None:
    """A grid's windows are Dagster's partitions of the same cron expression."""
    labels = [label_after(expression, moment)]
    labels += [label_after(expression, labels[-1])]
    assume(labels[-1] - labels[0] < timedelta(days=400))
    labels += [label_after(expression, labels[-1])]
    partitions = dg.TimeWindowPartitionsDefinition(
        start=labels[0],
        end=labels[-1] + timedelta(seconds=1),
        fmt="%Y-%m-%d-%H:%M",
        cron_schedule=expression,
        timezone="UTC",
    )
    dagster_windows = [
        partitions.time_window_for_partition_key(key)
        for key in partitions.get_partition_keys(current_time=labels[-1] + timedelta(days=1))
    ]
    assert [(w.start.timestamp(), w.end.timestamp()) for w in dagster_windows][:2] == [
        (a.timestamp(), b.timestamp()) for a, b in pairwise(labels)
    ]


@given(CRONS, STARTS)
def test_windows_of_a_grid_tile(expression: str, moment: datetime) -> None:
    """Each instant is in exactly one window, which begins at the last label that isn't later.

    The neighbouring windows touch it.
    """
    window = window_at("p", expression, at_or_before(expression, moment))
    assert window.span is not None
    assert window.span[0] <= moment < window.span[1]
    assert window_at("p", expression, label_before(expression, window.span[0])).end == window.start
    assert window_at("p", expression, window.span[1]).start == window.end
    assert neighbours(expression, window.start) == (
        label_before(expression, window.span[0]),
        window.end,
    )
    assert labels_between(
        expression, window.span[0] - timedelta(microseconds=1), window.span[1]
    ) == [window.start, window.end]


@given(CRONS, STARTS, st.integers(0, 6))
def test_labels_back_are_the_last_ones(expression: str, upto: datetime, count: int) -> None:
    """`labels_back` returns the last labels up to an instant, in order and without gaps.

    A label is its own last label.
    """
    labels = labels_back(expression, upto, count)
    assert len(labels) == count
    assert labels[-1:] == [at_or_before(expression, upto)] * bool(count)
    assert all(label_after(expression, a) == b for a, b in pairwise(labels))
    assert labels_back(expression, labels[-1], count) == labels if labels else True


@pytest.mark.parametrize(
    "expression",
    [
        "@daily",
        "weekly",
        "* * * *",
        "* * * * * *",
        "0 0 30 2 *",
        "60 * * * *",
        "0 0 * * MON",
        "0 0 L * *",
        "0 0 * * 5#2",
        "a",
        "",
        " 0 * * * *",
        "0  * * * *",
        "5/15 * * * *",
        "*,5 * * * *",
        "7-7 * * * *",
        "9-5 * * * *",
        "0 0 */2 * 1",
        "0 0 1 * */2",
        "0 0 29 2 *",
    ],
)
def test_what_programs_read_in_different_ways_is_no_grid(expression: str) -> None:
    """An expression that never occurs, or that Dagster reads differently, raises SpecError."""
    with pytest.raises(SpecError, match="There is no grid"):
        cron(expression)


def test_batches_are_numbered() -> None:
    """Micro-batch n lies between the labels n and n + 1, and none is before 0.

    It has no hours, and it is always closed.
    """
    assert neighbours(BATCH, 0) == (None, 1)
    assert neighbours(BATCH, 7) == (6, 8)
    assert batch_at("p", 7) == Window("p", 7, 8)
    assert is_closed(batch_at("p", 7), timedelta(days=1), datetime(1970, 1, 1, tzinfo=UTC))
    with pytest.raises(SpecError, match="no grid 'batch' of windows in time"):
        cron(BATCH)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("7", [7]), ("batch-000000007", [7]), ("batch-7/9", [7, 8]), ("0/batch-000000003", [0, 1, 2])],
)
def test_batches_are_named_by_number_or_key(text: str, numbers: list[int]) -> None:
    """Batches are named by a number, a key, or a range that excludes its end."""
    assert parse_windows("p", BATCH, text) == [batch_at("p", n) for n in numbers]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-01-02T03:00:00Z", "not a micro-batch"),
        ("7/7", "7/7 has no window in it"),
        ("-1", "not a micro"),
        ("7/", "says only one end"),
    ],
)
def test_what_is_no_batch_says_why(text: str, says: str) -> None:
    """Each invalid text of a batch has its own reason."""
    with pytest.raises(SpecError, match=says):
        parse_windows("p", BATCH, text)


@given(MOMENTS, st.integers(0, 60), st.sampled_from(["hourly", "daily"]))
def test_windows_of_a_range_touch(start: datetime, count: int, grid: str) -> None:
    """The windows of a parsed range are contiguous."""
    length = timedelta(hours=1) if grid == "hourly" else timedelta(days=1)
    first = start.replace(
        hour=start.hour if grid == "hourly" else 0, minute=0, second=0, microsecond=0
    )
    windows = parse_windows(
        "p", grid, f"{first.isoformat()}/{(first + (count + 1) * length).isoformat()}"
    )
    assert [w.start for w in windows] == [first + i * length for i in range(count + 1)]
    assert [w.end for w in windows] == [first + (i + 1) * length for i in range(count + 1)]


@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=2)))
def test_labels_lie_after_the_first_and_up_to_the_last(start: datetime, length: timedelta) -> None:
    """`labels_between` returns exactly the grid's labels in (after, upto]."""
    upto = start + length
    expected = []
    label = start.replace(minute=0, second=0, microsecond=0)
    while label <= upto:
        expected += [label] * (start < label)
        label += timedelta(hours=1)
    assert labels_between("hourly", start, upto) == expected


@pytest.mark.parametrize(
    ("grid", "keys", "text"),
    [
        ("hourly", "2026-01-02-03:00", "2026-01-02T03:00:00Z"),
        (
            "hourly",
            "2026-01-02-03:00/2026-01-02-05:00",
            "2026-01-02T03:00:00Z/2026-01-02T05:00:00Z",
        ),
        ("*/5 * * * *", "2026-01-02-03:05", "2026-01-02T03:05:00Z"),
        ("daily", "2026-01-02", "2026-01-02T00:00:00Z"),
    ],
)
def test_dagsters_partition_keys_name_windows(grid: str, keys: str, text: str) -> None:
    """A window can be named by Dagster's partition key, as its UI shows it."""
    assert parse_windows("p", grid, keys) == parse_windows("p", grid, text)


def test_an_instant_names_one_window_in_any_zone() -> None:
    """The same instant with another offset names the same window."""
    (utc,) = parse_windows("p", "hourly", "2026-01-02T03:00:00Z")
    assert utc.key == "2026-01-02T03:00:00Z"
    assert parse_windows("p", "hourly", "2026-01-02T05:00:00+02:00") == [utc]


def test_an_instant_beside_the_grid_names_the_nearest() -> None:
    """An instant beside the grid raises GridError with the nearest starts."""
    with pytest.raises(GridError, match=r"2026-01-02T03:00:00Z or 2026-01-02T04:00:00Z"):
        parse_windows("p", "hourly", "2026-01-02T03:20:00Z")
    with pytest.raises(GridError, match=r"2026-01-02T00:00:00Z or 2026-01-03T00:00:00Z"):
        window_at("p", "daily", datetime(2026, 1, 2, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "not an instant"),
        ("2026-01-02T03:00:00", "no time zone"),
        ("2026-01-02T03:00:00Z/2026-01-02T03:00:00Z", "end isn't later than its start"),
        ("2026-01-02T03:00:00Z/", "says only one end"),
        ("1969-12-31T23:00:00Z", "before 1970"),
    ],
)
def test_what_is_no_window_says_why(text: str, says: str) -> None:
    """Each invalid text of a window has its own reason."""
    with pytest.raises(SpecError, match=says):
        parse_windows("p", "hourly", text)


def test_an_unknown_grid_names_the_known_ones() -> None:
    """An unknown grid raises SpecError with the known grids."""
    with pytest.raises(SpecError, match="hourly, daily or a cron expression"):
        window_at("p", "weekly", datetime(2026, 1, 2, tzinfo=UTC))


def test_a_window_is_closed_when_its_delay_is_over() -> None:
    """A window is closed exactly at its end plus the delay."""
    window, delay = (
        window_at("p", "hourly", datetime(2026, 1, 2, 3, tzinfo=UTC)),
        timedelta(minutes=5),
    )
    assert window.span is not None
    end = window.span[1]
    assert is_closed(window, delay, end + delay)
    assert not is_closed(window, delay, end + delay - timedelta(microseconds=1))


# --------------------------------------------------------------------------------------------------

THREE = datetime(2026, 1, 2, 3, tzinfo=UTC)
HOUR, MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[timezone]:
    """A time zone 5:45 ahead of UTC, which is also the machine's zone."""
    monkeypatch.setenv("TZ", "<+0545>-5:45")
    time.tzset()
    yield timezone(timedelta(hours=5, minutes=45))
    monkeypatch.undo()
    time.tzset()


def test_labels_are_in_utc_wherever_the_machine_is(elsewhere: timezone) -> None:
    """Labels are in UTC, whatever the zone of the machine and of the instant is."""
    moment = THREE.astimezone(elsewhere)
    assert (
        label_after("hourly", moment),
        label_before("hourly", moment),
        at_or_before("daily", moment),
    ) == (
        THREE + HOUR,
        THREE - HOUR,
        THREE - 3 * HOUR,
    )
    assert labels_back("hourly", moment, 2) == [THREE - HOUR, THREE]
    assert window_at("p", "hourly", moment) == Window("p", THREE, THREE + HOUR)
    assert {
        label.tzinfo
        for label in (
            *labels_back("hourly", moment, 1),
            label_before("hourly", moment),
            label_after("hourly", moment),
        )
    } == {UTC}


def test_an_instant_of_the_grid_is_its_own_last_label() -> None:
    """An instant of the grid is its own last label, and the next label is the first later one."""
    assert [at_or_before("hourly", THREE + n * MICROSECOND) for n in (-1, 0, 1)] == [
        THREE - HOUR,
        THREE,
        THREE,
    ]
    assert [label_after("hourly", THREE + n * MICROSECOND) for n in (-1, 0)] == [
        THREE,
        THREE + HOUR,
    ]
    assert [label_before("hourly", THREE + n * MICROSECOND) for n in (0, 1)] == [
        THREE - HOUR,
        THREE,
    ]


def test_neighbours_touch_a_label() -> None:
    """`neighbours` returns the labels on both sides. Batch 1 has one before it."""
    assert neighbours("hourly", THREE) == (THREE - HOUR, THREE + HOUR)
    assert neighbours("0 3 * * *", THREE) == (THREE - 24 * HOUR, THREE + 24 * HOUR)
    assert neighbours(BATCH, 1) == (0, 2)


def test_labels_between_and_back() -> None:
    """`labels_between` excludes its first bound and includes its second one.

    `labels_back` from a label includes it.
    """
    assert labels_between("hourly", THREE, THREE + 2 * HOUR) == [THREE + HOUR, THREE + 2 * HOUR]
    assert labels_between("hourly", THREE - MICROSECOND, THREE + HOUR - MICROSECOND) == [THREE]
    assert labels_between("hourly", THREE, THREE) == []
    assert labels_back("hourly", THREE, 3) == [THREE - 2 * HOUR, THREE - HOUR, THREE]
    assert labels_back("hourly", THREE - MICROSECOND, 1) == [THREE - HOUR]
    assert labels_back("hourly", THREE + HOUR - MICROSECOND, 1) == [THREE]
    assert labels_back("hourly", THREE, 0) == []


def test_a_range_is_its_windows() -> None:
    """A range is the list of its windows, each as long as the grid says."""
    windows = parse_windows("p", "hourly", "2026-01-02T03:00:00Z/2026-01-02T05:00:00Z")
    assert windows == [
        Window("p", THREE, THREE + HOUR),
        Window("p", THREE + HOUR, THREE + 2 * HOUR),
    ]


def test_time_has_its_ends() -> None:
    """Windows begin in 1970, as Kafka's time, and end before Python's calendar does.

    Python's calendar must have room for neighbours.
    """
    first, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
    assert window_at("p", "hourly", first).start == first
    assert window_at("p", "hourly", last - HOUR).end == last
    for start, message, advice in (
        (
            first - HOUR,
            "1969-12-31T23:00:00Z lies before 1970",
            "Kafka's timestamps begin there: choose a later window.",
        ),
        (
            last,
            "9000-01-01T00:00:00Z lies too far in the future",
            "Choose a window before 9000-01-01T00:00:00Z.",
        ),
    ):
        with pytest.raises(SpecError) as excinfo:
            window_at("p", "hourly", start)
        assert (excinfo.value.message, excinfo.value.stage, excinfo.value.advice) == (
            message,
            "plan",
            advice,
        )


def error_of(grid: str, text: str) -> WindrowError:
    """Returns the error that a text raises."""
    with pytest.raises(WindrowError) as error:
        parse_windows("p", grid, text)
    return error.value


@pytest.mark.parametrize(
    ("grid", "text", "message", "advice"),
    [
        (
            "weekly",
            "2026-01-02T03:00:00Z",
            "There is no grid 'weekly' of windows in time",
            "Use hourly, daily or a cron expression",
        ),
        (
            "hourly",
            "2026-01-02T03:20:00Z",
            "2026-01-02T03:20:00Z is not on the hourly grid of pipeline p",
            "The nearest starts are 2026-",
        ),
        (
            "hourly",
            "2026-01-02T03:00:00Z/2026-01-02T04:20:00Z",
            "2026-01-02T04:20:00Z is not on the hourly grid of pipeline p",
            "The near",
        ),
        (
            "hourly",
            "2026-01-02T03:00:00Z/2026-01-02T02:00:00Z",
            "2026-01-02T03:00:00Z/2026-01-02T02:00:00Z has no window in it",
            "Give start/end",
        ),
        (
            BATCH,
            "7/6",
            "7/6 has no window in it: its end isn't later than its start",
            "Give start/end with the later one second; the end is not part of it.",
        ),
        (
            "hourly",
            "3..7",
            "'3..7' is not an instant",
            "Write it like 2026-01-02T03:00:00Z.",
        ),
        (
            BATCH,
            "seven",
            "'seven' is not a micro-batch",
            "Write its number, or its name as in batch-000000007.",
        ),
        ("hourly", "now", "'now' is not an instant", "Write it like 2026-01-02T03:00:00Z."),
        (
            "hourly",
            "2026-01-02",
            "'2026-01-02' has no time zone",
            "Write 2026-01-02T00:00:00Z if UTC is meant.",
        ),
        (
            BATCH,
            "0/100001",
            "0/100001 names more than 100,000 windows",
            "Name fewer of them at a time.",
        ),
    ],
)
def test_a_wrong_text_is_told_with_what_to_do(
    grid: str, text: str, message: str, advice: str
) -> None:
    """The error of a wrong text quotes it and says what to do."""
    error = error_of(grid, text)
    assert error.message.startswith(message)
    assert error.advice.startswith(advice)
    assert error.stage == "plan"


def test_a_hundred_thousand_windows_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range may name a hundred thousand windows and no more.

    Windows in time are counted only up to the limit.
    """
    assert len(parse_windows("p", BATCH, "0/100000")) == 100_000
    monkeypatch.setattr("windrow.ingest.model.grid._WINDOWS_MAX", 2)
    assert len(parse_windows("p", "hourly", "2026-01-02T03:00:00Z/2026-01-02T05:00:00Z")) == 2
    error = error_of("hourly", "2026-01-02T03:00:00Z/2026-01-02T06:00:00Z")
    assert error.message == "2026-01-02T03:00:00Z/2026-01-02T06:00:00Z names more than 2 windows"


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 1-2 * *",
        "0 0 29 2,3 *",
        "0 0 29 * *",
        "0 0 29 2 1",
        "0,1 0 * * *",
        "0-59/2 * * * *",
        "*/2 */3 * */2 *",
        "0 0 * * */2",
        "0 0 */2 * *",
    ],
)
def test_what_all_programs_read_in_one_way_is_a_grid(expression: str) -> None:
    """An expression that all programs read in the same way is a grid.

    It is its own cron expression.
    """
    assert cron(expression) == expression


@pytest.mark.parametrize(
    ("minutes", "hour", "length", "fine"), [(246, "11", 500, True), (247, "1", 501, False)]
)
def test_an_expression_has_an_end(minutes: int, hour: str, length: int, fine: bool) -> None:
    """A cron expression has at most 500 characters, because several programs parse it."""
    expression = f"{','.join('1' * minutes)} {hour} * * *"
    assert len(expression) == length
    assert is_grid(expression) == fine
