"""Table of all kinds of transform steps, one line each."""

from __future__ import annotations

from typing import Annotated

from windrow.ingest.settings.kinds import OfItsOption, Plugins
from windrow.ingest.transform.kind import StepSection

STEPS = {
    "sql": "windrow.ingest.transform.sql.kind:SqlSection",
    "python": "windrow.ingest.transform.python.kind:PythonSection",
    "lookup": "windrow.ingest.transform.lookup.kind:LookupStepSection",
    "spark": "windrow.ingest.transform.spark.kind:SparkSection",
}

StepOfItsKind = Annotated[
    StepSection,
    OfItsOption(kinds=STEPS, plugins=Plugins("windrow.steps", STEPS, StepSection, ("transform",))),
]
"""One step of a spec's `transform.steps`."""
