"""YAML as a spec needs it: documents of plain values, within bounds, and nothing that
YAML 1.1 turns into something else.

PyYAML's constructors are not used: they run out of stack, memory or digits on input
that a few bytes can write, and they read `010` as 8 and `on` as true.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

SIZE_MAX = 256 * 1024
"""Bytes of a file."""

DEPTH_MAX = 20
"""Collections within one another; a spec needs five."""

VALUES_MAX = 20_000
"""Values of a file, those that its aliases repeat among them."""

_STRING = "tag:yaml.org,2002:str"
_WHOLE = re.compile(r"0|-?[1-9]\d{0,18}")
_DECIMAL = re.compile(r"-?(\d{1,30}\.\d{0,30}|\.\d{1,30})([eE][-+]\d{1,2})?")
_BARE = re.compile(r"[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUOTED = re.compile(r"""(['"])[\w!./:-]{2,}\1""")


def compose(text: str) -> list[yaml.Node]:
    """The documents of a text, unread values with their lines.

    Raises:
        yaml.YAMLError: it is no YAML, or outside the bounds. `problem` says which
            without quoting the text.
    """
    loader = _Loader(text)
    found: list[yaml.Node] = []
    while loader.check_node():
        node = loader.get_node()
        if node is not None:
            found.append(node)
    return found


class _Loader(yaml.SafeLoader):
    """A loader that stops at the bounds and at tags; only its composer is used."""

    depth = 0
    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) not in {None, "!", _STRING}:
            raise _problem(
                "a tag, which begins with !, is not read: put the text in quotes, or leave the"
                " tag out",
                event,
            )
        if self.depth >= DEPTH_MAX:
            raise _problem(f"nested deeper than {DEPTH_MAX} levels", event)
        if self.values >= VALUES_MAX:
            raise _problem(f"more than {VALUES_MAX:,} values", event)
        self.values += 1
        self.depth += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
        finally:
            self.depth -= 1
        return node


def _problem(what: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(None, None, what, mark)


def problem(error: yaml.MarkedYAMLError) -> tuple[str, int]:
    """What is wrong, and in which line, without a word of the text: an alias that isn't
    there may be a password with a * in front.
    """
    mark = error.problem_mark or error.context_mark
    what = str(error.problem or error.context)
    if what.startswith("found undefined alias"):
        what = (
            "an alias (*...) of which there is no anchor (&...): put a text that begins with * in"
            " quotes"
        )
    elif what.startswith(("second occurrence", "found duplicate anchor")):
        what = "an anchor (&...) that is there twice: put a text that begins with & in quotes"
    return _QUOTED.sub("...", what), 1 if mark is None else mark.line + 1


def strange(text: str) -> bool:
    """Whether a text holds what no setting has: control characters, or halves of characters."""
    return _BARE.search(text) is not None


def scalar(node: yaml.ScalarNode, *, secret: bool = False) -> str | int | float | bool | None:
    """The value of a scalar as it stands there: a number is one only if its text says
    it in the usual way, a date is a text.

    Raises:
        ValueError: YAML 1.1 reads something else than what stands there; says what,
            unless it is `secret`.
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


def _ambiguous(text: str, read: str, do: str, *, secret: bool) -> str:
    what = (
        "YAML reads this as something else"
        if secret
        else f"YAML reads {text if len(text) <= 40 else 'this'} as {read}"
    )
    return f"{what}: put it in quotes if it is a text, or {do}"


def _number(node: yaml.ScalarNode) -> str:
    """What YAML makes of digits that aren't plain."""
    if len(node.value) > 40:
        return f"a number of {len(node.value):,} digits"
    try:
        return f"the number {yaml.safe_load(node.value)}"
    except (ValueError, yaml.YAMLError):
        return "a number"
