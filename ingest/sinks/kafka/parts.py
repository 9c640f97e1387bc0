"""Parts of a window: the groups of splits that are published in one transaction each.

The parts depend on the plan alone, so that every attempt at a window has the same ones.

A transaction costs some tenths of a second, whatever is in it, so small splits share
one. The splits of one topic-partition are published one after the other, in the order
of their offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Plan

SMALL = 100_000
"""Number of offsets that small splits in one transaction may have together.

It must never change: two versions of windrow with different numbers, which run one
window at the same time, would not fence each other.
"""

Part = tuple[int, ...]
"""Numbers of the splits that one transaction publishes, in the order of their offsets."""


def chains(plan: Plan) -> list[list[Part]]:
    """Returns the parts of a window, as chains.

    Chains may run at the same time; the parts of one chain run one after the other.
    """
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
    return large + _shared(small)


def _shared(small: Sequence[tuple[int, list[int]]]) -> list[list[Part]]:
    """Puts small topic-partitions together into parts of at most `SMALL` offsets."""
    made: list[list[Part]] = []
    size, numbers = 0, list[int]()
    for more, some in small:
        if numbers and size + more > SMALL:
            made.append([tuple(numbers)])
            size, numbers = 0, []
        size, numbers = size + more, [*numbers, *some]
    return [*made, [tuple(numbers)]] if numbers else made
