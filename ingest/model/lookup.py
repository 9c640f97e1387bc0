"""Lookups of a window: the source that each is pinned to, and what it was asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec


class Pin(msgspec.Struct, frozen=True):
    """The version of a source that a lookup of a window asks, in every try and replay.

    `source`: what is looked up in, without secrets; `version`: in the source's own words,
    empty if it can't be asked for an older state again.
    """

    lookup: str
    source: str
    version: str


class LookedUp(msgspec.Struct, frozen=True):
    """The effect of a lookup on the rows of one split.

    `keys`: the distinct keys that it asked for; `requests`: how often the source was asked.
    Each row that was looked up is one of `hits` and `misses`, unless the source refused its
    key. `first_at` and `last_at`: the begin of the first request and the end of the last one.
    `answers`: a checksum of the keys and of their answers (`ingest.schema.checksum`).
    """

    lookup: str
    keys: int
    hits: int
    misses: int
    requests: int
    first_at: datetime | None
    last_at: datetime | None
    answers: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


def merged(parts: Iterable[LookedUp]) -> tuple[LookedUp, ...]:
    """Sums up the parts of each lookup, in the order of their names."""
    sum_by_lookup = dict[str, LookedUp]()
    for part in parts:
        sum_by_lookup[part.lookup] = (
            _sum(sum_by_lookup[part.lookup], part) if part.lookup in sum_by_lookup else part
        )
    return tuple(sum_by_lookup[name] for name in sorted(sum_by_lookup))


def _sum(first: LookedUp, second: LookedUp) -> LookedUp:
    begins = [instant for instant in (first.first_at, second.first_at) if instant is not None]
    ends = [instant for instant in (first.last_at, second.last_at) if instant is not None]
    answers = (int(first.answers, 16) + int(second.answers, 16)) % 2**64
    return LookedUp(
        first.lookup,
        first.keys + second.keys,
        first.hits + second.hits,
        first.misses + second.misses,
        first.requests + second.requests,
        min(begins, default=None),
        max(ends, default=None),
        f"{answers:016x}",
    )
