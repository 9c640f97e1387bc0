"""The demo with real Kafka, real Spark and Dagster, its second run, and its UI."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.airflow.standalone import Standalone, until
from windrow.assets.demo.sinks import SINKS

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

PROJECT = Path(__file__).parents[2]
OURS = ("DAGSTER_HOME", "WINDROW_HOME", "WINDROW_BOOTSTRAP", "WINDROW_STATE", "ORDERS_START")
ENV = {name: value for name, value in os.environ.items() if name not in OURS}


COMMAND = "python -m windrow.assets.demo run"
"""The command behind `make demo`; a test in tests/shape compares the two."""
PROGRAM = COMMAND.split()[1:-1]
RUN = COMMAND.rsplit(maxsplit=1)[-1]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m windrow.assets.demo` without the demo's own environment variables."""
    return subprocess.run(
        [sys.executable, *PROGRAM, *arguments],
        cwd=PROJECT,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(home: Path) -> subprocess.CompletedProcess[str]:
    return demo(RUN, "--messages", "12000", "--home", str(home))


def table_versions(home: Path) -> list[int]:
    from deltalake import DeltaTable

    return [
        DeltaTable(str(home / ".windrow" / "demo" / "lake" / name)).version()
        for name in ("orders", "customers")
    ]


def test_first_run(first: subprocess.CompletedProcess[str]) -> None:
    """The first run commits 24 windows of about 500 rows each, and both checks find nothing wrong.

    No window collapses onto a transaction marker.
    """
    assert first.returncode == 0, first.stdout + first.stderr
    assert "12,000 orders are in the table exactly once" in first.stdout
    assert "Nothing lost, nothing twice" in first.stdout
    assert "Checked against their own fold: " in first.stdout
    rows = re.findall(r"^Window .*: committed, ([\d,]+) rows", first.stdout, re.MULTILINE)
    written = [int(number.replace(",", "")) for number in rows]
    assert len(written) == 24
    assert sum(written) == 12_000
    assert 450 < min(written) <= max(written) < 550


def test_second_run_writes_nothing(first: subprocess.CompletedProcess[str], home: Path) -> None:
    """The second run commits nothing, and the tables keep their versions."""
    assert first.returncode == 0
    versions_before = table_versions(home)
    rerun = demo(RUN, "--home", str(home))
    assert rerun.returncode == 0, rerun.stdout + rerun.stderr
    assert "Every window is committed already; nothing was written" in rerun.stdout
    assert table_versions(home) == versions_before


@pytest.mark.sampled(1, of=10)
def test_into_another_kind_of_sink(
    first: subprocess.CompletedProcess[str], home: Path, part: int, dice: random.Random
) -> None:
    """`make demo SINK=...` writes the same orders to another kind of sink, which the seed chooses.

    A reader other than windrow finds each order once.
    """
    assert first.returncode == 0
    done = demo(RUN, "--home", str(home), "--sink", dice.choice(sorted(SINKS)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12,000 orders are in the " in done.stdout
    assert "Nothing lost, nothing twice" in done.stdout


def test_ui_shows_the_history_and_stop_ends_it(
    first: subprocess.CompletedProcess[str], home: Path
) -> None:
    """The UI shows 24 green partitions and a window's metadata, without warnings.

    `stop` ends the UI and the broker.
    """
    assert first.returncode == 0
    command = [sys.executable, *PROGRAM, "ui", "--home", str(home)]
    loud = {
        "env": ENV | {"PYTHONUNBUFFERED": "1"},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    with subprocess.Popen(command, cwd=PROJECT, text=True, **loud) as ui:
        try:
            assert ui.stdout is not None
            lines, address = [], None
            for line in ui.stdout:
                lines.append(line)
                match = re.search(r"http://127\.0\.0\.1:\d+", line)
                if match:
                    address = match[0]
                    break
            assert address, lines
            # the server would block on a full pipe
            rest = threading.Thread(target=lines.extend, args=(ui.stdout,), daemon=True)
            rest.start()
            node = ask(address, ui)["assetNodeOrError"]
            assert node["partitionStats"]["numMaterialized"] == 24
            assert "orders" in node["assetKey"]["path"]
            labels = {e["label"] for e in node["assetMaterializations"][0]["metadataEntries"]}
            assert {
                "receipt",
                "offsets",
                "messages_read",
                "rows_written",
                "lag_records",
                "table_version",
            } <= labels
        finally:
            stopped = demo("stop", "--home", str(home))
        assert "Dagster's UI and the broker" in stopped.stdout
        ui.wait(60)
        rest.join(60)
        assert [line for line in lines if "warning" in line.lower()] == []
    assert "Nothing was running" in demo("stop", "--home", str(home)).stdout


def test_airflow_beside_it(first: subprocess.CompletedProcess[str], home: Path) -> None:
    """`make demo-airflow` runs the day's backfill, and no window is doubled.

    SIGTERM ends all processes that it started.
    """
    assert first.returncode == 0
    command = [sys.executable, "-m", "tests.airflow.demo", str(home)]
    popen_options = {"env": ENV, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    started: list[psutil.Process] = []
    with subprocess.Popen(command, cwd=PROJECT, text=True, **popen_options) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            port = next(match[1] for line in lines if (match := re.search(r"1:(\d+)/dags", line)))
            airflow = Standalone(home, int(port))

            def is_green() -> bool:
                runs = airflow.runs("orders").values()
                return sum(run["state"] == "success" for run in runs) >= 24

            until(is_green, "24 green windows", 600)
            started = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.terminate()
            process.wait(120)
    assert process.returncode == 0
    assert psutil.wait_procs(started, timeout=60)[1] == []
    checked = demo("check", "--home", str(home))
    assert "Nothing lost, nothing twice" in checked.stdout, checked.stdout


QUERY = """{ assetNodeOrError(assetKey: {path: ["orders"]}) { __typename ... on AssetNode {
    assetKey { path } partitionStats { numMaterialized }
    assetMaterializations(limit: 1) { metadataEntries { label } } } } }"""


def ask(address: str, server: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the answer to QUERY as soon as the server has loaded the definitions.

    The wait has no time limit; it fails if the server ends.
    """
    request = urllib.request.Request(
        f"{address}/graphql",
        json.dumps({"query": QUERY}).encode(),
        {"Content-Type": "application/json"},
    )
    pause = threading.Event()
    while server.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                data = json.load(response)["data"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            data = None
        if data and data["assetNodeOrError"]["__typename"] == "AssetNode":
            return dict(data)
        pause.wait(0.2)
    pytest.fail("the UI ended before it answered")
