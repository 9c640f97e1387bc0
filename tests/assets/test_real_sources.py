"""Runs by Dagster on real Kafka and a real Delta table, for every kind of window and start."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.world import LocalTasks, ranges
from tests.integration.harness import HERE, PipelineSetup, millis, read_visible, verdict
from tests.kafka.produce import (
    OpenTransaction,
    Put,
    create_topic,
    delete_records,
    produce,
    transaction,
)
from windrow.assets.dagster_internals import range_tags
from windrow.assets.dependencies import Clock
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY, job_name
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.boundary import TopicPartition

pytestmark = [pytest.mark.broker, pytest.mark.some(3, of="tests")]

VALUE = json.dumps({"id": 7, "name": None}).encode()
FROM_TWO = {"start": "2026-01-05T02:00:00Z"}


def fill_topic(kafka: str, name: str | None = None) -> str:
    """Returns a topic with 100 messages in each of three hours."""
    topic = create_topic(kafka, partitions=2, name=name)
    produce(
        kafka,
        topic,
        [Put(VALUE, millis(h, i * 60 // 100), i % 2) for h in range(1, 4) for i in range(100)],
    )
    return topic


def run_of(
    setup: PipelineSetup,
    instance: dg.DagsterInstance,
    *stretch: str,
    sleep: Callable[[float], None] = time.sleep,
) -> dg.ExecuteInProcessResult:
    """Runs the pipeline, and asserts that it succeeds; `sleep` replaces the waits."""
    spec = setup.spec()
    defs = kafka_table(spec, {SPARK_KEY: LocalTasks()}, Clock(sleep=sleep))
    tags = range_tags(dg.PartitionKeyRange(*stretch)) if stretch else {}
    result = defs.resolve_job_def(job_name(spec)).execute_in_process(
        instance=instance, tags=tags, raise_on_error=False
    )
    assert result.success
    return result


def execute(
    setup: PipelineSetup,
    instance: dg.DagsterInstance,
    *stretch: str,
    sleep: Callable[[float], None] = time.sleep,
) -> list[dict[str, Any]]:
    """Runs the pipeline, and returns the metadata of all materializations so far, in order."""
    run_of(setup, instance, *stretch, sleep=sleep)
    events = instance.fetch_materializations(dg.AssetKey(["things"]), limit=100).records[::-1]
    return [
        {k: v.value for k, v in e.asset_materialization.metadata.items()}
        for e in events
        if e.asset_materialization is not None
    ]


def test_a_cron_grid(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Windows of twenty minutes are partitions of their own, with each message once."""
    topic = fill_topic(kafka)
    window = {"grid": "*/20 * * * *", "start": "2026-01-05T01:00:00Z", "delay": "1m"}
    setup = PipelineSetup(kafka, topic, tmp_path, {"window": window})
    shown = execute(setup, instance, "2026-01-05-01:00", "2026-01-05-03:40")
    assert len({m["window"] for m in shown}) == 9
    assert instance.get_materialized_partitions(dg.AssetKey(["things"])) >= {
        "2026-01-05-01:20",
        "2026-01-05-03:40",
    }
    report = verdict(setup, read_visible(kafka, topic))
    assert report.ok, report


def test_micro_batches(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A run commits all waiting messages in batches; a second run shows nothing more."""
    topic = fill_topic(kafka)
    setup = Batched(kafka, topic, tmp_path)
    shown = execute(setup, instance)
    assert [m["batch"] for m in shown] == [0, 1, 2]
    assert sum(m["messages_read"] for m in shown[:3]) == 300
    assert len(execute(setup, instance)) == len(shown)
    report = verdict(setup, read_visible(kafka, topic))
    assert report.ok, report


class Batched(PipelineSetup):
    """A setup whose pipeline has micro-batches of at most 120 messages."""

    def spec(self) -> PipelineSpec:
        """Returns the spec, with the overrides for its source."""
        return parse_spec(
            {
                "id": "things",
                "source": {
                    "bootstrap_servers": self.bootstrap,
                    "topic": self.topic,
                    **self.overrides.get("source", {}),
                },
                "window": {"grid": "batch", "max_records": 120},
                "decode": {"schema": "things.py:Thing"},
                "sink": {"path": str(self.folder / "things")},
                "state": f"sqlite:///{self.folder}/state.db",
            },
            HERE,
        )


def test_a_pattern_over_two_topics(
    kafka: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """All topics of a pattern are in the table, with each message once, and the run shows them."""
    prefix = f"p{uuid.uuid4().hex[:8]}"
    topics = [fill_topic(kafka, f"{prefix}.{n}") for n in ("one", "two")]
    source = {"topic": None, "topic_pattern": rf"{prefix}\..*"}
    setup = PipelineSetup(kafka, topics[0], tmp_path, {"source": source})
    shown = execute(setup, instance, "2026-01-05-01:00", "2026-01-05-03:00")
    assert {topic for m in shown for topic in ranges(m["offsets"])} == set(topics)
    report = verdict(
        setup,
        {tp: offsets for topic in topics for tp, offsets in read_visible(kafka, topic).items()},
    )
    assert report.ok, report


STARTS = {
    "earliest": ("earliest", (0, 0)),
    "latest": ("latest", (150, 150)),
    "timestamp": ({"timestamp": "2026-01-05T02:30:00Z"}, (75, 75)),
    "committed": ({"committed": "GROUP"}, (60, 70)),
    "offsets": ({"offsets": "partition:0,offset:61;partition:1,offset:71"}, (61, 71)),
}
"""Values of `source.start`, and the first offset of each partition."""


@pytest.mark.parametrize("kind", ["hourly", "batches"])
@pytest.mark.parametrize("name", STARTS)
def test_where_a_pipeline_begins(
    name: str, kind: str, kafka: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A pipeline begins exactly at the offsets of `source.start`, and reads everything
    after them.
    """
    topic, (start, begins) = fill_topic(kafka), STARTS[name]
    if name == "committed":
        start = {"committed": f"group-of-{topic}"}
        PipelineSetup(kafka, topic, tmp_path).pipeline().broker.alter_offsets(
            f"group-of-{topic}", dict(zip(tps(topic), begins, strict=True))
        )
    kinds = {"hourly": PipelineSetup, "batches": Batched}
    setup = kinds[kind](kafka, topic, tmp_path, {"source": {"start": start}, "window": FROM_TWO})
    hours = [("2026-01-05-02:00",) * 2, ("2026-01-05-03:00",) * 2] if kind == "hourly" else [(), ()]
    first = execute(setup, instance, *hours[0])
    produce(kafka, topic, [Put(VALUE, millis(3, 59), i % 2) for i in range(20)])
    shown = execute(setup, instance, *hours[1])
    assert first == shown[: len(first)]
    offsets_by_partition = ranges(shown[0]["offsets"])[topic]
    assert (offsets_by_partition["0"][0], offsets_by_partition["1"][0]) == begins
    assert sum({m["window"]: m["messages_read"] for m in shown}.values()) == 320 - sum(begins)
    expected = {
        tp: {o: message for o, message in message_by_offset.items() if o >= begins[tp.partition]}
        for tp, message_by_offset in read_visible(kafka, topic).items()
    }
    report = verdict(setup, expected)
    assert report.ok, report


def tps(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(2)]


def test_a_daily_grid(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A day is one partition with the date as key."""
    topic = fill_topic(kafka)
    setup = PipelineSetup(kafka, topic, tmp_path, {"window": {"grid": "daily"}})
    [day, empty] = execute(setup, instance, "2026-01-05", "2026-01-06")[:2]
    assert (day["messages_read"], empty["messages_read"]) == (300, 0)
    assert instance.get_materialized_partitions(dg.AssetKey(["things"])) == {
        "2026-01-05",
        "2026-01-06",
    }


def test_read_uncommitted(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Aborted messages are rows only if the spec reads at read_uncommitted."""
    topic = fill_topic(kafka)
    transaction(kafka, topic, [Put(VALUE, millis(3, 59)) for _ in range(7)], commit=False)
    window = {"grid": "daily"}
    for folder in ("strict", "loose"):
        (tmp_path / folder).mkdir()
    strict = PipelineSetup(kafka, topic, tmp_path / "strict", {"window": window})
    loose = PipelineSetup(
        kafka,
        topic,
        tmp_path / "loose",
        {"window": window, "source": {"isolation": "read_uncommitted"}},
    )
    shown = [execute(setup, instance, "2026-01-05", "2026-01-05")[-1] for setup in (strict, loose)]
    assert [(m["messages_read"], m["rows_written"], m.get("aborted", 0)) for m in shown] == [
        (300, 300, 7),
        (307, 307, 0),
    ]


def test_loss_that_is_skipped_warns(
    kafka: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A window that skipped lost messages is committed, and its check warns."""
    topic = fill_topic(kafka)
    setup = PipelineSetup(kafka, topic, tmp_path, {"source": {"on_loss": "skip"}})
    execute(setup, instance, "2026-01-05-00:00", "2026-01-05-00:00")
    delete_records(kafka, topic, 0, 30)
    result = run_of(setup, instance, "2026-01-05-01:00", "2026-01-05-01:00")
    [loss] = [e for e in result.get_asset_check_evaluations() if e.check_name == "loss"]
    assert (loss.passed, loss.severity, loss.metadata["skipped"].value) == (
        False,
        dg.AssetCheckSeverity.WARN,
        30,
    )
    assert f"{topic}[0]" in str(loss.metadata["lost"].value)


def test_an_open_transaction_is_waited_for(
    kafka: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Until max_wait is over, a run waits for an open transaction, and reads its messages."""
    topic = fill_topic(kafka)
    opened = OpenTransaction(kafka, topic)
    opened.send([Put(VALUE, millis(3, 59)) for _ in range(5)])
    waits: list[float] = []

    def commit_instead(seconds: float) -> None:
        waits.append(seconds)
        opened.commit()

    setup = PipelineSetup(kafka, topic, tmp_path, {"window": {"max_wait": "3650d"}})
    shown = execute(setup, instance, "2026-01-05-03:00", "2026-01-05-03:00", sleep=commit_instead)
    assert len(waits) == 1
    assert shown[-1]["messages_read"] == 105
    assert "warnings" not in shown[-1]


def test_an_open_transaction_is_not_waited_for_longer(
    kafka: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """After max_wait, a window ends at the stable offset, with a warning.

    The transaction's messages are late messages of the next window.
    """
    topic = fill_topic(kafka)
    opened = OpenTransaction(kafka, topic)
    opened.send([Put(VALUE, millis(3, 59)) for _ in range(5)])
    setup = PipelineSetup(kafka, topic, tmp_path)
    [window] = execute(setup, instance, "2026-01-05-03:00", "2026-01-05-03:00")
    opened.commit()
    shown = execute(setup, instance, "2026-01-05-04:00", "2026-01-05-04:00")
    assert (window["messages_read"], shown[-1]["messages_read"], shown[-1]["late"]) == (100, 5, 5)
    assert "transaction" in window["warnings"]
