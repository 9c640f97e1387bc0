"""The README's text with its sections and code blocks, and the project's files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def project_paths() -> list[Path]:
    """Returns the project's files, and links to folders: tracked, or new and not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    return [path for name in listing.split("\0") if name and os.path.lexists(path := ROOT / name)]


def section(heading: str, text: str = README) -> str:
    """Returns the text between a heading of the second level and the next one."""
    match = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert match, f"the page has no section {heading!r}"
    return match[1]


def blocks(kind: str, text: str = README) -> list[str]:
    """Returns the code blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
