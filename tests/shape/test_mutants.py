"""Tests of `make mutants`: each pure module has its own tests, and each survivor is
counted right.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.modules import EQUIVALENT, MORE, judges_of, modules
from tests.mutants.run import changed_lines, is_wording, measure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", modules(ROOT))
def test_a_pure_module_has_a_test_file_of_its_own(module: str) -> None:
    """Each module that is mutated has test files."""
    assert [path for path in judges_of(module) if not (ROOT / path).is_file()] == []


def test_what_is_said_of_modules_is_said_of_those_that_are_mutated() -> None:
    """The modules in MORE and EQUIVALENT are mutated modules, also after a module is moved."""
    assert {*MORE, *EQUIVALENT} <= set(modules(ROOT))


@pytest.mark.parametrize(
    ("before", "after", "wording"),
    [
        ('raise E("no such topic", "plan")', 'raise E("XXno such topicXX", "plan")', True),
        ('raise E("no such topic", "plan")', 'raise E("NO SUCH TOPIC", "plan")', True),
        ('raise E(f"no {x} there", "plan")', 'raise E(f"no {x} there", "XXplanXX")', False),
        ('raise E("no such topic", "plan")', "raise E(None)", False),
        ('if a < b: say("it is so")', 'if a <= b: say("it is so")', False),
    ],
)
def test_a_sentences_words_are_not_counted(before: str, after: str, wording: bool) -> None:
    """A mutant that changes only the words of a string with spaces is not counted.

    A string without spaces may be data.
    """
    diff = f"--- a\n+++ b\n@@ -1 +1 @@\n context\n-    {before}\n+    {after}\n"
    assert changed_lines(diff) == f"- {before}\n+ {after}"
    assert is_wording(changed_lines(diff)) == wording


@pytest.mark.long
@pytest.mark.slow
def test_one_module_can_be_measured() -> None:
    """The real tool makes mutants of the smallest module, and the tests kill each of them."""
    score = measure("ingest/model/codec.py")
    assert score.mutants > 0
    assert (score.killed, score.alive, score.stale) == (score.counted, (), ())
