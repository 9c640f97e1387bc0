"""Tests that folders are packages, that tests have docstrings, and that a task loads fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.shape.sources import PACKAGES, ROOT, Function, modules, nodes


def functions(path: Path) -> Iterator[Function]:
    """Returns all functions and methods of a file, also nested ones."""
    return (node for node in nodes(path) if isinstance(node, Function))


def location_of(path: Path, node: Function) -> str:
    """Returns a function's file, line and name, in the form that editors open."""
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_every_folder_is_a_package() -> None:
    """Each folder with modules in the three packages has an `__init__.py`.

    Tools that walk through packages need it.
    """
    folders = {path.parent for path in modules(*PACKAGES)}
    assert [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
    ] == []


def test_every_test_says_its_promise() -> None:
    """Each test function has a docstring."""
    tests = [
        (path, node)
        for path in modules("tests")
        for node in functions(path)
        if node.name.startswith("test_")
    ]
    assert [location_of(path, node) for path, node in tests if not ast.get_docstring(node)] == []


def test_a_task_loads_without_pandas() -> None:
    """The module of tasks loads without pandas, which takes as long to load as everything else."""
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
