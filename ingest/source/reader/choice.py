"""Which of the two ways to fetch messages this process takes: the compiled one, where
the library was seen to be what it takes it for.

There is no setting: both give the same, and who can't have the faster one is told why, once.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from windrow.ingest.kafka.capi import Unusable, load_api
from windrow.ingest.source.reader.confluent import ConfluentFetcher
from windrow.ingest.source.reader.fetching import Fetcher, Fetching, Hear, Start

_LOG = logging.getLogger("windrow.read")


def fastest(properties: Mapping[str, Any], start: Start, hear: Hear) -> Fetcher:
    """See `fetching.Fetching`: the compiled way, or confluent-kafka's consumer with one
    line in the log that says why.
    """
    return _compiled()(properties, start, hear)


@cache
def _compiled() -> Fetching:
    """Decided once in a process."""
    try:
        return load_compiled()
    except Exception as why:  # whatever it is, messages can still be read; a bug in the compiled way shows in its tests  # noqa: BLE001, E501
        reason = (
            str(why)
            if isinstance(why, Unusable)
            else f"the compiled way failed to load: {type(why).__name__}"
        )
        _LOG.warning(
            "messages are read by confluent-kafka's own consumer, which takes more time: %s", reason
        )
        return ConfluentFetcher


def load_compiled() -> Fetching:
    """The compiled way, tried out.

    Where its code is not kept yet, it is compiled first, which takes seconds: only
    where messages are read.

    Raises:
        Unusable: it can't be used here; says why.
    """
    if (
        sys.byteorder != "little"
        or ctypes.sizeof(ctypes.c_void_p) != 8
        or ctypes.sizeof(ctypes.c_size_t) != 8
    ):
        raise Unusable("this platform is not a 64-bit little-endian one")
    api = load_api()
    from windrow.ingest.source.reader.librdkafka import LibrdkafkaFetcher
    from windrow.ingest.source.reader.selftest import check

    check(api)
    return partial(LibrdkafkaFetcher, api)
