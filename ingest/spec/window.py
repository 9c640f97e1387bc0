"""What a spec says of its windows: their grid, and when one is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ingest.config.document import Place
from ingest.config.values import Count, CountOrNone, Duration, Instant, LeftOut, Section, Values, Written, told
from ingest.errors import SpecError
from ingest.model.label import Label
from ingest.windows.grid import BATCH, cron

_CRON_FORM = "a cron expression of five fields of digits, * , - and /, such as */15 * * * *"
_TIMED = ("start", "delay", "max_wait", "idle")
_BATCHED = ("every", "max_records", "min_records")


def _grid(value: str) -> str:
    if value != BATCH and not is_cron(value):
        raise ValueError(f"must be hourly, daily, {BATCH} or {_CRON_FORM}")
    return value


def _every(value: str) -> str:
    if " " not in value or not is_cron(value):
        raise ValueError(f"must be {_CRON_FORM}")
    return value


def is_cron(text: str) -> bool:
    """Whether a text is a grid of windows in time."""
    try:
        cron(text)
    except SpecError:
        return False
    return True


class WindowSpec(Section):
    """The grid of windows, in UTC, or `batch`. A window in time can be run once its end lies `delay` in the past."""

    grid: Annotated[Written, AfterValidator(_grid), Values("`hourly`, `daily`, a cron expression of five fields, `batch`")] = Field(
        description="Where windows begin and end, in UTC; `batch`: micro-batches, which are numbered."
    )
    start: Annotated[Instant | None, LeftOut("required, but for micro-batches")] = Field(
        default=None, description="Where the first window begins: an instant of the grid. Micro-batches have none."
    )
    delay: Duration = Field(
        default=timedelta(minutes=5), description="How long after its end a window is closed and may be run. Not for micro-batches."
    )
    max_wait: Duration = Field(
        default=timedelta(minutes=5),
        description="How much longer an open transaction is waited for that may hold messages of a window. Not for micro-batches.",
    )
    idle: Literal["wait", "exempt"] = Field(
        default="wait",
        description="Whether a topic-partition without newer messages keeps a window from being complete. Not for micro-batches.",
    )
    every: Annotated[Written, AfterValidator(_every), Values("a cron expression of five fields")] = Field(
        default="* * * * *", description="When the schedule asks for the next micro-batch. Micro-batches only."
    )
    max_records: CountOrNone = Field(default=None, description="The most offsets in one micro-batch. Micro-batches only.")
    min_records: Count = Field(default=1, description="With fewer new offsets no micro-batch is cut. Micro-batches only.")

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Each kind of window has options of its own."""
        grid = written.get("grid")
        if grid == BATCH:
            yield from (((name,), "is for windows in time; micro-batches don't have it") for name in _TIMED if name in written)
        elif isinstance(grid, str) and is_cron(grid):
            yield from (((name,), f"is for micro-batches (grid: {BATCH}) only") for name in _BATCHED if name in written)
            if written.get("start") is None:
                yield ("start",), "is missing"

    @field_validator("min_records")
    @classmethod
    def _not_above_max(cls, least: int, info: ValidationInfo) -> int:
        most = info.data.get("max_records")
        if most is not None and least > most:
            raise told(f"must not be more than max_records, {most}: no micro-batch would ever be cut")
        return least

    @property
    def is_batch(self) -> bool:
        """Whether these are micro-batches."""
        return self.grid == BATCH

    @property
    def first(self) -> Label:
        """The first window's label."""
        return self.start or 0
