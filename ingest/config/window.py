"""What a spec says of its windows: their grid, and when one is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from windrow.ingest.errors import GridError, SpecError
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.values import (
    Count,
    CountOrNone,
    Duration,
    Instant,
    Section,
    Values,
    Written,
    sentence,
)
from windrow.ingest.source.enumerator.grid import BATCH, NAMED, cron

_CRON_FORM = "a cron expression of five fields of digits, * , - and /, such as */15 * * * *"


def _grid(value: str) -> str:
    if value != BATCH and not is_cron(value):
        raise ValueError(f"must be {', '.join(NAMED)}, {BATCH} or {_CRON_FORM}")
    return value


def _every(value: str) -> str:
    if " " not in value or not is_cron(value):
        raise ValueError(f"must be {_CRON_FORM}")
    return value


def _there(value: object) -> object:
    if value is None:
        raise sentence("is missing")
    return value


def is_cron(text: str) -> bool:
    """Whether a text is a grid of windows in time."""
    try:
        cron(text)
    except SpecError:
        return False
    return True


class TimeWindows(Section):
    """Windows in time, on a grid in UTC. One can be run once its end lies `delay` in the past."""

    is_batch: ClassVar[bool] = False
    grid: Annotated[
        Written,
        AfterValidator(_grid),
        Values(", ".join([*(f"`{name}`" for name in NAMED), "a cron expression of five fields"])),
    ] = Field(description="Where windows begin and end, in UTC.")
    start: Annotated[Instant, BeforeValidator(_there)] = Field(
        description="Where the first window begins: an instant of the grid."
    )
    delay: Duration = Field(
        default=timedelta(minutes=5),
        description="How long after its end a window is closed and may be run.",
    )
    max_wait: Duration = Field(
        default=timedelta(minutes=5),
        description=(
            "How much longer an open transaction is waited for that may hold messages of a window."
        ),
    )
    idle: Literal["wait", "exempt"] = Field(
        default="wait",
        description=(
            "Whether a topic-partition without newer messages keeps a window from being complete."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Each kind of window has options of its own."""
        yield from (
            ((name,), f"is for micro-batches (grid: {BATCH}) only")
            for name in _only(MicroBatches)
            if name in written
        )


class MicroBatches(Section):
    """Windows between two sequence numbers: whatever is waiting when one is cut."""

    is_batch: ClassVar[bool] = True
    grid: Literal["batch"] = Field(description="Windows are numbered micro-batches.")
    every: Annotated[
        Written, AfterValidator(_every), Values("a cron expression of five fields")
    ] = Field(default="* * * * *", description="When the schedule asks for the next micro-batch.")
    max_records: CountOrNone = Field(
        default=None, description="The most offsets in one micro-batch."
    )
    min_records: Count = Field(
        default=1, description="With fewer new offsets no micro-batch is cut."
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Each kind of window has options of its own."""
        yield from (
            ((name,), "is for windows in time; micro-batches don't have it")
            for name in _only(TimeWindows)
            if name in written
        )

    @field_validator("min_records")
    @classmethod
    def _not_above_max(cls, least: int, info: ValidationInfo) -> int:
        most = info.data.get("max_records")
        if most is not None and least > most:
            raise sentence(
                f"must not be more than max_records, {most}: no micro-batch would ever be cut"
            )
        return least


def _only(kind: type[Section]) -> list[str]:
    return [name for name in kind.model_fields if name != "grid"]


_TIME, _BATCH = "~time", "~batch"


def _kind_of(written: object) -> str:
    """Which kind of windows a section says."""
    is_batch = (
        written.get("grid") == BATCH
        if isinstance(written, Mapping)
        else isinstance(written, MicroBatches)
    )
    return _BATCH if is_batch else _TIME


class _ByGrid:
    """The JSON schema of either kind: the grid says which."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """In place of alternatives, of which an error could only say that none fits.

        What a template makes of the grid is not known.
        """
        in_time, batches = handler(schema)["oneOf"]
        return {
            "if": {"properties": {"grid": {"const": BATCH}}, "required": ["grid"]},
            "then": batches,
            "else": {
                "if": {"properties": {"grid": {"pattern": r"\{\{"}}, "required": ["grid"]},
                "then": {},
                "else": in_time,
            },
        }


WindowSpec = Annotated[
    Annotated[TimeWindows, Tag(_TIME)] | Annotated[MicroBatches, Tag(_BATCH)],
    Discriminator(_kind_of),
    _ByGrid,
]
"""What a pipeline's windows are: in time, or micro-batches."""


def in_time(window: WindowSpec) -> TimeWindows:
    """Windows that are in time, for who has no use for others.

    Raises:
        GridError: they are micro-batches.
    """
    if not isinstance(window, TimeWindows):
        raise GridError(
            "These are micro-batches, not windows in time",
            "plan",
            "Name micro-batches by their numbers.",
        )
    return window
