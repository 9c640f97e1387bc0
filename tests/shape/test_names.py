"""Names that others use say what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.shape.readme import ROOT

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
"""Options of the command and keys of specs, which are called as the user writes them."""

FOLDERS = ("ingest", "assets", "resources", "airflow")


def names_for_others(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the name of what other modules may use: parameters, fields, methods,
    functions, classes and constants; never locals and names with an underscore before them.
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
    """Parameters, fields, functions and constants that other modules use name their object."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files
        for line, name in names_for_others(ast.parse(file.read_text(encoding="utf-8")))
        if name in FUNCTION_WORDS - {"of"}
        if f"{file.relative_to(ROOT)}: {name}" not in NAMES_OF_SETTINGS
    ] == []
