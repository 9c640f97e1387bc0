"""Lookups of a window: the pinned version of each source, and counts of requests and answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec


class Pin(msgspec.Struct, frozen=True):
    """The version of a source that a lookup of a window asks, in every attempt and replay.

    Attributes:
        lookup: the name of the lookup.
        source: the source, without secrets.
        version: the version, in the source's own notation; empty if an older state of the
            source can't be asked again.
    """

    lookup: str
    source: str
    version: str


class LookedUp(msgspec.Struct, frozen=True):
    """The counts of a lookup for the rows of one split.

    Each row counts as a hit or a miss, unless the source refused its key.

    Attributes:
        lookup: the name of the lookup.
        keys: the number of distinct keys that were asked for.
        hits: the number of rows with an answer.
        misses: the number of rows without an answer.
        requests: the number of requests to the source.
        first_at: the begin of the first request.
        last_at: the end of the last request.
        answers: a checksum of the keys and of their answers (`ingest.schema.checksum`).
    """

    lookup: str
    keys: int
    hits: int
    misses: int
    requests: int
    first_at: datetime | None
    last_at: datetime | None
    answers: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


def merge_parts(parts: Iterable[LookedUp]) -> tuple[LookedUp, ...]:
    """Adds up the parts of each lookup; the result is sorted by the lookups' names."""
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
