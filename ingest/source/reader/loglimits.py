"""Where a log begins and ends, asked of the cluster: what a reader believes before it
says that messages are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from windrow.ingest.kafka.client import LOG
from windrow.ingest.kafka.retry import CONNECT_SECONDS, TIMES
from windrow.ingest.model.plan import Split


class LogLimits(NamedTuple):
    """The first offset of the log, and its high watermark."""

    low: int
    high: int


def log_limits(properties: Mapping[str, Any], split: Split) -> LogLimits | None:
    """The limits now; None if nobody told.

    A consumer of its own: one that reads committed messages is told the last stable
    offset, which an open transaction holds below the log's end.
    """
    settings = {
        **properties,
        "isolation.level": "read_uncommitted",
        "logger": LOG,
        "error_cb": _not_here,
    }
    with closing(Consumer(settings)) as consumer:
        try:
            place = KafkaPartition(split.topic, split.partition)
            found = consumer.get_watermark_offsets(place, timeout=CONNECT_SECONDS, cached=False)
        except KafkaException:
            return None
    return None if found is None else LogLimits(*found)


def believed(
    ask: Callable[[], LogLimits | None], position: int, stop: int, apart_seconds: float
) -> LogLimits | None:
    """Limits that can be acted on; None where there are none yet.

    A new leader may tell too small a high watermark for a moment (KAFKA-7703). So one
    below `stop` is believed only if it is told again and again, some time apart. A log
    start beyond `position` is believed at once: it never goes back.
    """
    first = ask()
    if first is None or first.high >= stop or first.low > position:
        return first
    for _ in range(TIMES - 1):
        time.sleep(apart_seconds)
        again = ask()
        if again is None or again.high != first.high:
            return again if again is not None and again.high >= stop else None
        first = again
    return first


def _not_here(_error: object) -> None:
    """The reading consumer tells of the connection's errors."""
