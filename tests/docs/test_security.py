"""Tests that SECURITY.md names what of a spec runs code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_setting_that_runs_code_is_named() -> None:
    """SECURITY.md names each setting whose value is Python code, under "What runs code"."""
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    code_settings = set(re.findall(r"^\| `[\w.]*?(\w+)` \| `FILE\.py:", settings, re.MULTILINE))
    assert {"schema", "python"} <= code_settings
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = page.partition("\n## What runs code\n")[2].partition("\n## ")[0]
    named = {span.rpartition(".")[2] for span in re.findall(r"`([^`\n]+)`", section)}
    assert code_settings - named == set()
