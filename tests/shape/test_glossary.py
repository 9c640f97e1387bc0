"""Tests that the code follows the glossary of DESIGN.md.

There are two rules. A class with the name of a glossary word is the class that the glossary
names for it. The names in code formatting in the column "never for" are not names of classes,
fields, functions or parameters.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.shape.sources import PACKAGES, ROOT, modules, nodes

DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
HEAD = "| word | only for | never for | in code |"


@dataclass(frozen=True)
class Word:
    """A row of the glossary.

    Attributes:
        names: its words; a row may explain several words together.
        never: the names that may not be used.
        places: the modules and classes in the column "in code".
    """

    names: tuple[str, ...]
    never: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def classes(self) -> dict[str, str]:
        """The row's classes, each with its module."""
        return {
            name: path
            for path, _, name in (class_path.partition(": ") for class_path in self.places)
            if name
        }


def glossary() -> list[Word]:
    """Returns the rows of the glossary's table."""
    lines = DESIGN.partition(HEAD)[2].strip().splitlines()[1:]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[: next(i for i, line in enumerate(lines) if not line)]
    ]
    return [
        Word(tuple(name.split(", ")), spans(never), spans(code)) for name, _, never, code in rows
    ]


def spans(text: str) -> tuple[str, ...]:
    """Returns the texts in code formatting."""
    return tuple(re.findall(r"`([^`]+)`", text))


WORDS = glossary()


def class_name(word: str) -> str:
    """Returns the class name of a word: `TopicPartition` for `topic-partition`."""
    return "".join(part.capitalize() for part in re.split(r"[ -]", word))


def definitions(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yields the classes or functions of the three packages, each with its module."""
    for path in modules(*PACKAGES):
        for node in nodes(path):
            if isinstance(node, kinds):
                yield str(path.relative_to(ROOT)), node


@cache
def find_classes() -> list[tuple[str, str]]:
    """Returns module and name of each class of the three packages."""
    return [
        (path, node.name)
        for path, node in definitions(ast.ClassDef)
        if isinstance(node, ast.ClassDef)
    ]


def names() -> Iterator[tuple[str, str]]:
    """Yields the names that other modules see, each with its location.

    These are classes with their fields, and functions with their parameters.
    """
    for path, node in definitions(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("_"):
            continue
        location = f"{path}:{node.lineno} {node.name}"
        yield node.name, location
        if isinstance(node, ast.ClassDef):
            yield from (
                (f.target.id, location)
                for f in node.body
                if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
            )
        else:
            yield from (
                (a.arg, location)
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            )


def test_the_glossary_is_there() -> None:
    """The glossary's table is found, and has each word once."""
    words = [name for word in WORDS for name in word.names]
    assert {"message", "window", "receipt", "dead letter"} <= set(words)
    assert [name for name, count in Counter(words).items() if count > 1] == []


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.names[0])
def test_a_words_classes_are_where_the_glossary_says(word: Word) -> None:
    """Each class and module in the column "in code" exists."""
    defined_classes = set(find_classes())
    assert [
        (path, name) for name, path in word.classes.items() if (path, name) not in defined_classes
    ] == []
    assert [
        class_path
        for class_path in word.places
        if not (ROOT / class_path.partition(": ")[0]).exists()
    ] == []


def test_a_class_called_like_a_word_is_what_the_word_means() -> None:
    """No other class has the name of a glossary word."""
    meant = {class_name(name): word.classes for word in WORDS for name in word.names}
    borrowed = [
        f"{path}: {name}"
        for path, name in find_classes()
        if name in meant and meant[name].get(name) != path
    ]
    assert borrowed == []


def test_what_a_word_is_never_for_names_nothing() -> None:
    """The names in the column "never for" are not used."""
    never = {name for word in WORDS for name in word.never}
    assert never, "the glossary rules nothing out"
    assert sorted({f"{location}: {name}" for name, location in names() if name in never}) == []
