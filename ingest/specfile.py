"""A spec file as text: YAML with line numbers, and templates. Knows nothing of what a spec means."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from jinja2 import TemplateError, Undefined
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic_core import ErrorDetails

Place = tuple[str | int, ...]

ENVELOPE = ("type", "attributes", "requirements", "post_processing", "template_vars_module")
"""The keys of Dagster's component file; all but `attributes` are for Dagster alone."""

TOLD = "told"
"""The type of a mistake whose sentence is whole: nothing is added to it."""

SECRET: tuple[Place, ...] = (("source", "client"), ("state",))
"""Places whose values are never repeated in a message."""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong at a place; a place within the attributes, or (`line` set) one of the text."""

    place: Place
    what: str
    line: int | None = None

    @property
    def text(self) -> str:
        """`window.grid: must be ...`."""
        dotted = ".".join(str(part) for part in self.place)
        return f"{dotted}: {self.what}" if dotted else self.what


@dataclass
class Document:
    """What a file holds: values with templates resolved, where each of them stands, and what was wrong on the way."""

    attributes: object = None
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def line(self, mistake: Mistake) -> int:
        """The line of a mistake: of its place, or of the nearest place around it."""
        if mistake.line is not None:
            return mistake.line
        place = mistake.place
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def failed(self, place: Place) -> bool:
        """Whether the value at a place, or around it, could not be made out."""
        return any(place[: len(m.place)] == m.place for m in self.mistakes if m.line is None or not m.place)


def read_document(text: str) -> Document:
    """The attributes of a spec file; what is wrong with the text is among its mistakes."""
    document = Document()
    try:
        loader = yaml.SafeLoader(text)
        node = _unwrap(loader.get_single_node(), document)
        if node is not None:
            document.lines[()] = node.start_mark.line + 1
            document.attributes = _value(loader, node, (), document, ())
    except yaml.MarkedYAMLError as error:
        document.mistakes.append(Mistake((), _yaml_problem(error), _yaml_line(error)))
    except yaml.YAMLError:
        document.mistakes.append(Mistake((), "this is not YAML: it holds characters that no text has", 1))
    return document


def _yaml_line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return 1 if mark is None else mark.line + 1


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's words without its excerpt of the text, which might show a secret."""
    return f"not valid YAML: {error.problem or error.context}; look at the indentation, colons and quotes there"


def _unwrap(root: yaml.Node | None, document: Document) -> yaml.Node | None:
    """The attributes' node inside Dagster's envelope, or the root itself."""
    if not isinstance(root, yaml.MappingNode):
        return root
    keys = {key.value: (key, value) for key, value in root.value}
    if "attributes" not in keys:
        return root
    for name, (key, _) in keys.items():
        if name not in ENVELOPE:
            what = f"unknown key beside attributes{suggest(str(name), ENVELOPE)}"
            document.mistakes.append(Mistake((str(name),), what, key.start_mark.line + 1))
    node: yaml.Node = keys["attributes"][1]
    return node


def _value(loader: yaml.SafeLoader, node: yaml.Node, place: Place, document: Document, above: tuple[yaml.Node, ...]) -> Any:
    """The value of a node; notes lines, duplicate keys and template trouble in the document."""
    if node in above:
        document.mistakes.append(Mistake(place, "an alias that contains itself", node.start_mark.line + 1))
        return None
    if isinstance(node, yaml.MappingNode):
        return {key: _value(loader, child, (*place, key), document, (*above, node)) for key, child in _items(node, place, document)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, child, (*place, i), document, (*above, node)) for i, child in enumerate(node.value)]
    value = loader.construct_object(node)
    return render(value, place, document.mistakes) if isinstance(value, str) else value


def _items(node: yaml.MappingNode, place: Place, document: Document) -> Iterator[tuple[str, yaml.Node]]:
    """The pairs of a mapping. PyYAML takes the last of equal keys in silence; here the second is a mistake."""
    seen: dict[str, int] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.mistakes.append(Mistake(place, "a key must be a plain name", line))
            continue
        key = str(key_node.value)
        if key in seen:
            document.mistakes.append(Mistake((*place, key), f"is there twice, first in line {seen[key]}", line))
            continue
        seen[key] = document.lines[*place, key] = line
        yield key, child


class _Env:
    """`env` in a template: `env.NAME`, `env('NAME')`, `env('NAME', 'default')`."""

    def __init__(self, missing: type[Undefined]) -> None:
        self._missing = missing

    def __call__(self, name: str, default: object = ...) -> object:
        return os.environ.get(name, self._missing(name=name, obj=self) if default is ... else default)

    def __getattr__(self, name: str) -> str:
        try:
            return os.environ[name]
        except KeyError:
            raise AttributeError(name) from None


def render(text: str, place: Place, mistakes: list[Mistake]) -> str:
    """The text with its templates filled in; appends what is wrong to the mistakes."""
    if "{{" not in text and "{%" not in text:
        return text
    wrong: list[str] = []

    class Missing(Undefined):
        """Notes each name that was used and isn't there, instead of stopping at the first."""

        def __str__(self) -> str:
            known = isinstance(self._undefined_obj, _Env)
            name = self._undefined_name
            wrong.append(f"the environment variable {name} is not set" if known else f"{name} is not known in templates; env is")
            return ""

    environment = ImmutableSandboxedEnvironment(undefined=Missing)
    try:
        text = environment.from_string(text).render(env=_Env(Missing))
    except (TemplateError, SecurityError, TypeError, ValueError, ArithmeticError):
        wrong.append("is not a valid template; use {{ env.NAME }} or {{ env('NAME', 'default') }}")
    mistakes.extend(Mistake(place, what) for what in dict.fromkeys(wrong))
    return text


def suggest(key: str, known: Sequence[str]) -> str:
    """`; did you mean grid?`, or the known keys."""
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def mistake_of(error: ErrorDetails, siblings: Sequence[str]) -> Mistake:
    """Pydantic's finding in our words. `siblings`: the keys that the section around the place knows."""
    place = tuple(part for part in error["loc"] if not isinstance(part, str) or not _is_branch(part))
    kind = error["type"]
    if kind == TOLD:
        return Mistake(place, error["msg"])
    if kind == "extra_forbidden":
        return Mistake(place, f"unknown key{suggest(str(place[-1]), siblings)}")
    if kind == "missing":
        return Mistake(place, "is missing")
    if kind in {"model_type", "mapping_type", "dict_type"}:
        return Mistake(place, "must be a mapping")
    if kind == "tuple_type":
        return Mistake(place, "must be a list" + _shown(place, error["input"]))
    if kind == "value_error":
        return Mistake(place, str(error["ctx"]["error"]) + _shown(place, error["input"]))
    if kind == "literal_error":
        return Mistake(place, f"must be {error['ctx']['expected']}" + _shown(place, error["input"]))
    return Mistake(place, error["msg"].removeprefix("Input ").replace("should", "must", 1) + _shown(place, error["input"]))


def _is_branch(part: str) -> bool:
    """Pydantic appends the branch of a union that it tried, and that a key was wrong: not a place in the file."""
    return part.startswith("~") or part in {"bool", "int", "float", "str", "[key]"}


def _shown(place: Place, value: object) -> str:
    """The value that was found, where it is short and can't be a secret."""
    hidden = any(place[: len(s)] == s for s in SECRET) or not isinstance(value, str | int | float) or len(str(value)) > 80
    return "" if hidden else f", not {value!r}"
