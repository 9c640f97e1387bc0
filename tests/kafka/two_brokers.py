"""A cluster of two brokers. Each may be stopped while the other one serves."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from confluent_kafka.admin import AdminClient

from tests.kafka.produce import ask_until
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

_SECONDS = 60.0


class _First(EmbeddedBroker):
    """The broker with the controller. Kafka's internal topics have replicas on both brokers."""

    def _configure(self) -> None:
        super()._configure()
        config = self._folder / "server.properties"
        text = config.read_text()
        for name in ("offsets.topic", "transaction.state.log", "default"):
            text = text.replace(f"\n{name}.replication.factor=1", f"\n{name}.replication.factor=2")
        config.write_text(text)


class _Second(_First):
    """A broker without a controller."""

    def __init__(self, folder: Path, jars: Path, first: Path) -> None:
        super().__init__(folder, jars)
        self._first = first

    def _configure(self) -> None:
        super()._configure()
        own_ports, other_ports = (
            msgspec.json.decode((folder / "ports.json").read_bytes())
            for folder in (self._folder, self._first)
        )
        self._write(
            "ports.json", msgspec.json.encode(own_ports | {"cluster": other_ports["cluster"]})
        )
        config = self._folder / "server.properties"
        text = config.read_text()
        for old_text, new_text in {
            "process.roles=broker,controller": "process.roles=broker",
            "node.id=1": "node.id=2",
            f"1@127.0.0.1:{own_ports['controller']}": f"1@127.0.0.1:{other_ports['controller']}",
            f",CONTROLLER://127.0.0.1:{own_ports['controller']}": "",
        }.items():
            assert old_text in text, old_text
            text = text.replace(old_text, new_text, 1)
        config.write_text(text)


class TwoBrokers:
    """Two brokers, which are started and stopped together."""

    def __init__(self, folder: Path) -> None:
        jars = find_jars()
        self.brokers = (
            _First(folder / "first", jars),
            _Second(folder / "second", jars, folder / "first"),
        )

    def __enter__(self) -> Self:
        for broker in self.brokers:
            broker.start()
        self.until_whole()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in reversed(self.brokers):
            broker.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of both brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def roll(self) -> None:
        """Restarts one broker after the other, each once all replicas are in sync."""
        for broker in reversed(self.brokers):
            broker.stop()
            broker.start()
            self.until_whole()

    def until_whole(self, *topics: str) -> None:
        """Waits until both brokers and these topics exist and all replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def is_in_sync() -> bool:
            metadata = admin.list_topics(timeout=_SECONDS)
            partitions = [
                p for topic in metadata.topics.values() for p in topic.partitions.values()
            ]
            return (
                len(metadata.brokers) == 2
                and metadata.topics.keys() >= set(topics)
                and all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions)
            )

        ask_until(is_in_sync, "two brokers in sync", seconds=120)
