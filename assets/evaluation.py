"""What a check says, in the events that Dagster makes of it, but made here.

Of an `AssetCheckResult` Dagster itself makes them, and looks up which materialization
was checked: in a run over a range of partitions it lists all partitions of the table
for that, once per check (in 1.13; 5 s on a grid of five minutes that is ten months
long). Without that look-up it goes by the time of the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from windrow.assets.metadata import Value
from windrow.assets.names import table_key
from windrow.ingest.config.pipeline import PipelineSpec


def evaluated(
    spec: PipelineSpec,
    name: str,
    passed: bool,
    why: str,
    metadata: Mapping[str, Value],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> Iterator[Any]:
    """The events of a check of a pipeline's table, for the check's function to yield.

    `why`: a sentence, in Markdown: what was found, and what to do. It is the
    evaluation's description, and where it didn't pass the first of its metadata too,
    for not every page shows the description.
    """
    shown = metadata if passed else {"why": dg.MetadataValue.md(why), **metadata}
    yield dg.Output(None)
    yield dg.AssetCheckEvaluation(
        table_key(spec), name, passed, shown, severity=severity, description=why, blocking=False
    )
