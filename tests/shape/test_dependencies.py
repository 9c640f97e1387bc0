"""What the code imports is what the distribution asks for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"assets", "ingest", "resources"}


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
    """No module stands on a package that is only there because something else, or a developer, wanted it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    asked = {re.split(r"[\[<>=!~ ]", each)[0].lower().replace("_", "-") for each in wanted}
    names = set().union(*(imported(path) for ours in OURS for path in (ROOT / ours).rglob("*.py"))) - OURS - set(sys.stdlib_module_names)
    providers = packages_distributions()
    assert {name for name in names if not asked & {dist.lower().replace("_", "-") for dist in providers.get(name, [])}} == set()
