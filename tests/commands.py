"""What a command says that stays in the foreground."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def first_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON document that a command prints once it is up; it must not end before."""
    assert process.stdout is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        assert line, "it ended before it was up"
        said += line
    found: dict[str, Any] = json.loads(said)
    return found
