"""A real Airflow on PostgreSQL, with the real `windrow`, Kafka and Spark."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.airflow.standalone import Standalone, standalone, until
from tests.airflow.world import SECRET, STUB, commit_reply, pipeline
from tests.kafka.produce import OpenTransaction, Put, create_topic, produce
from windrow import load_spec, open_pipeline, read_receipts
from windrow.ingest.model.boundary import instant

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(1500)]

START = datetime(2026, 1, 5, tzinfo=UTC)
HERE = Path(__file__).parent
WINDROW = str(Path(sys.executable).parent / "windrow")
SPEC = """\
type: windrow.dagster.KafkaTable
attributes:
  id: things
  source: {bootstrap_servers: "{{ env('KAFKA_BOOTSTRAP_SERVERS') }}", topic: TOPIC}
  window: {grid: hourly, start: 2026-01-05T00:00:00Z, delay: 1m, max_wait: 3650d}
  decode: {schema: "things.py:Thing"}
  sink: {kind: delta, path: ./things}
"""
DAGS = """\
from datetime import datetime, timezone

from airflow.sdk import (
    DAG, Asset, DayWindow, PartitionedAssetTimetable, RollupMapper, StartOfDayMapper, task
)
from windrow_airflow import WindrowRunOperator, dags_from

KEY = "%Y-%m-%dT%H:%M:%SZ"
globals().update(dags_from(
    "{pipelines}/real", command="{windrow}", options=["--connect", "{server}"],
    kafka_conn_id="kafka_prod", max_active_runs=2,
    end_date=datetime(2026, 1, 7, tzinfo=timezone.utc),
))
day = RollupMapper(upstream_mapper=StartOfDayMapper(input_format=KEY), window=DayWindow())
with DAG(
    "daily",
    schedule=PartitionedAssetTimetable(assets=Asset("things"), default_partition_mapper=day),
):
    task(lambda: None, task_id="sum")()

with DAG("leaky", schedule=None):
    WindrowRunOperator(
        task_id="run", spec="{pipelines}/leaky/defs.yaml", window="2026-01-05T00:00:00Z",
        command=["{python}", "{stub}"], kafka_conn_id="kafka_prod",
    )
"""


def key(n: int) -> str:
    """Returns the partition key of the n-th hour."""
    return instant(START + timedelta(hours=n))


def running_processes_of(spec: Path, run_id: str = "") -> list[psutil.Process]:
    """Returns the running `windrow run` processes of a pipeline."""
    processes = []
    for process in psutil.process_iter(["cmdline", "create_time"]):
        words = process.info["cmdline"] or []
        if str(spec) in words and "run" in words and run_id in " ".join(words):
            processes.append(process)
    return processes


@pytest.fixture
def airflow_pipeline(
    tmp_path: Path, kafka: str, spark_server: str
) -> tuple[Path, Path, OpenTransaction]:
    """A pipeline with a day of messages, and an open transaction in the last hour."""
    topic = create_topic(kafka, 2)
    puts = [
        Put(b'{"id": %d, "name": "x"}' % n, int((START.timestamp() + n * 60) * 1000), n % 2)
        for n in range(24 * 60 + 10)
    ]
    produce(kafka, topic, puts[:-10])
    open_transaction = OpenTransaction(kafka, topic)
    open_transaction.send([puts[-11]])
    produce(kafka, topic, puts[-10:])
    home = tmp_path / "airflow"
    spec = home / "pipelines" / "real" / "defs.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC.replace("TOPIC", topic))
    shutil.copy(HERE.parent / "integration" / "things.py", spec.parent)
    log_lines = ["Reading", "the password is {KAFKA_SASL_PASSWORD}"]
    pipeline(home, "leaky", {**commit_reply(key(0)), "says": log_lines})
    words = {
        "pipelines": home / "pipelines",
        "windrow": WINDROW,
        "server": spark_server,
        "python": sys.executable,
        "stub": STUB,
    }
    text = DAGS
    for name, value in words.items():
        text = text.replace("{" + name + "}", str(value))
    (home / "dags").mkdir()
    (home / "dags" / "file.py").write_text(text)
    return home, spec, open_transaction


MINUTE_DAGS = """\
from windrow_airflow import dags_from

globals().update(dags_from(
    "{pipelines}",
    command="{windrow}", options=["--connect", "{server}"], kafka_conn_id="kafka_prod",
))
"""


def test_a_delay_beyond_the_grid_leaves_out_no_window(
    tmp_path: Path,
    database: str,
    kafka: str,
    spark_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a delay longer than the grid, the scheduler's ticks commit each window after its end.

    The grid has windows of a minute, and the delay is two and a half. Each window has an event
    under its key. The refused window's run fails, and no later tick reads it again.
    """
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=8)
    names = [instant(start + timedelta(minutes=n)) for n in range(20)]
    topic, home = create_topic(kafka, 1), tmp_path / "airflow"
    first = int(start.timestamp() * 1000)
    puts = [Put(b'{"id": 1, "name": "x"}', first + n * 30_000) for n in range(16)]
    puts[7:7] = [Put(b"poison", first + 3 * 60_000 + n) for n in range(9)]
    produce(kafka, topic, puts)
    spec = home / "pipelines" / "real" / "defs.yaml"
    spec.parent.mkdir(parents=True)
    window = f"{{grid: '* * * * *', start: {names[0]}, delay: 150s, max_wait: 0s}}"
    lines = SPEC.replace("TOPIC", topic).splitlines()
    spec.write_text(
        "\n".join(f"  window: {window}" if "window:" in line else line for line in lines)
    )
    shutil.copy(HERE.parent / "integration" / "things.py", spec.parent)
    (home / "dags").mkdir()
    text = MINUTE_DAGS.replace("{pipelines}", str(home / "pipelines"))
    text = text.replace("{windrow}", WINDROW).replace("{server}", spark_server)
    (home / "dags" / "file.py").write_text(text)
    connection = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": kafka}})
    with standalone(home, database, AIRFLOW_CONN_KAFKA_PROD=connection) as airflow:
        # A tick that skips a window shows only after two more ticks, so three runs are needed.
        until(lambda: list(states(airflow).values()).count("success") >= 3, "three green runs", 900)
        ran = states(airflow)
        events = airflow.call("GET", "assets/events?limit=100&source_dag_id=things")
    event_keys = {event["partition_key"] for event in events["asset_events"]}
    windows = committed_windows(spec, kafka, monkeypatch, empty=True)
    last = max(name for name, state in ran.items() if state == "success")
    due = {name for name in names if name <= last}
    assert due - {*windows} == {names[3]}
    assert due - event_keys == {names[3]}
    assert {generation for _, generation in windows.values()} == {0}
    assert "failed" in ran.values(), "the run that found the refused window"
    logs_with_payload = [
        path for path in (home / "logs").rglob("*.log") if "poison" in path.read_text()
    ]
    assert logs_with_payload == [], "no payload in a log"


def states(airflow: Standalone, dag: str = "things") -> dict[str, str]:
    """Returns the states of a DAG's runs, by partition key."""
    return {name: run["state"] for name, run in airflow.runs(dag).items()}


def test_a_backfill_is_exactly_once(
    airflow_pipeline: tuple[Path, Path, OpenTransaction],
    database: str,
    kafka: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backfill of 24 partitions commits each window once, although a task is killed.

    One run is cancelled, too. Each window has one event, and a downstream DAG runs once for the
    day. No log has the password.
    """
    home, spec, open_transaction = airflow_pipeline
    extra = {"bootstrap.servers": kafka, "sasl.password": SECRET}
    connection = json.dumps({"conn_type": "kafka", "extra": extra})
    with standalone(home, database, AIRFLOW_CONN_KAFKA_PROD=connection) as airflow:
        until(lambda: airflow.call("GET", "dags?limit=10")["total_entries"] == 3, "the DAGs")
        airflow.call("POST", "dags/leaky/dagRuns", {"logical_date": None})
        body = {
            "dag_id": "things",
            "from_date": START.isoformat(),
            "to_date": (START + timedelta(hours=23)).isoformat(),
            "max_active_runs": 2,
        }
        airflow.call("POST", "backfills", body)

        until(lambda: "success" in states(airflow).values(), "the first window")
        [killed, *_] = until(lambda: running_processes_of(spec), "a process to kill")
        killed.kill()

        # the last window waits for the open transaction; its run is cancelled meanwhile
        until(lambda: list(states(airflow).values()).count("success") == 23, "23 windows", 900)
        run_id = airflow.runs("things")[key(23)]["dag_run_id"]
        until(lambda: running_processes_of(spec, run_id), "the last window's process")
        airflow.call("PATCH", f"dags/things/dagRuns/{run_id}", {"state": "failed"})
        until(lambda: not running_processes_of(spec, run_id), "its end", 120)
        assert len(committed_windows(spec, kafka, monkeypatch)) == 23
        open_transaction.commit()
        airflow.call("POST", f"dags/things/dagRuns/{run_id}/clear", {"dry_run": False})
        until(lambda: [*states(airflow).values()] == ["success"] * 24, "all windows")

        events = airflow.call("GET", "assets/events?limit=100&source_dag_id=things")
        extra_by_key = {event["partition_key"]: event["extra"] for event in events["asset_events"]}
        assert sorted(extra_by_key) == [key(n) for n in range(24)]
        until(lambda: airflow.runs("daily"), "the day's run")
        assert [*airflow.runs("daily")] == ["2026-01-05"]
        until(lambda: [*states(airflow, "leaky").values()] == ["success"], "the other DAG")
    windows = committed_windows(spec, kafka, monkeypatch)
    assert {name: rows for name, (rows, _) in windows.items()} == {
        key(n): 60 + (n == 23) for n in range(24)
    }
    assert {generation for _, generation in windows.values()} == {0}
    assert {name: extra["rows"] for name, extra in extra_by_key.items()} == {
        name: rows for name, (rows, _) in windows.items()
    }
    logs = [*home.rglob("*.log"), home / "log"]
    assert any("the password is ***" in path.read_text(errors="replace") for path in logs)
    assert [str(path) for path in logs if SECRET in path.read_text(errors="replace")] == []


def committed_windows(
    spec: Path, kafka: str, monkeypatch: pytest.MonkeyPatch, *, empty: bool = False
) -> dict[str, tuple[int, int]]:
    """Returns the number of rows in the table and the receipt's generation, by window."""
    from deltalake import DeltaTable

    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka)
    table = DeltaTable(spec.parent / "things").to_pyarrow_table(columns=["_window"])
    rows = Counter(table["_window"].to_pylist())
    receipts = [commit.receipt for commit in read_receipts(open_pipeline(load_spec(spec)))]
    assert empty or set(rows) == {receipt.window.key for receipt in receipts}
    return {
        receipt.window.key: (rows[receipt.window.key], receipt.generation) for receipt in receipts
    }
