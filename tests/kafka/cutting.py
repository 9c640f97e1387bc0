"""Cuts off the ends of real logs: stops the broker, shortens its files and starts it again.

An unclean election or a lost disk leaves such logs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.kafka_logs import KafkaCluster
from tests.kafka import produce
from windrow.ingest.kafka.embedded.server import EmbeddedBroker
from windrow.ingest.model.boundary import TopicPartition

_HEADER = struct.Struct(">qi")
"""The beginning of a batch: its first offset, and the number of bytes that follow."""


@dataclass(frozen=True)
class CuttableKafka(KafkaCluster):
    """A real broker of its own whose logs can be cut.

    Attributes:
        broker: the broker.
        folder: the folder of all its data.
    """

    broker: EmbeddedBroker
    folder: Path

    def cut(self, ends: Mapping[TopicPartition, int]) -> None:
        """Cuts each log at its offset, where a batch must begin.

        Each other log gets a new leader too, as after any restart.
        """
        self.broker.stop()
        for tp, end in ends.items():
            cut_files(self.folder / "data" / f"{tp.topic}-{tp.partition}", end)
        self.broker.start()
        produce.forget()


def cut_files(log: Path, end: int) -> None:
    """Shortens a log of one segment.

    Kafka rebuilds the indexes and trims the leader epochs when it finds a shorter log.
    """
    (segment,) = log.glob("*.log")
    content, position = segment.read_bytes(), 0
    while position < len(content):
        first, length = _HEADER.unpack_from(content, position)
        if first >= end:
            assert first == end, f"offset {end} lies in a batch, the next one begins at {first}"
            break
        position += _HEADER.size + length
    with segment.open("r+b") as file:
        file.truncate(position)
    for index in [*log.glob("*.index"), *log.glob("*.timeindex")]:
        index.unlink()
