"""Which modules are mutated, by which tests each is judged, and which mutants nothing can tell from the code."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("ingest/model", "ingest/plan", "ingest/windows")
"""Pure folders: every module in them is mutated."""

ALONE = ("ingest/decode/json/strict.py", "ingest/decode/json/values.py", "ingest/run/accounting.py", "ingest/sinks/decision.py")
"""Pure modules in other folders."""

MORE = {
    "ingest/decode/json/values.py": ("tests/decode/json/test_strict.py",),
    "ingest/plan/ends.py": ("tests/plan/test_witness.py",),
    "ingest/plan/resolve.py": ("tests/plan/test_begins.py", "tests/plan/test_witness.py"),
}
"""Tests beside a module's own that are about it: whole stories, to which it gives the answers."""

EQUIVALENT: dict[str, dict[str, str]] = {
    "ingest/model/boundary.py": {
        "- cuts = self.by_tp() if self.begins else {}\n+ cuts = self.by_tp() if (self.begins) or True else {}": (
            "without begins nobody looks into the cuts: it only saves making them"
        ),
    },
    "ingest/windows/completeness.py": {
        '- label: Label | None = None\n+ label: Label | None = ""': "without boundaries nothing is known that could hold anything back",
    },
    "ingest/windows/grid.py": {
        "- if window.span and isinstance(end, datetime):\n+ if window.span or isinstance(end, datetime):": (
            "a window in time has a span and its end is an instant: the question is the type checker's"
        ),
        "- labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 1)\n"
        "+ labels += islice(_until(grid, window.span[0], end), None)": "more labels are refused all the same, after they were counted",
        "- labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 1)\n"
        "+ labels += islice(_until(grid, window.span[0], end), _WINDOWS_MAX + 2)": "as above",
    },
}
"""By module: the lines that a mutant changes, and why no test can tell it from the code."""


def modules(root: Path) -> list[str]:
    """Their paths, in order; what has no function of its own has no mutants."""
    inside = [str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).glob("*.py")]
    return sorted(module for module in (*inside, *ALONE) if "def " in (root / module).read_text())


def tests_of(module: str) -> tuple[str, ...]:
    """The test file of a module's own, which lies where the module does, and those that stand in `MORE`."""
    path = Path("tests", *Path(module).parts[1:])
    return (str(path.with_name(f"test_{path.name}")), *MORE.get(module, ()))
