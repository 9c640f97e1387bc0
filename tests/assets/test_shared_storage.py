"""Dagster's storage on PostgreSQL, as docs/operations.md sets it up: runs of several
machines on one history.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from tests.assets.processes import dagster_run, five_hours, make_dagsters_tables, receipts_shown
from tests.integration.harness import Place, verdict, visible, wait_until_stopped, wake_to_the_end

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
SETTINGS = ROOT / "deploy" / "dagster.yaml"
BACKFILL = {"dagster/backfill": "lastweek"}

SHOWN = """
query($tags: [ExecutionTag!]) {
  runsOrError(filter: {tags: $tags}) { ... on Runs { results { runId status } } }
  assetOrError(assetKey: {path: ["things"]}) {
    ... on Asset { assetMaterializations(limit: 100) { runId partition } }
  }
}
"""


@pytest.fixture
def env(database: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """What every machine has in its environment, this one too.

    The URL names the driver, as the page does. Without it SQLAlchemy 2.1 takes psycopg
    3, by which dagster-postgres 0.29.27 sends `NOTIFY run_events, $1` with a
    placeholder that the server refuses.
    """
    url = database.replace("postgresql://", "postgresql+psycopg2://", 1)
    monkeypatch.setenv("DAGSTER_DATABASE", url)
    return {"DAGSTER_DATABASE": url}


def home(folder: Path, name: str) -> Path:
    """The DAGSTER_HOME of a machine, with the dagster.yaml that the containers have."""
    machine_home = folder / name
    machine_home.mkdir()
    shutil.copy(SETTINGS, machine_home)
    return machine_home


@contextmanager
def webserver(dagster_home: Path, env: Mapping[str, str]) -> Iterator[int]:
    """The port of a webserver of a machine of its own, which has no code of ours and
    starts no run; it answers by then.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    where = ["--empty-workspace", "--read-only", "-h", "127.0.0.1", "-p", str(port)]
    command = [str(Path(sys.executable).parent / "dagster-webserver"), *where]
    process = subprocess.Popen(
        command, env={**os.environ, **env, "DAGSTER_HOME": str(dagster_home)}, cwd=dagster_home
    )
    try:
        deadline = time.monotonic() + 240
        while not answers(port):
            assert process.poll() is None, "the webserver ended"
            assert time.monotonic() < deadline, "the webserver didn't answer"
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


def answers(port: int) -> bool:
    """Returns whether somebody answers at the port."""
    try:
        return ask(port, "GET", "/server_info") is not None
    except OSError:
        return False


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    """One request to a webserver, and the document that it answers with."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json"},
        )
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_the_page_says_the_same() -> None:
    """The storage that docs/operations.md tells people to set up is that of
    deploy/dagster.yaml, on which these tests run.
    """
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (text,) = [block for block in blocks if "DAGSTER_DATABASE" in block]
    assert yaml.safe_load(text) == {"storage": yaml.safe_load(SETTINGS.read_text())["storage"]}


@pytest.mark.long
def test_two_machines_on_one_history(
    kafka: str, tmp_path: Path, env: Mapping[str, str], postgres_url: str
) -> None:
    """Two runs of one backfill, with homes of their own, stop side by side before their
    first commits; they share the third hour.

    Both succeed, the table has each hour once, and a webserver of a third home shows
    both runs and all that they materialized.
    """
    setup = Place(kafka, five_hours(kafka), tmp_path, {"state": postgres_url})
    reader_home, first_home, second_home = (
        home(tmp_path, name) for name in ("here", "one", "other")
    )
    make_dagsters_tables(reader_home)
    runs = [
        dagster_run(
            setup,
            machine_home,
            first,
            last,
            "commit.before:stop",
            tags=BACKFILL,
            env={**env, "HOME": str(machine_home)},
        )
        for machine_home, first, last in ((first_home, 1, 3), (second_home, 3, 5))
    ]
    for run in runs:
        wait_until_stopped(run)
    with dg.DagsterInstance.from_config(str(reader_home)) as instance:
        started = instance.get_runs(dg.RunsFilter(tags=BACKFILL))
        assert [run.status for run in started] == [dg.DagsterRunStatus.STARTED] * 2
    wake_to_the_end(runs, 240)
    report = verdict(setup, visible(kafka, setup.topic))
    assert report.ok, report
    receipts = [c.receipt for c in setup.pipeline().sink.receipts()]
    assert [r.generation for r in receipts] == [0] * 5
    shown = {n: receipts_shown(setup, reader_home, n) for n in range(1, 6)}
    assert {
        n: sorted(recovered for _, recovered in shown_receipts)
        for n, shown_receipts in shown.items()
    } == {
        1: [False],
        2: [False],
        3: [False, True],
        4: [False],
        5: [False],
    }
    assert len({attempt for attempt, _ in shown[3]}) == 1
    with webserver(home(tmp_path, "web"), env) as port:
        query = {
            "query": SHOWN,
            "variables": {
                "tags": [{"key": key, "value": value} for key, value in BACKFILL.items()]
            },
        }
        data = ask(port, "POST", "/graphql", query)["data"]
    assert {r["runId"]: r["status"] for r in data["runsOrError"]["results"]} == {
        run.run_id: "SUCCESS" for run in started
    }
    hours: dict[str, list[str]] = {run.run_id: [] for run in started}
    for event in data["assetOrError"]["assetMaterializations"]:
        hours[event["runId"]].append(event["partition"])
    assert sorted(map(sorted, hours.values())) == [
        [f"2026-01-05-0{n}:00" for n in run_hours] for run_hours in ((1, 2, 3), (3, 4, 5))
    ]
