"""Fills in a spec's templates from the environment.

The syntax is a harmless part of that of Dagster's components: no loops, no arithmetic, one
filter. So a template can't fill the memory or run for ever. The command and the component
both use this module, so that a file means the same to both.
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

    Attributes:
        text: the text.
        value_by_template: values of the environment, by the template that reads them.
        mistakes: the mistakes in the templates.
    """

    text: str
    value_by_template: dict[str, str] = {}
    mistakes: tuple[str, ...] = ()


def has_template(text: str) -> bool:
    """Returns whether a text has a template, valid or not.

    In a spec, such a text can't be meant literally.
    """
    return "{{" in text or "{%" in text


def fill(text: str) -> Filled:
    """Fills in the templates of a text."""
    if not has_template(text):
        return Filled(text)
    value_by_template: dict[str, str] = {}
    mistakes: list[str] = []
    if has_template(_TEMPLATE.sub(" ", text)):
        return Filled(text, mistakes=(f"is not a template that can be used here: write {FORMS}",))
    filled = _TEMPLATE.sub(_filler(value_by_template, mistakes), text)
    return Filled(filled, value_by_template, tuple(dict.fromkeys(mistakes)))


def _filler(
    value_by_template: dict[str, str], mistakes: list[str]
) -> Callable[[re.Match[str]], str]:
    def value(template: re.Match[str]) -> str:
        plain, *quoted = template.groups()
        name, default, other_default = (
            a if a is not None else b for a, b in zip(quoted[::2], quoted[1::2], strict=True)
        )
        name = plain or name or ""
        environment_value = os.environ.get(name)
        if environment_value is not None:
            value_by_template[template[0]] = environment_value
            return environment_value
        default = default if default is not None else other_default
        if default is None:
            mistakes.append(f"the environment variable {name} is not set")
        return default or ""

    return value
