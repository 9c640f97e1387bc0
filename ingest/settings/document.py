"""A file of settings as text: YAML with line numbers, and templates.

Knows nothing of what they mean.
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
"""The type of a mistake whose sentence is whole: nothing is added to it."""

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
"""Characters of a key or a value that are repeated in a message."""

_SECRET_LEAST = 4
"""Characters of what came from the environment that are looked for in a message; less
is no secret, and stands in any sentence.
"""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong at a place; a place within the attributes, or (`line`
    set) one of the text.
    """

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
    """What a file holds: values with templates resolved, where each of them stands, and
    what was wrong on the way.
    """

    attributes: object = None
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    given: dict[Place, dict[str, str]] = field(default_factory=dict)
    """What came from the environment, by place and by the template that asked for it."""
    values: int = 0

    def count(self, place: Place) -> None:
        """One value more; aliases repeat them, and put what they stand for into one another."""
        self.values += 1
        if self.values > VALUES_MAX:
            raise _BoundsError(f"stand for more than {VALUES_MAX:,} values")
        if len(place) > DEPTH_MAX:
            raise _BoundsError(f"nest deeper than {DEPTH_MAX} levels")

    def line(self, mistake: Mistake) -> int:
        """The line of a mistake: of its place, or of the nearest place around it; 0
        where there is no file.
        """
        if mistake.line is not None:
            return mistake.line
        place = mistake.place
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 0)

    def failed(self, place: Place) -> bool:
        """Whether the value at a place, or around it, could not be made out."""
        return any(
            place[: len(m.place)] == m.place for m in self.mistakes if m.line is None or not m.place
        )

    def sentence(self, mistake: Mistake) -> str:
        """The mistake's text.

        What came from the environment is told as the template that asked for it: it may
        be a secret.
        """
        text = mistake.text
        for place, given in self.given.items():
            if place[: len(mistake.place)] == mistake.place or mistake.place[: len(place)] == place:
                for template, value in given.items():
                    if len(value) >= _SECRET_LEAST:
                        text = text.replace(repr(value)[1:-1], template).replace(value, template)
        return text


class _BoundsError(Exception):
    """More values, or deeper ones, than a spec can have; says which, to be read after
    what holds them.
    """


def read_document(text: str, number: int | None = None, *, envelope: bool = True) -> Document:
    """The values of a file; what is wrong with its text is among its mistakes.

    Args:
        text: the file's.
        number: of several documents, which (from 0); None: there must be one.
        envelope: what is wanted may stand under `attributes`, in Dagster's component file.
    """
    document = Document()
    try:
        nodes = compose(text)
    except yaml.MarkedYAMLError as error:
        what, line = problem(error)
        bounds = what.startswith(("nested deeper", "more than", "a tag"))
        told = (
            what
            if bounds
            else f"not valid YAML: {what}; look at the indentation, colons and quotes there"
        )
        document.mistakes.append(Mistake((), told, line))
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
    """The same for attributes that no file holds, with templates in them."""
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
    """The attributes' node inside Dagster's envelope, or the root itself."""
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
    """The value of a node; notes lines, duplicate keys and template trouble in the document."""
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
    """The pairs of a mapping.

    PyYAML takes the last of equal keys in silence; here the second is a mistake.
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
    """A text with its templates filled in; None if it can't be used, which is a mistake."""
    if not strange(text):  # before templates: no variable of the environment can have such a name
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
    """`; did you mean grid?`, or the known keys."""
    near = nearest(key, known)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(known)}"


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The known key that may have been meant."""
    return next(iter(difflib.get_close_matches(key[:_SHOWN_MAX], known, n=1)), None)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def mistake_of(error: ErrorDetails, siblings: Sequence[str]) -> Mistake:
    """Pydantic's finding in our words.

    `siblings`: the keys that the section around the place knows.
    """
    place = tuple(
        part for part in error["loc"] if not isinstance(part, str) or not _is_branch(part)
    )
    kind = error["type"]
    if kind == SENTENCE:
        value = error["ctx"].get("value")
        return Mistake(
            place, error["ctx"]["what"] + ("" if value is None else _shown(place, value))
        )
    if kind == "extra_forbidden":
        return Mistake(place, f"unknown key{suggest(str(place[-1]), siblings)}")
    if kind == "missing":
        return Mistake(place, "is missing")
    if kind in {"model_type", "mapping_type", "dict_type"}:
        return Mistake(place, "must be a mapping")
    if kind == "tuple_type":
        return Mistake(place, "must be a list" + _shown(place, error["input"]))
    if kind in {"too_short", "string_too_short"} and error["ctx"]["min_length"] == 1:
        return Mistake(place, "must not be empty")
    if kind == "value_error":
        return Mistake(place, str(error["ctx"]["error"]) + _shown(place, error["input"]))
    if kind == "literal_error":
        return Mistake(place, f"must be {error['ctx']['expected']}" + _shown(place, error["input"]))
    return Mistake(
        place,
        error["msg"].removeprefix("Input ").replace("should", "must", 1)
        + _shown(place, error["input"]),
    )


def _is_branch(part: str) -> bool:
    """Pydantic appends the branch of a union that it tried, and that a key was wrong:
    not a place in the file.
    """
    return part.startswith("~") or part in {"bool", "int", "float", "str", "[key]"}


def is_secret(place: Place) -> bool:
    """Whether what stands at a place is never repeated."""
    return any(
        len(place) >= len(s) and all(part in {"*", at} for part, at in zip(s, place, strict=False))
        for s in SECRET
    )


def _shown(place: Place, value: object) -> str:
    """The value that was found, where it is short and can't be a secret; what looks
    like a URL, or has a user in it, may hold one.
    """
    if is_secret(place) or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > 64:
        return ""
    text = repr(value)
    return "" if len(text) > _SHOWN_MAX or "@" in text or "://" in text else f", not {text}"
