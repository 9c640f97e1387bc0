"""How a window's splits are cut into transactions.

Pure: it depends on the plan alone, so every attempt at a window has the same ones.

A transaction costs some tenths of a second, whatever is in it, so small splits share
one. The splits of one topic-partition follow each other in their order: what was read
in order from one is published in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Plan

SMALL = 100_000
"""Offsets that one transaction takes of several splits.

Part of what is promised: two versions of windrow with two numbers, at work on one
window at one moment, would not fence each other.
"""

Part = tuple[int, ...]
"""The numbers of the splits of one transaction, in the order of the plan."""


def chains(plan: Plan) -> list[list[Part]]:
    """Transactions that may run beside each other, each with those that follow it."""
    by_tp: dict[TopicPartition, list[int]] = defaultdict(list)
    for number in sorted(range(len(plan.splits)), key=lambda n: plan.splits[n]):
        by_tp[plan.splits[number].tp].append(number)
    large, small = list[list[Part]](), list[tuple[int, list[int]]]()
    for numbers in by_tp.values():
        size = sum(plan.splits[n].stop - plan.splits[n].start for n in numbers)
        if size < SMALL:
            small.append((size, numbers))
        else:
            large.append([(n,) for n in numbers])
    return large + _together(small)


def _together(small: Sequence[tuple[int, list[int]]]) -> list[list[Part]]:
    made: list[list[Part]] = []
    size, numbers = 0, list[int]()
    for more, some in small:
        if numbers and size + more > SMALL:
            made.append([tuple(numbers)])
            size, numbers = 0, []
        size, numbers = size + more, [*numbers, *some]
    return [*made, [tuple(numbers)]] if numbers else made
