"""The test worlds of Kafka's sink, one for each guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tests.chaos import servers
from tests.sinks.kafka.twins import RandomId, RecordFirst
from tests.sinks.kafka.world import KafkaBoth, create_location, open_sink, pieces
from tests.sinks.world import POINTS, SinkWorld
from windrow.ingest.crashpoints import SPLIT_POINTS, CrashPoint, crash_point


class _Stopping(RandomId):
    """A twin that is stopped where another run acts."""

    def meanwhile(self) -> None:
        crash_point("split.before")


def random_id(location: str) -> Any:
    """Opens a twin. Only the broker's timeout ends the transactions of its dead runs."""
    return open_sink(location, _Stopping, timeout=timedelta(seconds=10))


def record_first(location: str) -> Any:
    return open_sink(location, RecordFirst)


class KafkaWorld(SinkWorld):
    """Tables of one topic."""

    server = "kafka"
    strikes = (servers.kill_broker, servers.stop_broker)
    points = (*POINTS, *SPLIT_POINTS)
    race_point: CrashPoint = "split.before"
    more: ClassVar[Mapping[str, Any]] = {}
    twins = (random_id,)

    def new_location(self, folder: Path, server: Any) -> str:
        return create_location(server, str(folder / "staging"), **self.more)

    @contextmanager
    def serve_location(self, folder: Path) -> Iterator[str]:
        with servers.kafka(folder, **self.more) as location:
            yield location

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return open_sink(location, KafkaBoth)

    def twin_at(self, location: str, twin: str) -> Any:
        return self.by_name[twin](location)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return pieces(sink)


class AtLeastOnceWorld(KafkaWorld):
    """Tables with at-least-once: a run waits for the delivery reports before it records a split."""

    more: ClassVar[Mapping[str, Any]] = {"delivery": "at-least-once"}
    twins = (record_first,)


class NoGuaranteeWorld(KafkaWorld):
    """Tables without a guarantee: a run doesn't wait for delivery reports."""

    more: ClassVar[Mapping[str, Any]] = {"delivery": "none"}
    twins = ()
