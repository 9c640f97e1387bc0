"""Drivers on a cluster, or clients of a Spark Connect server, in processes that a test may stop
and kill.

Each has one session, and runs windows on it one after the other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tests.integration.harness import PipelineSetup
from windrow.ingest.assemble import assemble
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark.cluster import spark_context
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine

ROOT = Path(__file__).parents[3]
LIMIT = 240
"""Maximum seconds for a window, and for the end of a driver."""


class Order(msgspec.Struct, frozen=True):
    """An order to run the n-th hour of a topic, with WINDROW_CRASH set in the driver."""

    bootstrap: str
    topic: str
    folder: str
    over: Mapping[str, Any]
    hour: int
    crash: str


class Answer(msgspec.Struct, frozen=True):
    """A driver's answer to an order.

    Attributes:
        recovered: `recovered` of the result; None for an error.
        code: exit code of the error; 0 for a result.
        text: text of the error.
    """

    recovered: bool | None = None
    code: int = 0
    text: str = ""


class Driver:
    """A driver in another process."""

    def __init__(self, master: str, words: Mapping[str, str], folder: Path) -> None:
        """Starts the process.

        Args:
            master: address of a master, or of a Spark Connect server.
            words: Spark's properties for the session; empty for a server.
            folder: folder for its log.
        """
        command = [
            sys.executable,
            "-m",
            "tests.runner.spark.drivers",
            master,
            json.dumps(dict(words)),
        ]
        with (folder / "driver.log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def process(self) -> psutil.Process:
        """Its Python process."""
        return psutil.Process(self._process.pid)

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def begin(self, setup: PipelineSetup, hour: int = 1, crash: str = "") -> None:
        """Orders a window."""
        assert self._process.stdin is not None
        order = Order(setup.bootstrap, setup.topic, str(setup.folder), setup.overrides, hour, crash)
        self._process.stdin.write(to_json(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """Waits for the answer to the last order."""
        out = self._process.stdout
        assert out is not None
        assert select.select([out], [], [], LIMIT)[0], "the driver didn't answer"
        line = out.readline()
        assert line, "the driver ended"
        return from_json(line, Answer)

    def runs(self, setup: PipelineSetup, hour: int = 1) -> Answer:
        """Orders a window, and waits for the answer."""
        self.begin(setup, hour)
        return self.answer()

    def dies(self) -> None:
        """Waits until the process has killed itself."""
        assert self._process.wait(LIMIT) == -signal.SIGKILL
        self.close()

    def close(self) -> None:
        """Kills the process, also if it is stopped.

        Its Java and its executors end when they notice.
        """
        self._process.kill()
        self._process.wait(LIMIT)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main() -> None:
    """Runs the driver: orders come on standard input, and only answers go to standard output."""
    master, words = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Java writes there, too
    served = master.startswith("sc://")
    engine = (
        SparkEngine(ConnectedSpark(master).session)
        if served
        else SparkEngine(lambda: spark_context(master, words))
    )
    for line in sys.stdin:
        answers.write(to_json(_done(from_json(line, Order), engine)) + "\n")
        answers.flush()


def _done(order: Order, engine: Any) -> Answer:
    os.environ["WINDROW_CRASH"] = order.crash
    setup = PipelineSetup(order.bootstrap, order.topic, Path(order.folder), order.over)
    try:
        return Answer(
            run(assemble(setup.spec(), engine), setup.window(order.hour), Request("test")).recovered
        )
    except WindrowError as failed:
        return Answer(code=failed.exit_code, text=str(failed))


if __name__ == "__main__":
    main()
