"""Runs of a real pipeline in processes that a test may kill, and the check of their results.

The pipeline has Kafka, a ledger in SQLite or PostgreSQL, and a Delta table.
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
    """Returns the n-th hour of the test's day."""
    return MIDNIGHT + timedelta(hours=n)


def millis(n: int, minute: int = 0, second: int = 0) -> int:
    """Returns a timestamp in the n-th hour, in milliseconds."""
    return int((hour(n) + timedelta(minutes=minute, seconds=second)).timestamp() * 1000)


@dataclass(frozen=True)
class PipelineSetup:
    """A pipeline's configuration: a topic on a broker, and a table and a ledger in a folder."""

    bootstrap: str
    topic: str
    folder: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> PipelineSpec:
        """Returns the spec, with `overrides` merged into its sections."""
        attributes: dict[str, Any] = {
            "id": "things",
            "source": {"bootstrap_servers": self.bootstrap, "topic": self.topic},
            "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z", "delay": "1m"},
            "decode": {"schema": "things.py:Thing"},
            "limits": {"max_dead_ratio": None},
            "sink": {"kind": "delta", "path": str(self.folder / "things")},
            "state": f"sqlite:///{self.folder}/state.db",
        }
        for name, section in self.overrides.items():
            attributes[name] = (
                attributes.get(name, {}) | section if isinstance(section, Mapping) else section
            )
        return parse_spec(attributes, HERE)

    def window(self, n: int) -> Window:
        """Returns the window of the n-th hour."""
        return Window("things", hour(n), hour(n + 1))

    def pipeline(self) -> Pipeline:
        """Returns the pipeline, with tasks in this process."""
        return assemble(self.spec(), LocalEngine())

    def run(self, n: int, request: Request | None = None) -> Result:
        """Runs the n-th hour in this process."""
        return run(self.pipeline(), self.window(n), request or Request("test"))


def start_run(
    setup: PipelineSetup, n: int, answer_file: Path, crash: str = "", request: Request | None = None
) -> BaseProcess:
    """Starts a run of the n-th hour in a process of its own.

    Args:
        setup: the pipeline.
        n: the hour.
        answer_file: the file to which the process writes its Result or its error.
        crash: the value of WINDROW_CRASH.
        request: the request of the run.
    """
    process = SERVER.Process(
        target=_child, args=(setup, n, str(answer_file), crash, to_json(request or Request("test")))
    )
    process.start()
    return process


def _child(setup: PipelineSetup, n: int, answer_file: str, crash: str, request: str) -> None:
    os.environ["WINDROW_CRASH"] = crash
    try:
        text = to_json(setup.run(n, from_json(request, Request)))
    except WindrowError as failed:
        text = json.dumps({"error": type(failed).__name__, "text": str(failed)})
    Path(answer_file).with_suffix(".part").write_text(text)
    Path(answer_file).with_suffix(".part").rename(answer_file)


def result_of(answer_file: Path) -> Result:
    """Returns the Result in a child's file. If the file has an error, the test fails."""
    text = answer_file.read_text()
    assert "error" not in json.loads(text), text
    return from_json(text, Result)


def wait_until_stopped(process: BaseProcess) -> None:
    """Waits until the child has stopped itself at its crash point; fails if the child ends."""
    assert stops(process), (
        f"the run ended with {process.exitcode} before it reached its crash point"
    )


def wake(runs: Iterable[BaseProcess]) -> None:
    """Wakes children that have stopped themselves."""
    for process in runs:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)


def wake_to_the_end(runs: Sequence[BaseProcess], seconds: float) -> None:
    """Wakes children and waits for each of them to end with exit code 0.

    Args:
        runs: the children.
        seconds: the longest wait for each child.
    """
    wake(runs)
    for process in runs:
        process.join(seconds)
    assert [process.exitcode for process in runs] == [0] * len(runs)


def read_visible(bootstrap: str, topic: str) -> dict[TopicPartition, dict[int, object]]:
    """Returns all committed messages of a topic, read by a plain client.

    Returns:
        For each topic-partition and offset, the id in the value; None if there is no id.
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


def verdict(
    setup: PipelineSetup, produced: Mapping[TopicPartition, Mapping[int, object]]
) -> Report:
    """Returns the checker's report about the table, the dead letters and the receipts.

    Args:
        setup: the pipeline.
        produced: the messages that the committed windows should hold.
    """
    pipeline = setup.pipeline()
    sink = pipeline.sink
    assert isinstance(sink, WindowTable)
    assert isinstance(sink.store, DeltaStore)
    receipts = [c.receipt for c in sink.receipts()]
    table = DeltaTable(sink.store.location)
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


def table_version(setup: PipelineSetup) -> int:
    """Returns the Delta version of the table."""
    return DeltaTable(str(setup.folder / "things")).version()
