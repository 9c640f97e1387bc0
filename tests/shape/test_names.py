"""Tests that names for other modules are no function words."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.shape.sources import ROOT, modules, nodes

FUNCTION_WORDS = set(
    """
    of its at no by to one other each every some mine theirs told said found
    given made asked kept known there here what do why how again left most many wrong
    seen held whole alone own had has was wanted between behind before after within beside sent
    came gone lost taken answer place way thing it these those them that as
    """.split()  # noqa: SIM905
)
"""Words that don't say which object a name stands for."""

NAMES_OF_SETTINGS = {
    "ingest/cli/main.py: why",
    "ingest/cli/main.py: again",
    "ingest/config/window.py: every",
    "ingest/sinks/routes/kind.py: by",
    "ingest/sinks/routes/kind.py: other",
}
"""Options of commands and keys of specs, which have the name that users write."""

FOLDERS = ("ingest", "assets", "resources", "airflow")


def names_for_others(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and name of each definition that other modules may use.

    These are parameters, fields, methods, functions, classes and constants. Local variables and
    classes or functions with an underscore are left out.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if node.name.startswith("_") and not node.name.startswith("__"):
                continue
            yield node.lineno, node.name
        if isinstance(node, ast.FunctionDef):
            yield from ((p.lineno, p.arg) for p in ast.walk(node.args) if isinstance(p, ast.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif not isinstance(node, ast.expr) or isinstance(node, ast.Tuple):
            yield from names_for_others(node)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_for_others_is_a_function_word(folder: str) -> None:
    """Parameters, fields, functions and constants for other modules aren't named by
    function words.
    """
    assert [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in modules(folder)
        for line, name in names_for_others(nodes(file)[0])
        if name in FUNCTION_WORDS - {"of"}
        if f"{file.relative_to(ROOT)}: {name}" not in NAMES_OF_SETTINGS
    ] == []
