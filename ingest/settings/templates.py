"""Templates in a spec: what the environment holds, and nothing else.

The form is that of Dagster's components, of which this is the part that can do no harm:
there are no loops, no arithmetic and one filter, so a template can't fill the memory or
run for ever. The command and Dagster's component both fill in here, so one file means
one thing.
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
    """A text with its templates filled in.

    `given`: what came from the environment, by the template that asked for it.
    """

    text: str
    given: dict[str, str] = {}
    wrong: tuple[str, ...] = ()


def has_template(text: str) -> bool:
    """Whether a text is one that is filled in, or refused: nothing makes a spec take it
    as it stands.
    """
    return "{{" in text or "{%" in text


def fill(text: str) -> Filled:
    """The text with its templates filled in, and all that is wrong with them."""
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
