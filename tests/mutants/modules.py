"""Which modules are mutated, by which tests each is judged, and which mutants nothing can tell from the code."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("ingest/model", "ingest/plan", "ingest/windows")
"""Pure folders: every module in them is mutated."""

ALONE = ("ingest/decode/json/strict.py", "ingest/decode/json/values.py", "ingest/run/accounting.py", "ingest/sinks/decision.py")
"""Pure modules in other folders."""

MORE = {
    "ingest/plan/ends.py": ("tests/plan/test_witness.py",),
    "ingest/plan/resolve.py": ("tests/plan/test_begins.py", "tests/plan/test_witness.py"),
}
"""Tests beside a module's own that are about it: whole stories, to which it gives the answers."""

EQUIVALENT: dict[str, dict[str, str]] = {}
"""By module: the lines that a mutant changes, and why no test can tell it from the code."""


def modules(root: Path) -> list[str]:
    """Their paths, in order; what has no function of its own has no mutants."""
    inside = [str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).glob("*.py")]
    return sorted(module for module in (*inside, *ALONE) if "def " in (root / module).read_text())


def tests_of(module: str) -> tuple[str, ...]:
    """The test file of a module's own, which lies where the module does, and those that stand in `MORE`."""
    path = Path("tests", *Path(module).parts[1:])
    return (str(path.with_name(f"test_{path.name}")), *MORE.get(module, ()))
