"""Ctrl-C: one sentence, exit code 130, nothing half visible, no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Stage, hour
from windrow.ingest.cli.output import INTERRUPTED
from windrow.ingest.testing.engine import LocalEngine

ROOT = Path(__file__).parents[2]
LIMIT = 240.0
"""Seconds in which Spark has started, or the process has ended: far more than either takes."""

RUN = """
import sys
from pathlib import Path
import typer
from windrow.ingest.cli.output import command_output
from windrow.ingest.runner.spark.cluster import spark_context
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.model.plan import Split
from tests.runner.spark.tasks import WaitsForEver

try:
    with command_output(json=False, debug=False):
        splits = [Split("t", p, 0, 1) for p in range(2)]
        list(SparkEngine(spark_context).run(WaitsForEver(Path(sys.argv[1])), splits))
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


@pytest.mark.parametrize("second", [False, True])
def test_an_interrupted_run_ends_in_one_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    """The windows before stay, nothing of the one that was going on is visible; a
    second Ctrl-C changes nothing.
    """
    run = LocalEngine.run

    def interrupted(engine: LocalEngine, *arguments: Any) -> Any:
        staged = list(run(engine, *arguments))
        os.kill(os.getpid(), signal.SIGINT)
        if second:
            os.kill(os.getpid(), signal.SIGINT)
        return iter(staged)

    before = signal.getsignal(signal.SIGINT)
    stage.json("run", stage.spec, "--window", hour(0))
    monkeypatch.setattr(LocalEngine, "run", interrupted)
    try:
        result = stage.call("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}", "--json")
    finally:
        signal.signal(signal.SIGINT, before)  # the process would have ended
    assert result.exit_code == INTERRUPTED == 130
    assert "Interrupted. " in result.stderr
    assert "Traceback" not in result.output
    document = json.loads(result.stdout)
    assert (document["error"]["kind"], document["error"]["exit_code"]) == ("Interrupted", 130)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in document["windows"]] == [
        hour(0)
    ]


def test_the_next_run_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt right before the commit the window isn't there; the same
    command commits it, and verify finds nothing wrong.
    """

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr("windrow.ingest.runner.run_windows.refuse_too_many_dead", interrupt)
        try:
            assert stage.call("run", stage.spec, "--window", hour(0)).exit_code == 130
        finally:
            signal.signal(signal.SIGINT, before)
    assert stage.json("show", stage.spec)["windows"] == []
    assert [
        w["recovered"] for w in stage.json("run", stage.spec, "--window", hour(0))["windows"]
    ] == [False]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_after_a_command_interrupts_are_as_before(stage: Stage) -> None:
    """Who runs a command in a process of their own has their handler back."""
    before = signal.getsignal(signal.SIGINT)
    stage.json("show", stage.spec)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.long
@pytest.mark.spark
def test_spark_goes_with_it(tmp_path: Path) -> None:
    """Ctrl-C in a terminal, which every process of the group gets: no trace of Spark's
    or Python's, and JVM and workers are gone.
    """
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        children: list[psutil.Process] = []
        try:
            deadline = time.monotonic() + LIMIT
            while not list(tmp_path.iterdir()):
                assert process.poll() is None, process.communicate(timeout=60)
                assert time.monotonic() < deadline, "no task has begun"
                time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            said = "".join(process.communicate(timeout=LIMIT))
            gone, alive = psutil.wait_procs(children, timeout=60)
        finally:
            for left in (
                [*children, psutil.Process(process.pid)] if process.poll() is None else children
            ):
                if left.is_running():
                    left.kill()
    assert process.returncode == 130, said
    assert "Interrupted. " in said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert len(gone) > 1  # the JVM and its workers
    assert alive == []
