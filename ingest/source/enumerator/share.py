"""A micro-batch's share of what waits: max-min fair over topic-partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

from windrow.ingest.model.boundary import TopicPartition


def fair(
    available: Mapping[TopicPartition, int], limit: int | None, turn: int = 0
) -> dict[TopicPartition, int]:
    """How many offsets of each topic-partition are taken, at most `limit` in all (None: everything).

    Nobody gets more than an equal share while others want more. What can't be divided
    goes to some of those that want more, beginning with the one that the turn points
    at. The pointer moves on by `limit` each turn: so even if there is less than one
    offset for each, whoever waits is served within as many turns as there are
    topic-partitions.

    Args:
        available: what waits, not negative.
        limit: how many offsets in all.
        turn: the micro-batch's number.
    """  # noqa: E501
    total = sum(available.values())
    if limit is None or total <= limit:
        return dict(available)
    level = _level(sorted(available.values(), reverse=True), limit)
    shares = {tp: min(waiting, level) for tp, waiting in available.items()}
    rest = limit - sum(shares.values())
    order = sorted(available)
    begin = turn * limit % len(order)
    wanting = (tp for tp in chain(order[begin:], order[:begin]) if available[tp] > level)
    return shares | dict.fromkeys(islice(wanting, rest), level + 1)


def _level(descending: list[int], limit: int) -> int:
    """The highest share that all of those who want so much can have, where all together
    want more than the limit.

    Who wants no more than an equal share has it; what that leaves is divided among the others.
    """
    rest = limit
    while descending[-1] <= rest // len(descending):
        rest -= descending.pop()
    return rest // len(descending)
