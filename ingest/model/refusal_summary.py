"""Summaries of dead letters: kinds of problems in words, with counts and offsets.

Pure. Their size is bounded, and no text contains a value of a message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

KINDS_MAX = 10
"""The maximum number of kinds for a stage of one split. All others count as `OTHERS`."""

KINDS_SHOWN = 5
"""The maximum number of kinds in an error's sentence."""

OFFSETS_MAX = 3
"""The maximum number of dead letters' offsets for each stage."""

OTHERS = "other reasons"

_DIFFERENT_MAX = 200
_LENGTH_MAX = 200
_PLACE = re.compile(r"(?: starting at)? \((?:character|byte) \d+\)$")
_INDEX = re.compile(r"\[\d+\]")

Kinds = tuple[tuple[str, int], ...]
"""Kinds of problems with their counts, the most frequent first."""


class RefusedAt(msgspec.Struct, frozen=True):
    """The dead letters of one stage in one split: their number, kinds, and first offsets."""

    stage: str
    count: int
    kinds: Kinds
    first: tuple[int, ...] = ()


def in_words(reason: str, detail: str | None) -> str:
    """Returns the kind of a problem, in words that are the same for all messages with the problem.

    `Expected int, got float - at $.items[3].amount` becomes `$.items[].amount expected int,
    got float`. The path in the document is kept. The position in the text and the index in
    a list are left out, because they differ from message to message.
    """
    problem, _, path = (detail or reason).rpartition(" - at ")
    if not problem:
        problem, path = path, ""
    problem = _PLACE.sub("", problem)
    if problem.startswith(("Expected ", "Failed ")):
        problem = problem[0].lower() + problem[1:]
        text = f"{path} {problem}"
    else:
        text = f"{path}: {problem}"
    text = _INDEX.sub("[]", text) if path else problem
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 3] + "..."


class Refusals:
    """Counts the dead letters of one split by stage and kind.

    Its memory is bounded even if there are very many kinds.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[str]] = {}
        self._first: dict[str, list[int]] = {}

    def add(
        self,
        stages: Sequence[str],
        reasons: Iterable[str],
        details: Iterable[str | None],
        offsets: Sequence[int],
    ) -> None:
        """Counts dead letters: the stage, reason, detail and offset of each."""
        for (stage, reason, detail), count in Counter(
            zip(stages, reasons, details, strict=True)
        ).items():
            kinds = self._kinds.setdefault(stage, Counter())
            kind = in_words(reason, detail)
            has_room = kind in kinds or len(kinds) < _DIFFERENT_MAX
            kinds[kind if has_room else OTHERS] += count
        for stage, offset in zip(stages, offsets, strict=True):
            first = self._first.setdefault(stage, [])
            if len(first) < OFFSETS_MAX:
                first.append(offset)

    def by_stage(self) -> tuple[RefusedAt, ...]:
        """Returns a summary of each stage that refused messages, with at most `KINDS_MAX` kinds."""
        return tuple(
            RefusedAt(
                stage, kinds.total(), most_frequent(kinds, KINDS_MAX), tuple(self._first[stage])
            )
            for stage, kinds in sorted(self._kinds.items())
        )


def most_frequent(counts: Counter[str], limit: int) -> Kinds:
    """Returns the `limit` most frequent kinds, then the sum of all others as `OTHERS`.

    Kinds with equal counts are sorted by name.
    """
    named = sorted(
        ((kind, n) for kind, n in counts.items() if kind != OTHERS),
        key=lambda kind_count: (-kind_count[1], kind_count[0]),
    )
    others = counts[OTHERS] + sum(n for _, n in named[limit:])
    return (*named[:limit], *([(OTHERS, others)] if others else ()))
