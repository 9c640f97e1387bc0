"""Reads a file of settings: YAML values with their line numbers, and templates filled in.

It doesn't know what the settings mean.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml
from pydantic_core import ErrorDetails

from windrow.ingest.settings.foreign_names import foreign_meaning
from windrow.ingest.settings.secrets import masked
from windrow.ingest.settings.templates import fill
from windrow.ingest.settings.yamltext import (
    compose,
    has_control_characters,
    problem,
    scalar,
)

SettingPath = tuple[str | int, ...]
"""The keys and indices that lead to a setting from the attributes."""

ENVELOPE = ("type", "attributes", "requirements", "template_vars_module")
"""The keys of Dagster's component file. All except `attributes` are only for Dagster."""

SENTENCE = "sentence"
"""The type of pydantic errors with windrow's own sentences (`settings.values.sentence`)."""

SECRET: tuple[SettingPath, ...] = (
    ("source", "client"),
    ("source", "registry"),
    ("state",),
    ("state_password",),
    ("sink", "path"),
    ("sink", "url"),
    ("sink", "password"),
    ("sink", "client"),
    ("sink", "catalog"),
    ("sink", "registry"),
    ("dead_letters", "client"),
    ("dagster", "spark", "conf"),
    ("clusters", "*", "client"),
    ("clusters", "*", "registry"),
    ("secrets",),
)
"""Settings whose values are never shown in a message; `*` stands for any name."""

QUOTES = 'a template must be in quotes, as in "{{ env.NAME }}"'

_UNQUOTED = re.compile(r"([:,-] +|\[ *)\{\{")
"""Matches a value that begins with a template, in a line of YAML."""

_SHOWN_MAX = 80
"""The maximum length of a key or value in a message, in characters."""


_SECRET_LEAST = 4
"""The minimum length of an environment value that is masked in messages, in characters.

A shorter value is no secret, and would also match words of the message.
"""


class Mistake(msgspec.Struct, frozen=True):
    """One mistake.

    Attributes:
        path: the setting that has it, from the attributes.
        message: the mistake.
        line: the line in the text, if the mistake isn't at a setting.
    """

    path: SettingPath
    message: str
    line: int | None = None

    @property
    def text(self) -> str:
        """The mistake in the form `window.grid: must be ...`."""
        dotted = ".".join(_short(str(part)) for part in self.path)
        return f"{dotted}: {self.message}" if dotted else self.message


@dataclass
class Document:
    """The values of a file.

    Attributes:
        attributes: the values, with templates filled in.
        lines: the line of each setting.
        mistakes: the mistakes.
        values_by_template: values of the environment, by setting and by the template that
            reads them.
    """

    attributes: object = None
    lines: dict[SettingPath, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    values_by_template: dict[SettingPath, dict[str, str]] = field(default_factory=dict)
    """Values of the environment, by setting and by the template that reads them."""

    def line(self, mistake: Mistake) -> int:
        """Returns the line of a mistake's setting, or of the nearest setting around it.

        It is 0 if the values don't come from a file.
        """
        if mistake.line is not None:
            return mistake.line
        path = mistake.path
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def failed(self, path: SettingPath) -> bool:
        """Returns whether the value of a setting, or of one around it, could not be read."""
        return any(
            path[: len(m.path)] == m.path for m in self.mistakes if m.line is None or not m.path
        )

    def sentence(self, mistake: Mistake) -> str:
        """Returns the mistake's text. Values of the environment are replaced by their templates."""
        text = mistake.text
        for path, value_by_template in self.values_by_template.items():
            if path[: len(mistake.path)] == mistake.path or mistake.path[: len(path)] == path:
                for template, value in value_by_template.items():
                    if len(value) >= _SECRET_LEAST:
                        text = masked(text, [repr(value)[1:-1], value], template)
        return text


def read_document(text: str, number: int | None = None, *, envelope: bool = True) -> Document:
    """Reads the values of a file. Mistakes in its text are added to the document's mistakes.

    Args:
        text: the text of the file.
        number: the number (from 0) of the YAML document; None: the file must have exactly
            one.
        envelope: whether the values may be under `attributes`, as in Dagster's component
            file.
    """
    document = Document()
    try:
        nodes = compose(text)
    except yaml.MarkedYAMLError as error:
        message, line = problem(error)
        ours = message.startswith(("nested deeper", "a tag", "an anchor"))
        sentence = (
            message
            if ours
            else QUOTES
            if any(map(_UNQUOTED.search, text.splitlines()[line - 1 : line]))
            else f"not valid YAML: {message}; look at the indentation, colons and quotes there"
        )
        document.mistakes.append(Mistake((), sentence, line))
        return document
    except yaml.YAMLError:
        document.mistakes.append(
            Mistake((), "this is not YAML: it holds characters that no text has", 1)
        )
        return document
    if number is None and len(nodes) > 1:
        message = "a second document begins here: this is a file with one"
        document.mistakes.append(Mistake((), message, nodes[1].start_mark.line + 1))
    elif nodes:
        root = nodes[number or 0]
        attributes = _unwrap(root, document) if envelope else root
        document.lines[()] = attributes.start_mark.line + 1
        document.attributes = _value(attributes, (), document)
    return document


def read_values(attributes: object) -> Document:
    """Reads attributes that come from Python, with templates in them."""
    document = Document()
    document.attributes = _fill(attributes, (), document)
    return document


def _fill(value: object, path: SettingPath, document: Document) -> object:
    if isinstance(value, Mapping):
        return {str(key): _fill(child, (*path, str(key)), document) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(child, (*path, i), document) for i, child in enumerate(value)]
    return _text(value, path, document) if isinstance(value, str) else value


def _unwrap(root: yaml.Node, document: Document) -> yaml.Node:
    """Returns the node of `attributes` in Dagster's component file, or the root itself."""
    if not isinstance(root, yaml.MappingNode):
        return root
    keys = {
        key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)
    }
    meant = next((name for name in keys if nearest(name, ENVELOPE) == "attributes"), None)
    if meant != "attributes":
        typos = [(keys[meant][0], f"{_short(meant)}: did you mean attributes?")] if meant else []
        document.mistakes += [
            Mistake((), message, key_node.start_mark.line + 1) for key_node, message in typos
        ]
        return root
    for name, (key, _) in keys.items():
        if name not in ENVELOPE:
            message = (
                "is Dagster's second way to what attributes.dagster says: say it there"
                if name == "post_processing"
                else f"unknown key beside attributes{suggest(name, ENVELOPE)}"
            )
            document.mistakes.append(Mistake((name,), message, key.start_mark.line + 1))
    node: yaml.Node = keys["attributes"][1]
    return node


def _value(node: yaml.Node, path: SettingPath, document: Document) -> Any:
    """Returns the value of a node. Its lines and mistakes are added to the document."""
    if isinstance(node, yaml.MappingNode):
        return {
            key: _value(child, (*path, key), document)
            for key, child in _items(node, path, document)
        }
    if isinstance(node, yaml.SequenceNode):
        document.lines.update(
            {(*path, i): child.start_mark.line + 1 for i, child in enumerate(node.value)}
        )
        return [_value(child, (*path, i), document) for i, child in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    try:
        value = scalar(node, secret=is_secret(path))
    except ValueError as error:
        document.mistakes.append(Mistake(path, str(error)))
        return None
    return _text(value, path, document) if isinstance(value, str) else value


def _items(
    node: yaml.MappingNode, path: SettingPath, document: Document
) -> Iterator[tuple[str, yaml.Node]]:
    """Yields the pairs of a mapping.

    PyYAML silently uses the last of equal keys. Here the second one is a mistake.
    """
    line_by_key: dict[str, int] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or has_control_characters(str(key_node.value)):
            document.mistakes.append(
                Mistake(path, QUOTES)  # {{ env.NAME }} is a mapping to YAML
                if isinstance(key_node, yaml.MappingNode)
                else Mistake(path, "a key must be a plain name", line)
            )
            continue
        key = str(key_node.value)
        if key in line_by_key:
            document.mistakes.append(
                Mistake((*path, key), f"is there twice, first in line {line_by_key[key]}", line)
            )
            continue
        line_by_key[key] = document.lines[*path, key] = line
        yield key, child


def _text(text: str, path: SettingPath, document: Document) -> str | None:
    """Fills in the templates of a text. If it can't be used, adds a mistake and returns None."""
    # checked before templates, because no environment variable's name has control characters
    if not has_control_characters(text):
        filled = fill(text)
        if filled.value_by_template:
            document.values_by_template[path] = filled.value_by_template
        document.mistakes += [Mistake(path, message) for message in filled.mistakes]
        if not has_control_characters(filled.text):
            return filled.text
    document.mistakes.append(
        Mistake(path, "holds control characters, or what is no character at all")
    )
    return None


def suggest(key: str, known_keys: Sequence[str]) -> str:
    """Returns what is meant by an unknown key: `; did you mean grid?`, or the known keys.

    A name of Flink or Connect has a sentence of its own.
    """
    meaning = foreign_meaning(key)
    if meaning is not None:
        return f"; {meaning}"
    near = nearest(key, known_keys)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(known_keys)}"


def nearest(key: str, known_keys: Sequence[str]) -> str | None:
    """Returns the known key that is most similar to a key; None if none is similar."""
    return next(iter(difflib.get_close_matches(key[:_SHOWN_MAX], known_keys, n=1)), None)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def mistake_of(error: ErrorDetails) -> Mistake:
    """Converts a pydantic error to a mistake in windrow's words."""
    path = tuple(part for part in error["loc"] if not isinstance(part, str) or not _is_branch(part))
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    if kind == SENTENCE:
        message, value = context["message"], context["value"]
    elif kind == "missing":
        message, value = "is missing", None
    elif kind in {"model_type", "mapping_type", "dict_type"}:
        message, value = "must be a mapping", None
    elif kind == "tuple_type":
        message = "must be a list"
    elif kind in {"too_short", "string_too_short"} and context["min_length"] == 1:
        message, value = "must not be empty", None
    elif kind == "value_error":
        message = str(context["error"])
    elif kind == "literal_error":
        message = f"must be {context['expected']}"
    else:
        msg = error["msg"].removeprefix("Input ").replace("should", "must", 1)
        message = msg.partition(", unable to parse")[0]
    return Mistake(path, message + _shown_value(path, value))


def _is_branch(part: str) -> bool:
    """Returns whether a part of pydantic's path is a union's branch or a key's mark.

    Files have no such parts.
    """
    return part.startswith("~") or part in {"bool", "int", "float", "str", "[key]"}


def is_secret(path: SettingPath) -> bool:
    """Returns whether the value of a setting must never be shown."""
    if path[:2] == ("for_each", "topics"):
        path = path[3:]
    return any(
        len(path) >= len(s)
        and all(part in {"*", path_part} for part, path_part in zip(s, path, strict=False))
        for s in SECRET
    )


def _shown_value(path: SettingPath, value: object) -> str:
    """Returns `, not VALUE` for a short value that isn't secret.

    A URL, or a text with an `@`, may contain a secret.
    """
    if is_secret(path) or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > 64:
        return ""
    text = repr(value)
    return "" if len(text) > _SHOWN_MAX or "@" in text or "://" in text else f", not {text}"
