"""Drivers on a cluster, or clients of a Spark Connect server, in processes that a test
may stop and kill.

Each runs windows on its one session, one after the other.
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

from tests.integration.harness import Place
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
"""Seconds in which a window is run, and in which a driver has ended."""


class Order(msgspec.Struct, frozen=True):
    """To run the n-th hour of a place, with WINDROW_CRASH set in the driver."""

    bootstrap: str
    topic: str
    folder: str
    over: Mapping[str, Any]
    hour: int
    crash: str


class Answer(msgspec.Struct, frozen=True):
    """What came of it: `recovered` of a result; of an error its exit code and text."""

    recovered: bool | None = None
    code: int = 0
    text: str = ""


class Driver:
    """One process.

    `words`: Spark's properties for its session, which one on a server has none of.
    """

    def __init__(self, master: str, words: Mapping[str, str], folder: Path) -> None:
        """`master`: a server's address is one, too.

        `folder`: where it writes what it has to say.
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
        """Its Python."""
        return psutil.Process(self._process.pid)

    @property
    def ended(self) -> bool:
        """Returns whether it is gone."""
        return self._process.poll() is not None

    def begin(self, setup: Place, hour: int = 1, crash: str = "") -> None:
        """Have it run a window."""
        assert self._process.stdin is not None
        order = Order(setup.bootstrap, setup.topic, str(setup.folder), setup.over, hour, crash)
        self._process.stdin.write(to_json(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """What came of the run that was begun."""
        out = self._process.stdout
        assert out is not None
        assert select.select([out], [], [], LIMIT)[0], "the driver didn't answer"
        line = out.readline()
        assert line, "the driver ended"
        return from_json(line, Answer)

    def runs(self, setup: Place, hour: int = 1) -> Answer:
        """A window from its begin to its end."""
        self.begin(setup, hour)
        return self.answer()

    def dies(self) -> None:
        """Return once it has killed itself."""
        assert self._process.wait(LIMIT) == -signal.SIGKILL
        self.close()

    def close(self) -> None:
        """End it, also where it is stopped; its Java, and with that its executors, end
        when they find it gone.
        """
        self._process.kill()
        self._process.wait(LIMIT)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main() -> None:
    """The driver: orders come on standard input, answers go to standard output, which
    nobody else writes to.
    """
    master, words = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Java's too
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
    setup = Place(order.bootstrap, order.topic, Path(order.folder), order.over)
    try:
        return Answer(
            run(assemble(setup.spec(), engine), setup.window(order.hour), Request("test")).recovered
        )
    except WindrowError as failed:
        return Answer(code=failed.exit_code, text=str(failed))


if __name__ == "__main__":
    main()
