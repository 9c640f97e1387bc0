"""Runs of a real pipeline (Kafka, SQLite or PostgreSQL, Delta) in processes that a test
may kill, and the checker over what they left.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition
from deltalake import DeltaTable
from pyarrow.dataset import get_partition_keys

from tests.warm import SERVER, stops
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.run_windows import run
from windrow.ingest.sinks.delta.store import DeltaStore
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.engine import LocalEngine

HERE = Path(__file__).parent
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)


def hour(n: int) -> datetime:
    """The n-th hour of the test's day."""
    return MIDNIGHT + timedelta(hours=n)


def millis(n: int, minute: int = 0, second: int = 0) -> int:
    """A timestamp in the n-th hour, in milliseconds."""
    return int((hour(n) + timedelta(minutes=minute, seconds=second)).timestamp() * 1000)


@dataclass(frozen=True)
class Place:
    """One pipeline's configuration: a topic on a broker, a table and a ledger in a folder."""

    bootstrap: str
    topic: str
    folder: Path
    over: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> PipelineSpec:
        """The spec, with `over` laid over its sections."""
        attributes: dict[str, Any] = {
            "id": "things",
            "source": {"bootstrap_servers": self.bootstrap, "topic": self.topic},
            "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z", "delay": "1m"},
            "decode": {"schema": "things.py:Thing"},
            "limits": {"max_dead_ratio": None},
            "sink": {"kind": "delta", "path": str(self.folder / "things")},
            "state": f"sqlite:///{self.folder}/state.db",
        }
        for name, section in self.over.items():
            attributes[name] = (
                attributes.get(name, {}) | section if isinstance(section, Mapping) else section
            )
        return parse_spec(attributes, HERE)

    def window(self, n: int) -> Window:
        """The n-th hour."""
        return Window("things", hour(n), hour(n + 1))

    def pipeline(self) -> Pipeline:
        """The pipeline, with tasks in this process."""
        return assemble(self.spec(), LocalEngine())

    def run(self, n: int, request: Request | None = None) -> Result:
        """Run the n-th hour here and now."""
        return run(self.pipeline(), self.window(n), request or Request("test"))


def start_run(
    setup: Place, n: int, answer_file: Path, crash: str = "", request: Request | None = None
) -> BaseProcess:
    """Run the n-th hour in a process of its own, with WINDROW_CRASH set; it writes its
    Result or error to `answer_file`.
    """
    process = SERVER.Process(
        target=_child, args=(setup, n, str(answer_file), crash, to_json(request or Request("test")))
    )
    process.start()
    return process


def _child(setup: Place, n: int, answer_file: str, crash: str, request: str) -> None:
    os.environ["WINDROW_CRASH"] = crash
    try:
        text = to_json(setup.run(n, from_json(request, Request)))
    except WindrowError as failed:
        text = json.dumps({"error": type(failed).__name__, "text": str(failed)})
    Path(answer_file).with_suffix(".part").write_text(text)
    Path(answer_file).with_suffix(".part").rename(answer_file)


def result_of(answer_file: Path) -> Result:
    """The Result that a child wrote; its error, if it wrote one, fails the test."""
    text = answer_file.read_text()
    assert "error" not in json.loads(text), text
    return from_json(text, Result)


def wait_until_stopped(process: BaseProcess) -> None:
    """Return once the child has stopped itself at its crash point; fail if it ended instead."""
    assert stops(process), (
        f"the run ended with {process.exitcode} before it reached its crash point"
    )


def wake(runs: Iterable[BaseProcess]) -> None:
    """Let children run on that have stopped themselves."""
    for process in runs:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)


def wake_to_the_end(runs: Sequence[BaseProcess], seconds: float) -> None:
    """The same, and wait until they have ended, so many seconds for each; all of them well."""
    wake(runs)
    for process in runs:
        process.join(seconds)
    assert [process.exitcode for process in runs] == [0] * len(runs)


def visible(bootstrap: str, topic: str) -> dict[TopicPartition, dict[int, object]]:
    """All committed messages of a topic, read by a plain client: offset -> the id in
    the value (None where there is none).
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([KafkaPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    ids_by_partition: dict[TopicPartition, dict[int, object]] = {
        TopicPartition(topic, p): {} for p in partitions
    }
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        assert message is not None, "the topic could not be read to its end"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            ids_by_partition[TopicPartition(topic, message.partition())][message.offset()] = _id(
                message.value()
            )
    consumer.close()
    return ids_by_partition


def _id(value: bytes | None) -> object:
    try:
        return json.loads(value or b"")["id"]
    except (ValueError, TypeError, KeyError):
        return None


def verdict(setup: Place, produced: Mapping[TopicPartition, Mapping[int, object]]) -> Report:
    """The checker's verdict over a setup's table, dead letters and receipts;
    `produced`: what the committed windows should hold.
    """
    pipeline = setup.pipeline()
    sink = pipeline.sink
    assert isinstance(sink, WindowTable)
    assert isinstance(sink.store, DeltaStore)
    receipts = [c.receipt for c in sink.receipts()]
    table = DeltaTable(sink.store.place)
    pieces = [p.to_table() for p in table.to_pyarrow_dataset().get_fragments()]
    keys = [f.partition_expression for f in table.to_pyarrow_dataset().get_fragments()]
    pieces = [
        piece.append_column(
            "_window", pa.array([get_partition_keys(k)["_window"]] * piece.num_rows, pa.string())
        )
        for piece, k in zip(pieces, keys, strict=True)
    ]
    dead = [pipeline.dead_letters.read(r.window, r.attempt) for r in receipts]
    return check(produced, pieces, dead, receipts)


def version(setup: Place) -> int:
    """The Delta version of the setup's table."""
    return DeltaTable(str(setup.folder / "things")).version()
