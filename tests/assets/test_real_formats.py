"""Every format, from real Kafka to a real table by Dagster."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.assets.world import LocalTasks
from tests.integration.format_cases import CASES, make_user, rows
from tests.registry.server import RegistryServer
from windrow.assets.dagster_internals import range_tags
from windrow.assets.factory import kafka_table
from windrow.assets.names import SPARK_KEY, job_name
from windrow.ingest.config.load import load_spec

pytestmark = pytest.mark.broker


@pytest.mark.some(1)
@pytest.mark.parametrize("name", CASES)
def test_from_a_topic_to_a_table(
    name: str,
    kafka: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    schema_registry: RegistryServer,
) -> None:
    """The rows equal the command's, and each column's lineage names its part of the message."""
    case = CASES[name]
    make_user(case, kafka, tmp_path, schema_registry)
    monkeypatch.setenv("BROKER", kafka)
    spec = load_spec(tmp_path / "things.yaml")
    job = kafka_table(spec, {SPARK_KEY: LocalTasks()}).resolve_job_def(job_name(spec))
    assert job.execute_in_process(
        instance=instance,
        tags=range_tags(dg.PartitionKeyRange("2026-01-05-01:00", "2026-01-05-01:00")),
    ).success
    assert rows(tmp_path) == case.rows
    [event] = instance.fetch_materializations(dg.AssetKey(["things"]), limit=1).records
    assert event.asset_materialization is not None
    parts = event.asset_materialization.metadata["dagster/column_lineage"].value.deps_by_column
    fields = case.decode.get("key", {}).get("fields", ())
    expected = {
        column: "key" if column in fields else "headers" if column == "trace" else "value"
        for column in case.rows[0]
    }
    assert {column: dep.column_name for column in expected for dep in parts[column]} == expected
