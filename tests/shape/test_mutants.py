"""`make mutants` judges what it says: every pure module by a test file of its own, and
each survivor by what it changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.modules import EQUIVALENT, MORE, judges_of, modules
from tests.mutants.run import changed_lines, is_wording, measure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", modules(ROOT))
def test_a_pure_module_has_a_test_file_of_its_own(module: str) -> None:
    """It lies where the module does; what judges the module beside it is there too."""
    assert [path for path in judges_of(module) if not (ROOT / path).is_file()] == []


def test_what_is_said_of_modules_is_said_of_those_that_are_mutated() -> None:
    """A module that was moved takes its rows along."""
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
    """Only where nothing but the words of a string with spaces changed; a short word
    may be data.
    """
    diff = f"--- a\n+++ b\n@@ -1 +1 @@\n context\n-    {before}\n+    {after}\n"
    assert changed_lines(diff) == f"- {before}\n+ {after}"
    assert is_wording(changed_lines(diff)) == wording


@pytest.mark.long
@pytest.mark.slow
def test_one_module_can_be_measured() -> None:
    """The smallest one, with the real tool: it has mutants, all of them are judged, and
    each is noticed.
    """
    score = measure("ingest/model/codec.py")
    assert score.mutants > 0
    assert (score.killed, score.alive, score.stale) == (score.counted, (), ())
