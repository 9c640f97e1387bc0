"""The shape of the code: packages that tools can walk, and a sentence for each test."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("ingest", "assets", "resources")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*folders: str) -> Iterator[Path]:
    """The Python files below some folders of the project."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """A file's syntax tree, every node of it; read once for all who ask."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), path.name)))


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a file, however deep."""
    return (node for node in nodes(path) if isinstance(node, Function))


def location_of(path: Path, node: Function) -> str:
    """Where a function is, as an editor takes it."""
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_every_folder_is_a_package() -> None:
    """A folder of the three packages with modules in it has an `__init__.py`: tools
    that walk packages see all of it.
    """
    folders = {path.parent for path in modules(*PACKAGES)}
    assert [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
    ] == []


def test_every_test_says_its_promise() -> None:
    """Each test function has a docstring: the promise that it checks."""
    tests = [
        (path, node)
        for path in modules("tests")
        for node in functions(path)
        if node.name.startswith("test_")
    ]
    assert [location_of(path, node) for path, node in tests if not ast.get_docstring(node)] == []


def test_a_task_loads_without_pandas() -> None:
    """The order of a task is known without pandas, which takes as long to load as all
    else together.
    """
    program = "import sys, windrow.ingest.runner.task; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "False"
