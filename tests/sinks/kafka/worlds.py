"""The worlds of Kafka's sink: with each guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tests.chaos import servers
from tests.sinks.kafka.twins import RandomId, RecordFirst
from tests.sinks.kafka.world import KafkaBoth, at, new_place, pieces
from tests.sinks.world import POINTS, SinkWorld
from windrow.ingest.crashpoints import SPLIT_POINTS, CrashPoint, crash_point


class _Stopping(RandomId):
    """Another run gets its turn while this one is stopped."""

    def meanwhile(self) -> None:
        crash_point("split.before")


def random_id(location: str) -> Any:
    """What a dead run left open ends by the broker's clock alone."""
    return at(location, _Stopping, timeout=timedelta(seconds=10))


def record_first(location: str) -> Any:
    return at(location, RecordFirst)


class KafkaWorld(SinkWorld):
    """Tables of one topic."""

    server = "kafka"
    strikes = (servers.kill_broker, servers.stop_broker)
    points = (*POINTS, *SPLIT_POINTS)
    between: CrashPoint = "split.before"
    more: ClassVar[Mapping[str, Any]] = {}
    twins = (random_id,)

    def new_location(self, folder: Path, server: Any) -> str:
        return new_place(server, str(folder / "staging"), **self.more)

    @contextmanager
    def placed(self, folder: Path) -> Iterator[str]:
        with servers.kafka(folder, **self.more) as location:
            yield location

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return at(location, KafkaBoth)

    def twin_at(self, location: str, twin: str) -> Any:
        return self.by_name[twin](location)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return pieces(sink)


class AtLeastOnceWorld(KafkaWorld):
    """What is published is asked after before it is recorded."""

    more: ClassVar[Mapping[str, Any]] = {"delivery": "at-least-once"}
    twins = (record_first,)


class NoGuaranteeWorld(KafkaWorld):
    """Nothing is asked after."""

    more: ClassVar[Mapping[str, Any]] = {"delivery": "none"}
    twins = ()
