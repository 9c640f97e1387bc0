"""Fills in a spec's templates from the environment.

The syntax is a harmless part of that of Dagster's components: no loops, no arithmetic,
one filter, so a template can't fill the memory or run for ever. The command and the
component both use it, so that one file means one thing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

FORMS = "{{ env.NAME }}, {{ env('NAME') }} or {{ env('NAME', 'default') }}"

_TEXT = r"""(?:'([^'\\]*)'|"([^"\\]*)")"""
_TEMPLATE = re.compile(
    rf"""\{{\{{\s*env\s*(?:\.\s*([A-Za-z_]\w*)|\(\s*{_TEXT}\s*(?:,\s*(?:default\s*=\s*)?{_TEXT}\s*)?\))\s*(?:\|\s*d(?:efault)?\(\s*{_TEXT}\s*\)\s*)?\}}\}}""",
)


class Filled(msgspec.Struct, frozen=True):
    """A text with its templates filled in, and the mistakes in them (`wrong`).

    `given`: values of the environment, by the template that asked for them.
    """

    text: str
    given: dict[str, str] = {}
    wrong: tuple[str, ...] = ()


def has_template(text: str) -> bool:
    """Returns whether a text has a template, right or wrong.

    A spec can't mean such a text itself.
    """
    return "{{" in text or "{%" in text


def fill(text: str) -> Filled:
    """Fills in the templates of a text."""
    if not has_template(text):
        return Filled(text)
    given: dict[str, str] = {}
    wrong: list[str] = []
    if has_template(_TEMPLATE.sub(" ", text)):
        return Filled(text, wrong=(f"is not a template that can be used here: write {FORMS}",))
    filled = _TEMPLATE.sub(_filler(given, wrong), text)
    return Filled(filled, given, tuple(dict.fromkeys(wrong)))


def _filler(given: dict[str, str], wrong: list[str]) -> Callable[[re.Match[str]], str]:
    def value(template: re.Match[str]) -> str:
        plain, *quoted = template.groups()
        name, default, other = (
            a if a is not None else b for a, b in zip(quoted[::2], quoted[1::2], strict=True)
        )
        name = plain or name or ""
        known = os.environ.get(name)
        if known is not None:
            given[template[0]] = known
            return known
        default = default if default is not None else other
        if default is None:
            wrong.append(f"the environment variable {name} is not set")
        return default or ""

    return value
