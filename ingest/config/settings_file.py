"""Converts a file of settings, a spec or a windrow.yaml, to a model, or lists all its mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.errors import SpecError, SpecMistakesError, format_count
from windrow.ingest.kafka.allowed_properties import ALLOWED, OAUTH
from windrow.ingest.kafka.client_properties import problems
from windrow.ingest.settings.document import Document, Mistake, SettingPath, mistake_of
from windrow.ingest.settings.secrets import FORMS, InCommand, named_or_reference, reference
from windrow.ingest.settings.values import section_of
from windrow.ingest.settings.yamltext import SIZE_MAX

M = TypeVar("M", bound=BaseModel)

_SECRETS = {
    *("password", "key_password", "credential", "token"),
    *(name for name, client_property in ALLOWED.items() if client_property.secret),
}
"""The settings of a client, a registry or a catalog that are secrets."""

_URLS = {"url", "uri", "state"}
"""The settings that may be the URL of a database."""

_PASSWORD = re.compile(r"://[^/?#@]*:(?!\d+[/?#])[^@]+@|[?&](ssl)?password=[^&]")
"""Matches a password in a URL of PostgreSQL, with any characters. It may also be an option."""

_ONLY_SHARED = (
    "belongs into a windrow.yaml, under client or registry of a cluster there, which is named here:"
    " it may run a program or send a secret to a URL, and who may change a pipeline may not do that"
)
_ONLY_NAMED = (
    "belongs into a windrow.yaml, as secrets: {NAME: {command: [...]}} there, and is named here as"
    " {secret: NAME}: it runs a program, and who may change a pipeline may not do that"
)

_SHOWN_MAX = 50
"""The maximum number of mistakes in one message."""


def text_of(path: Path, name: str, advice: str) -> str:
    """Reads the text of a file of settings.

    Args:
        path: the file.
        name: its name in errors.
        advice: what to do, in errors.

    Raises:
        SpecError: the file can't be read, or is too large.
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
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SpecError(f"{name} can't be read: {reason}", "spec", advice) from None
    raise SpecError(f"{name} is larger than {SIZE_MAX // 1024} KiB, which none is", "spec", advice)


def refusal(name: str, mistakes: list[Mistake], document: Document) -> SpecMistakesError:
    """Makes the error with all mistakes of a file, each with its line.

    Args:
        name: the name of the file.
        mistakes: the mistakes.
        document: the document with the lines.
    """
    lines = list(dict.fromkeys(sorted((document.line(m), document.sentence(m)) for m in mistakes)))
    head = format_count(len(lines), "mistake")
    listed = [
        f"  line {line}: {text}" if line else f"  {text}" for line, text in lines[:_SHOWN_MAX]
    ]
    if len(lines) > _SHOWN_MAX:
        listed.append(f"  and {len(lines) - _SHOWN_MAX:,} more")
    return SpecMistakesError(
        f"{head} in {name}:\n" + "\n".join(listed),
        "spec",
        "Nothing was read. Fix it and try again.",
    )


def validate(
    model: type[M], values: Mapping[str, Any], *, shared: bool = False
) -> tuple[M | None, list[Mistake]]:
    """Makes a model from values, or lists their mistakes.

    Args:
        model: the model.
        values: the settings as they were written.
        shared: True in a windrow.yaml, which alone may have some settings (`shared_only`).
    """
    mistakes = [] if shared else list(shared_only_mistakes(values, ()))
    try:
        return model.model_validate(values), mistakes
    except ValidationError as error:
        return None, mistakes + list(map(mistake_of, error.errors(include_url=False)))


def client_mistakes(
    section: Mapping[str, Any],
    path: SettingPath,
    above: ClusterSpec | None = None,
    *,
    shared: bool = False,
) -> list[Mistake]:
    """Returns mistakes in a section's client properties.

    Args:
        section: the section as it was written, with `client`.
        path: the keys that lead to the section in the file.
        above: the named cluster whose properties these override.
        shared: True in a windrow.yaml, as in `validate`.
    """
    written, client = section_of(section, "client"), dict[str, Any]()
    mistakes = [] if shared else list(shared_only_mistakes(written, (*path, "client")))
    for name, value in written.items():
        try:
            client[str(name)] = named_or_reference(value) or value
        except ValueError as error:
            mistakes.append(Mistake((*path, "client", str(name)), str(error)))
    if mistakes:
        return mistakes
    if above is None:
        return [_locate(problem, path, client) for problem in problems(client)]
    # the named cluster has no mistakes itself, so a conflict with it is a mistake of this section
    merged_client, note = {**above.client, **client}, " (with what the cluster has)"
    return [_locate(problem, path, client, note) for problem in problems(merged_client)]


def shared_only(client: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a client or a registry that only a windrow.yaml may have.

    They are the login by token, and secrets that a command prints.
    """
    return {
        name: value
        for name, value in client.items()
        if name == OAUTH or isinstance(reference(value) or value, InCommand)
    }


def shared_only_mistakes(value: object, path: SettingPath) -> Iterator[Mistake]:
    """Finds settings that only a windrow.yaml may have, in a file or a section of another place.

    Args:
        value: the settings as they were written, with all that is nested in them.
        path: the keys that lead to them.
    """
    name = path[-1] if path[-2:-1] in {("client",), ("registry",)} else ""
    if shared_only({str(name): value}):
        yield Mistake(path, _ONLY_SHARED if name == OAUTH else _ONLY_NAMED)
    elif path[-1:] != ("body",):  # of a lookup: any JSON, which is sent as it is
        items = value.items() if isinstance(value, Mapping) else ()
        for key, item in enumerate(value) if isinstance(value, list | tuple) else items:
            yield from shared_only_mistakes(item, (*path, key))


def written_out(document: Document) -> list[Mistake]:
    """Finds secrets that are written in plain text in a file.

    They are secrets of clients, registries and catalogs, and passwords in URLs.
    """
    return [
        Mistake(
            path,
            "is a URL with a password written out: write it as a template, {{ env.NAME }}"
            + (
                ", or leave it out and set PGPASSWORD or a password file"
                if str(value).startswith("postgres")
                else ""
            )
            if path[-1] in _URLS
            else f"is written out, and it is a secret: write {FORMS}, which each process reads for"
            " itself, or a template",
        )
        for path in filter(None, document.lines)
        if path not in document.values_by_template
        and isinstance(value := setting_at(document.attributes, path), str | int | float)
        and (
            (path[-2:-1] in {("client",), ("registry",), ("catalog",)} and path[-1] in _SECRETS)
            or (path[-1] in _URLS and _PASSWORD.search(str(value)))
        )
    ]


def setting_at(values: Any, path: SettingPath) -> object:
    """Returns the value of a setting; None if it isn't written."""
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _locate(
    problem: str, path: SettingPath, client: Mapping[str, object], elsewhere: str = ""
) -> Mistake:
    """Returns the mistake for a problem, at the property whose name begins the problem.

    Args:
        problem: the problem.
        path: the keys that lead to the section in the file.
        client: the client properties in the file.
        elsewhere: a note for a problem with a property that isn't in this file.
    """
    name, _, rest = problem.partition(" ")
    return (
        Mistake((*path, "client", name), rest)
        if name in client
        else Mistake((*path, "client"), f"{problem}{elsewhere}")
    )
