"""The first offset and the end of a log, as the cluster tells them.

A reader believes them only under some conditions before it reports a loss.
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
    """Asks for the limits now; None if no broker answered.

    The question has a consumer of its own, because one that reads committed messages
    gets the last stable offset, which an open transaction holds below the log's end.
    """
    settings = {
        **properties,
        "isolation.level": "read_uncommitted",
        "logger": LOG,
        "error_cb": _ignore,
    }
    with closing(Consumer(settings)) as consumer:
        try:
            partition = KafkaPartition(split.topic, split.partition)
            offsets = consumer.get_watermark_offsets(
                partition, timeout=CONNECT_SECONDS, cached=False
            )
        except KafkaException:
            return None
    return None if offsets is None else LogLimits(*offsets)


def believed(
    ask: Callable[[], LogLimits | None], position: int, stop: int, apart_seconds: float
) -> LogLimits | None:
    """Asks for limits until they can be believed; None if they can't yet.

    A new leader may name too small a high watermark for a moment (KAFKA-7703). So a
    high watermark below `stop` is believed only if several answers agree, some time
    apart. A log start beyond `position` is believed at once, because it never goes
    back.
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


def _ignore(_error: object) -> None:
    """Ignores an error of the connection: the reading consumer reports them."""
