"""The two ways to fetch messages, for tests of what must be the same by either."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from windrow.ingest.source.reader.choice import load_compiled
from windrow.ingest.source.reader.confluent import ConfluentFetcher
from windrow.ingest.source.reader.fetching import Fetcher, Fetching, Hear, Start

_load = cache(load_compiled)


def compiled(properties: Mapping[str, Any], start: Start, hear: Hear) -> Fetcher:
    """The compiled way; where it can't be had, a test fails instead of trying the other."""
    return _load()(properties, start, hear)


WAYS: dict[str, Fetching] = {"confluent": ConfluentFetcher, "librdkafka": compiled}
