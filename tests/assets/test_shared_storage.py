"""Dagster's storage on PostgreSQL, as in docs/operations.md, shared by several machines."""

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
from tests.integration.harness import (
    PipelineSetup,
    read_visible,
    verdict,
    wait_until_stopped,
    wake_to_the_end,
)

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
    """The environment variables of every machine, set in this process, too.

    The URL names psycopg2 like the docs page does. Without it, SQLAlchemy 2.1 uses psycopg 3.
    Then dagster-postgres 0.29.27 sends `NOTIFY run_events, $1` with a placeholder that the
    server refuses.
    """
    url = database.replace("postgresql://", "postgresql+psycopg2://", 1)
    monkeypatch.setenv("DAGSTER_DATABASE", url)
    return {"DAGSTER_DATABASE": url}


def home(folder: Path, name: str) -> Path:
    """Makes the DAGSTER_HOME of a machine, with the dagster.yaml of the containers."""
    machine_home = folder / name
    machine_home.mkdir()
    shutil.copy(SETTINGS, machine_home)
    return machine_home


@contextmanager
def webserver(dagster_home: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Yields the port of a webserver on a machine of its own, when it answers.

    It has no code of windrow and starts no runs.
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
    """Returns whether a server answers at the port."""
    try:
        return ask(port, "GET", "/server_info") is not None
    except OSError:
        return False


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    """Sends one request to a webserver, and returns the JSON document of the answer."""
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
    """The storage in docs/operations.md is the same as in deploy/dagster.yaml."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (text,) = [block for block in blocks if "DAGSTER_DATABASE" in block]
    assert yaml.safe_load(text) == {"storage": yaml.safe_load(SETTINGS.read_text())["storage"]}


@pytest.mark.long
def test_two_machines_on_one_history(
    kafka: str, tmp_path: Path, env: Mapping[str, str], postgres_url: str
) -> None:
    """Two runs of one backfill on two machines, which share an hour, commit each hour once.

    1. Both runs stop before their first commits.
    2. Both go on and succeed.

    A webserver of a third machine shows both runs and their materializations.
    """
    setup = PipelineSetup(kafka, five_hours(kafka), tmp_path, {"state": postgres_url})
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
    report = verdict(setup, read_visible(kafka, setup.topic))
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
