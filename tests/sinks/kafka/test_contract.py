"""The sink contracts on the Kafka sink, on a real broker: with a transaction per split, and per
window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contracts.sweep_contract import SweepContract
from tests.kafka.produce import create_topic
from tests.sinks.kafka import world
from tests.sinks.kafka.world import KafkaBoth, options_of
from windrow.ingest.kafka.producers import (
    MessageProducer,
    ProducerError,
    TransactionalProducer,
)
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.testing.contracts.dead_letters import DeadLettersContract
from windrow.ingest.testing.contracts.sink import CommitContract, KeepContract
from windrow.ingest.testing.contracts.sink_audit import SinkAuditContract
from windrow.ingest.testing.contracts.sink_checksums import SinkChecksumsContract
from windrow.ingest.testing.contracts.sink_grids import SinkGridsContract
from windrow.ingest.testing.contracts.sink_metadata import SinkMetadataContract

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.some(1)]


class TestKafkaSink(
    CommitContract,
    KeepContract,
    SweepContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """The Kafka sink with a transaction per split."""

    capabilities = Capabilities(atomic="split", replaces=False)
    more: Mapping[str, Any] = {"partitioner": "source"}
    client: Mapping[str, Any] = {}
    producer: type[MessageProducer] = TransactionalProducer

    @pytest.fixture(autouse=True)
    def bootstrap(self, kafka: str) -> None:
        self.kafka = kafka
        self.topics: dict[Path, str] = {}

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> KafkaBoth:
        if tmp_path not in self.topics:
            self.topics[tmp_path] = create_topic(self.kafka, partitions=2)
        return KafkaBoth(
            ClusterConnection(self.kafka, self.client),
            options_of(self.topics[tmp_path], str(tmp_path / "staging"), **self.more),
            schema,
            metadata,
        )

    def reopen(self, sink: KafkaBoth) -> KafkaBoth:
        return KafkaBoth(sink.connection, sink.options, sink.schema, sink.metadata)

    def pieces(self, sink: KafkaBoth) -> list[pa.Table]:
        return world.pieces(sink)

    @contextmanager
    def no_answer(self, sink: KafkaBoth) -> Iterator[None]:
        commit = self.producer.commit
        with pytest.MonkeyPatch.context() as patch:

            def unanswered(transaction: MessageProducer) -> None:
                commit(transaction)
                patch.undo()
                raise ProducerError("failed", "connection reset", unanswered=True)

            patch.setattr(self.producer, "commit", unanswered)
            yield


class TestKafkaSinkByWindows(CommitContract, KeepContract, SweepContract, SinkAuditContract):
    """The Kafka sink with a transaction per window."""

    capabilities = Capabilities(replaces=False)
    more: Mapping[str, Any] = {"atomic_window": True}
    client: Mapping[str, Any] = {}
    producer: type[MessageProducer] = TransactionalProducer

    bootstrap, make, reopen, pieces, no_answer = (
        TestKafkaSink.bootstrap,
        TestKafkaSink.make,
        TestKafkaSink.reopen,
        TestKafkaSink.pieces,
        TestKafkaSink.no_answer,
    )


class TestKafkaSinkAtLeastOnce(CommitContract, KeepContract, SweepContract, SinkAuditContract):
    """The Kafka sink without transactions.

    In one process, and without a run that dies, each message is still there once.
    """

    capabilities = Capabilities(atomic="split", replaces=False, delivery="at-least-once")
    more: Mapping[str, Any] = {"delivery": "at-least-once"}
    client: Mapping[str, Any] = {}
    producer: type[MessageProducer] = MessageProducer

    bootstrap, make, reopen, pieces, no_answer = (
        TestKafkaSink.bootstrap,
        TestKafkaSink.make,
        TestKafkaSink.reopen,
        TestKafkaSink.pieces,
        TestKafkaSink.no_answer,
    )
