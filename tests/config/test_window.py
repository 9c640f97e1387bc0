"""The section `window`: windows in time and micro-batches have different settings.

A setting of the other kind is refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from yaml import safe_load

from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import MicroBatches, TimeWindows, in_time
from windrow.ingest.errors import GridError, SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import AtTime, Given, GroupOffsets, Initializer, Latest

START = "2026-01-01T00:00:00Z"
A0 = TopicPartition("a", 0)
TIMED = {
    "start": START,
    "delay": "5m",
    "max_wait": "5m",
    "idle": "wait",
    "event_time": "a",
    "event_delay": "1h",
}
BATCHED = {"every": "* * * * *", "max_records": 5, "min_records": 1}


def spec(folder: Path, **window: Any) -> PipelineSpec:
    """Returns the spec with this window."""
    return parse_spec(attributes(window), folder)


def attributes(window: dict[str, Any], **source: Any) -> dict[str, Any]:
    """Returns the attributes of a spec with a window and a source."""
    source = {"bootstrap_servers": "localhost:9092", "topic": "a", **source}
    return {
        "id": "orders",
        "source": source,
        "window": window,
        "decode": {"schema": "a.b:C"},
        "sink": {"path": "lake"},
    }


def mistakes(folder: Path, window: dict[str, Any], **source: Any) -> list[str]:
    """Returns the mistakes of a window, each as `place: message`."""
    with pytest.raises(SpecError) as caught:
        parse_spec(attributes(window, **source), folder)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("grid", ["hourly", "daily", "*/15 * * * *", "0 6 * * 1-5"])
def test_windows_in_time(tmp_path: Path, grid: str) -> None:
    """A grid is a name or a cron expression, and the first label is the start."""
    start = {"0 6 * * 1-5": "2026-01-01T06:00:00Z"}.get(grid, START)
    window = spec(tmp_path, grid=grid, start=start).window
    assert isinstance(window, TimeWindows)
    assert (window.is_batch, window.start) == (False, datetime.fromisoformat(start))
    assert (window.delay, window.max_wait, window.idle) == (
        timedelta(minutes=5),
        timedelta(minutes=5),
        "wait",
    )


def test_micro_batches(tmp_path: Path) -> None:
    """Micro-batches have no start in time, and take all messages each minute by default."""
    window = spec(tmp_path, grid="batch").window
    assert isinstance(window, MicroBatches)
    assert window.is_batch
    assert (window.every, window.max_records, window.min_records) == ("* * * * *", None, 1)
    bounded = spec(tmp_path, grid="batch", max_records="none", min_records=7).window
    assert isinstance(bounded, MicroBatches)
    assert bounded.min_records == 7


@pytest.mark.parametrize(
    ("stop", "position"),
    [
        ("latest", Latest()),
        ({"timestamp": START}, AtTime(datetime.fromisoformat(START), "latest")),
        ({"committed": "g", "reset": "latest"}, GroupOffsets("g", "latest")),
        ({"offsets": "partition:0,offset:4"}, Given(((A0, 4),))),
        (
            {"offsets": {"a": {0: 4}}, "others": "committed", "committed": "g"},
            Given(((A0, 4),), GroupOffsets("g")),
        ),
    ],
)
def test_where_micro_batches_end(tmp_path: Path, stop: Any, position: Initializer) -> None:
    """`window.stop` has the forms of `source.start`; both accept a section."""
    assert spec(tmp_path, grid="batch", stop=stop).stop == position
    begins = parse_spec(attributes({"grid": "batch"}, start=stop), tmp_path)
    assert begins.source.for_planning("batch").start == position
    assert begins.stop is None


def test_the_ends_in_the_guide(tmp_path: Path) -> None:
    """The examples in docs/pipeline.md are valid."""
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    blocks = page.split("## Micro-batches with an end")[1].split("\n## ")[0].split("```")[1::2]
    assert len(blocks) == 2
    for block in blocks:
        assert spec(tmp_path, **safe_load(block.removeprefix("yml"))["window"]).stop is not None


STOP = "window.stop: must be 'latest', or a section with timestamp, committed, offsets"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("earliest", "window.stop: must be 'latest', or a section with timestamp, committed,"),
        ("{}", "window.stop: must be 'latest', or a section"),
        ("group-offsets", f"{STOP}, not 'group-offsets': is {{committed: GROUP}} meant?"),
        ("earliest-offset", f"{STOP}, not 'earliest-offset'"),
        ({}, "window.stop: says no position: write one of timestamp"),
        ({"offsets": {"b": {0: 1}}}, "window.stop.offsets.b: topic b is not among those"),
        ({"offsets": {0: 1}, "committed": "g"}, "window.stop.offsets: it is one position, and"),
        ({"offsets": {0: 1}, "others": "committed"}, "window.stop.others: needs the group"),
        ({"committed": "g", "others": "committed"}, "window.stop.others: belongs to offsets"),
    ],
)
def test_wrong_ends(tmp_path: Path, stop: Any, expected: str) -> None:
    """A wrong `window.stop` is refused with the reason, and so is one for windows in time."""
    (message,) = mistakes(tmp_path, {"grid": "batch", "stop": stop})
    assert message.startswith(expected)
    (message,) = mistakes(tmp_path, {"grid": "daily", "start": START, "stop": "latest"})
    assert message == "window.stop: is for micro-batches (grid: batch) only"


def test_no_kind_has_what_only_the_other_has(tmp_path: Path) -> None:
    """A window of one kind has no attribute of the other kind."""
    assert not any(hasattr(spec(tmp_path, grid="batch").window, name) for name in TIMED)
    assert not any(
        hasattr(spec(tmp_path, grid="daily", start=START).window, name) for name in BATCHED
    )
    with pytest.raises(GridError, match="These are micro-batches"):
        in_time(spec(tmp_path, grid="batch").window)


@pytest.mark.parametrize("name", TIMED)
def test_options_of_windows_in_time(tmp_path: Path, name: str) -> None:
    """Settings of windows in time are refused for micro-batches, even with default values."""
    assert mistakes(tmp_path, {"grid": "batch", name: TIMED[name]}) == [
        f"window.{name}: is for windows in time; micro-batches don't have it"
    ]


@pytest.mark.parametrize("name", BATCHED)
def test_options_of_micro_batches(tmp_path: Path, name: str) -> None:
    """Settings of micro-batches are refused for windows in time, even with their default values."""
    window = {"grid": "daily", "start": START, name: BATCHED[name]}
    assert mistakes(tmp_path, window) == [f"window.{name}: is for micro-batches (grid: batch) only"]


CRON = "a cron expression of five fields of digits, * , - and /, such as */15 * * * *"
FAULTS = {
    "5/15 * * * *": "'5/15' is no number, list, range such as 1-5 or 1-5/2, nor * or */15",
    "0 25 * * *": "there is no such hour; minutes are 0 to 59, hours 0 to 23, days 1 to 31, months",
    "0 0 31 2 *": "there is no such day-of-month;",
    "0 0 * *": "it has 4 fields",
    "0 9-5 * * *": "a range must go upwards",
    "0 0 */2 * 1": "some programs read days of the month and of the week as both, others as either",
    "0 0 29 2 *": "Dagster leaves out the first 29 February",
}
"""Expressions that are no valid grid, each with the reason."""


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"start": START}, "window.grid: is missing"),
        ({"grid": "hourly"}, "window.start: is missing"),
        (
            {"grid": "hourly", "start": START, "event_delay": "1h"},
            "window.event_delay: needs a window.event_time, the column whose times it",
        ),
        ({"grid": "hourly", "start": None}, "window.start: is missing"),
        (
            {"grid": "batch", "foo": 1},
            (
                "window.foo: unknown key; known are grid, start, delay, max_wait, idle,"
                " completeness, event_time, event_delay, every, max_records, min_records"
            ),
        ),
        (
            {"grid": "hourly", "start": START, "max_recrods": 5},
            "window.max_recrods: unknown key; did you mean max_records?",
        ),
        *(
            (
                {"grid": grid, "start": START},
                f"window.grid: must be the name of a grid, or {CRON}: {fault}",
            )
            for grid, fault in FAULTS.items()
        ),
        (
            {"grid": "batch", "every": "60 * * * *"},
            f"window.every: must be {CRON}: there is",
        ),
        (
            {"grid": "*/15 * * * *", "start": "2026-01-01T00:01:00Z"},
            "window.start: 2026-01-01T00:01:00Z is not on the */15 * * * * grid",
        ),
        (
            {"grid": "batch", "every": "hourly"},
            "window.every: must be a cron expression of five fields",
        ),
        (
            {"grid": "batch", "max_records": 0},
            "window.max_records: must be greater than or equal to 1, not 0",
        ),
        (
            {"grid": "batch", "min_records": 0},
            "window.min_records: must be greater than or equal to 1, not 0",
        ),
        (
            {"grid": "batch", "max_records": 5, "min_records": 6},
            "window.min_records: must not be more than max_records, 5",
        ),
        (
            {"grid": "hourly", "start": START, "idle": "skip"},
            "window.idle: must be 'wait' or 'exempt', not 'skip'",
        ),
    ],
)
def test_wrong_windows(tmp_path: Path, window: dict[str, Any], expected: str) -> None:
    """Each mistake of a window has its own reason and place."""
    (message,) = mistakes(tmp_path, window)
    assert message.startswith(expected)


def test_who_reads_uncommitted_waits_for_no_transaction(tmp_path: Path) -> None:
    """`max_wait` with read_uncommitted has no effect, so it is refused."""
    window = {"grid": "hourly", "start": START}
    assert (
        parse_spec(attributes(window, isolation="read_uncommitted"), tmp_path).source.isolation
        == "read_uncommitted"
    )
    (message,) = mistakes(tmp_path, {**window, "max_wait": "1m"}, isolation="read_uncommitted")
    assert message.startswith(
        "window.max_wait: is for open transactions, which read_uncommitted doesn't wait for"
    )
