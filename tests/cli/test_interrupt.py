"""Ctrl-C and SIGTERM: one sentence, exit code 130, no visible rows, no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Stage, hour
from windrow.ingest.cli.output import INTERRUPTED, Interrupted
from windrow.ingest.testing.engine import LocalEngine

ROOT = Path(__file__).parents[2]
SIGNS = [signal.SIGINT, signal.SIGTERM]
LIMIT = 240.0
"""Limit in seconds for Spark to start or the process to end; both need far less."""

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


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores the signal handlers after the test.

    An interrupted command leaves signals ignored, because its process would have ended.
    """
    previous_handlers = {sign: signal.getsignal(sign) for sign in SIGNS}
    yield
    for sign, handler in previous_handlers.items():
        signal.signal(sign, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("signs", [[sign] for sign in SIGNS] + [SIGNS])
def test_an_interrupted_run_ends_in_one_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, signs: list[signal.Signals], drops: bool
) -> None:
    """An interrupted run ends with one sentence; the windows committed before stay.

    No row of the current window is visible. A second signal changes nothing. Python drops an
    exception in a callback of its garbage collector; then the next commit raises it again.
    """
    run = LocalEngine.run

    def interrupted(engine: LocalEngine, *arguments: Any) -> Any:
        staged = list(run(engine, *arguments))
        with suppress(*([Interrupted] if drops else [])):
            os.kill(os.getpid(), signs[0])
        for second in signs[1:]:
            os.kill(os.getpid(), second)
        return iter(staged)

    stage.json("run", stage.spec, "--window", hour(0))
    monkeypatch.setattr(LocalEngine, "run", interrupted)
    result = stage.call("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}", "--json")
    assert result.exit_code == INTERRUPTED == 130
    assert "Interrupted. " in result.stderr
    assert "Traceback" not in result.output
    document = json.loads(result.stdout)
    assert (document["error"]["kind"], document["error"]["exit_code"]) == ("Interrupted", 130)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in document["windows"]] == [
        hour(0)
    ]


@pytest.mark.usefixtures("handlers")
def test_the_next_run_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt right before the commit, the same command commits the window."""

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("windrow.ingest.runner.run_windows.refuse_too_many_dead", interrupt)
        assert stage.call("run", stage.spec, "--window", hour(0)).exit_code == 130
    assert stage.json("show", stage.spec)["windows"] == []
    assert [
        w["recovered"] for w in stage.json("run", stage.spec, "--window", hour(0))["windows"]
    ] == [False]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_after_a_command_interrupts_are_as_before(stage: Stage) -> None:
    """After a command, the caller's signal handlers are restored."""
    previous_handlers = [signal.getsignal(sign) for sign in SIGNS]
    stage.json("show", stage.spec)
    assert [signal.getsignal(sign) for sign in SIGNS] == previous_handlers


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(("sign", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_spark_goes_with_it(
    tmp_path: Path, sign: signal.Signals, send: Callable[[int, int], None]
) -> None:
    """Ctrl-C or SIGTERM ends the JVM and the workers, without a stack trace.

    Ctrl-C reaches every process of the terminal's group, SIGTERM the command only. Temporary
    files are removed.
    """
    begun, files = tmp_path / "begun", tmp_path / "files"
    begun.mkdir()
    files.mkdir()
    command = [sys.executable, "-c", RUN, str(begun)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(files), "SPARK_LOCAL_DIRS": str(files)},
    ) as process:
        children: list[psutil.Process] = []
        try:
            deadline = time.monotonic() + LIMIT
            while not list(begun.iterdir()):
                assert process.poll() is None, process.communicate(timeout=60)
                assert time.monotonic() < deadline, "no task has begun"
                time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
            send(process.pid, sign)
            output = "".join(process.communicate(timeout=LIMIT))
            ended_processes, alive = psutil.wait_procs(children, timeout=60)
        finally:
            for survivor in (
                [*children, psutil.Process(process.pid)] if process.poll() is None else children
            ):
                if survivor.is_running():
                    survivor.kill()
    assert process.returncode == 130, output
    assert "Interrupted. " in output
    assert "Traceback" not in output
    assert "ERROR" not in output
    assert len(ended_processes) > 1  # the JVM and its workers
    assert alive == []
    assert list(files.iterdir()) == []
