"""Command lines of windrow, and the output of commands that run in the foreground."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

GROUPS = ("dead",)
"""Commands with subcommands that take a spec."""


def with_spec(words: Sequence[str], spec: str) -> list[str]:
    """Inserts the spec into a command line, after the command's name."""
    name = 2 if words[0] in GROUPS else 1
    return [*words[:name], spec, *words[name:]]


def first_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the JSON document that a command prints when it is up.

    The command must not end before that.
    """
    assert process.stdout is not None
    output = ""
    while not output.endswith("}\n"):
        line = process.stdout.readline()
        assert line, "it ended before it was up"
        output += line
    document: dict[str, Any] = json.loads(output)
    return document
