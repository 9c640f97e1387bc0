"""A whole Airflow on PostgreSQL: scheduler, triggerer, API and the other parts."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.airflow.world import PLACE, environment, install
from tests.processes import group


def until(condition: Callable[[], Any], awaited: str, seconds: float = 300) -> Any:
    """Calls a condition until it isn't false, within a limit, and returns its value."""
    end = time.monotonic() + seconds
    while not (outcome := condition()):
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {awaited}"
        time.sleep(0.2)
    return outcome


class Standalone:
    """The API of an Airflow."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        self._token = ""

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Calls the API, and returns its answer."""
        if not self._token:
            with urllib.request.urlopen(f"{self.url}/auth/token", timeout=30) as token_response:
                self._token = json.load(token_response)["access_token"]
        request = urllib.request.Request(
            f"{self.url}/api/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def runs(self, dag: str) -> dict[str, dict[str, Any]]:
        """Returns a DAG's runs by partition key."""
        dag_runs = self.call("GET", f"dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return {run["partition_key"]: run for run in dag_runs}

    def is_backfilled(self, dag: str) -> bool:
        """Returns whether the DAG's backfills are over."""
        backfills = self.call("GET", f"backfills?dag_id={dag}")["backfills"]
        return all(backfill["completed_at"] for backfill in backfills)

    def is_up(self) -> bool:
        """Returns whether all parts report that they are healthy."""
        with suppress(OSError, ValueError):
            path = f"{self.url}/api/v2/monitor/health"
            with urllib.request.urlopen(path, timeout=10) as response:
                return {"healthy"} == {part["status"] for part in json.load(response).values()}
        return False


@contextmanager
def standalone(home: Path, database: str, **more: str) -> Iterator[Standalone]:
    """Yields an Airflow when it is up, with the DAGs in `home/dags`."""
    install()
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = environment(
        home,
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=database.replace(
            "postgresql", "postgresql+psycopg2", 1
        ),
        AIRFLOW__API__PORT=str(port),
        AIRFLOW__API__HOST="127.0.0.1",
        AIRFLOW__API__WORKERS="1",
        # without this setting, tasks look for the API at its usual port
        AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"http://127.0.0.1:{port}/execution/",
        AIRFLOW__CORE__PARALLELISM="2",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
        AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="False",
        **more,
    )
    program = PLACE / "bin" / "airflow"
    env["PATH"] = f"{PLACE / 'bin'}:{env['PATH']}"
    with group([program, "standalone"], env, home / "log"):
        airflow = Standalone(home, port)
        until(airflow.is_up, "Airflow", 600)
        yield airflow
