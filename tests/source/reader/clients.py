"""The two clients that fetch messages, for tests whose result must be the same with both."""

from __future__ import annotations

from tests.source.reader.confluent import ConfluentFetcher
from windrow.ingest.source.reader.fetching import Fetching
from windrow.ingest.source.reader.librdkafka import connect

WAYS: dict[str, Fetching] = {"confluent": ConfluentFetcher, "librdkafka": connect}
