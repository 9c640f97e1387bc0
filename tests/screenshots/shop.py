"""A Dagster with a history for pictures: a webserver and its daemon on loopback.

After `history.py`, a schedule starts a run that takes a while, and skips ticks while its
pipeline is paused. A sensor waits for complete hours, and the customers are read last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from dotenv import dotenv_values

from tests.airflow.standalone import until
from tests.processes import group
from tests.screenshots.history import FIRST, billing_key
from windrow.assets.demo.place import OURS, PROJECT, DemoHome
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars, free_port
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.ledger_records import Pause

LOCATION = "shop"
_SECONDS = 900
_PATIENT = ("", "SENSOR_", "SCHEDULE_")
"""Kinds of processes from which Dagster expects an answer within a minute by default, too short
for a busy machine.
"""
_LAUNCH = """mutation($job: String!) { launchRun(executionParams: {selector: {jobName: $job,
  repositoryName: "__repository__", repositoryLocationName: "shop"}, runConfigData: {}}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_RUNS = """query($filter: RunsFilter!) { runsOrError(filter: $filter) {
  ... on Runs { results { runId } } } }"""
_SENSOR = """mutation($name: String!) { startSensor(sensorSelector: {sensorName: $name,
  repositoryName: "__repository__", repositoryLocationName: "shop"}) { __typename } }"""
_SCHEDULE = """mutation($name: String!) { startSchedule(scheduleSelector: {scheduleName: $name,
  repositoryName: "__repository__", repositoryLocationName: "shop"}) { __typename } }"""
_TICKS = """query($name: String!) { instigationStateOrError(instigationSelector: {name: $name,
  repositoryName: "__repository__", repositoryLocationName: "shop"}) {
    ... on InstigationState { ticks { skipReason } } } }"""


class Dagster:
    """The GraphQL API of a webserver.

    Attributes:
        url: the webserver's address.
        places: values for the paths of pages.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.places: dict[str, str] = {}

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Returns the answer to a query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            reply = json.load(response)
        assert "errors" not in reply, reply["errors"]
        data: dict[str, Any] = reply["data"]
        return data

    def is_up(self) -> bool:
        """Returns whether the webserver answers, and has loaded the definitions."""
        with suppress(OSError):
            reply = self.ask("{ assetNodes { id } }")
            return bool(reply["assetNodes"])
        return False

    def run(self, job: str) -> None:
        """Runs a job, and waits for its end."""
        begun = self.ask(_LAUNCH, job=job)["launchRun"]
        assert begun["__typename"] == "LaunchRunSuccess", begun
        until(self.is_idle, f"the run of {job}", _SECONDS)

    def is_idle(self) -> bool:
        """Returns whether no run is going on or queued."""
        going = ["QUEUED", "NOT_STARTED", "MANAGED", "STARTING", "STARTED", "CANCELING"]
        return not self.ask(_RUNS, filter={"statuses": going})["runsOrError"]["results"]

    def first(self, job: str) -> str:
        """Returns the id of a job's first successful run."""
        runs_filter = {"pipelineName": job, "statuses": ["SUCCESS"]}
        runs = self.ask(_RUNS, filter=runs_filter)["runsOrError"]["results"]
        assert runs, f"No run of {job} has succeeded"
        return str(runs[-1]["runId"])

    def skips(self, name: str, reason: str) -> None:
        """Waits until a sensor or schedule skips a tick for this reason."""

        def has_skipped() -> bool:
            ticks = self.ask(_TICKS, name=name)["instigationStateOrError"]["ticks"]
            return any(reason in (tick["skipReason"] or "") for tick in ticks)

        until(has_skipped, f"a tick of {name} that says {reason}", _SECONDS)


@contextmanager
def history(folder: Path) -> Iterator[DemoHome]:
    """Runs the broker of a folder, makes the history in it, and yields its home."""
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    home = DemoHome(folder)
    with EmbeddedBroker(home.kafka, find_jars()):
        words = [sys.executable, "-m", "tests.screenshots.history", folder]
        subprocess.run(words, cwd=PROJECT, env=env, check=True, timeout=_SECONDS)
        yield home


@contextmanager
def shop(home: DemoHome) -> Iterator[Dagster]:
    """Runs Dagster over a history, and continues the history in it."""
    with _serve(home) as dagster:
        dagster.run("customers_topics")
        dagster.ask(_SCHEDULE, name="fraud_scores_waiting")
        until(lambda: not dagster.is_idle(), "its run", _SECONDS)
        # at the same time: two Sparks that start at once take so long that the log reports it
        dagster.run("customers_batches")
        scored = dagster.first("fraud_scores_batches")
        reason = "the service of scores is moved"
        pause = Pause(0, True, "ann", reason, datetime.now(UTC).replace(microsecond=0))
        open_ledger(f"{home.demo}/state.db").put_pause("fraud_scores", pause)
        dagster.ask(_SENSOR, name="billing_complete")
        dagster.run("customers_topics")
        dagster.skips("billing_complete", "No window has become complete")
        dagster.skips("fraud_scores_waiting", "is paused")
        until(dagster.is_idle, "the end of all runs", _SECONDS)
        dagster.run("customers_topics")
        refused_key, lossy_key = (quote(billing_key(home, n)) for n in (FIRST, FIRST + 1))
        dagster.places = {"scored": scored, "refused": refused_key, "lost": lossy_key}
        yield dagster


@contextmanager
def _serve(home: DemoHome) -> Iterator[Dagster]:
    """Runs `dagster dev` over the demo's history."""
    ours = {name: value or "" for name, value in dotenv_values(home.env_file).items()}
    patient = {f"DAGSTER_{process_name}GRPC_TIMEOUT_SECONDS": "600" for process_name in _PATIENT}
    module = {"module_name": "tests.screenshots.definitions", "location_name": LOCATION}
    module["working_directory"] = str(PROJECT)
    workspace = home.demo.parent / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    port = free_port()
    words = f"-m dagster dev -w {workspace} -h 127.0.0.1 -p {port}".split()
    env = {**os.environ, **ours, **patient}
    with group([sys.executable, *words], env, home.demo.parent / "dagster.log"):
        dagster = Dagster(f"http://127.0.0.1:{port}")
        until(dagster.is_up, "Dagster", _SECONDS)
        yield dagster
