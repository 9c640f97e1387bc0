"""The cost of pipelines for a Dagster code location: its load and its snapshot.

The snapshot is what the location sends to the webserver.

    python -m tests.bench.pipelines [--pipelines 200]

Each pipeline has a defs.yaml and a schema.py. A location is loaded in its own process.
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
from pathlib import Path

import dagster as dg

# These names aren't public. Dagster is pinned to 1.13.
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

FEW = 20
MOST_SNAPSHOT_SECONDS, MOST_SNAPSHOT_MB = 8.0, 40.0
"""The limits for a location of 200 pipelines."""

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


def write_location(folder: Path, pipelines: int) -> None:
    """Writes the package `location` with this number of pipelines."""
    for n in range(pipelines):
        pipeline = folder / "location" / f"p{n}"
        pipeline.mkdir(parents=True)
        (pipeline / "defs.yaml").write_text(DEFS.format(name=f"p{n}"))
        (pipeline / "schema.py").write_text(SCHEMA)
    (folder / "location" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text("[tool.dg]\n")


def measure(folder: Path) -> None:
    """Prints CPU seconds of loading and of the snapshot, its MB, and the process's peak in MB."""
    import windrow.dagster  # not part of what is measured  # noqa: F401

    sys.path.insert(0, str(folder))
    began = time.process_time()
    loaded = dg.load_defs(importlib.import_module("location"), project_root=folder)
    repository = loaded.get_repository_def()
    defined = time.process_time()
    snapshot = serialize_value(RepositorySnap.from_def(repository))
    seconds = defined - began, time.process_time() - defined
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(*seconds, len(snapshot) / 2**20, peak)


def measure_location(pipelines: int) -> list[float]:
    """Returns the figures that `measure` prints for a location with this number of pipelines."""
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        write_location(Path(folder), pipelines)
        command = [sys.executable, "-m", "tests.bench.pipelines", "--one", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return [float(word) for word in done.stdout.split()]


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
    few_figures, many_figures = measure_location(FEW), measure_location(options.pipelines)
    print(f"{'pipelines in a code location':40} {FEW:>9} {options.pipelines:>9}")
    for label, less, more in zip(
        ("loading, CPU s", "the snapshot, CPU s", "the snapshot, MB", "the process's peak, MB"),
        few_figures,
        many_figures,
        strict=True,
    ):
        print(f"{label:40} {less:>9.1f} {more:>9.1f}")
    if many_figures[1] > MOST_SNAPSHOT_SECONDS or many_figures[2] > MOST_SNAPSHOT_MB:
        sys.exit(f"limit: {MOST_SNAPSHOT_SECONDS:g} CPU s and {MOST_SNAPSHOT_MB:g} MB a snapshot")


if __name__ == "__main__":
    main()
