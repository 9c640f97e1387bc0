"""Whole runs through Dagster on real Kafka and a real Delta table: a cron grid, micro-batches, a pattern over two topics."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.factory import kafka_table
from assets.names import job_name
from assets.partitions import Stretch
from assets.schedule import range_tags
from ingest.assemble import assemble
from ingest.testing.engine import LocalEngine
from tests.broker.produce import Put, create_topic, produce
from tests.integration.harness import Place, judge, millis, visible

pytestmark = pytest.mark.broker

VALUE = json.dumps({"id": 7, "name": None}).encode()


def filled(kafka: str, name: str | None = None) -> str:
    """A topic with 100 messages in each of three hours."""
    topic = create_topic(kafka, partitions=2, name=name)
    produce(kafka, topic, [Put(VALUE, millis(h, i * 60 // 100), i % 2) for h in range(1, 4) for i in range(100)])
    return topic


def execute(place: Place, instance: dg.DagsterInstance, *stretch: str) -> list[dict[str, Any]]:
    """One run; the metadata of each materialization, in order."""
    spec = place.spec()
    defs = kafka_table(spec, lambda spec, _: assemble(spec, LocalEngine()))
    tags = range_tags(Stretch(*stretch)) if stretch else {}
    result = defs.resolve_job_def(job_name(spec)).execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    assert result.success
    events = instance.fetch_materializations(dg.AssetKey(["things"]), limit=100).records[::-1]
    return [{k: v.value for k, v in e.asset_materialization.metadata.items()} for e in events if e.asset_materialization is not None]


def test_a_cron_grid(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Windows of twenty minutes become partitions of their own, none of their messages lost or twice."""
    topic = filled(kafka)
    window = {"grid": "*/20 * * * *", "start": "2026-01-05T01:00:00Z", "delay": "1m"}
    place = Place(kafka, topic, tmp_path, {"window": window})
    shown = execute(place, instance, "2026-01-05-01:00", "2026-01-05-03:40")
    assert len({m["window"] for m in shown}) == 9
    assert instance.get_materialized_partitions(dg.AssetKey(["things"])) >= {"2026-01-05-01:20", "2026-01-05-03:40"}
    report = judge(place, visible(kafka, topic))
    assert report.ok, report


def test_micro_batches(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """All that waits is committed in batches; a second run, with nothing waiting, shows nothing more."""
    topic = filled(kafka)
    place = Batched(kafka, topic, tmp_path)
    shown = execute(place, instance)
    assert [m["batch"] for m in shown] == [0, 1, 2, 2]
    assert sum(m["messages_read"] for m in shown[:3]) == 300
    assert len(execute(place, instance)) == len(shown)
    report = judge(place, visible(kafka, topic))
    assert report.ok, report


class Batched(Place):
    """A place whose pipeline has micro-batches of at most 120 messages."""

    def spec(self) -> Any:
        """The spec without what only windows in time have."""
        from ingest.spec import parse_spec
        from tests.integration.harness import HERE

        usual = Place(self.bootstrap, self.topic, self.folder).spec()
        return parse_spec(
            {
                "id": "things",
                "source": {"bootstrap_servers": self.bootstrap, "topic": self.topic},
                "window": {"grid": "batch", "max_records": 120},
                "decode": {"schema": "things.py:Thing"},
                "sink": {"path": usual.sink.path},
                "state": usual.state,
            },
            HERE,
        )


def test_a_pattern_over_two_topics(kafka: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A pattern's topics all come into the table, each message once; the run shows both."""
    prefix = f"p{uuid.uuid4().hex[:8]}"
    topics = [filled(kafka, f"{prefix}.{n}") for n in ("one", "two")]
    source = {"topic": None, "topic_pattern": rf"{prefix}\..*"}
    place = Place(kafka, topics[0], tmp_path, {"source": source})
    shown = execute(place, instance, "2026-01-05-01:00", "2026-01-05-03:00")
    assert {topic for m in shown for topic in m["offset_ranges"]} == set(topics)
    report = judge(place, {tp: offsets for topic in topics for tp, offsets in visible(kafka, topic).items()})
    assert report.ok, report
