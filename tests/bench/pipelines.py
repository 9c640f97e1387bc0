"""The cost of pipelines for a Dagster code location, and for a DAG file of Airflow.

Of the location it measures its load, its snapshot, which it sends to the webserver, and a tick of
all its schedules. Of the DAG file, one parse, as Airflow's processor does it, with the DAGs
serialized.

    python -m tests.bench.pipelines [--pipelines 200]

Each pipeline has a defs.yaml and a schema.py; or one defs.yaml makes all of them, by `for_each`.
A location is loaded in its own process.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

# These names aren't public. Dagster is pinned to 1.13.
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from tests.airflow.world import PLACE, environment, install

FEW = 20
MOST_LOADING_SECONDS, MOST_LOADING_MB = 10.0, 60.0
MOST_SNAPSHOT_SECONDS, MOST_SNAPSHOT_MB = 8.0, 40.0
MOST_TICK_SECONDS, MOST_PARSING_SECONDS = 15.0, 15.0
"""The limits for a location of 200 pipelines of one file; MB of loading beside those of `FEW`."""

DEFS = """\
type: windrow.dagster.KafkaTable
attributes:
  id: {name}
  source: {{bootstrap_servers: "127.0.0.1:9", topic: {name}}}
  window: {{grid: hourly, start: "2026-01-05T00:00:00Z"}}
  decode: {{schema: "schema.py:Row"}}
  sink: {{path: ./data}}
"""
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Row(pa.DataFrameModel):
    id: pl.Int64 = pa.Field(ge=0)
    name: pl.String = pa.Field(nullable=True)
"""


OF_ONE_FILE = """\
type: windrow.dagster.KafkaTable
attributes:
  for_each: {{topic_pattern: "(p.*)", topics: [{topics}]}}
  id: "{{name}}"
  source: {{bootstrap_servers: "127.0.0.1:9"}}
  window: {{grid: hourly, start: "2026-01-05T00:00:00Z"}}
  decode: {{schema: "{{name}}.py:Row"}}
  sink: {{path: "./data/{{name}}"}}
"""


def write_location(folder: Path, pipelines: int, *, of_one_file: bool = False) -> None:
    """Writes the package `location` with this number of pipelines."""
    if of_one_file:
        (folder / "location" / "all").mkdir(parents=True)
        names = [f"p{n}" for n in range(pipelines)]
        text = OF_ONE_FILE.format(topics=", ".join(names))
        (folder / "location" / "all" / "defs.yaml").write_text(text)
        for name in names:
            (folder / "location" / "all" / f"{name}.py").write_text(SCHEMA)
    for n in range(0 if of_one_file else pipelines):
        pipeline = folder / "location" / f"p{n}"
        pipeline.mkdir(parents=True)
        (pipeline / "defs.yaml").write_text(DEFS.format(name=f"p{n}"))
        (pipeline / "schema.py").write_text(SCHEMA)
    (folder / "location" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text("[tool.dg]\n")


def measure(folder: Path) -> None:
    """Prints CPU seconds and MB of loading and of the snapshot, and the process's peak in MB."""
    import windrow.dagster  # not part of what is measured  # noqa: F401

    sys.path.insert(0, str(folder))
    began, before = time.process_time(), _peak()
    loaded = dg.load_defs(importlib.import_module("location"), project_root=folder)
    repository = loaded.get_repository_def()
    defined, loading = time.process_time(), _peak() - before
    snapshot = serialize_value(RepositorySnap.from_def(repository))
    seconds = defined - began, time.process_time() - defined
    print(seconds[0], loading, seconds[1], len(snapshot) / 2**20, _tick(repository), _peak())


def _tick(repository: dg.RepositoryDefinition) -> float:
    """Returns the CPU seconds of evaluating the schedules of all windows, as a code server does."""
    with dg.instance_for_test() as instance:
        began, resources = time.process_time(), repository.get_top_level_resources()
        for schedule in repository.schedule_defs:
            if schedule.name.endswith("_closed"):
                with dg.build_schedule_context(
                    instance=instance,
                    repository_def=repository,
                    resources={key: resources[key] for key in schedule.required_resource_keys},
                    scheduled_execution_time=datetime.now(UTC),
                ) as context:
                    assert schedule.evaluate_tick(context).run_requests
        return time.process_time() - began


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure_location(pipelines: int, *, of_one_file: bool = False) -> list[float]:
    """Returns the figures that `measure` prints for a location with this number of pipelines."""
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        write_location(Path(folder), pipelines, of_one_file=of_one_file)
        command = [sys.executable, "-m", "tests.bench.pipelines", "--one", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return [float(word) for word in done.stdout.split()]


AIRFLOW = """\
import sys, time
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import LazyDeserializedDAG

began = time.process_time()
bag = DagBag(sys.argv[1])
sizes = [len(str(LazyDeserializedDAG.from_dag(dag).data)) for dag in bag.dags.values()]
assert not bag.import_errors, bag.import_errors
print(time.process_time() - began, len(sizes))
"""


def measure_airflow(pipelines: int) -> float:
    """Returns the CPU seconds in which Airflow parses a DAG file of this number of pipelines."""
    install()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        write_location(Path(folder), pipelines, of_one_file=True)
        environ = environment(Path(folder))
        dags = f"from windrow_airflow import dags_from\n\nglobals().update(dags_from({folder!r}))\n"
        (Path(folder) / "dags" / "all.py").write_text(dags)
        command = [PLACE / "bin" / "python", "-c", AIRFLOW, f"{folder}/dags/all.py"]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=600, env=environ
        )
    seconds, dag_count = done.stdout.splitlines()[-1].split()
    assert int(dag_count) == pipelines, done.stdout
    return float(seconds)


def main() -> None:
    """Measures and prints; exits with 1 if a limit is broken."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        measure(options.one)
        return
    columns = [
        measure_location(FEW),
        measure_location(options.pipelines),
        measure_location(options.pipelines, of_one_file=True),
    ]
    heads = [f"{FEW}", f"{options.pipelines}", f"{options.pipelines} of one file"]
    print(f"{'pipelines in a code location':30}" + "".join(f"{head:>17}" for head in heads))
    labels = (
        *("loading, CPU s", "loading, MB", "the snapshot, CPU s", "the snapshot, MB"),
        *("a tick of all schedules, CPU s", "the process's peak, MB"),
    )
    for label, *figures in zip(labels, *columns, strict=True):
        print(f"{label:30}" + "".join(f"{figure:>17.1f}" for figure in figures))
    parsing = measure_airflow(options.pipelines)
    print(f"{'a parse in Airflow, CPU s':30}{parsing:>{17 * len(columns)}.1f}")
    loading, megabytes, *others, _ = columns[-1]
    figures = loading, megabytes - columns[0][1], *others, parsing
    limits = (
        MOST_LOADING_SECONDS,
        MOST_LOADING_MB,
        MOST_SNAPSHOT_SECONDS,
        MOST_SNAPSHOT_MB,
        MOST_TICK_SECONDS,
        MOST_PARSING_SECONDS,
    )
    if any(figure > limit for figure, limit in zip(figures, limits, strict=True)):
        sys.exit(
            f"limits of one file: {limits[0]:g} CPU s and {limits[1]:g} MB more to load,"
            f" {limits[2]:g} CPU s and {limits[3]:g} MB a snapshot, {limits[4]:g} CPU s a tick,"
            f" {limits[5]:g} CPU s a parse in Airflow"
        )


if __name__ == "__main__":
    main()
