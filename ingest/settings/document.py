"""Reads a file of settings: YAML values with their line numbers, templates filled in.

Knows nothing of what the settings mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic_core import ErrorDetails

from windrow.ingest.settings.templates import fill
from windrow.ingest.settings.yamltext import (
    DEPTH_MAX,
    VALUES_MAX,
    compose,
    problem,
    scalar,
    strange,
)

Place = tuple[str | int, ...]

ENVELOPE = ("type", "attributes", "requirements", "post_processing", "template_vars_module")
"""The keys of Dagster's component file; all but `attributes` are for Dagster alone."""

SENTENCE = "sentence"
"""The type of pydantic's error whose sentence is windrow's own: see `settings.values.sentence`."""

SECRET: tuple[Place, ...] = (
    ("source", "client"),
    ("source", "registry"),
    ("state",),
    ("sink", "path"),
    ("sink", "client"),
    ("dead_letters", "client"),
    ("clusters", "*", "client"),
    ("clusters", "*", "registry"),
)
"""Places whose values are never repeated in a message; `*` is any name."""

_SHOWN_MAX = 80
"""Longest key or value that is repeated in a message, in characters."""

_SECRET_LEAST = 4
"""Shortest value of the environment that is masked in messages, in characters.

A shorter one is no secret, and is part of many sentences.
"""


@dataclass(frozen=True)
class Mistake:
    """One mistake at a place of the attributes, or in a line of the text (`line`)."""

    place: Place
    what: str
    line: int | None = None

    @property
    def text(self) -> str:
        """`window.grid: must be ...`."""
        dotted = ".".join(_short(str(part)) for part in self.place)
        return f"{dotted}: {self.what}" if dotted else self.what


@dataclass
class Document:
    """A file's values with their templates filled in, the line of each, and the mistakes."""

    attributes: object = None
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    given: dict[Place, dict[str, str]] = field(default_factory=dict)
    """Values of the environment, by place and by the template that asked for them."""
    values: int = 0

    def count(self, place: Place) -> None:
        """Counts one more value, for the bounds: aliases can multiply values, and nest them."""
        self.values += 1
        if self.values > VALUES_MAX:
            raise _BoundsError(f"stand for more than {VALUES_MAX:,} values")
        if len(place) > DEPTH_MAX:
            raise _BoundsError(f"nest deeper than {DEPTH_MAX} levels")

    def line(self, mistake: Mistake) -> int:
        """Returns the line of a mistake's place, or of the nearest place around it.

        0 if the values come from no file.
        """
        if mistake.line is not None:
            return mistake.line
        place = mistake.place
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 0)

    def failed(self, place: Place) -> bool:
        """Returns whether the value at a place, or one around it, could not be read."""
        return any(
            place[: len(m.place)] == m.place for m in self.mistakes if m.line is None or not m.place
        )

    def sentence(self, mistake: Mistake) -> str:
        """Returns the mistake's text, with values of the environment masked.

        Each is replaced by its template.
        """
        text = mistake.text
        for place, given in self.given.items():
            if place[: len(mistake.place)] == mistake.place or mistake.place[: len(place)] == place:
                for template, value in given.items():
                    if len(value) >= _SECRET_LEAST:
                        text = text.replace(repr(value)[1:-1], template).replace(value, template)
        return text


class _BoundsError(Exception):
    """A file has more values, or nests them deeper, than it may."""


def read_document(text: str, number: int | None = None, *, envelope: bool = True) -> Document:
    """Reads the values of a file; mistakes in its text are among the document's.

    Args:
        text: the file's.
        number: which of several YAML documents (from 0); None: the file must have one.
        envelope: whether the values may lie under `attributes`, as in Dagster's
            component file.
    """
    document = Document()
    try:
        nodes = compose(text)
    except yaml.MarkedYAMLError as error:
        what, line = problem(error)
        bounds = what.startswith(("nested deeper", "more than", "a tag"))
        sentence = (
            what
            if bounds
            else f"not valid YAML: {what}; look at the indentation, colons and quotes there"
        )
        document.mistakes.append(Mistake((), sentence, line))
        return document
    except yaml.YAMLError:
        document.mistakes.append(
            Mistake((), "this is not YAML: it holds characters that no text has", 1)
        )
        return document
    if number is None and len(nodes) > 1:
        what = "a second document begins here: this is a file with one"
        document.mistakes.append(Mistake((), what, nodes[1].start_mark.line + 1))
    elif nodes:
        root = nodes[number or 0]
        _take(_unwrap(root, document) if envelope else root, document)
    return document


def read_values(attributes: object) -> Document:
    """Reads attributes that come from Python, with templates in them."""
    document = Document()
    try:
        document.attributes = _filled(attributes, (), document)
    except _BoundsError as error:
        document.mistakes.append(Mistake((), f"its values {error}"))
    return document


def _filled(value: object, place: Place, document: Document) -> object:
    document.count(place)
    if isinstance(value, Mapping):
        return {
            str(key): _filled(child, (*place, str(key)), document) for key, child in value.items()
        }
    if isinstance(value, list | tuple):
        return [_filled(child, (*place, i), document) for i, child in enumerate(value)]
    return _text(value, place, document) if isinstance(value, str) else value


def _take(node: yaml.Node, document: Document) -> None:
    document.lines[()] = node.start_mark.line + 1
    try:
        document.attributes = _value(node, (), document, ())
    except _BoundsError as error:
        document.mistakes.append(Mistake((), f"its aliases {error}: write out what is meant", 1))


def _unwrap(root: yaml.Node, document: Document) -> yaml.Node:
    """Returns the attributes' node inside Dagster's envelope, or the root itself."""
    if not isinstance(root, yaml.MappingNode):
        return root
    keys = {
        key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)
    }
    if "attributes" not in keys:
        return root
    for name, (key, _) in keys.items():
        if name not in ENVELOPE:
            what = f"unknown key beside attributes{suggest(name, ENVELOPE)}"
            document.mistakes.append(Mistake((name,), what, key.start_mark.line + 1))
    node: yaml.Node = keys["attributes"][1]
    return node


def _value(node: yaml.Node, place: Place, document: Document, above: tuple[yaml.Node, ...]) -> Any:
    """Returns the value of a node; the document takes up its lines and mistakes."""
    if node in above:
        document.mistakes.append(
            Mistake(place, "an alias that contains itself", node.start_mark.line + 1)
        )
        return None
    document.count(place)
    if isinstance(node, yaml.MappingNode):
        return {
            key: _value(child, (*place, key), document, (*above, node))
            for key, child in _items(node, place, document)
        }
    if isinstance(node, yaml.SequenceNode):
        document.lines.update(
            {(*place, i): child.start_mark.line + 1 for i, child in enumerate(node.value)}
        )
        return [
            _value(child, (*place, i), document, (*above, node))
            for i, child in enumerate(node.value)
        ]
    assert isinstance(node, yaml.ScalarNode)
    try:
        value = scalar(node, secret=is_secret(place))
    except ValueError as error:
        document.mistakes.append(Mistake(place, str(error)))
        return None
    return _text(value, place, document) if isinstance(value, str) else value


def _items(
    node: yaml.MappingNode, place: Place, document: Document
) -> Iterator[tuple[str, yaml.Node]]:
    """Yields the pairs of a mapping.

    PyYAML silently takes the last of equal keys; here the second is a mistake.
    """
    seen: dict[str, int] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or strange(str(key_node.value)):
            document.mistakes.append(Mistake(place, "a key must be a plain name", line))
            continue
        key = str(key_node.value)
        if key in seen:
            document.mistakes.append(
                Mistake((*place, key), f"is there twice, first in line {seen[key]}", line)
            )
            continue
        seen[key] = document.lines[*place, key] = line
        yield key, child


def _text(text: str, place: Place, document: Document) -> str | None:
    """Fills in the templates of a text; None, and a mistake, if it can't be used."""
    if not strange(text):  # before templates: no environment variable can have such a name
        found = fill(text)
        if found.given:
            document.given[place] = found.given
        document.mistakes += [Mistake(place, what) for what in found.wrong]
        if not strange(found.text):
            return found.text
    document.mistakes.append(
        Mistake(place, "holds control characters, or what is no character at all")
    )
    return None


def suggest(key: str, known: Sequence[str]) -> str:
    """Returns `; did you mean grid?`, or the list of the known keys."""
    near = nearest(key, known)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(known)}"


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Returns the known key that is most like a given one, if any is."""
    return next(iter(difflib.get_close_matches(key[:_SHOWN_MAX], known, n=1)), None)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def mistake_of(error: ErrorDetails) -> Mistake:
    """Puts one of pydantic's errors into windrow's words."""
    place = tuple(
        part for part in error["loc"] if not isinstance(part, str) or not _is_branch(part)
    )
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    if kind == SENTENCE:
        what, value = context["what"], context["value"]
    elif kind == "missing":
        what, value = "is missing", None
    elif kind in {"model_type", "mapping_type", "dict_type"}:
        what, value = "must be a mapping", None
    elif kind == "tuple_type":
        what = "must be a list"
    elif kind in {"too_short", "string_too_short"} and context["min_length"] == 1:
        what, value = "must not be empty", None
    elif kind == "value_error":
        what = str(context["error"])
    elif kind == "literal_error":
        what = f"must be {context['expected']}"
    else:
        what = error["msg"].removeprefix("Input ").replace("should", "must", 1)
    return Mistake(place, what + _shown(place, value))


def _is_branch(part: str) -> bool:
    """Returns whether a part of pydantic's place is a union's branch or a key's mark.

    No file has such a part.
    """
    return part.startswith("~") or part in {"bool", "int", "float", "str", "[key]"}


def is_secret(place: Place) -> bool:
    """Returns whether the value at a place must never be shown."""
    return any(
        len(place) >= len(s) and all(part in {"*", at} for part, at in zip(s, place, strict=False))
        for s in SECRET
    )


def _shown(place: Place, value: object) -> str:
    """Returns `, not VALUE` for a short value that is no secret.

    A URL, or a text with an `@`, may hold one.
    """
    if is_secret(place) or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > 64:
        return ""
    text = repr(value)
    return "" if len(text) > _SHOWN_MAX or "@" in text or "://" in text else f", not {text}"
