"""All services of deploy/compose.yaml together, as processes on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from deltalake import DeltaTable

from tests.deploy.containers import Composition, until, up
from tests.integration.harness import millis
from tests.kafka.produce import Put, create_topic, produce
from tests.kafka.secure import PASSWORD, TLS, SecureBroker
from windrow.ingest.kafka.embedded.server import find_jars

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.long,
]

HOUR = "2026-01-05-01:00"
DATABASE_PASSWORD = "C4nary of the database's"  # of this test only

LAUNCH = """
mutation($of: ExecutionParams!) {
  launchPipelineExecution(executionParams: $of) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on InvalidSubsetError { message }
  }
}
"""
STATUS = "query($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"
SHOWN = """
{ assetOrError(assetKey: {path: ["orders"]}) { ... on Asset { assetMaterializations(limit: 10) {
  runId partition metadataEntries { label ... on JsonMetadataEntry { jsonString } ... on BoolMetadataEntry { boolValue } } } } } }
"""  # noqa: E501


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with TLS and a login, and an hour of orders."""
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as server:
        assert isinstance(server, SecureBroker)
        create_topic(server.bootstrap, partitions=2, name="shop.orders")
        orders = [
            json.dumps({"order_id": i + 1, "amount": "12.50", "note": None}).encode()
            for i in range(200)
        ]
        produce(
            server.bootstrap,
            "shop.orders",
            [Put(order, millis(1, i % 60), i % 2) for i, order in enumerate(orders)],
        )
        produce(server.bootstrap, "shop.orders", [Put(orders[i], millis(2), i) for i in range(2)])
        yield server


def test_a_window_goes_through_all_of_them(broker: SecureBroker, tmp_path: Path) -> None:
    """All services together commit a window once.

    1. All services start.
    2. The hour is materialized like in the UI. It is in the table, and its offsets are in
       PostgreSQL.
    3. It is materialized again. Nothing is written, and Dagster shows the first run's receipt.
    """
    secrets = {
        "postgres-password": DATABASE_PASSWORD.encode(),
        "kafka-password": PASSWORD.encode(),
        "kafka-ca": (TLS / "broker.pem").read_bytes(),
    }
    with up(tmp_path, broker.secure, secrets) as services:
        until(services.answers, "the webserver doesn't answer", services.all_live)
        first = materialize(services)
        table = services.volumes / "lake" / "orders"
        version = DeltaTable(str(table)).version()
        rows = pl.read_delta(str(table), use_pyarrow=True)
        assert sorted(rows["order_id"]) == list(range(1, 201))
        second = materialize(services)
        assert DeltaTable(str(table)).version() == version
        events = [
            (event["runId"], *offsets_shown_by(event))
            for event in services.ask(SHOWN)["assetOrError"]["assetMaterializations"]
        ]
        offsets = {"shop.orders": {"0": [0, 100], "1": [0, 100]}}
        assert events == [(second, offsets, True), (first, offsets, None)]
        assert stored_offsets(services, first) == offsets
        assert list((services.volumes / "logs").rglob(f"{first}/**/*.err")), (
            "what the run said is not where the webserver looks"
        )
        assert services.containers["daemon"].is_healthy()
        services.all_live()


def materialize(services: Composition) -> str:
    """Materializes the hour, asserts that the run succeeds, and returns its id."""
    where = {
        "repositoryLocationName": "pipelines",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
    }
    launch_options = {
        "mode": "default",
        "runConfigData": "{}",
        "selector": {**where, "assetSelection": [{"path": ["orders"]}]},
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": HOUR}]},
    }
    launched = services.ask(LAUNCH, of=launch_options)["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run = str(launched["run"]["runId"])
    states: list[str] = []

    def over() -> bool:
        states.append(services.ask(STATUS, run=run)["runOrError"]["status"])
        return states[-1] in {"SUCCESS", "FAILURE", "CANCELED"}

    until(over, "the run doesn't end", services.all_live)
    assert states[-1] == "SUCCESS", services.last_words()
    return run


def offsets_shown_by(materialization: Any) -> tuple[str, str, Any]:
    """Returns the offsets in the webserver's answer, and whether the window was recovered."""
    assert materialization["partition"] == HOUR
    entries = {entry["label"]: entry for entry in materialization["metadataEntries"]}
    return _ranges(json.loads(entries["receipt"]["jsonString"])), entries.get("recovered", {}).get(
        "boolValue"
    )


def _ranges(receipt: Any) -> Any:
    ranges: dict[str, dict[str, list[int]]] = {}
    for split in receipt["plan"]["splits"]:
        ranges.setdefault(split["topic"], {})[str(split["partition"])] = [
            split["start"],
            split["stop"],
        ]
    return ranges


def stored_offsets(services: Composition, run: str) -> Any:
    """Returns the offsets of a run's materialization from PostgreSQL, read over the network."""
    conninfo = (
        f"host={services.containers['postgres'].address} port=5432 user=windrow dbname=windrow"
    )
    query = (
        "SELECT event FROM event_logs WHERE run_id = %s AND partition = %s AND dagster_event_type ="
        " 'ASSET_MATERIALIZATION' AND asset_key = '[\"orders\"]'"
    )
    with psycopg.connect(conninfo, password=DATABASE_PASSWORD) as connection:
        [[event]] = connection.execute(query, (run, HOUR)).fetchall()
    entries = json.loads(event)["dagster_event"]["event_specific_data"]["materialization"][
        "metadata_entries"
    ]
    [receipt_entry] = [entry for entry in entries if entry["label"] == "receipt"]
    return _ranges(receipt_entry["entry_data"]["data"])
