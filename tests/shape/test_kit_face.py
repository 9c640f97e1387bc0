"""The public names of the kit for kinds of sinks, and their docstrings."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

from windrow.ingest.sinks import kit

ROOT = Path(__file__).parents[2]
MOST = 98
"""The largest number of names that the kit may have."""


def typed_names() -> dict[str, str]:
    """Returns the names that type checkers see, each with its module."""
    return {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse((ROOT / "ingest/sinks/kit/__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module != "importlib"
        for alias in node.names
    }


def is_told(name: str, module: str) -> bool:
    """Returns whether a name has a docstring, or a text after its assignment."""
    path = ROOT / f"{module.removeprefix('windrow.').replace('.', '/')}.py"
    body = ast.parse(path.read_text()).body
    for node, next_node in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) is not None
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(next_node, ast.Expr) and isinstance(next_node.value, ast.Constant)
    return False


def test_type_checkers_see_what_runs() -> None:
    """Each name is listed once, and is the same object at run time as for type checkers."""
    assert sorted(typed_names()) == sorted(kit.__all__)
    for name, module in typed_names().items():
        assert getattr(kit, name) is getattr(import_module(module), name)


def test_each_name_tells_what_it_is() -> None:
    """Each name has a docstring in its module."""
    assert [name for name, module in typed_names().items() if not is_told(name, module)] == []


def test_the_names_are_few() -> None:
    """The kit has few names; a name that only one kind needs is in that kind's folder."""
    assert len(kit.__all__) <= MOST
