"""Dead letters by what was wrong with them, in words for the person who must mend it. Pure, bounded, and never with a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

KINDS = 10
"""How many kinds of one split are told apart; whatever else there is counts as `OTHERS`."""

TOLD = 5
"""How many kinds one sentence names."""

OTHERS = "other reasons"

_COUNTED = 200
_LONGEST = 200
_PLACE = re.compile(r" \((?:character|byte) \d+\)$")
_INDEX = re.compile(r"\[\d+\]")

Kinds = tuple[tuple[str, int], ...]
"""What was wrong, and how often; the most frequent first."""


def in_words(reason: str, detail: str | None) -> str:
    """`Expected int, got float - at $.items[3].amount` as `$.items[].amount expected int, got float`.

    Where in the document is a part of it. Where in the text, and at which index, is not: that differs from message to message.
    """
    what, _, path = (detail or reason).rpartition(" - at ")
    if not what:
        what, path = path, ""
    what = _PLACE.sub("", what)
    if what.startswith(("Expected ", "Failed ")):
        what = what[0].lower() + what[1:]
        text = f"{path} {what}"
    else:
        text = f"{path}: {what}"
    text = _INDEX.sub("[]", text) if path else what
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


class Refusals:
    """Counts the dead letters of one split. Its memory is bounded, however many kinds there are."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reasons: Iterable[str], details: Iterable[str | None]) -> None:
        """Count one dead letter for each pair."""
        for (reason, detail), count in Counter(zip(reasons, details, strict=True)).items():
            what = in_words(reason, detail)
            known = what in self._counts or len(self._counts) < _COUNTED
            self._counts[what if known else OTHERS] += count

    def kinds(self) -> Kinds:
        """The most frequent kinds, at most `KINDS`, and all others together."""
        return bounded(self._counts, KINDS)


def bounded(counts: Counter[str], most: int) -> Kinds:
    """The most frequent, at most `most`, then all others together; equal ones in the order of their names."""
    named = sorted(((what, n) for what, n in counts.items() if what != OTHERS), key=lambda one: (-one[1], one[0]))
    others = counts[OTHERS] + sum(n for _, n in named[most:])
    return (*named[:most], *([(OTHERS, others)] if others else ()))
