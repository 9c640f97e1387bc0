"""Converts between Dagster's partition keys and windrow's windows, in UTC.

The keys are the same as Dagster's. Dagster isn't asked for them, because one such call
takes longer than all functions of this module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import dagster as dg

from windrow.assets.names import batches_name
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows, in_time
from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.model.boundary import label_text
from windrow.ingest.model.grid import (
    batch_at,
    cron,
    label_after,
    labels_between,
    some_labels,
    window_at,
)
from windrow.ingest.model.plan import Window

OFTEN = "*/5 * * * *"
"""The cron expression of the schedule if none describes the windows' ends + delay."""

MOST_PARTITIONS = 100_000
"""The maximum number of partitions of an asset that Dagster recommends."""

_TO_THE_MINUTE = "%Y-%m-%d-%H:%M"
_SHOWN = "%Y-%m-%d %H:%M UTC"
_DAY = datetime(2026, 1, 5, tzinfo=UTC)
_MINUTES = 24 * 60


def partitions_of(spec: PipelineSpec) -> dg.PartitionsDefinition[str]:
    """Returns the windows of a pipeline as Dagster's partitions.

    A key is the start of a window in time, or the name of a micro-batch. A run adds the key
    of a micro-batch when it has cut it (`assets.micro_batches.keep_newest`).

    Example:
        import dagster as dg
        from windrow import load_spec
        from windrow.dagster import partitions_of, table_key

        spec = load_spec("payments/defs.yaml")

        @dg.asset(deps=[table_key(spec)], partitions_def=partitions_of(spec))
        def hourly_sales(context: dg.AssetExecutionContext) -> None:
            context.log.info(context.partition_key)
    """
    return (
        dg.DynamicPartitionsDefinition(name=batches_name(spec))
        if spec.window.is_batch
        else partitions_in_time(in_time(spec.window))
    )


def grid_warning(window: TimeWindows, now: datetime) -> str:
    """Returns a warning if the grid has no partition yet, or more than Dagster recommends; else "".

    The number is estimated from the usual length of a window, because it takes seconds to
    list the labels.
    """
    if window.start > now:
        return (
            "window.start lies in the future: until a window that starts at"
            f" {window.start:{_SHOWN}} has ended, the table has 0 partitions, and its schedule"
            " finds none."
        )
    labels = some_labels(window.grid)
    count = (now - window.start) / ((labels[-1] - labels[0]) / (len(labels) - 1))
    return (
        f"The table has some {format_count(int(round(count, -3)), 'partition')}, from"
        " window.start on:"
        f" Dagster lists them slowly, and recommends at most {MOST_PARTITIONS:,}. Choose a coarser"
        " window.grid, or a later window.start for a new pipeline."
        if count > MOST_PARTITIONS
        else ""
    )


def partitions_in_time(window: TimeWindows) -> dg.TimeWindowPartitionsDefinition:
    """Returns windows in time as Dagster's partitions."""
    if window.grid == "hourly":
        return dg.HourlyPartitionsDefinition(start_date=window.start, timezone="UTC")
    if window.grid == "daily":
        return dg.DailyPartitionsDefinition(start_date=window.start, timezone="UTC")
    return dg.TimeWindowPartitionsDefinition(
        start=window.start, cron_schedule=cron(window.grid), fmt=_TO_THE_MINUTE, timezone="UTC"
    )


def windows_of(spec: PipelineSpec, keys: Sequence[str]) -> list[tuple[str, Window]]:
    """Returns the windows of partition keys, in the order of time.

    Raises:
        SpecError: a key was added by hand and is no micro-batch's.
    """
    if spec.window.is_batch:
        return sorted((key, _batch_of(spec, key)) for key in keys)
    window = in_time(spec.window)
    starts = sorted((_start_of(window, key), key) for key in keys)
    return [(key, window_at(spec.id, spec.window.grid, start)) for start, key in starts]


def _batch_of(spec: PipelineSpec, key: str) -> Window:
    number = key.removeprefix("batch-")
    if not number.isdecimal() or label_text(int(number)) != key:
        raise SpecError(
            f"The partition {key!r} is no micro-batch",
            "spec",
            "Delete it on the table's page in Dagster, at its partitions: runs add those of"
            f" micro-batches, such as {label_text(7)}.",
        )
    return batch_at(spec.id, int(number))


def partition_key(spec: PipelineSpec, window: Window) -> str:
    """Returns the partition key of a window."""
    return window.key if window.span is None else key_of(in_time(spec.window), window.span[0])


def key_of(window: TimeWindows, start: datetime) -> str:
    """Returns the partition key of the window that starts at an instant of the grid."""
    return start.strftime(_format(window))


def _start_of(window: TimeWindows, key: str) -> datetime:
    return datetime.strptime(key, _format(window)).replace(tzinfo=UTC)


def _format(window: TimeWindows) -> str:
    """Returns the format of Dagster's daily or hourly keys; a cron grid has the hourly format."""
    return "%Y-%m-%d" if window.grid == "daily" else _TO_THE_MINUTE


def crons_of(window: TimeWindows) -> list[str]:
    """Returns cron expressions of the windows' ends + delay, rounded up to minutes.

    The grid's ticks of a day, moved by the delay, make one expression per set of hours. If
    some ticks move into the next day and the grid isn't on every day, no expression
    describes them, and the result is `OFTEN`.
    """
    minute, hour, *days = cron(window.grid).split(" ")
    delay = -(-window.delay // timedelta(minutes=1))
    ticks = labels_between(
        f"{minute} {hour} * * *",
        _DAY - timedelta(minutes=1),
        _DAY + timedelta(minutes=_MINUTES - 1),
    )
    tick_minutes = [tick.hour * 60 + tick.minute + delay for tick in ticks]
    if days != ["*", "*", "*"] and max(tick_minutes) >= _MINUTES:
        return [OFTEN]
    hours = dict[int, set[int]]()
    for tick_minute in tick_minutes:
        hours.setdefault(tick_minute % 60, set()).add(tick_minute // 60 % 24)
    minutes = dict[tuple[int, ...], list[int]]()
    for tick_minute, hours_of_day in sorted(hours.items()):
        minutes.setdefault(tuple(sorted(hours_of_day)), []).append(tick_minute)
    return [
        " ".join([_field(minutes_of_hour, 60), _field(hours_of_day, 24), *days])
        for hours_of_day, minutes_of_hour in minutes.items()
    ]


def _field(values: Collection[int], all_of_them: int) -> str:
    return "*" if len(values) == all_of_them else ",".join(map(str, values))


def key_ranges(window: TimeWindows, keys: Collection[str]) -> list[dg.PartitionKeyRange]:
    """Groups keys into ranges without a gap, in the order of time."""
    if not keys:
        return []
    starts = sorted(_start_of(window, key) for key in keys)
    gaps = [
        (earlier, later)
        for earlier, later in pairwise(starts)
        if label_after(window.grid, earlier) < later
    ]
    firsts = [starts[0], *(later for _, later in gaps)]
    lasts = [*(earlier for earlier, _ in gaps), starts[-1]]
    return [
        dg.PartitionKeyRange(key_of(window, first), key_of(window, last))
        for first, last in zip(firsts, lasts, strict=True)
    ]
