"""The `window` section: the grid of windows, and when a window is run."""

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

from windrow.ingest.config.position import Stop
from windrow.ingest.errors import GridError, SpecError
from windrow.ingest.model.grid import BATCH, NAMED, cron, cron_fault
from windrow.ingest.settings.document import SettingPath, suggest
from windrow.ingest.settings.values import (
    Count,
    CountOrNone,
    Duration,
    Instant,
    OrNone,
    Section,
    Share,
    Text,
    TextOrEmpty,
    Values,
    sentence,
)

_CRON_FORM = "a cron expression of five fields of digits, * , - and /, such as */15 * * * *"


def _grid(value: str) -> str:
    if value not in {*NAMED, BATCH} and (fault := cron_fault(value)):
        hint = f": {fault}" if " " in value else suggest(value, [*NAMED, BATCH])
        raise sentence(f"must be the name of a grid, or {_CRON_FORM}{hint}")
    return value


def _check_cron(value: str) -> str:
    if fault := cron_fault(value):
        raise ValueError(f"must be {_CRON_FORM}: {fault}")
    return value


Cron = Annotated[
    TextOrEmpty, AfterValidator(_check_cron), Values("a cron expression of five fields")
]


def _not_null(value: object) -> object:
    if value is None:
        raise sentence("is missing")
    return value


def is_cron(text: str) -> bool:
    """Returns whether a text is a grid in time: a cron expression, or the name of a grid."""
    try:
        cron(text)
    except SpecError:
        return False
    return True


class _Windows(Section):
    """The base class of both kinds of windows. Each refuses the options of the other kind."""

    is_batch: ClassVar[bool]
    of_other_kind: ClassVar[str]

    @classmethod
    def known_keys(cls) -> list[str]:
        """Returns the options of both kinds.

        The grid decides which kind it is, and the grid itself may be wrong.
        """
        return list(dict.fromkeys([*TimeWindows.model_fields, *MicroBatches.model_fields]))

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses the options of the other kind, and a time zone."""
        if "zone" in written:
            yield ("zone",), "there is none: windows begin and end in UTC"
        for name in cls.known_keys():
            if name in written and name not in cls.model_fields:
                yield (name,), cls.of_other_kind


class CompletenessSpec(Section):
    """When a window counts as late."""

    tolerance: Annotated[Share, Values("0 to 1")] = Field(
        default=0.01,
        description=(
            "The share of a window's messages that may come in later windows, before the check"
            " `completeness` in Dagster warns. `0`: it warns of each."
        ),
    )


class TimeWindows(_Windows):
    """Windows in time, on a grid in UTC.

    A window is closed when `delay` has passed since its end.
    """

    is_batch: ClassVar[bool] = False
    of_other_kind: ClassVar[str] = f"is for micro-batches (grid: {BATCH}) only"
    grid: Annotated[
        TextOrEmpty,
        AfterValidator(_grid),
        Values(", ".join([*(f"`{name}`" for name in NAMED), "a cron expression of five fields"])),
    ] = Field(description="Where windows begin and end, in UTC.")
    start: Annotated[Instant, BeforeValidator(_not_null)] = Field(
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
    completeness: CompletenessSpec = Field(
        default=CompletenessSpec(), description="How many messages may come late."
    )
    event_time: Annotated[Text | None, OrNone, Values("a column, `none`")] = Field(
        default=None,
        description=(
            "The timestamp column by which late and early messages are counted; `none`: the"
            " broker's timestamps. Windows are cut by the broker's timestamps all the same. It may"
            " be changed at any time: each receipt says which column it counted by."
        ),
    )
    event_delay: Annotated[Duration | None, OrNone, Values("a duration, `none`")] = Field(
        default=None,
        description=(
            "A window is complete when the committed windows have, in each topic-partition, an"
            " event time at least this long after the window's end. `none`: windows are complete by"
            " the broker's timestamps."
        ),
    )

    @field_validator("event_delay")
    @classmethod
    def _has_event_time(
        cls, event_delay: timedelta | None, info: ValidationInfo
    ) -> timedelta | None:
        if event_delay is not None and info.data.get("event_time") is None:
            raise sentence("needs a window.event_time, the column whose times it is compared with")
        return event_delay


class MicroBatches(_Windows):
    """Windows between two sequence numbers.

    Each has the messages that are waiting when it is cut.
    """

    is_batch: ClassVar[bool] = True
    of_other_kind: ClassVar[str] = "is for windows in time; micro-batches don't have it"
    grid: Literal["batch"] = Field(description="Windows are numbered micro-batches.")
    every: Cron = Field(
        default="* * * * *", description="When the schedule asks for the next micro-batch."
    )
    max_records: CountOrNone = Field(
        default=None, description="The most offsets in one micro-batch."
    )
    min_records: Count = Field(
        default=1, description="With fewer new offsets no micro-batch is cut, but for the last one."
    )
    max_delay: Annotated[Duration | None, OrNone, Values("a duration, `none`")] = Field(
        default=None,
        description=(
            "How long a message waits at most for `min_records`: a micro-batch is also cut once a"
            " topic-partition's first waiting message has an older timestamp."
        ),
    )
    stop: Stop | None = Field(
        default=None,
        description=(
            "Where micro-batches end: a position, exclusive, which is resolved and frozen with the"
            " first one; in the forms of `source.start`, but that `latest` is the only word, and"
            " `earliest` in the place of a missing answer reads nothing. Another position takes the"
            " place of one that was frozen, unless it lies behind what was read."
        ),
    )

    @field_validator("min_records")
    @classmethod
    def _not_above_max(cls, least: int, info: ValidationInfo) -> int:
        max_records = info.data.get("max_records")
        if max_records is not None and least > max_records:
            raise sentence(
                f"must not be more than max_records, {max_records}: no micro-batch would ever"
                " be cut"
            )
        return least

    @field_validator("max_delay")
    @classmethod
    def _has_min_records(cls, delay: timedelta | None, info: ValidationInfo) -> timedelta | None:
        if delay is not None and info.data.get("min_records") == 1:
            raise sentence("needs a window.min_records above 1: else no message waits for others")
        return delay


_TIME, _BATCH = "~time", "~batch"


def _kind_of(written: object) -> str:
    """Returns the tag of the kind that a section's grid names."""
    is_batch = (
        written.get("grid") == BATCH
        if isinstance(written, Mapping)
        else isinstance(written, MicroBatches)
    )
    return _BATCH if is_batch else _TIME


class _ByGrid:
    """Annotation for the JSON schema of both kinds: the grid decides which one is used."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Makes conditions instead of pydantic's alternatives.

        The errors of alternatives would only say that none fits. If the grid is a template,
        no setting is required.
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
"""A pipeline's windows: in time, or micro-batches."""


def in_time(window: WindowSpec) -> TimeWindows:
    """Returns the windows if they are windows in time.

    Raises:
        GridError: the windows are micro-batches.
    """
    if not isinstance(window, TimeWindows):
        raise GridError(
            "These are micro-batches, not windows in time",
            "plan",
            "Name micro-batches by their numbers.",
        )
    return window


def event_time_of(window: WindowSpec) -> str | None:
    """Returns the column with the event times; None without one, and for micro-batches."""
    return window.event_time if isinstance(window, TimeWindows) else None
