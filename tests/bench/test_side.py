"""A side that didn't do its job has failed. Its cost is measured from outside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.bench.harness.meter import Meter
from tests.bench.harness.side import FailedError, Program

READY = "import json, sys\nprint('{\"ready\": true}', flush=True)\n"
ANSWERS = (
    READY + "for line in sys.stdin:\n    print(json.dumps({'rows': json.loads(line)['rows']}),"
    " flush=True)\n"
)
WORKS = (
    READY + "import subprocess\n"
    "for line in sys.stdin:\n"
    "    subprocess.run([sys.executable, '-c', 'x = bytes(80_000_000); sum(range(3_000_000))'])\n"
    "    print('noise', flush=True)\n"
    "    print(json.dumps({'rows': 3, 'seconds': 0.25}), flush=True)\n"
)


def program(text: str, folder: Path) -> Program:
    """Returns a process that runs the text."""
    return Program([sys.executable, "-c", text], folder / "side", {})


def test_fewer_rows_are_a_failure(tmp_path: Path) -> None:
    """A side that reads or writes too few rows has failed, because leaving rows out isn't fast."""
    with program(ANSWERS, tmp_path) as side:
        assert side.run({"rows": 3}, 3).rows == 3
        with pytest.raises(FailedError, match="read 2 of 3 messages"):
            side.run({"rows": 2}, 3)
        with pytest.raises(FailedError, match="wrote 0 of 3 rows"):
            side.run({"rows": 3}, 3, expected=3, written=lambda: 0)


def test_who_ends_says_why(tmp_path: Path) -> None:
    """A side that ends has failed. The failure has the last lines of its log."""
    with pytest.raises(FailedError, match=r"ended; its log ends with:\n(.|\n)*no such jar"):
        program("raise SystemExit('no such jar')", tmp_path)
    with program(
        READY + "sys.stdin.readline()\nraise SystemExit('out of memory')", tmp_path
    ) as side:
        with pytest.raises(FailedError, match="out of memory"):
            side.run({}, 1)
        with pytest.raises(FailedError, match="ended"):
            side.run({}, 1)


def test_what_children_cost_counts(tmp_path: Path) -> None:
    """The CPU seconds and the memory of ended children count.

    A program's own seconds replace the measured time.
    """
    with program(WORKS, tmp_path) as side:
        run = side.run({}, 3)
    assert run.seconds == 0.25
    assert run.cpu_seconds > 0
    assert run.peaks["process"] > 0
    assert run.together_mb > 0


@pytest.mark.spark
def test_a_worker_of_spark_is_told_from_its_driver(spark: SparkSession) -> None:
    """A Python process that Spark started for a task is a worker: limits are set on its memory."""
    with Meter(os.getpid()) as meter:
        spark.sparkContext.parallelize([1], 1).map(str).collect()
    assert {"Java", "process", "worker"} <= meter.peaks.keys()
