"""The project's modules and their syntax trees, each of which is parsed once a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("ingest", "assets", "resources")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*folders: str) -> Iterator[Path]:
    """Yields the Python files below some folders of the project."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Returns all nodes of a file's syntax tree, the module's own first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), path.name)))
