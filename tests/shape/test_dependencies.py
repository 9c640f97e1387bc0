"""What the code imports is what the distribution asks for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "assets" / "demo"
"""In no wheel: it stands on what a developer has."""
OURS = {"windrow"}
FOLDERS = ("assets", "ingest", "resources")


def imported(path: Path) -> set[str]:
    """The top-level names that a module imports, at its top or later."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_everything_imported_is_asked_for() -> None:
    """No module stands on a package that is only there because something else, or a
    developer, wanted it.
    """
    asked_for = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = asked_for["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    asked = {re.split(r"[\[<>=!~ ]", each)[0].lower().replace("_", "-") for each in wanted}
    for_developers = {
        re.split(r"[\[<>=!~ ]", each)[0].lower().replace("_", "-")
        for each in asked_for["dependency-groups"]["dev"]
    }
    providers = packages_distributions()
    missing = {
        (str(path.relative_to(ROOT)), name)
        for ours in FOLDERS
        for path in (ROOT / ours).rglob("*.py")
        for name in imported(path) - OURS - set(sys.stdlib_module_names)
        if not (asked | (for_developers if path.is_relative_to(DEMO) else set()))
        & {dist.lower().replace("_", "-") for dist in providers.get(name, [])}
    }
    assert missing == set()
