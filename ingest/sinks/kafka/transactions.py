"""The transactions of a window, and their ids.

A transaction publishes a part of the window: one large split or several small ones. Small
splits share a transaction, because each transaction costs some tenths of a second. The splits
of one topic-partition are published one after the other, in the order of their offsets.

The parts depend on the plan alone. So every attempt at a window has the same parts, and all
attempts at a part have the same transactional id: a later attempt fences an earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Plan, Window

SMALL = 100_000
"""Number of offsets that the small splits of one transaction may have together.

It must never change. Two versions of windrow with different numbers would not fence each
other if they run the same window at the same time.
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
    return large + _share_parts(small)


def _share_parts(small: Sequence[tuple[int, list[int]]]) -> list[list[Part]]:
    """Groups small topic-partitions into parts of at most `SMALL` offsets."""
    shared_parts: list[list[Part]] = []
    size, numbers = 0, list[int]()
    for more, split_numbers in small:
        if numbers and size + more > SMALL:
            shared_parts.append([tuple(numbers)])
            size, numbers = 0, []
        size, numbers = size + more, [*numbers, *split_numbers]
    return [*shared_parts, [tuple(numbers)]] if numbers else shared_parts


class TransactionalIds(msgspec.Struct, frozen=True):
    """Makes the transactional ids of one table.

    Attributes:
        prefix: the beginning of all ids.
        control: the name of the control topic, which no other table has.
        pool: number of sets of ids. A window uses one set, chosen by its key.
    """

    prefix: str
    control: str
    pool: int

    def table(self, pipeline: str) -> str:
        """Returns the id for receipts; the whole table has only one."""
        return self._name(pipeline, "table")

    def part(self, window: Window, part: Part) -> str:
        """Returns the id for a part of a window."""
        number = int.from_bytes(sha256(window.key.encode()).digest()[:8], "big") % self.pool
        return self._name(window.pipeline, f"{number}.{part[0]}")

    def of_window(self, plan: Plan) -> list[str]:
        """Returns all ids that runs of a window use, the table's first."""
        parts = [part for chain in chains(plan) for part in chain]
        return [self.table(plan.window.pipeline), *(self.part(plan.window, part) for part in parts)]

    def _name(self, pipeline: str, end: str) -> str:
        return f"{self.prefix}.{pipeline}.{sha256(self.control.encode()).hexdigest()[:8]}.{end}"
