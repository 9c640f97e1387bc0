"""The two ways to fetch messages, for tests of what must be the same by either."""

from __future__ import annotations

from tests.source.reader.confluent import ConfluentFetcher
from windrow.ingest.source.reader.fetching import Fetching
from windrow.ingest.source.reader.librdkafka import connect

WAYS: dict[str, Fetching] = {"confluent": ConfluentFetcher, "librdkafka": connect}
