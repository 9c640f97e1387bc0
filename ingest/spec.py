"""What a user writes: one model for YAML, Python and the command.

A spec file is Dagster's component file (the keys beside `attributes` are Dagster's business) or just the attributes. Values may hold
`{{ env.NAME }}`, `{{ env('NAME') }}` and `{{ env('NAME', 'default') }}`, the form that Dagster components use. All mistakes are reported
at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ingest.errors import GridError, SpecError, SpecMistakesError
from ingest.grid import window_at
from ingest.specfile import Document, Mistake, mistake_of, read_document

Grid = Literal["hourly", "daily"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)([smhd])")
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):\d{1,5}")
_SCHEMA = re.compile(r"(.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


def _duration(value: object) -> object:
    """`5m`, `1h30m`, or seconds."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if text.isdecimal():
        return timedelta(seconds=int(text))
    parts = _DURATION.findall(text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        if isinstance(value, timedelta):
            return value
        raise ValueError("must be a duration like 30s, 5m, 1h30m or a number of seconds")
    return timedelta(seconds=sum(int(n) * _UNITS[unit] for n, unit in parts))


def _not_negative(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise ValueError("must not be negative")
    return value


def _instant(value: object) -> object:
    """An ISO instant; one without an offset is UTC."""
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


def _scalar(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be a text, a number, true or false")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _servers(value: str) -> str:
    if not all(_SERVER.fullmatch(part.strip()) for part in value.split(",")):
        raise ValueError("must be host:port, several separated by commas")
    return value


def _topic(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value) or value in {".", ".."}:
        raise ValueError("must be a topic name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return value


def _pipeline_id(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", value):
        raise ValueError("must be 1 to 100 of a-z A-Z 0-9 . _ -")
    return value


def _schema(value: str) -> str:
    if not _SCHEMA.fullmatch(value):
        raise ValueError("must be FILE.py:Class or package.module:Class")
    return value


class _Section(BaseModel):
    """Immutable, strict about its keys, and silent about its values when something is wrong: one of them may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True, populate_by_name=True)


ClientValue = Annotated[bool | int | float | str, BeforeValidator(_scalar)]


class SourceSpec(_Section):
    """The topic and how to reach it. `client`: librdkafka properties out of the allow-list of `ingest.broker.client`."""

    bootstrap_servers: Annotated[str, AfterValidator(_servers)]
    topic: Annotated[str, AfterValidator(_topic)]
    client: Mapping[str, ClientValue] = Field(default_factory=dict, repr=False)


class WindowSpec(_Section):
    """The grid of windows, in UTC. A window can be run once its end lies `delay` in the past."""

    grid: Grid
    start: Annotated[datetime, BeforeValidator(_instant)]
    delay: Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_not_negative)] = timedelta(minutes=5)


class DecodeSpec(_Section):
    """Bytes to columns. `schema`: a pandera.polars DataFrameModel, as FILE.py:Class (relative to the spec) or package.module:Class."""

    schema_: Annotated[str, AfterValidator(_schema)] = Field(alias="schema")
    on_null: Literal["dead", "drop"] = "dead"
    unknown: Literal["ignore", "dead"] = "ignore"


class LimitsSpec(_Section):
    """How many dead letters a window may have, as a share of the messages read and as a number; None: any."""

    max_dead_ratio: Annotated[float, Field(ge=0, le=1)] | None = 0.01
    max_dead_count: Annotated[int, Field(ge=0)] | None = None


class SinkSpec(_Section):
    """The table. A relative path is relative to the spec's folder; a URL (s3://...) is taken as it is."""

    kind: Literal["delta"] = "delta"
    path: Annotated[str, Field(min_length=1)]


class PipelineSpec(_Section):
    """One pipeline: a topic becomes a table, window by window.

    `id` is the pipeline's identity for ever: its windows and frozen boundaries carry it. `folder` is where the spec lies.
    """

    id: Annotated[str, AfterValidator(_pipeline_id)]
    source: SourceSpec
    window: WindowSpec
    decode: DecodeSpec
    sink: SinkSpec
    limits: LimitsSpec = LimitsSpec()
    state: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)  # a database URL may hold a password
    folder: Path

    def sink_path(self) -> str:
        """Where the table is: an absolute path, or the URL as it was given."""
        return _absolute(self.sink.path, self.folder)

    def state_url(self) -> str:
        """The ledger, a path or a URL: the spec's own, else $WINDROW_STATE, else .windrow/state.db beside the spec.

        Without WINDROW_STATE the same for one spec, whoever asks and from wherever: a command and a UI can't have two ledgers.
        """
        own = self.folder / ".windrow" / "state.db"
        return _absolute(self.state or os.environ.get("WINDROW_STATE") or str(own), self.folder)


def _absolute(place: str, folder: Path) -> str:
    return place if "://" in place else str(Path(os.path.normpath(folder / Path(place).expanduser())))


def load_spec(path: Path) -> PipelineSpec:
    """The spec in a YAML file.

    Raises:
        SpecError: if the file can't be read, or with all its mistakes, each with its line and dotted place.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SpecError(f"The spec {path} can't be read: {why}", "spec", "Give the path of a pipeline's YAML file.") from None
    document = read_document(text)
    spec, wrong = _checked(document.attributes, path.absolute().parent)
    # A place whose template failed has no value yet: what pydantic says of it there is noise.
    mistakes = [*document.mistakes, *(m for m in wrong if not document.failed(m.place))]
    if mistakes or spec is None:
        raise _refusal(str(path), mistakes, document)
    return spec


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes whose templates are resolved already (Python, Dagster). `folder`: what relative paths are relative to.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    spec, wrong = _checked(attributes, folder.absolute())
    if spec is None:
        raise _refusal("the spec", wrong, None)
    return spec


def _refusal(name: str, mistakes: list[Mistake], document: Document | None) -> SpecMistakesError:
    lines = sorted((0 if document is None else document.line(m), m.text) for m in mistakes)
    head = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    listed = "\n".join(f"  line {line}: {text}" if line else f"  {text}" for line, text in dict.fromkeys(lines))
    return SpecMistakesError(f"{head} in {name}:\n{listed}", "spec", "Nothing was read. Mend the spec and try again.")


def _checked(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """The spec, or everything that is wrong with it."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    wrong = [*_client_mistakes(attributes), *_file_mistakes(attributes, folder), *_grid_mistakes(attributes)]
    if "folder" in attributes:
        wrong.append(Mistake(("folder",), "unknown key; relative paths are relative to the spec's own folder"))
    try:
        spec = PipelineSpec.model_validate({**attributes, "folder": folder})
    except ValidationError as error:
        told = {m.place for m in wrong}
        found = [mistake_of(e, _keys_at(tuple(e["loc"][:-1]))) for e in error.errors(include_url=False)]
        return None, [*(m for m in found if m.place not in told), *wrong]
    return (None if wrong else spec), wrong


def _keys_at(place: tuple[str | int, ...]) -> list[str]:
    """The keys that a section knows."""
    model: type[BaseModel] = PipelineSpec
    for part in place:
        field = model.model_fields.get(str(part))
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), PipelineSpec)
    return [f.alias or name for name, f in model.model_fields.items() if name != "folder"]


def _section(attributes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = attributes.get(name)
    return section if isinstance(section, Mapping) else {}


def _client_mistakes(attributes: Mapping[str, Any]) -> list[Mistake]:
    client = _section(attributes, "source").get("client")
    if not isinstance(client, Mapping) or not client:
        return []
    from ingest.broker.client import problems  # noqa: PLC0415  # loads librdkafka

    return [_placed(problem, client) for problem in problems(client)]


def _placed(problem: str, client: Mapping[str, object]) -> Mistake:
    """A problem that begins with a property's name belongs to that property's line."""
    name, _, rest = problem.partition(" ")
    return Mistake(("source", "client", name), rest) if name in client else Mistake(("source", "client"), problem)


def _file_mistakes(attributes: Mapping[str, Any], folder: Path) -> list[Mistake]:
    schema = _section(attributes, "decode").get("schema")
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        return []
    file = schema.rpartition(":")[0]
    if not file.endswith(".py") or (folder / file).is_file():
        return []
    return [Mistake(("decode", "schema"), f"there is no file {file} in {folder}")]


def _grid_mistakes(attributes: Mapping[str, Any]) -> list[Mistake]:
    """A start that lies beside the grid; wrong kinds of values are pydantic's to report."""
    section = _section(attributes, "window")
    grid = section.get("grid")
    try:
        start = _instant(section.get("start"))
    except ValueError:
        return []
    if not isinstance(grid, str) or grid not in get_args(Grid) or not isinstance(start, datetime):
        return []
    try:
        window_at(str(attributes.get("id")), grid, start)
    except (GridError, SpecError) as error:
        return [Mistake(("window", "start"), f"{error.what}. {error.do}")]
    return []
