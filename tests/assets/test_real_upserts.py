"""A table with a primary key, from real Kafka by Dagster."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.assets.world import LocalTasks
from tests.integration.customers import LEFT, customers, make_user
from windrow.assets.dagster_internals import range_tags
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY, job_name
from windrow.ingest.config.load import load_spec

pytestmark = pytest.mark.broker


def test_the_last_word_on_each_customer(
    kafka: str, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows in any order make the same table as the command.

    Each event shows the rows that its window added and removed.
    """
    make_user(kafka, tmp_path, "mode: upsert")
    monkeypatch.setenv("BROKER", kafka)
    spec = load_spec(tmp_path / "things.yaml")
    job = kafka_table(spec, {SPARK_KEY: LocalTasks()}).resolve_job_def(job_name(spec))
    for first, last in ((3, 3), (1, 2)):
        tags = range_tags(dg.PartitionKeyRange(f"2026-01-05-0{first}:00", f"2026-01-05-0{last}:00"))
        assert job.execute_in_process(instance=instance, tags=tags).success
    assert customers(tmp_path) == LEFT
    events = instance.fetch_materializations(dg.AssetKey(["things"]), limit=3).records
    metadata = {
        e.partition_key: e.asset_materialization.metadata
        for e in events
        if e.asset_materialization is not None
    }
    counts_by_partition = {
        key: [
            entries[name].value
            for name in ("rows_written", "deletes", "rows_added", "rows_removed")
        ]
        for key, entries in metadata.items()
    }
    assert counts_by_partition == {
        "2026-01-05-03:00": [2, 1, 2, 0],
        "2026-01-05-01:00": [4, 1, 2, 0],
        "2026-01-05-02:00": [2, 1, 1, 1],
    }
