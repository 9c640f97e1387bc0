"""Reads YAML within limits, and refuses scalars that YAML 1.1 would read as another value.

PyYAML's constructors are not used. A few bytes of input can exhaust their stack, memory or
digits, and they read `010` as 8 and `on` as true.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml

SIZE_MAX = 256 * 1024
"""The maximum size of a file, in bytes."""

DEPTH_MAX = 20
"""The maximum nesting of collections. A spec needs five levels."""

_STRING = "tag:yaml.org,2002:str"
_WHOLE = re.compile(r"0|-?[1-9]\d{0,18}")
_DECIMAL = re.compile(r"-?(\d{1,30}\.\d{0,30}|\.\d{1,30})([eE][-+]\d{1,2})?")
_BARE = re.compile(r"[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUOTED = re.compile(r"""(['"])[\w!./:-]{2,}\1""")


@lru_cache(maxsize=1)  # a command reads the file of several pipelines once for each of them
def compose(text: str) -> list[yaml.Node]:
    """Parses the documents of a text into nodes, which have lines but no values yet.

    Raises:
        yaml.YAMLError: the text isn't YAML, or exceeds the limits; `problem` returns the
            message.
    """
    loader = _Loader(text)
    nodes: list[yaml.Node] = []
    while loader.check_node():
        node = loader.get_node()
        if node is not None:
            nodes.append(node)
    return nodes


class _Loader(yaml.SafeLoader):
    """Refuses tags, aliases and too deep nesting. Only its composer is used."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) not in {None, "!", _STRING}:
            raise _problem(
                "a tag, which begins with !, is not read: put the text in quotes, or leave the"
                " tag out",
                event,
            )
        if getattr(event, "anchor", None) is not None:  # an alias has the name of its anchor
            raise _problem(
                "an anchor (&...) or an alias (*...) is not read: put a text that begins with & or"
                " * in quotes, or write out what is meant",
                event,
            )
        if self.depth >= DEPTH_MAX:
            raise _problem(f"nested deeper than {DEPTH_MAX} levels", event)
        self.depth += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
        finally:
            self.depth -= 1
        return node


def _problem(message: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(None, None, message, mark)


def problem(error: yaml.MarkedYAMLError) -> tuple[str, int]:
    """Returns the message of a parse error, and its line. The message never quotes the text."""
    mark = error.problem_mark or error.context_mark
    message = _QUOTED.sub("...", str(error.problem or error.context))
    return message, 1 if mark is None else mark.line + 1


def has_control_characters(text: str) -> bool:
    """Returns whether a text has control characters or lone surrogates, which no setting has."""
    return _BARE.search(text) is not None


def scalar(node: yaml.ScalarNode, *, secret: bool = False) -> str | int | float | bool | None:
    """Reads a scalar as it is written: plain digits are a number, a date is a text.

    Raises:
        ValueError: YAML 1.1 would read another value. The message has that value unless the
            setting is `secret`.
    """
    text, kind = str(node.value), node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        read = "true" if text.lower() in {"yes", "on", "y"} else "false"
        raise ValueError(_ambiguous(text, read, f"write {read} if that is meant", secret=secret))
    if kind == "int" and not _WHOLE.fullmatch(text):
        raise ValueError(
            _ambiguous(text, _number(node), "write a number in plain digits", secret=secret)
        )
    if kind == "float" and not _DECIMAL.fullmatch(text):
        raise ValueError(
            _ambiguous(text, "a number", "write a number in plain digits, like 0.5", secret=secret)
        )
    return int(text) if kind == "int" else float(text) if kind == "float" else text


def _ambiguous(text: str, read: str, advice: str, *, secret: bool) -> str:
    message = (
        "YAML reads this as something else"
        if secret
        else f"YAML reads {text if len(text) <= 40 else 'this'} as {read}"
    )
    return f"{message}: put it in quotes if it is a text, or {advice}"


def _number(node: yaml.ScalarNode) -> str:
    """Describes the number that YAML reads in digits that aren't plain, such as 0x10."""
    if len(node.value) > 40:
        return f"a number of {len(node.value):,} digits"
    try:
        return f"the number {yaml.safe_load(node.value)}"
    except (ValueError, yaml.YAMLError):
        return "a number"
