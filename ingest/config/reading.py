"""A file of settings becomes a model, or all that is wrong with it: the same for a spec
and for a windrow.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from windrow.ingest.config.cluster import ClusterSpec, TuningSpec
from windrow.ingest.errors import SpecError, SpecMistakesError
from windrow.ingest.kafka.client import problems
from windrow.ingest.kafka.properties import ALLOWED
from windrow.ingest.settings.document import Document, Mistake, Place, mistake_of
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.secrets import FORMS, reference
from windrow.ingest.settings.values import section_of
from windrow.ingest.settings.yamltext import SIZE_MAX

M = TypeVar("M", bound=BaseModel)

_SECRETS = {"password", "key_password", *(name for name, known in ALLOWED.items() if known.secret)}
"""The settings of a client or a registry that are secrets."""

_TOLD_MAX = 50
"""Mistakes that are told at once."""


def text_of(path: Path, name: str, do: str) -> str:
    """The text of a file, if it isn't larger than a file of settings can be.

    `name`, `do`: how an error calls the file, and what helps.

    Raises:
        SpecError: it can't be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_MAX + 1)
        if len(content) <= SIZE_MAX:
            return content.decode("utf-8")
    except IsADirectoryError:
        raise SpecError(
            f"{name} is a folder", "spec", f"Name the file in it, such as {path / 'defs.yaml'}."
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SpecError(f"{name} can't be read: {why}", "spec", do) from None
    raise SpecError(f"{name} is larger than {SIZE_MAX // 1024} KiB, which none is", "spec", do)


def refusal(name: str, mistakes: list[Mistake], document: Document) -> SpecMistakesError:
    """All that is wrong with a file, each mistake with its line. `name`: the file's."""
    lines = list(dict.fromkeys(sorted((document.line(m), document.sentence(m)) for m in mistakes)))
    head = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    listed = [f"  line {line}: {text}" if line else f"  {text}" for line, text in lines[:_TOLD_MAX]]
    if len(lines) > _TOLD_MAX:
        listed.append(f"  and {len(lines) - _TOLD_MAX:,} more")
    do = "Nothing was read. Mend it and try again."
    return SpecMistakesError(f"{head} in {name}:\n" + "\n".join(listed), "spec", do)


def validated(
    model: type[M], values: Mapping[str, Any], unwritten: tuple[str, ...] = ()
) -> tuple[M | None, list[Mistake]]:
    """The model of some values, or what is wrong with them.

    `unwritten`: its fields that nobody writes into the file.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        return None, [
            mistake_of(e, _keys_at(model, tuple(e["loc"][:-1]), values, unwritten))
            for e in error.errors(include_url=False)
        ]


def _keys_at(
    model: type[BaseModel], place: Place, written: object, unwritten: tuple[str, ...]
) -> list[str]:
    """The keys that a section knows.

    `written`: the values; of some sections the options depend on what they say.
    """
    models: list[type[BaseModel]] = [model]
    for part in place:
        fields = [each.model_fields[str(part)] for each in models if str(part) in each.model_fields]
        written = written.get(part) if isinstance(written, Mapping) else None
        models = [below for field in fields for below in _sections(field, written)] or models
    return list(
        dict.fromkeys(
            f.alias or name
            for each in models
            for name, f in each.model_fields.items()
            if name not in unwritten
        )
    )


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


def client_mistakes(
    section: Mapping[str, Any], place: Place, above: ClusterSpec | None = None
) -> list[Mistake]:
    """What is wrong with the client properties of a section as it was written, by
    themselves and beside its tuning.

    Args:
        section: has `client` and `tuning`.
        place: where it stands.
        above: the named cluster that these settings go over.
    """
    client: dict[str, Any] = {
        str(name): reference(value) or value
        for name, value in section_of(section, "client").items()
    }
    tuning = TuningSpec.model_validate(
        {
            name: value
            for name, value in section_of(section, "tuning").items()
            if _is_tuning(name, value)
        }
    )
    # which is right by itself: what is wrong with both together is wrong here
    if above is not None:
        whole, other = above.under(client, tuning), " (with what the cluster has)"
        return [
            _placed(problem, place, client, other)
            for problem in problems(whole.client, whole.tuning.client())
        ]
    return [_placed(problem, place, client) for problem in problems(client, tuning.client())]


def written_out(document: Document) -> list[Mistake]:
    """Secrets of clients and registries that stand in a file as they are, where
    everybody reads them who reads the file.
    """
    return [
        Mistake(
            place,
            f"is written out, and it is a secret: write {FORMS}, which each process reads for"
            " itself, or a template",
        )
        for place in document.lines
        if place[-2:-1] in {("client",), ("registry",)}
        and place[-1] in _SECRETS
        and place not in document.given
        if isinstance(_at(document.attributes, place), str | int | float)
    ]


def _at(values: Any, place: Place) -> object:
    for part in place:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _is_tuning(name: str, value: object) -> bool:
    """Whether a setting is right by itself; what is wrong with another is told by the section."""
    try:
        TuningSpec.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _placed(
    problem: str, place: Place, client: Mapping[str, object], elsewhere: str = ""
) -> Mistake:
    """A problem that begins with a property's name, or a setting's, belongs to its line.

    `elsewhere`: said where that isn't here.
    """
    name, _, rest = problem.partition(" ")
    if name.startswith("tuning."):
        return Mistake((*place, *name.split(".")), re.sub(r"^\((.+?)\)", r"\1", rest))
    return (
        Mistake((*place, "client", name), rest)
        if name in client
        else Mistake((*place, "client"), f"{problem}{elsewhere}")
    )
