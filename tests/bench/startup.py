"""The time until Spark's first task begins, and the time of the command for a small window.

    python -m tests.bench.startup [ROUNDS]

Spark belongs to the run, with and without Java's class archive, or is already running. `make
setup` makes the archive. The time begins where a run asks for its task. Each run has its own
process, so the load of Spark's client counts. The ways alternate. A server (`windrow spark
run`) has a first client, whose workers are new, and a next client, whose workers are warm. Each
client has later runs.

A window of the command has 3,600 messages on the embedded broker, and goes into a Delta table.
The command is timed from its start to its end. A fresh machine has windrow and its packages as
pip installs them, with their bytecode, but without the files of `windrow prepare`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import yaml

import windrow.ingest
from tests.bench import windows
from tests.runner.spark.servers import serving
from tests.runner.spark.tasks import staged
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.spark.local import JAVA, MASTER, archive_options

ROUNDS = 5
COLD = {"archive": "a Spark of its own", "plain": "the same, without an archive"}
WARM = ("a server's first client", "a server's next client", "its later runs")
SPLITS = [Split("t", partition, 0, 1) for partition in range(2)]


class Begins:
    """A task that says when it was called, in seconds of a clock that all processes share."""

    def __call__(self, split: Split) -> Staged:
        """Returns a staged result with the current time."""
        return staged(split, str(time.monotonic()))


def measure(connection: str) -> None:
    """Prints the seconds from a run's begin to its first task, for several runs.

    The process is new.

    Args:
        connection: a key of `COLD`, or a Connect server's address.
    """
    begun = time.monotonic()
    from windrow.ingest.runner.spark.engine import SparkEngine

    if connection in COLD:
        from windrow.ingest.runner.spark.cluster import spark_context

        more = {} if connection == "archive" else {"spark.driver.extraJavaOptions": JAVA}
        print(
            json.dumps(
                [_until_first(SparkEngine(lambda: spark_context("local[2,4]", more)), begun)]
            )
        )
        return
    from windrow.ingest.runner.spark.connect import ConnectedSpark

    with closing(ConnectedSpark(connection)) as spark:
        engine = SparkEngine(spark.session)
        first = _until_first(engine, begun)
        print(
            json.dumps(
                [
                    first,
                    *(_until_first(engine, time.monotonic()) for _ in range(3)),
                ]
            )
        )


def _until_first(engine: object, begun: float) -> float:
    return min(float(result.rows[0]) for result in engine.run(Begins(), SPLITS)) - begun  # type: ignore[attr-defined]


def _measure_apart(connection: str) -> list[float]:
    command = [sys.executable, "-m", "tests.bench.startup", connection]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def commands(rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of `windrow run` for each way to run its window."""
    seconds_by_name: dict[str, list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka", find_jars()) as broker,
    ):
        windows.fill(broker.bootstrap, 240 * rounds, 60, 4)
        folder, bytecode = Path(scratch), Path(scratch) / "bytecode"
        run = _runs(folder, broker.bootstrap)
        for n in range(rounds):
            seconds_by_name["a Spark of its own"].append(run(4 * n))
            seconds_by_name["committed already"].append(run(4 * n))
            with serving("--master", "local[2,4]") as (address, _):
                seconds_by_name["a server's first window"].append(
                    run(4 * n + 1, "--connect", address)
                )
                seconds_by_name["a server's next window"].append(
                    run(4 * n + 2, "--connect", address)
                )
            with fresh_machine(bytecode) as fresh:
                plain = f"spark.driver.extraJavaOptions={JAVA}"  # without the archive
                without = "--master", MASTER, "--conf", plain
                seconds_by_name["on a fresh machine"].append(
                    run(4 * n + 3, *without, environment=fresh)
                )
            with fresh_machine(bytecode) as fresh:
                begun = "infer", windows.TOPIC, f"{folder}/{n}", "--bootstrap", broker.bootstrap
                seconds_by_name["`infer` on a fresh machine"].append(
                    command(*begun, environment=fresh)
                )
    return seconds_by_name


@contextmanager
def fresh_machine(bytecode: Path) -> Iterator[dict[str, str]]:
    """Yields the environment of a machine without windrow's machine code.

    A process compiles the code meanwhile. It is awaited at the end.

    Args:
        bytecode: the folder of the packages' bytecode, which the first call makes.
    """
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    if not bytecode.exists():
        places = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
        places.add(windrow.ingest.__path__[0])
        compiling = [sys.executable, "-m", "compileall", "-q", "-j", "0", *sorted(places)]
        subprocess.run(compiling, env=environment, capture_output=True, check=False, timeout=900)
    yield environment
    making = (
        "from windrow.ingest.formats.json.layout import PASS;"
        " from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE;"
        " PASS.keep(); ENTRIES_CODE.keep()"
    )
    subprocess.run([sys.executable, "-c", making], env=environment, check=True, timeout=300)
    for code_file in [*bytecode.rglob("compiled/*/*.code")]:
        shutil.rmtree(code_file.parent, ignore_errors=True)


def _runs(folder: Path, bootstrap: str) -> Callable[..., float]:
    """Returns a function that runs an hour of the topic with options, and returns its seconds."""
    spec = folder / "orders.yaml"
    written = windows.attributes_in(folder / "pipeline", bootstrap, "hourly")
    written["decode"] = {"schema": f"{windows.HERE}/orders_schema.py:Order"}
    spec.write_text(yaml.safe_dump(written))

    def run(hour: int, *more: str, environment: dict[str, str] | None = None) -> float:
        key = (windows.FIRST + timedelta(hours=hour)).isoformat()
        return command("run", str(spec), "--window", key, *more, environment=environment)

    return run


def command(*words: str, environment: dict[str, str] | None = None) -> float:
    """Returns the seconds of `windrow`, by default in this process's environment."""
    began, nothing = time.monotonic(), subprocess.DEVNULL
    subprocess.run(  # No pipes: Java inherits them and ends after the command.
        [sys.executable, "-m", "windrow.ingest.cli.main", *words],
        env=environment,
        check=True,
        stdout=nothing,
        stderr=nothing,
        timeout=300,
    )
    return time.monotonic() - began


def main(rounds: int) -> None:
    """Prints a line for each way.

    It has the median, the least, the greatest, and the ratio to a Spark of the run's own.
    """
    assert archive_options(), "no archive: type `windrow prepare`"
    seconds_by_name: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for connection, name in COLD.items():
            seconds_by_name[name] += _measure_apart(connection)
        with serving("--master", "local[2,4]") as (address, _):
            for name in WARM[:2]:
                first, *later = _measure_apart(address)
                seconds_by_name[name].append(first)
                seconds_by_name[WARM[2]] += later
    cold = statistics.median(seconds_by_name[COLD["archive"]])
    print(
        "seconds until the first task begins: median (least to most), and beside a Spark of the"
        " run's own"
    )
    for name, seconds in seconds_by_name.items():
        middle = statistics.median(seconds)
        print(
            f"{name:30} {middle:5.2f} ({min(seconds):.2f} to {max(seconds):.2f}) "
            f" {middle / cold:.2f}"
        )
    print("\nseconds of `windrow run` for a window of 3,600 messages: median (least to most)")
    for name, seconds in commands(rounds).items():
        print(
            f"{name:30} {statistics.median(seconds):5.2f}"
            f" ({min(seconds):.2f} to {max(seconds):.2f})"
        )


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        measure(sys.argv[1])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
