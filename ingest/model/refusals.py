"""Dead letters by what was wrong with them, in words for the person who must fix it.

Pure, bounded, and never with a value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

KINDS = 10
"""How many kinds of one split are told apart; whatever else there is counts as `OTHERS`."""

TOLD = 5
"""How many kinds one sentence names."""

FIRST = 3
"""So many of a stage's dead letters are told by their offsets."""

OTHERS = "other reasons"

_COUNTED = 200
_LONGEST = 200
_PLACE = re.compile(r" \((?:character|byte) \d+\)$")
_INDEX = re.compile(r"\[\d+\]")

Kinds = tuple[tuple[str, int], ...]
"""What was wrong, and how often; the most frequent first."""


class RefusedAt(msgspec.Struct, frozen=True):
    """The dead letters of one stage in one split: how many, what was wrong with them,
    and the offsets of the first few.
    """

    stage: str
    count: int
    kinds: Kinds
    first: tuple[int, ...] = ()


def in_words(reason: str, detail: str | None) -> str:
    """`Expected int, got float - at $.items[3].amount` as `$.items[].amount expected int, got float`.

    Where in the document is a part of it. Where in the text, and at which index, is
    not: that differs from message to message.
    """  # noqa: E501
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
    """Counts the dead letters of one split, stage by stage.

    Its memory is bounded, however many kinds there are.
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
        """Count dead letters: the stage, reason, detail and offset of each."""
        for (stage, reason, detail), count in Counter(
            zip(stages, reasons, details, strict=True)
        ).items():
            kinds = self._kinds.setdefault(stage, Counter())
            what = in_words(reason, detail)
            known = what in kinds or len(kinds) < _COUNTED
            kinds[what if known else OTHERS] += count
        for stage, offset in zip(stages, offsets, strict=True):
            first = self._first.setdefault(stage, [])
            if len(first) < FIRST:
                first.append(offset)

    def by_stage(self) -> tuple[RefusedAt, ...]:
        """Each stage that refused any: the most frequent kinds, at most `KINDS`, and
        all others together.
        """
        return tuple(
            RefusedAt(stage, kinds.total(), bounded(kinds, KINDS), tuple(self._first[stage]))
            for stage, kinds in sorted(self._kinds.items())
        )


def bounded(counts: Counter[str], most: int) -> Kinds:
    """The most frequent, at most `most`, then all others together; equal ones in the
    order of their names.
    """
    named = sorted(
        ((what, n) for what, n in counts.items() if what != OTHERS),
        key=lambda one: (-one[1], one[0]),
    )
    others = counts[OTHERS] + sum(n for _, n in named[most:])
    return (*named[:most], *([(OTHERS, others)] if others else ()))
