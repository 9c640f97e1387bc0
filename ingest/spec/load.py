"""A spec file becomes a pipeline's spec, or all that is wrong with it.

A spec file is Dagster's component file (the keys beside `attributes` are Dagster's business) or just the attributes. Values may hold
`{{ env.NAME }}`, `{{ env('NAME') }}` and `{{ env('NAME', 'default') }}`, the form that Dagster components use. All mistakes are reported
at once. The file is read here for the command and for Dagster alike, so it means the same to both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ingest.config.document import Document, Mistake, mistake_of, read_document, read_values
from ingest.config.kinds import OfItsKind
from ingest.config.values import section_of
from ingest.config.yamltext import SIZE_MAX
from ingest.decode.kind import SCHEMA_REFERENCE
from ingest.errors import SpecError, SpecMistakesError
from ingest.kafka.client import problems
from ingest.spec.pipeline import PipelineSpec
from ingest.spec.source import TuningSpec

_TOLD_MAX = 50
"""Mistakes that are told at once."""


def load_spec(path: Path | str, document: int | None = None) -> PipelineSpec:
    """Read the spec in a YAML file.

    Args:
        path: the file. Relative paths in it are relative to its folder.
        document: which of several documents (from 0), as Dagster's component files may hold; None: there must be one.

    Raises:
        SpecError: the file can't be read, or is wrong: then with all its mistakes at once, each with its line and dotted place.
    """
    path = Path(path)
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
        found = [mistake_of(e, _keys_at(tuple(e["loc"][:-1]), attributes)) for e in error.errors(include_url=False)]
        return None, [*(m for m in found if m.place not in told), *wrong]
    return (None if wrong else spec), wrong


def _keys_at(place: tuple[str | int, ...], written: object) -> list[str]:
    """The keys that a section knows. `written`: the attributes; of some sections the options depend on what they say."""
    models: list[type[BaseModel]] = [PipelineSpec]
    for part in place:
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        written = written.get(part) if isinstance(written, Mapping) else None
        models = [below for field in fields for below in _sections(field, written)] or models
    return list(dict.fromkeys(f.alias or name for model in models for name, f in model.model_fields.items() if name != "folder"))


def _sections(field: FieldInfo, written: object) -> Iterator[type[BaseModel]]:
    """The sections that a field may be; only the one that is written, where that says which."""
    chosen = OfItsKind.of(field)
    if chosen is not None:
        yield chosen.model(written)
    else:
        yield from _models(field.annotation)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The sections in an annotation, however deep in unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _client_mistakes(attributes: Mapping[str, Any]) -> list[Mistake]:
    source = section_of(attributes, "source")
    client = {str(name): value for name, value in section_of(source, "client").items()}
    tuning = {name: value for name, value in section_of(source, "tuning").items() if _is_tuning(name, value)}
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
    schema = section_of(attributes, "decode").get("schema")
    if not isinstance(schema, str) or not SCHEMA_REFERENCE.fullmatch(schema):
        return []
    file = schema.rpartition(":")[0]
    with suppress(OSError):  # a name that is too long
        if not file.endswith(".py") or (folder / file).is_file():
            return []
    return [Mistake(("decode", "schema"), f"there is no file {file} in {folder}")]
