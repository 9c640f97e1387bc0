"""The kinds of values in a spec: how each is written, and what is wrong with one that isn't. Knows no section and no option."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, NoReturn, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ingest.specfile import TOLD, Place

PARTITION_MAX = 2**31 - 1

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_SIZES = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"(\d{1,18}) ?(KiB|MiB|GiB)?")
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):\d{1,5}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Section(BaseModel):
    """Immutable, strict about its keys, and silent about its values when something is wrong: one of them may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True, populate_by_name=True)

    @classmethod
    def between(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """What is wrong between the options of this section as they were written, each mistake with its place in the section."""
        del written
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _whole(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """The mistakes of the options and those between them, all at once."""
        between = list(cls.between(data)) if isinstance(data, Mapping) else []
        try:
            made = handler(data)
        except ValidationError as error:
            raise _error([*map(_again, error.errors(include_url=False)), *_details(between)]) from None
        if between:
            refuse(between)
        return made


def refuse(mistakes: Iterable[tuple[Place, str]]) -> NoReturn:
    """Several mistakes of one value at once, each with its place within it.

    Raises:
        ValidationError: always; pydantic puts its mistakes among the others.
    """
    raise _error(_details(mistakes))


def told(what: str) -> PydanticCustomError:
    """One mistake whose sentence says all, also what was written."""
    return PydanticCustomError(TOLD, "{what}", {"what": what})


def _details(mistakes: Iterable[tuple[Place, str]]) -> list[InitErrorDetails]:
    return [InitErrorDetails(type=told(what), loc=place, input=None) for place, what in mistakes]


def _error(details: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("spec", details, hide_input=True)


def _again(error: ErrorDetails) -> InitErrorDetails:
    kind = told(error["ctx"]["what"]) if error["type"] == TOLD else error["type"]
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=error.get("ctx", {}))


def _duration(value: object) -> object:
    """`5m`, `1h30m`, `100ms`, or seconds."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if text.isdecimal():
        return timedelta(seconds=int(text))
    parts = _DURATION.findall(text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        if isinstance(value, timedelta):
            return value
        raise ValueError("must be a duration like 30s, 5m, 1h30m, 100ms or a number of seconds")
    return timedelta(milliseconds=sum(int(n) * _UNITS[unit] for n, unit in parts))


def _not_negative(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise ValueError("must not be negative")
    return value


def _size(value: object) -> object:
    found = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise ValueError("must be a number of bytes, or a size like 512KiB, 16MiB or 1GiB")
    return int(found[1]) * _SIZES[found[2] or ""]


def as_instant(value: object) -> datetime:
    """An ISO instant; one without an offset is UTC.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError("must be an ISO instant like 2026-01-01T00:00:00Z") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError("must be an ISO instant like 2026-01-01T00:00:00Z")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _whole_number(value: object) -> object:
    """Pydantic takes true for 1."""
    if isinstance(value, bool | float):
        raise ValueError("must be a whole number")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _scalar(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be a text, a number, true or false")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _none(value: object) -> object:
    return None if value == "none" else value


def _servers(value: str) -> str:
    if not all(_SERVER.fullmatch(part.strip()) for part in value.split(",")):
        raise ValueError("must be host:port, several separated by commas")
    return value


def topic_name(value: str) -> str:
    """A name that Kafka takes.

    Raises:
        ValueError: it is none.
    """
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("must be a topic name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_not_negative)]
Instant = Annotated[datetime, BeforeValidator(as_instant)]
Count = Annotated[int, BeforeValidator(_whole_number), Field(ge=1)]
Size = Annotated[int, BeforeValidator(_size)]
Text = Annotated[str, Field(min_length=1)]
Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]
Servers = Annotated[str, AfterValidator(_servers)]
TopicName = Annotated[str, AfterValidator(topic_name)]
OrNone = BeforeValidator(_none)
"""`none` is written for None."""
