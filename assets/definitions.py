"""The code location: every pipeline under `assets/defs/`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All pipelines.

    Steps run in the run's own process: Spark takes seconds to start, and each process
    would start its own.
    """
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        dg.Definitions(executor=dg.in_process_executor),
    )
