"""The code location of the demo: every pipeline in `assets/defs/`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Returns the definitions of all pipelines.

    Steps run in the process of the run. Spark takes seconds to start, and each process of a
    step would start its own.
    """
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        dg.Definitions(executor=dg.in_process_executor),
    )
