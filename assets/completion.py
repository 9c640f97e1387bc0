"""Windows whose hours are over everywhere.

`ingest.source.enumerator.completeness` over what a pipeline's ledger holds of its newest windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.ingest.config.window import in_time
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.completeness import Completeness, judge


def judged(pipeline: Pipeline, newest: int, more: Sequence[Receipt] = ()) -> Completeness:
    """The state of the newest committed windows, and of those in `more`.

    The watermark is None also where it lies before the oldest of these boundaries: then
    none of these windows is complete either.

    Raises:
        GridError: the pipeline has micro-batches, which have no hours.
        UnreachableError: the ledger, or the cluster, which is asked for whether it
            stamps messages itself.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    boundaries = ledger.newest(spec.id, newest + 1)
    receipts = {r.window: r for r in (*newest_recorded(pipeline, newest), *more)}
    names = sorted({seen.topic for boundary in boundaries[-1:] for seen in boundary.topics})
    stamped = frozenset(
        name for name, info in pipeline.broker.topics(names).items() if info.append_time
    )
    return judge(boundaries, list(receipts.values()), stamped, in_time(spec.window).idle)


def newest_recorded(pipeline: Pipeline, newest: int) -> list[Receipt]:
    """The ledger's copies of the receipts of the newest windows, in window order."""
    return pipeline.ledger.recorded(pipeline.spec.id, newest)
