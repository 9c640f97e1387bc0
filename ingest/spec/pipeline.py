"""What a user writes: one model for YAML, Python and the command.

A spec file is Dagster's component file (the keys beside `attributes` are Dagster's business) or just the attributes. Values may hold
`{{ env.NAME }}`, `{{ env('NAME') }}` and `{{ env('NAME', 'default') }}`, the form that Dagster components use. All mistakes are reported
at once. The file is read here for the command and for Dagster alike, so it means the same to both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, ValidationError, WithJsonSchema

from ingest.config.document import Document, Mistake, Place, mistake_of, read_document, read_values, suggest
from ingest.config.places import WAY_OUT, absolute, home, is_url, secret_part
from ingest.config.values import CountOrZero, Section, Share, Written, as_instant, off_grid, refuse, told
from ingest.config.yamltext import SIZE_MAX
from ingest.errors import GridError, SpecError, SpecMistakesError
from ingest.kafka.client import problems
from ingest.spec.source import SourceSpec, TuningSpec
from ingest.spec.window import WindowSpec, is_cron
from ingest.windows.grid import BATCH, window_at

METADATA = (
    "topic", "partition", "offset", "timestamp", "timestamp-type", "headers", "header-list", "leader-epoch", "key", "value-size", "attempt",
    "window",
)  # fmt: skip
"""What a row can say of the message it came from, in the order of the columns: the names of Flink's Kafka table, and some of our own."""

METADATA_DEFAULT: Mapping[str, str] = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp", "window")}
"""The columns of a table whose spec says nothing of them."""

_NEEDED = {
    "topic": "receipts are verified against it", "partition": "receipts are verified against it",
    "offset": "receipts are verified against it", "window": "windows are verified and replaced by it",
}  # fmt: skip
_SCHEMA = re.compile(r"(.+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""A URL with a slash too few: as a path it would be a folder of the machine."""

_TOLD_MAX = 50
"""Mistakes that are told at once."""


def _pipeline_id(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", value):
        raise ValueError("must be 1 to 100 of a-z A-Z 0-9 . _ -")
    if not value.strip("."):
        raise ValueError("must be 1 to 100 of a-z A-Z 0-9 . _ -, not only dots")
    return value


def _schema(value: str) -> str:
    if not _SCHEMA.fullmatch(value):
        raise ValueError("must be FILE.py:Class or package.module:Class")
    return value


def _sink_path(value: str) -> str:
    secret = secret_part(value)
    if secret is not None:
        raise told(f"must not hold {secret}: {WAY_OUT}")
    return _place(value)


def _place(value: str) -> str:
    if is_url(value):
        if not value.partition("://")[2]:
            raise told("names no place behind the ://")
    elif meant := _ONE_SLASH.match(value):
        raise told(f"has one slash where a URL has two: write {meant[1]}://")
    else:
        home(value)
    return value


def _metadata(value: object) -> Mapping[str, str]:
    """The mapping with the defaults filled in, in the order of `METADATA`."""
    if not isinstance(value, Mapping):
        raise told("must be a mapping")
    wrong: list[tuple[Place, str]] = [
        ((str(name),), f"unknown key{suggest(str(name), METADATA)}") for name in value if name not in METADATA
    ]
    written = {name: None if column == "none" else column for name, column in value.items() if name in METADATA}
    wrong += [((name,), what) for name, column in written.items() if (what := _column_mistake(name, column)) is not None]
    whole = {**METADATA_DEFAULT, **written}
    found = {name: str(whole[name]) for name in METADATA if whole.get(name) is not None}
    seen: dict[str, str] = {}
    for name, column in found.items():
        other = seen.setdefault(column.casefold(), name)
        if other != name:
            place = name if name in written else other
            wrong.append(((place,), f"{other} and {name} would both be column {column}, and tables don't tell case apart"))
    if wrong:
        refuse(wrong)
    return found


def _column_mistake(name: str, column: object) -> str | None:
    if column is None:
        return None if name not in _NEEDED else f"can't be left out: {_NEEDED[name]}"
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        return "must be a column name, up to 128 of a-z A-Z 0-9 _ and no digit first, or none to leave it out"
    return None


_METADATA_SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in METADATA}, "additionalProperties": False}


class DecodeSpec(Section):
    """Bytes to columns. `schema`: a pandera.polars DataFrameModel, as FILE.py:Class (relative to the spec) or package.module:Class."""

    schema_: Annotated[Written, AfterValidator(_schema)] = Field(alias="schema")
    on_null: Literal["dead", "drop"] = "dead"
    unknown: Literal["ignore", "dead"] = "ignore"


class LimitsSpec(Section):
    """How many dead letters a window may have, as a share of the messages read and as a number; None: any."""

    max_dead_ratio: Share | None = 0.01
    max_dead_count: CountOrZero | None = None


class SinkSpec(Section):
    """The table. A relative path is relative to the spec's folder; a URL (s3://...) is taken as it is."""

    kind: Literal["delta"] = "delta"
    path: Annotated[Written, Field(min_length=1), AfterValidator(_sink_path)]


class PipelineSpec(Section):
    """One pipeline: topics become a table, window by window.

    `id` is the pipeline's identity for ever: its windows and frozen boundaries carry it. `folder` is where the spec lies.
    """

    id: Annotated[Written, AfterValidator(_pipeline_id)]
    source: SourceSpec
    window: WindowSpec
    decode: DecodeSpec
    sink: SinkSpec
    limits: LimitsSpec = LimitsSpec()
    metadata: Annotated[Mapping[str, str], PlainValidator(_metadata), WithJsonSchema(_METADATA_SCHEMA)] = METADATA_DEFAULT
    state: Annotated[Written, Field(min_length=1), AfterValidator(_place)] | None = Field(default=None, repr=False)  # may hold a password
    folder: Path

    @classmethod
    def between(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """What the source says must fit the windows."""
        source, window = _section(written, "source"), _section(written, "window")
        if source.get("start") == "label" and window.get("grid") == BATCH:
            yield ("source", "start"), "label is for windows in time: a micro-batch's label is a number, which cuts no log"
        if source.get("isolation") == "read_uncommitted" and "max_wait" in window and window.get("grid") != BATCH:
            yield ("window", "max_wait"), "is for open transactions, which read_uncommitted doesn't wait for: leave one of them out"
        yield from _start_mistakes(str(written.get("id")), window)

    def sink_path(self) -> str:
        """Where the table is: an absolute path, or the URL as it was given."""
        return absolute(self.sink.path, self.folder)

    def state_url(self) -> str:
        """The ledger, a path or a URL: the spec's own, else $WINDROW_STATE, else .windrow/state.db beside the spec.

        Without WINDROW_STATE the same for one spec, whoever asks and from wherever: a command and a UI can't have two ledgers.

        Raises:
            SpecError: WINDROW_STATE makes no sense.
        """
        own = self.folder / ".windrow" / "state.db"
        try:
            return absolute(self.state or os.environ.get("WINDROW_STATE") or str(own), self.folder)
        except ValueError as error:
            raise SpecError(f"WINDROW_STATE {error}", "spec", "Mend the environment variable, or set state in the spec.") from None


def load_spec(path: Path, document: int | None = None) -> PipelineSpec:
    """The spec in a YAML file. `document`: which of several (from 0), as Dagster's component files may hold; None: there must be one.

    Raises:
        SpecError: if the file can't be read, or with all its mistakes, each with its line and dotted place.
    """
    return _made(read_document(_read(path), document), path.absolute().parent, str(path))


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes whose templates are resolved already. `folder`: what relative paths are relative to.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(Document(attributes), folder.absolute(), "the spec")


def fill_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes that may hold templates, and that no file holds.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(read_values(attributes), folder.absolute(), "the spec")


def _read(path: Path) -> str:
    """The text, if it isn't larger than a spec can be."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_MAX + 1)
        if len(content) <= SIZE_MAX:
            return content.decode("utf-8")
    except IsADirectoryError:
        raise SpecError(f"The spec {path} is a folder", "spec", f"Name the file in it, such as {path / 'defs.yaml'}.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SpecError(f"The spec {path} can't be read: {why}", "spec", "Give the path of a pipeline's YAML file.") from None
    what = f"The spec {path} is larger than {SIZE_MAX // 1024} KiB, which no spec is"
    raise SpecError(what, "spec", "Give the path of a pipeline's YAML file.")


def _made(document: Document, folder: Path, name: str) -> PipelineSpec:
    spec, wrong = _checked(document.attributes, folder)
    # A place whose template failed has no value yet: what pydantic says of it there is noise.
    mistakes = [*document.mistakes, *(m for m in wrong if not document.failed(m.place))]
    if mistakes or spec is None:
        raise _refusal(name, mistakes, document)
    return spec


def _refusal(name: str, mistakes: list[Mistake], document: Document) -> SpecMistakesError:
    lines = list(dict.fromkeys(sorted((document.line(m), document.told(m)) for m in mistakes)))
    head = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    listed = [f"  line {line}: {text}" if line else f"  {text}" for line, text in lines[:_TOLD_MAX]]
    if len(lines) > _TOLD_MAX:
        listed.append(f"  and {len(lines) - _TOLD_MAX:,} more")
    return SpecMistakesError(f"{head} in {name}:\n" + "\n".join(listed), "spec", "Nothing was read. Mend the spec and try again.")


def _checked(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """The spec, or everything that is wrong with it."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    wrong = [*_client_mistakes(attributes), *_file_mistakes(attributes, folder)]
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
        model = model if field is None else next(_models(field.annotation), model)
    return [f.alias or name for name, f in model.model_fields.items() if name != "folder"]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The sections in an annotation, however deep in unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _section(attributes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = attributes.get(name)
    return section if isinstance(section, Mapping) else {}


def _client_mistakes(attributes: Mapping[str, Any]) -> list[Mistake]:
    source = _section(attributes, "source")
    client = {str(name): value for name, value in _section(source, "client").items()}
    tuning = {name: value for name, value in _section(source, "tuning").items() if _is_tuning(name, value)}
    return [_placed(problem, client) for problem in problems(client, TuningSpec.model_validate(tuning).client())]


def _is_tuning(name: str, value: object) -> bool:
    """Whether a setting is right by itself; what is wrong with another is told by the section."""
    try:
        TuningSpec.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _placed(problem: str, client: Mapping[str, object]) -> Mistake:
    """A problem that begins with a property's name, or a setting's, belongs to its line."""
    name, _, rest = problem.partition(" ")
    if name.startswith("tuning."):
        return Mistake(("source", *name.split(".")), re.sub(r"^\((.+?)\)", r"\1", rest))
    return Mistake(("source", "client", name), rest) if name in client else Mistake(("source", "client"), problem)


def _file_mistakes(attributes: Mapping[str, Any], folder: Path) -> list[Mistake]:
    schema = _section(attributes, "decode").get("schema")
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        return []
    file = schema.rpartition(":")[0]
    with suppress(OSError):  # a name that is too long
        if not file.endswith(".py") or (folder / file).is_file():
            return []
    return [Mistake(("decode", "schema"), f"there is no file {file} in {folder}")]


def _start_mistakes(pipeline: str, window: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """A start that lies beside the grid; wrong kinds of values are told by their options."""
    grid = window.get("grid")
    try:
        start = as_instant(window.get("start"))
    except ValueError:
        return
    if not isinstance(grid, str) or not is_cron(grid):
        return
    try:
        window_at(pipeline, grid, start)
    except GridError as error:
        yield ("window", "start"), off_grid(window.get("start"), start, error)
    except SpecError as error:
        yield ("window", "start"), f"{error.what}. {error.do}"
