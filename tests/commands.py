"""How a command is typed, and what one says that stays in the foreground."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

GROUPS = ("dead",)
"""Commands that have commands."""


def with_spec(words: Sequence[str], spec: str) -> list[str]:
    """A command and its arguments, with the spec where it belongs: behind the command."""
    name = 2 if words[0] in GROUPS else 1
    return [*words[:name], spec, *words[name:]]


def first_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON document that a command prints once it is up; it must not end before."""
    assert process.stdout is not None
    output = ""
    while not output.endswith("}\n"):
        line = process.stdout.readline()
        assert line, "it ended before it was up"
        output += line
    document: dict[str, Any] = json.loads(output)
    return document
