"""All arithmetic between Dagster's partition keys and windrow's windows; nothing else does any. Pure, in UTC."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

import dagster as dg
import msgspec

from ingest.model import Window
from ingest.grid import labels_between, step, window_at
from ingest.spec import PipelineSpec, WindowSpec


class Stretch(msgspec.Struct, frozen=True):
    """Partition keys without a gap, from `first` to `last`, both included."""

    first: str
    last: str


@lru_cache(maxsize=64)  # one per pipeline: making it costs more than all arithmetic here
def partitions_of(window: WindowSpec) -> dg.TimeWindowPartitionsDefinition:
    """The windows of a pipeline as Dagster's partitions; a key names the window's start."""
    kind = dg.HourlyPartitionsDefinition if window.grid == "hourly" else dg.DailyPartitionsDefinition
    return kind(start_date=window.start, timezone="UTC")


def windows_of(spec: PipelineSpec, keys: Sequence[str]) -> list[tuple[str, Window]]:
    """The windows of partition keys, in the order of time."""
    partitions = partitions_of(spec.window)
    starts = sorted((partitions.time_window_for_partition_key(key).start, key) for key in keys)
    return [(key, window_at(spec.id, spec.window.grid, start)) for start, key in starts]


def key_of(window: WindowSpec, start: datetime) -> str:
    """The partition key of the window that starts at an instant of the grid."""
    return start.strftime(partitions_of(window).fmt)


def cron_of(window: WindowSpec) -> str:
    """When a window closes: its end + delay, the delay rounded up to whole minutes, so that a tick never comes too early."""
    minutes = -(-window.delay // timedelta(minutes=1))
    if window.grid == "hourly":
        return f"{minutes % 60} * * * *"
    return f"{minutes % 60} {minutes // 60 % 24} * * *"


def closed(window: WindowSpec, now: datetime, newest: int) -> list[str]:
    """The keys of the `newest` windows that are closed at an instant, in the order of time."""
    length = step(window.grid)
    upto = now - window.delay
    ends = labels_between(window.grid, max(window.start, upto - newest * length), upto)
    return [key_of(window, end - length) for end in ends]


def stretches(window: WindowSpec, keys: Collection[str]) -> list[Stretch]:
    """The keys grouped into stretches without a gap, in the order of time."""
    if not keys:
        return []
    partitions, length = partitions_of(window), step(window.grid)
    starts = sorted(partitions.time_window_for_partition_key(key).start for key in keys)
    gaps = [(before, after) for before, after in pairwise(starts) if after - before > length]
    firsts = [starts[0], *(after for _, after in gaps)]
    lasts = [*(before for before, _ in gaps), starts[-1]]
    return [Stretch(key_of(window, first), key_of(window, last)) for first, last in zip(firsts, lasts, strict=True)]
