"""Types of a spec's values: how each is written, and the message for a wrong value.

It doesn't know sections or options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Annotated, Any, NoReturn, Self

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from windrow.ingest.errors import GridError
from windrow.ingest.model.boundary import instant
from windrow.ingest.model.instants import parse_instant, to_utc
from windrow.ingest.settings.document import SENTENCE, SettingPath, suggest
from windrow.ingest.settings.logins import Login, parse_login, to_mapping
from windrow.ingest.settings.paths import home, is_url
from windrow.ingest.settings.secrets import FORMS, Secret, named_or_reference, written

PARTITION_MAX = 2**31 - 1
COUNT_MAX = 2**63 - 1
"""Kafka's largest possible offset."""

DURATION_MAX = timedelta(days=3650)
"""The maximum delay or wait of a window. With a longer one, instants could leave the calendar."""

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12})(ms|[smhd])")
_SIZES = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"(\d{1,18}) ?(KiB|MiB|GiB)?")
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):\d{1,5}")
_CLUSTER = re.compile(r"[A-Za-z0-9_-]{1,60}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Matches a URL with one slash instead of two. As a path it would be a folder of this machine."""


NO_SECRETS = "no secrets"
"""The context in which a section's JSON has null in place of each reference to a secret."""


class Values(msgspec.Struct, frozen=True):
    """Annotation: the values that a setting takes, in words for `docs/settings.md`."""

    words: str


class Default(msgspec.Struct, frozen=True):
    """Annotation: the default of a setting, in words for `docs/settings.md`.

    It is needed if the field's default isn't the value that takes effect.
    """

    words: str


class Section(BaseModel):
    """The base class of all sections: immutable, without unknown keys.

    Errors show no values, because a value may be a secret.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True
    )

    @classmethod
    def known_keys(cls) -> list[str]:
        """Returns the keys that a file may have in this section."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds conflicts between the options of this section as they were written.

        Each conflict comes with the path of its setting in the section.
        """
        del written
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _collect_mistakes(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Raises the mistakes of the options and their conflicts together."""
        conflicts = list(cls.conflicts(data)) if isinstance(data, Mapping) else []
        try:
            section = handler(data)
        except ValidationError as error:
            conflict_paths = {path for path, _ in conflicts}
            details = _details(conflicts)
            errors = error.errors(include_url=False)
            for pydantic_error in errors:
                if pydantic_error["type"] == "too_short" and _has_wrong_items(
                    pydantic_error["loc"], errors
                ):
                    continue
                if pydantic_error["type"] != "extra_forbidden":
                    details.append(_copy_error(pydantic_error))
                elif pydantic_error["loc"] not in conflict_paths:
                    unknown = (
                        f"unknown key{suggest(str(pydantic_error['loc'][-1]), cls.known_keys())}"
                    )
                    details += _details([(pydantic_error["loc"], unknown)])
            raise _error(details) from None
        if conflicts:
            refuse(conflicts)
        return section


def _has_wrong_items(path: SettingPath, errors: Iterable[ErrorDetails]) -> bool:
    """Returns whether a list is too short only because pydantic left out its wrong items."""
    return any(error["loc"][: len(path)] == path != error["loc"] for error in errors)


def refuse(mistakes: Iterable[tuple[SettingPath, str]]) -> NoReturn:
    """Refuses a value for several mistakes at once, each with the path of its setting.

    Raises:
        ValidationError: always; pydantic adds its mistakes to the others.
    """
    raise _error(_details(mistakes))


def sentence(message: str, value: object = None) -> PydanticCustomError:
    """Makes an error for pydantic to collect, in windrow's words.

    Args:
        message: the sentence.
        value: the wrong value. It is shown after the sentence unless it may be a secret.
    """
    return PydanticCustomError(SENTENCE, "{message}", {"message": message, "value": value})


def must(predicate: Callable[[Any], object], requirement: str) -> AfterValidator:
    """Makes a validator that accepts values for which `predicate` is true.

    Args:
        predicate: the condition.
        requirement: the words after "must" in the error for other values.
    """

    def check(value: Any) -> Any:
        if not predicate(value):
            raise ValueError(f"must {requirement}")
        return value

    return AfterValidator(check)


def _details(mistakes: Iterable[tuple[SettingPath, str]]) -> list[InitErrorDetails]:
    return [
        InitErrorDetails(type=sentence(message), loc=path, input=None) for path, message in mistakes
    ]


def _error(details: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("spec", details, hide_input=True)


def _copy_error(error: ErrorDetails) -> InitErrorDetails:
    context = error.get("ctx", {})
    kind = sentence(**context) if error["type"] == SENTENCE else error["type"]
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=context)


def _duration(value: object) -> object:
    """Validates `5m`, `1h30m`, `100ms`, or a number of seconds."""
    text = (
        str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    )
    if text.isdecimal() and len(text) <= 12:
        return _check_duration(int(text) * 1000)
    parts = _DURATION.findall(text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        if isinstance(value, timedelta):
            return value
        raise ValueError("must be a duration like 30s, 5m, 1h30m, 100ms or a number of seconds")
    return _check_duration(sum(int(n) * _UNITS[unit] for n, unit in parts))


def _check_duration(milliseconds: int) -> timedelta:
    if milliseconds > DURATION_MAX // timedelta(milliseconds=1):
        raise ValueError(f"must not be more than {DURATION_MAX.days}d")
    return timedelta(milliseconds=milliseconds)


def _as_written(value: timedelta) -> str:
    return f"{value // timedelta(milliseconds=1)}ms"


def _size(value: object) -> object:
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a number of bytes, or a size like 512KiB, 16MiB or 1GiB")
    return int(match[1]) * _SIZES[match[2] or ""]


def as_instant(value: object) -> datetime:
    """Reads an ISO instant, and converts it to UTC.

    Raises:
        ValueError: it isn't an instant, or has no time zone.
    """
    if isinstance(value, str):
        return parse_instant(value)
    if isinstance(value, datetime):
        return to_utc(value)
    if isinstance(value, date):
        return parse_instant(value.isoformat())
    raise sentence("is not an instant: write it like 2026-01-02T03:00:00Z", value)


def off_grid(written: object, start: datetime, error: GridError) -> str:
    """Returns the message for an instant that is not on the grid.

    If it was written with another time zone, the message has it in UTC, too.
    """
    elsewhere = isinstance(written, str) and datetime.fromisoformat(
        written.strip()
    ).utcoffset() != timedelta(0)
    explanation = (
        f"{str(written).strip()} is {instant(start)}, and grids are in UTC. " if elsewhere else ""
    )
    return f"{explanation}{error.message}. {error.advice}"


def _whole_number(value: object) -> object:
    """Refuses values that pydantic would accept as a whole number: true, and 1.0."""
    if isinstance(value, bool | float):
        raise sentence("must be a whole number", value)
    return value


def _no_switch(value: object) -> object:
    """Refuses true, which pydantic would accept as 1.0."""
    if isinstance(value, bool):
        raise sentence("must be a number", value)
    return value


def scalar(value: object) -> object:
    """Returns the value if it isn't a list, a mapping or null.

    Raises:
        ValueError: it is a list, a mapping or null.
    """
    if not isinstance(value, bool | int | float | str):
        raise sentence("must be a text, a number, true or false")
    return value


def _scalar_or_secret(value: object) -> object:
    """Validates a scalar, or a reference to a secret."""
    return _or_reference(value, scalar, "a text, a number, true or false")


def _client_value(value: object) -> object:
    """Validates the value of a client's property: a scalar, a reference, or a login by token."""
    is_login = isinstance(value, Login) or (isinstance(value, Mapping) and "method" in value)
    return parse_login(value) if is_login else _scalar_or_secret(value)


def _written_client_value(value: object) -> object:
    return to_mapping(value) if isinstance(value, Login) else written(value)


def _written_in_json(value: object, info: SerializationInfo) -> object:
    is_left_out = info.context == NO_SECRETS and isinstance(value, Secret)
    return None if is_left_out else written(value)


def _text_or_secret(value: object) -> object:
    return _or_reference(value, _some_text, "a text")


def _or_reference(value: object, plain: Callable[[object], object], kinds: str) -> object:
    if not isinstance(value, Mapping | Secret):
        return plain(value)
    return _check_reference(value, f"{kinds}, or a reference")


def _check_reference(value: object, kinds: str = "a reference") -> Secret:
    # it is a secret already in a section that is made from another section
    secret = value if isinstance(value, Secret) else named_or_reference(value)
    if secret is None:
        raise sentence(f"must be {kinds}: {FORMS}")
    return secret


def _some_text(value: object) -> object:
    text = _check_text(value)
    if not isinstance(text, str):
        raise sentence("must be a text")
    if not text:
        raise ValueError("must not be empty")
    return text


def _none(value: object) -> object:
    return None if value == "none" else value


def _check_text(value: object) -> object:
    """Validates a text, or a whole number, which becomes the text that was written.

    1.10 is refused, because it would become 1.1.
    """
    if isinstance(value, bool | float):
        raise sentence("must be a text: put it in quotes", value)
    return str(value) if isinstance(value, int) and value.bit_length() <= 64 else value


def _servers(value: str) -> str:
    if "@" in value:
        raise sentence(
            "must not hold a user or a password: they belong under client, as sasl.username and"
            " sasl.password"
        )
    if not all(_SERVER.fullmatch(part.strip()) for part in value.split(",")):
        raise ValueError("must be host:port, several separated by commas")
    return value


def check_location(value: str) -> str:
    """Returns the path or URL of a table or a ledger if it is valid.

    Raises:
        ValueError: it isn't valid. The message doesn't have the value, because a URL may
            contain a secret.
    """
    if is_url(value):
        if not value.partition("://")[2]:
            raise sentence("names no place behind the ://")
    elif meant := _ONE_SLASH.match(value):
        raise sentence(f"has one slash where a URL has two: write {meant[1]}://")
    else:
        home(value)
    return value


def cluster_name(value: str) -> str:
    """Returns a name if a cluster in a windrow.yaml may have it.

    Raises:
        ValueError: it can't be the name of a cluster.
    """
    if not _CLUSTER.fullmatch(value):
        raise ValueError("must be a cluster's name: 1 to 60 of a-z A-Z 0-9 _ -")
    return value


def topic_name(value: str) -> str:
    """Returns a name if a Kafka topic may have it.

    Raises:
        ValueError: it can't be the name of a topic.
    """
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("must be a topic name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    must(lambda value: value >= timedelta(0), "not be negative"),
    PlainSerializer(_as_written, when_used="json-unless-none"),
    Values("a duration"),
]
Timeout = Annotated[
    Duration,
    must(
        lambda value: timedelta(milliseconds=100) <= value <= timedelta(minutes=5), "be 100ms to 5m"
    ),
    Values("`100ms` to `5m`"),
]
"""The time in which an answer must come. 0 would mean no limit to some databases."""
Instant = Annotated[datetime, BeforeValidator(as_instant), Values("an instant with its time zone")]
Count = Annotated[
    int, BeforeValidator(_whole_number), Field(ge=1, le=COUNT_MAX), Values("a number from 1 on")
]
CountOrZero = Annotated[int, Field(ge=0), BeforeValidator(_whole_number), Values("a number")]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_switch), Values("0 to 1")]
Size = Annotated[int, BeforeValidator(_size), Field(le=COUNT_MAX), Values("a size")]
TextOrEmpty = Annotated[
    str,
    BeforeValidator(_check_text),
    WithJsonSchema({"type": ["string", "integer"]}),
    Values("a text"),
]
Text = Annotated[TextOrEmpty, Field(min_length=1)]

CODE_REFERENCE = re.compile(r"(.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")
"""A reference to a user's Python code: `FILE.py:Name`, or `package.module:Name`."""


SchemaReference = Annotated[
    TextOrEmpty,
    must(CODE_REFERENCE.fullmatch, "be FILE.py:Class or package.module:Class"),
    Values("`FILE.py:Class`, `package.module:Class`"),
]

FunctionName = Annotated[
    TextOrEmpty,
    must(CODE_REFERENCE.fullmatch, "be FILE.py:function or package.module:function"),
    Values("`FILE.py:function`, `package.module:function`"),
]

REFERENCES = "`{env: NAME}`, `{file: PATH}` or `{secret: NAME}`"
"""The references of `secrets.FORMS`, in words for `docs/settings.md`."""

_REFERENCES = [
    {
        "type": "object",
        "properties": {key: {"type": "string"}},
        "required": [key],
        "additionalProperties": False,
    }
    for key in ("env", "file", "secret")
]
Reference = Annotated[
    Secret,
    PlainValidator(_check_reference),
    PlainSerializer(_written_in_json, when_used="json"),
    WithJsonSchema({"anyOf": _REFERENCES}),
    Values(REFERENCES),
]
ScalarOrSecret = Annotated[
    bool | int | float | str | Secret,
    PlainValidator(_scalar_or_secret),
    PlainSerializer(_written_in_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": ["boolean", "number", "string"]}, *_REFERENCES]}),
]
Password = Annotated[
    str | Secret,
    PlainValidator(_text_or_secret),
    PlainSerializer(_written_in_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": ["string", "integer"]}, *_REFERENCES]}),
    Values(f"a text, {REFERENCES}"),
]
ClientProperties = Annotated[
    Mapping[
        str,
        Annotated[
            bool | int | float | str | Secret | Login,
            PlainValidator(_client_value),
            PlainSerializer(_written_client_value, when_used="json"),
            WithJsonSchema(
                {
                    "anyOf": [
                        {"type": ["boolean", "number", "string"]},
                        {"type": "object", "required": ["method"]},
                        *_REFERENCES,
                    ]
                }
            ),
        ],
    ],
    Values(f"`{{property: value}}`; of a secret also {REFERENCES}"),
]
Servers = Annotated[TextOrEmpty, AfterValidator(_servers), Values("`host:port,...`")]
ClusterName = Annotated[Text, AfterValidator(cluster_name), Values("a name")]
TopicName = Annotated[TextOrEmpty, AfterValidator(topic_name)]
WrittenTopicName = Annotated[
    TopicName,
    must(
        lambda name: not name.endswith(".windrow"),
        "not end with .windrow, as the names of the topics with a Kafka sink's receipts do",
    ),
]
OrNone = BeforeValidator(_none)
"""Validates `none` as None."""

CountOrNone = Annotated[Count | None, OrNone, Values("a number from 1 on, `none`")]


def section_of(attributes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a section as it was written; an empty one if it is missing or not a mapping."""
    section = attributes.get(name)
    return section if isinstance(section, Mapping) else {}


def names_in(written: object) -> list[str]:
    """Returns the texts of a list as it was written.

    Other values are reported by the validation of the list.
    """
    return (
        [name for name in written if isinstance(name, str)]
        if isinstance(written, list | tuple)
        else []
    )
